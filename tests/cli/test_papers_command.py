"""``lyceum papers``: by name, title or word, by state, as JSON; nothing found is said in a line."""

import json
import subprocess
import sys

from lyceum.cli import main


def test_a_paper_is_found_by_its_name_with_what_its_recipe_does_not_do(capsys):
    assert main(["papers", "scaf-grpo"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "https://arxiv.org/abs/2510.19807" in out
    assert "lyceum train scaf-grpo; not as its paper: tasks are not filtered" in out


def test_words_and_state_select_rows(capsys):
    assert main(["papers", "diffusion", "--state", "planned", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows
    assert {row["state"] for row in rows} == {"planned"}
    assert all("diffusion" in row["missing"] for row in rows)


def test_what_a_paper_was_made_after_and_what_was_shown_are_said_and_select_rows(capsys):
    assert main(["papers", "deepsearch"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert (
        "made after: the authors' code, or a fork of it, beside what could be read of the paper (smiles724/DeepSearch);"
        in out
    )
    assert main(["papers", "--after", "code", "--shown", "gain", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows
    assert all(row["after"] == "code" and row["shown"] == "gain" and row["table"] and row["results"] for row in rows)
    assert main(["papers", "prime", "--after", "code", "--json"]) == 0  # a paper without a row
    assert [row["code"] for row in json.loads(capsys.readouterr().out) if row["id"] == "prime"] == ["PRIME-RL/PRIME"]
    assert main(["papers", "--shown", "gian"]) == 2
    assert "--shown: got 'gian' (did you mean 'gain'?); allowed: mechanism, gain" in capsys.readouterr().err


def test_a_recipe_that_is_shown_begins_with_what_it_was_made_after(capsys):
    assert main(["recipes", "show", "salt"]) == 0
    assert capsys.readouterr().out.startswith(
        "# Made after the abstract alone. Shown: that its mechanism acts, and no gain.\n"
    )
    assert main(["recipes", "show", "calculator"]) == 0
    assert capsys.readouterr().out.startswith("# Title")


def test_all_papers_are_listed_and_counted(capsys):
    assert main(["papers"]) == 0
    assert "271 papers: " in capsys.readouterr().out.splitlines()[-1]


def test_a_method_whose_paper_is_not_on_the_list_is_found_too_and_counted_apart(capsys):
    assert main(["papers", "kto"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "Model Alignment as Prospect Theoretic Optimization, https://arxiv.org/abs/2402.01306" in out
    assert "lyceum train kto; not as its paper: labels are the verifier's" in out
    assert main(["papers", "dapo"]) == 0
    assert "; and 1 more that recipes follow" in capsys.readouterr().out.splitlines()[-1]
    assert main(["papers", "dapo", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["recipes"] == ["dapo"]


def test_a_paper_is_found_however_its_name_is_written(capsys):
    for written in ("Dr. GRPO", "dr-grpo", "DR GRPO", "2503.20783"):
        assert main(["papers", written]) == 0
        assert "lyceum train dr-grpo" in capsys.readouterr().out
    assert main(["papers", "scaf grpo"]) == 0
    assert "2510.19807" in capsys.readouterr().out


def test_nothing_found_is_said_with_the_nearest_name(capsys):
    assert main(["papers", "treeppo"]) == 0
    out = capsys.readouterr().out
    assert "no paper contains 'treeppo' (did you mean 'treepo'?)" in out
    assert main(["papers", "treeppo", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_an_unknown_state_is_refused(capsys):
    assert main(["papers", "--state", "workin"]) == 2
    assert (
        "--state: got 'workin' (did you mean 'works'?); allowed: works, mechanism only, part" in capsys.readouterr().err
    )


def test_papers_are_listed_without_torch():
    code = "import sys; from lyceum.cli import main; main(['papers', 'grpo', '--json']); print('torch' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines()[-1] == "False"

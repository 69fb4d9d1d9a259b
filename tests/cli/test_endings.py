"""How commands end: with exit code 0 only where something was reached, and with nothing on the way that is not text."""

from __future__ import annotations

import json
import logging
import re
import shlex
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import tiny_rewards  # noqa: F401, its kind is asked for below

from lyceum.analysis.tables import held_out_table
from lyceum.cli import main
from lyceum.cli.output import Output

pytestmark = pytest.mark.usefixtures("small_scratch")

COMMAND = f"{shlex.quote(sys.executable)} -c 'from lyceum.cli import main; import sys; sys.exit(main())'"
TINY = [
    *("steps=1", "tasks_per_step=2", "rollout.samples=2", "rollout.sampling.max_completion_tokens=8", "model=scratch"),
    *("evaluate.n=2", "evaluate.samples=2", "evaluate.k=[1,2]", "evaluate.greedy=false"),
]
HOSTILE = "\x1b]0;title\x07 [/b]"


@pytest.fixture(autouse=True)
def here(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def shell(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)


def reward(text: str) -> str:
    """The key of a reward whose file has this text; it runs in this process, which starts in no time."""
    with open("mine.py", "w") as file:
        file.write(text)
    return "reward={kind: function, function: mine.py:reward, processes: 0}"


# -- streams ------------------------------------------------------------------------------------------------------


@pytest.mark.engines
def test_training_goes_on_when_nobody_reads_any_more(tmp_path):
    train = f"{COMMAND} train grpo {shlex.join(TINY)} {shlex.quote(reward(DIFFERENT))}"
    done = shell(f"{train} 2>&1 | true")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads((tmp_path / "runs/grpo/summary.json").read_text())["finished"]
    assert (tmp_path / "runs/grpo/report.html").exists()


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("recipes | true", 0, ""),
        ("recipes --json | head -c 1 >/dev/null", 0, ""),
        ("recipes >&-", 0, ""),
        ("recipes 2>&-", 0, ""),
        ("recipes <&- >&- 2>&-", 0, ""),
        ("recipes --json >&-", 0, ""),
        ("recipes 2>/dev/full", 0, ""),
        ("recipes >/dev/full", 1, "standard output could not be written (No space left on device)"),
        ("recipes --json >/dev/full", 1, "standard output could not be written (No space left on device)"),
        ("--help >/dev/full", 1, "standard output could not be written (No space left on device)"),
        ("nonsense 2>&-", 2, ""),
        ("nonsense --json >&-", 2, ""),
    ],
)
def test_streams_that_are_closed_or_full(command, code, said):
    done = shell(f"{COMMAND} {command}")
    assert done.returncode == code
    assert said in done.stderr
    assert done.stderr.count("\n") == bool(said)


def test_a_file_never_gets_the_number_of_a_closed_stream(tmp_path):
    # What is printed, by this process or a child, would stand in the middle of a run's metrics.
    code = (
        "import os, sys; from lyceum.cli.streams import hold; hold(); file = open('file', 'w'); print('printed', "
        "flush=True); os.system('echo of a child; echo of a child >&2'); file.write('whole'); file.close()"
    )
    assert shell(f'{shlex.quote(sys.executable)} -c "{code}" <&- >&- 2>&-').returncode == 0
    assert (tmp_path / "file").read_text() == "whole"


@pytest.mark.parametrize("encoding", ["PYTHONIOENCODING=ascii", "LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0"])
def test_any_encoding_can_show_everything(encoding):
    code = "from lyceum.cli.streams import hold; hold(); print(chr(0x6F22), chr(0xD800))"
    assert shell(f"{encoding} {shlex.quote(sys.executable)} -c '{code}'").stdout == "\\u6f22 \\ud800\n"
    refused = shell(f"{encoding} {COMMAND} recipes $'a\\xff\\xc3\\xbc'")
    assert refused.returncode == 2
    assert "Traceback" not in refused.stderr


# -- plain text ---------------------------------------------------------------------------------------------------


def plain(capsys) -> str:
    text = "".join(capsys.readouterr())
    assert not {"\x1b", "\x07"} & set(text)
    return text


@pytest.mark.parametrize("argv", [[HOSTILE], ["train", HOSTILE], ["train", "grpo", f"--{HOSTILE}"], ["view", HOSTILE]])
def test_what_was_typed_is_said_as_text(argv, capsys):
    assert main(argv) == 2
    assert "\\x1b]0;title" in plain(capsys)


def test_warnings_records_of_libraries_and_tracebacks_are_text(capsys, monkeypatch):
    def noisy(*args, **kwargs):
        warnings.warn(f"one\n{HOSTILE}", UserWarning, stacklevel=2)
        try:
            raise KeyError(HOSTILE)
        except KeyError:
            logging.getLogger("somebody").exception("logged %s", HOSTILE)
        raise ZeroDivisionError(HOSTILE)

    monkeypatch.setattr("lyceum.api.run_recipe", noisy)
    # pytest has handlers of its own: Python's for those who have none is asked here.
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    before = warnings.showwarning, logging.getLogRecordFactory()
    assert main(["train", "grpo", *TINY]) == 1
    text = plain(capsys)
    assert "warning: one \\x1b]0;title\\x07 [/b]\n" in text  # on one line, without the line of code
    assert "logged \\x1b]0;title" in text
    assert "KeyError: '\\x1b]0;title" in text
    assert "ZeroDivisionError: \\x1b]0;title" in text
    assert (warnings.showwarning, logging.getLogRecordFactory()) == before


def test_a_recipe_a_column_and_a_reward_are_shown_as_text(capsys, tmp_path):
    (tmp_path / "mine.yaml").write_text(f"extends: grpo\ntitle: {json.dumps(HOSTILE)}\n")
    rows = [{"prompt": f"{i}+1=", "answer": str(i + 1), "level": HOSTILE} for i in range(8)]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["tasks=data.jsonl", "tasks.heldout_share=0.5", reward("def reward(level):\n    raise ValueError(level)\n")]
    assert main(["train", "mine.yaml", *TINY, *words]) == 3
    text = plain(capsys)
    assert "recipe      \\x1b]0;title [/b]" in text
    assert "ValueError: \\x1b]0;title" in text
    graded = {"mean": 0.5, "low": 0.4, "high": 0.6}
    of = {"overall": graded, "by_level": {"[/b]": graded}, "greedy": None, "tasks": 2}
    Output(False).show(held_out_table(of, of))  # and a level is no markup
    assert "[/b]" in plain(capsys)


# -- nothing learnt -----------------------------------------------------------------------------------------------

DIFFERENT = "def reward(completion):\n    return sum(map(ord, completion)) % 7\n"
BUG = "def reward(completion, answer):\n    return help(answer)\n\ndef help(answer):\n    return answer['x']\n"


def test_a_bug_is_shown_once_with_its_line_its_row_and_an_exit_code_of_its_own(capsys, tmp_path):
    # One step: too few to be stopped for it.
    assert main(["train", "grpo", *TINY, reward(BUG)]) == 3
    err = capsys.readouterr().err
    assert err.count("mine.py:reward(completion='") == 1
    assert "answer='" in err
    assert err.count('mine.py", line 2, in reward\n      return help(answer)') == 1
    assert err.count("mine.py\", line 5, in help\n      return answer['x']") == 1
    assert "lyceum/reward" not in err
    assert "error: nothing was learnt: none of 4 completions could be graded: reward: TypeError" in err
    summary = json.loads((tmp_path / "runs/grpo/summary.json").read_text())
    assert (summary["finished"], summary["learnt"]) == (True, False)
    assert (tmp_path / "runs/grpo/model/config.json").exists()
    assert "finished after 1 steps; nothing was learnt" in (tmp_path / "runs/grpo/report.html").read_text()

    assert main(["train", "grpo", *TINY, reward(BUG), "--name", "second", "--json"]) == 3
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert "phase" in json.loads(err.splitlines()[-1])
    assert document["path"] == "runs/second"
    assert any("line 5, in help" in line for line in document["error"])


def test_a_bug_that_stops_a_run_is_told_in_json_too(capsys):
    assert main(["train", "grpo", *TINY, "steps=9", reward(BUG), "--json"]) == 3
    first, *rest = json.loads(capsys.readouterr().out)["error"]
    assert first.startswith("nothing graded in 3 steps in a row: none of 12 completions could be graded: reward: ")
    assert any("line 5, in help" in line for line in rest)


SAME = "def reward(completion):\n    return 0.5\n"
BY_TASK = "def reward(id):\n    return float(id[-1] in '02468')\n"


@pytest.mark.parametrize(
    ("words", "text", "said"),
    [
        ([], SAME, "every reward was 0.5"),
        (["tasks_per_step=8"], BY_TASK, "rewards were 0 to 1, but the same within each group"),
        # Without a baseline each token is pushed by 0.5: the weights move, and nothing was learnt.
        (["credit=reinforce"], SAME, "every reward was 0.5"),
    ],
)
def test_rewards_that_tell_nothing_apart_end_a_run_with_3(words, text, said, capsys):
    assert main(["train", "grpo", *TINY, *words, reward(text)]) == 3
    out, err = capsys.readouterr()
    assert f"error: nothing was learnt: {said}; needed: " in err
    assert ("runs/grpo/model is the unchanged initial model" in err) == (words != ["credit=reinforce"])
    assert "runs/grpo/report.html" in out


def test_groups_dropped_for_want_of_a_verdict_beside_others_that_are_kept_are_told_once(capsys):
    # 0 or 1 for tasks of even number: verdicts; -1 or 1 for the others: none. Each group has both of its rewards.
    some = "calls = {}\ndef reward(id):\n    calls[id] = 1 - calls.get(id, 0)\n"
    some += "    return calls[id] - (1 - calls[id]) * (int(id[-1]) % 2)\n"
    words = ["tasks_per_step=8", "rollout.samples=2", "collect={keep: partly-solved, max_waves: 1}", "evaluate.n=0"]
    assert main(["train", "grpo", *TINY, *words, "steps=2", reward(some)]) == 0
    err = capsys.readouterr().err
    [told] = re.findall(r"(\d) of the step's 8 groups are dropped though their rewards differ: nothing says which", err)
    lines = [json.loads(line) for line in Path("runs/grpo/metrics.jsonl").read_text().splitlines()]
    assert lines[0]["groups_unjudged"] == int(told) == lines[0]["groups_dropped"] == 8 - lines[0]["groups"]
    assert "reward.correct_at=VALUE" in err


def test_one_step_of_many_that_teaches_is_enough_and_what_does_not_is_said_early_and_once(capsys):
    # 4 completions a step and 4 before training: the seventh step's differ.
    late = "calls = 0\ndef reward(completion):\n    global calls\n    calls += 1\n    return float(calls == 31)\n"
    words = ["train", "grpo", *TINY, "steps=7", reward(late)]
    assert main(words) == 0
    err = capsys.readouterr().err
    assert err.count("nothing is being learnt: for 5 steps no reward has differed within a group (so far every") == 1
    assert main([*words, "--name", "second", "--json"]) == 3  # the file's count goes on: all are 0 now
    capsys.readouterr()


def test_a_run_knows_after_an_interruption_what_it_has_learnt(capsys, monkeypatch, tmp_path):
    # Four completions are told apart before the interruption, none after it.
    early = "calls = 0\ndef reward(completion):\n    global calls\n    calls += 1\n    return float(calls == 6)\n"
    words = ["train", "grpo", *TINY, "steps=2", reward(early)]
    asked = iter([False, False, True])  # two evaluated tasks, and the end of the first step
    monkeypatch.setattr("lyceum.utils.interrupts.Interrupts.interrupted", lambda self: next(asked, False))
    assert main(words) == 130
    assert main([*words, "--resume"]) == 0
    capsys.readouterr()
    assert json.loads((tmp_path / "runs/grpo/summary.json").read_text())["learnt"] is True


def test_fine_tuning_alone_is_not_asked_for_rewards(capsys):
    words = ["train", "sft", "model=scratch", "steps=1", "tasks_per_step=2", "evaluate.n=0", "--json"]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["learnt"] is None


def test_an_evaluation_of_which_nothing_is_graded_ends_with_3(capsys, tmp_path):
    words = ["eval", "scratch", "--tasks", "chain", "--n", "2", "--k", "1,2", "--max-tokens", "8", "--output", "found"]
    words += [reward(BUG), "trust_code=true"]
    assert main(words) == 3
    out, err = capsys.readouterr()
    assert "pass@1" not in out
    assert "error: none of 4 completions could be graded: reward: TypeError" in err
    assert "line 5, in help" in err
    assert json.loads((tmp_path / "found").read_text())["ungraded"] == 4
    assert main([*words, "--json"]) == 3
    document = json.loads(capsys.readouterr().out)
    assert (document["error"][0][:9], document["ungraded"]) == ("none of 4", 4)


def test_a_search_of_which_nothing_is_graded_ends_with_3(capsys):
    words = ["search", "scratch", "--tasks", "chain", "--n", "2", "--max-tokens", "8", "--strategy", "greedy"]
    assert main([*words, reward(BUG), "trust_code=true", "--json"]) == 3
    first, why = json.loads(capsys.readouterr().out)["error"]
    assert first == "none of 2 chosen answers could be graded:"
    assert "TypeError" in why


def test_a_comparison_says_which_runs_learnt_nothing_and_ends_with_3_where_none_learnt(capsys, tmp_path):
    # Nobody's untrained model has a right answer of 8 tokens: by the tasks' own verifier all rewards are 0.
    words = ["compare", "grpo", "grpo@idle", "grpo:reward=test-letters", *TINY, "--seeds", "1"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert out.count("(nothing") == 1  # in a cell of two lines
    assert "note: idle-seed0: nothing was learnt: every reward was 0" in out
    assert main(["compare", "grpo", *TINY, "--seeds", "1", "--json"]) == 3
    document = json.loads(capsys.readouterr().out)
    assert document["error"] == ["no run learnt anything, so there is nothing to compare"]
    assert document["recipes"][0]["learnt_nothing"] == [0]


def test_a_comparison_stops_at_the_first_run_that_has_no_accuracy(capsys, tmp_path):
    assert main(["compare", "grpo", "grpo", *TINY, reward(BUG), "--seeds", "1", "--json"]) == 3
    first, why = json.loads(capsys.readouterr().out)["error"]
    assert first == "grpo-seed0: none of its held-out completions has a verdict to compare:"
    assert "TypeError" in why
    assert not (tmp_path / "runs/compare-grpo-grpo-2/grpo-2-seed0").exists()


def test_the_codes_are_told_by_help(capsys):
    assert main(["--help"]) == 0
    assert "3 nothing was learnt (no reward ever differed)" in " ".join(capsys.readouterr().out.split())

"""A user's own rows as data: TRL's columns, what is refused or left out, and groups read one by one."""

import gzip
import json
import math
import shutil
from pathlib import Path

import pyarrow
import pyarrow.csv
import pyarrow.parquet
import pytest
from tiny_models import plain_model, policy_like

from lyceum.core.forest import build_forest
from lyceum.data._formats import RowError, common_text, completed
from lyceum.data.file import File, FileGroups
from lyceum.models.load import ModelSettings, load_tokenizer
from lyceum.models.renderer import Renderer
from lyceum.objective.dpo import DPO
from lyceum.papers.kto.objective_kto import KTO
from lyceum.papers.orpo.objective_orpo import ORPO
from lyceum.recipe.schema import parse
from lyceum.tasks.rows import read_rows
from lyceum.training.train import train
from lyceum.utils.errors import RecipeError

pytestmark = pytest.mark.usefixtures("small_scratch")

USER, GOOD, BAD = (
    {"role": "user", "content": "2+2"},
    {"role": "assistant", "content": "4"},
    {"role": "assistant", "content": "5"},
)
PAIR = {"prompt": "2+2", "chosen": "2+2=4#4", "rejected": "2+2=5#5"}


def test_pairs_are_read_by_trls_columns():
    expected = (({"role": "user", "content": "2+2"},), (("4", 1.0), ("5", 0.0)))
    for row in (
        {"prompt": "2+2", "chosen": "4", "rejected": "5"},
        {"prompt": [USER], "chosen": [GOOD], "rejected": [BAD]},
        {"chosen": [USER, GOOD], "rejected": [USER, BAD]},
        {"prompt": "2+2", "chosen": [USER, GOOD], "rejected": [USER, BAD], "score_chosen": 9},
        {"prompt": None, "chosen": [USER | {"name": None}, GOOD], "rejected": [USER | {"name": None}, BAD]},
    ):
        found = completed(row)
        assert (found.prompt, found.completions, found.alone) == (*expected, True), row


def test_the_prompt_of_two_texts_is_what_both_begin_with():
    # As TRL's extract_prompt: the space before the completions is theirs.
    row = {"chosen": "The sky is blue.", "rejected": "The sky is green."}
    found = completed(row)
    assert found.prompt[0]["content"] == "The sky is"
    assert [text for text, _ in found.completions] == [" blue.", " green."]
    assert common_text("ab", "abc") == 2


def test_labels_and_rewards_are_outcomes():
    assert completed({"prompt": "a", "completion": "b", "label": True}).completions == (("b", 1.0),)
    assert completed({"prompt": "a", "completion": [GOOD], "label": 0}).completions == (("4", 0.0),)
    assert completed({"prompt": [USER], "completion": "b", "reward": -2.5}).completions == (("b", -2.5),)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({}, "got no 'completion', but nothing; allowed: prompt, chosen and rejected"),
        ({"prompt": "a", "completion": "b"}, "got no 'label' or 'reward'"),
        ({"prompt": "a", "chosen": "b"}, "got no 'rejected'"),
        ({"prompt": "a", "chosen": "b", "rejected": "b"}, "chosen and rejected are equal"),
        ({"prompt": "a", "chosen": "b", "rejected": 7}, "chosen is a text and rejected a number"),
        ({"prompt": 3, "chosen": "b", "rejected": "c"}, "prompt holds a number"),
        ({"prompt": "", "chosen": "b", "rejected": "c"}, "prompt is an empty text"),
        ({"prompt": "a", "chosen": "b", "rejected": ""}, "rejected is an empty text"),
        ({"chosen": "b", "rejected": "c"}, "begin differently and there is no prompt"),
        ({"chosen": [GOOD], "rejected": [BAD]}, "begin with different messages"),
        (
            {"prompt": [USER], "chosen": [USER, GOOD], "rejected": [USER | {"content": "3+3"}, BAD]},
            "the prompts of chosen and rejected differ at message 0",
        ),
        ({"prompt": [BAD], "chosen": [USER, GOOD], "rejected": [USER, BAD]}, "prompt is not what chosen"),
        ({"prompt": "a", "chosen": [USER], "rejected": [BAD]}, "chosen has a message of the role 'user'"),
        ({"prompt": "a", "chosen": [{}], "rejected": [BAD]}, "chosen holds message 0, whose role is nothing"),
        ({"prompt": "a", "completion": [GOOD, GOOD], "label": True}, "completion has 2 messages"),
        ({"prompt": "a", "completion": "b", "label": "yes"}, "label is a text; allowed: true or false"),
        ({"prompt": "a", "completion": "b", "reward": "much"}, "reward is a text; allowed: a number"),
        ({"prompt": "a", "completion": "b", "reward": "nan"}, "reward is nan"),
        ({"prompt": "a", "completion": "b", "reward": True}, "reward is a truth value"),
        ({"prompt": "a", "completion": "b", "reward": math.inf}, "reward is inf"),
        ({"prompt": "a", "completion": "b", "reward": 1e200}, "reward is 1e\\+200"),
    ],
)
def test_a_row_that_cannot_be_used_says_why(row, said):
    with pytest.raises(RowError, match=said):
        completed(row)


def written(folder, *rows, name="mine.jsonl"):
    file = folder / name
    if file.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), file)
    else:
        file.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return str(file)


def recipe(folder, path, objective="dpo", **data):
    stage = {
        "kind": "offline",
        "steps": 2,
        "tasks_per_step": 2,
        "data": {"kind": "file", "path": path, **data},
        "objective": objective,
        "learner": {"lr": 1e-2},
    }
    run = {"model": "scratch", "tasks": "chain", "evaluate": {"n": 0}, "track": [], "checkpoint_every": 1}
    return parse(run | {"name": "run", "output": str(folder), "stages": [stage]})


def test_a_bad_file_is_refused_with_its_row_and_nothing_is_written(tmp_path):
    tokenizer = policy_like(plain_model()).tokenizer
    pairs = [PAIR] * 16
    for bad, said in (
        ({"prompt": 5, "chosen": "1", "rejected": "2"}, "line 17 of 'mine.jsonl': prompt holds a number"),
        ("{", r"line 17 of '\S+mine.jsonl': not JSON"),
        ("[1]", r"line 17 of '\S+mine.jsonl' holds a list; allowed: an object"),
        (PAIR | {"chosen": "1" * 600}, "line 17 of 'mine.jsonl': prompt and completion have 60. tokens"),
        (PAIR | {"chosen": "é"}, "line 17 of 'mine.jsonl': it has characters that the model's vocabulary lacks"),
    ):
        with pytest.raises(RecipeError, match=f"data.path: {said}"):
            File(path=written(tmp_path, *pairs, bad)).check_files(tokenizer, 512, None)
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1 no")
    for path, said in (
        (written(tmp_path, name="empty.jsonl"), "has no rows"),
        (str(tmp_path / "mine.json"), "which does not exist.*did you mean 'mine.jsonl'"),
        (str(tmp_path / "mine.txt"), "which does not exist"),
        (written(tmp_path, PAIR, name="mine.text"), "a file named .text; allowed: .jsonl, .json, .parquet"),
        (str(broken), r"data\.path: .*broken\.parquet"),
        (written(tmp_path, PAIR, PAIR | {"rejected": PAIR["chosen"]}, name="p.parquet"), "row 1 of 'p.parquet'.*equal"),
    ):
        with pytest.raises(RecipeError, match=said):
            File(path=path).check_files(tokenizer, 512, None)
    with pytest.raises(RecipeError, match="has no rows"):
        train(recipe(tmp_path / "runs", str(tmp_path / "empty.jsonl")))
    assert not (tmp_path / "runs").exists()


def test_bad_rows_are_left_out_and_counted_where_that_is_asked_for(tmp_path, caplog):
    path = written(tmp_path, PAIR, "{", PAIR | {"chosen": 7}, PAIR)
    policy = policy_like(plain_model())
    found = [number for number, _ in File(path=path, bad_rows="drop").rows(warn=True)]
    assert found == [0, 3]
    assert "data.bad_rows: 2 rows are left out: line 2 of '" in caplog.text
    assert "line 3 of 'mine.jsonl': chosen is a number" in caplog.text
    with pytest.raises(RecipeError, match="has no row that can be used"):
        File(path=written(tmp_path, "{", "{"), bad_rows="drop").check_files(policy.tokenizer, 512, None)


def test_all_files_of_rows_are_read(tmp_path):
    """What ``tasks.path`` reads, as the same pairs."""
    rows = [PAIR, PAIR | {"prompt": "3+3", "chosen": "6"}]
    table = pyarrow.Table.from_pylist(rows)
    pyarrow.csv.write_csv(table, tmp_path / "pairs.csv")
    (tmp_path / "pairs.json").write_text(json.dumps(rows))
    (tmp_path / "pairs.jsonl.gz").write_bytes(gzip.compress(Path(written(tmp_path, *rows)).read_bytes()))
    (tmp_path / "parts").mkdir()
    for number, row in enumerate(rows):
        written(tmp_path / "parts", row, name=f"{number}.jsonl")
    expected = [(number, completed(row)) for number, row in enumerate(rows)]
    for path in ("pairs.csv", "pairs.json", "pairs.jsonl.gz", "parts/*.jsonl", "parts"):
        assert [*File(path=str(tmp_path / path)).rows()] == expected, path
    assert [*File(path=str(tmp_path / "parts"), limit=1).rows()] == expected[:1]
    # The cells of a CSV file are texts.
    for outcome, first, second in (("label", "True", "0"), ("reward", "1", "0.0")):
        (tmp_path / "graded.csv").write_text(f"prompt,completion,{outcome}\na,b,{first}\na,c,{second}\n")
        read = [row.completions for _, row in File(path=str(tmp_path / "graded.csv")).rows()]
        assert read == [(("b", 1.0),), (("c", 0.0),)]


def test_a_pair_is_a_group_and_rows_of_one_prompt_are_another(tmp_path):
    rows = [
        {"row": 1, "prompt": [USER], "completions": [["4", 1.0]], "alone": False},
        {"row": 2, "prompt": [USER | {"content": "3+3"}], "completions": [["6", 1.0]], "alone": False},
        {"row": 3, "prompt": [USER], "completions": [["4", 1.0], ["5", 0.0]], "alone": True},
        {"row": 4, "prompt": [USER], "completions": [["5", 0.25]], "alone": False},
    ]
    groups = FileGroups(type(tmp_path)(written(tmp_path, *rows)), policy_like(plain_model()), "mine.jsonl")
    outcomes = [[leaf.grade.outcome for leaf in group.tree.trajectories] for group in groups]
    assert outcomes == [[1, 0.25], [1], [1, 0]]
    assert [leaf.grade.verdict for leaf in groups[0].tree.trajectories] == [True, None]
    forest = build_forest([group.tree for group in groups])
    assert forest.n_rows == 5
    assert forest.behaviour_logprob[forest.leaf].isnan().all()


def test_a_run_trains_on_the_file_and_goes_on_alike(tmp_path):
    rows = [PAIR | {"prompt": f"{n}+2", "chosen": f"{n}+2={n + 2}#{n + 2}"} for n in range(1, 6)]
    path, killed = written(tmp_path, *rows, name="p.parquet"), tmp_path / "killed"

    def copied_after_a_step():
        if any((tmp_path / "whole" / "run" / "checkpoints").glob("step-*")) and not killed.exists():
            shutil.copytree(tmp_path / "whole", killed)
        return False

    whole = train(recipe(tmp_path / "whole", path), interrupted=copied_after_a_step)
    lines = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    assert [line["pairs"] for line in lines] == [2, 2]
    assert lines[0]["data/groups"] == 5
    resumed = train(recipe(killed, path), resume=True)
    first, second = ((run / "model" / "model.safetensors").read_bytes() for run in (whole, resumed))
    assert first == second


@pytest.mark.parametrize("name", ["p.parquet", "p.jsonl"])
def test_a_file_is_opened_once_until_its_rows_are_copied(tmp_path, monkeypatch, name):
    opened = []
    monkeypatch.setattr(
        "lyceum.data.file.read_rows", lambda *args, **keys: opened.append(args) or read_rows(*args, **keys)
    )
    rows = [PAIR | {"prompt": f"{n}+2"} for n in range(1, 6)]
    path = written(tmp_path, *rows, name=name)
    train(recipe(tmp_path / "first", path))
    assert len(opened) == 1
    written(tmp_path, *rows[:3], name=name)  # another file by now
    assert [number for number, _ in File(path=path).rows()] == [0, 1, 2]
    written(tmp_path, *rows, name=name)
    assert len([*File(path=path).rows()]) == 5


def test_what_a_file_cannot_give_is_refused():
    with pytest.raises(RecipeError, match=r"collect\.keep"):
        parse_with(collect={"keep": "with-gradient"})
    with pytest.raises(RecipeError, match=r"importance\.mode"):
        parse_with(objective={"kind": "ppo-clip", "importance": {"mode": "truncate"}})


def test_content_in_parts_is_joined():
    parts = [{"role": "assistant", "content": [{"type": "text", "text": "2+2="}, {"type": "text", "text": "4"}]}]
    row = completed({"prompt": [USER], "chosen": parts, "rejected": [BAD]})
    assert row.completions == (("2+2=4", 1.0), ("5", 0.0))


def test_a_file_from_which_nothing_is_learnt_says_so(tmp_path):
    rows = [{"prompt": f"{n}+2", "completion": f"{n + 2}", "reward": n % 2.0} for n in range(1, 5)]
    graded = recipe(tmp_path, written(tmp_path, *rows), objective="ppo-clip")
    summary = json.loads((train(graded) / "summary.json").read_text())
    assert summary["learnt"] is False
    assert summary["nothing_learnt"][0].startswith("nothing was learnt: no two completions of a prompt have different")


def test_a_loss_of_pairs_needs_a_pair(tmp_path):
    policy = policy_like(plain_model())
    good, bad = ({"prompt": "2+2", "completion": text, "label": text == "4"} for text in ("4", "5"))
    other = {"prompt": "3+3", "completion": "5", "label": False}

    def check(objective, *rows):
        File(path=written(tmp_path, *rows)).check_files(policy.tokenizer, 512, objective)

    for objective in (DPO(), ORPO()):
        check(objective, good, bad, other)
        check(objective, PAIR)
        with pytest.raises(RecipeError, match=r"has no pair to learn from.*lyceum train kto data=FILE"):
            check(objective, good, good, other)
    check(KTO(), good, other)


def parse_with(**keys):
    stage = {"kind": "offline", "data": {"kind": "file", "path": "a.jsonl"}, **keys}
    return parse({"model": "scratch", "tasks": "chain", "stages": [stage]})


def test_a_prompt_of_megabytes_is_refused_by_its_characters(tmp_path, monkeypatch):
    # Five megabytes took the tokenizer seven seconds and two gigabytes.
    (tmp_path / "pairs.jsonl").write_text(json.dumps(PAIR | {"prompt": "2+" * 500_000 + "2"}) + "\n")
    monkeypatch.setattr(Renderer, "render", lambda *_: pytest.fail("rendered"))
    with pytest.raises(RecipeError, match=r"prompt and completion have 1000\d{3} characters, too many for the model's"):
        File.model_validate({"path": str(tmp_path / "pairs.jsonl")}).check_files(
            load_tokenizer(ModelSettings(path="scratch")), 128, None
        )

"""What a curriculum cannot use is said by `lyceum train` before a model loads."""

import json
import math

import pyarrow
import pyarrow.parquet
import pytest

from lyceum.cli import main


@pytest.fixture(autouse=True)
def no_model_is_loaded(monkeypatch, tmp_path):
    monkeypatch.setattr("lyceum.training.train.load_policy", lambda *_: pytest.fail("a model was loaded"))
    monkeypatch.chdir(tmp_path)


def refused(capsys, *argv: str) -> str:
    assert main(["train", *argv, "model=scratch", "evaluate.n=0"]) == 2
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    return " ".join((out + err).split())


def rows(path, level_of) -> str:
    found = [{"prompt": f"{i}+1=", "answer": str(i + 1)} | level_of(i) for i in range(1200)]
    path.write_text("".join(json.dumps(row) + "\n" for row in found))
    return f"tasks={path}"


@pytest.mark.parametrize("recipe", ["sec", "dump", "knapsack"])
def test_a_level_that_is_not_a_number_far_down_in_the_rows(capsys, tmp_path, recipe):
    # The last rows: a look at the first thousand would find them in the middle of the training.
    # From a table, which has NaN; JSON has not.
    level = [math.nan if i >= 1190 else i % 3 for i in range(1200)]
    columns = {"prompt": [f"{i}+1=" for i in range(1200)], "answer": [str(i + 1) for i in range(1200)], "level": level}
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "data.parquet")
    said = refused(capsys, recipe, f"tasks={tmp_path / 'data.parquet'}")
    assert "task 'data.parquet/train/119" in said
    assert "has nan in column 'level'" in said


@pytest.mark.parametrize("recipe", ["sec", "dump", "knapsack"])
def test_rows_without_a_level(capsys, tmp_path, recipe):
    said = refused(capsys, recipe, rows(tmp_path / "data.jsonl", lambda i: {"difficulty": 1}))
    assert "curriculum.by: task 'data.jsonl/train/" in said
    assert "there are provenance, answer, difficulty" in said


def test_a_wrapped_curriculum_is_asked_too(capsys, tmp_path):
    data = rows(tmp_path / "data.jsonl", lambda i: {})
    assert "curriculum.by: task" in refused(capsys, "pcl", data, "curriculum.draws=self-evolving")
    said = refused(capsys, "train-long-think-short", data, "curriculum.draws={kind: dump, by: topic}")
    assert "in column 'topic'" in said


@pytest.mark.parametrize("tasks", ["logic", "chain-demonstrations"])
def test_tasks_that_cannot_be_made_to_order(capsys, tasks):
    said = refused(capsys, "alp-gmm", f"tasks={tasks}")
    assert "cannot make tasks from real-valued parameters, which curriculum 'alp-gmm' chooses; allowed: chain," in said

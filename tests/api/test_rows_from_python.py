"""Rows that are passed in from Python: the same run as from a file, and one that resumes."""

from __future__ import annotations

import datetime
import json
import math
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lyceum
from lyceum.api.rows import Files, are_rows, rows_as_file
from lyceum.utils.errors import Interrupted, RecipeError

pytestmark = pytest.mark.usefixtures("small_scratch")

ROWS = [{"prompt": f"{i}+1=", "answer": str(i + 1), "odd": i % 2} for i in range(40)]
TINY: dict[str, Any] = {
    "steps": 2,
    "tasks_per_step": 2,
    "evaluate__n": 2,
    "evaluate__samples": 2,
    "model": "scratch",
    "rollout.samples": 2,
    "rollout.sampling.max_completion_tokens": 8,
    "progress": "silent",
}


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def written(folder: Path, rows: Any) -> list[Any]:
    name = Files(folder).write("tasks", rows)
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def streamed() -> Any:
    import datasets

    def rows() -> Iterator[dict[str, Any]]:
        yield from ROWS

    return datasets.IterableDataset.from_generator(rows)


def frame() -> Any:
    import pandas

    return pandas.DataFrame(ROWS)


def dataset() -> Any:
    import datasets

    return datasets.Dataset.from_list(ROWS)


def table() -> Any:
    import pyarrow

    return pyarrow.Table.from_pylist(ROWS)


@pytest.mark.parametrize("make", [lambda: ROWS, lambda: iter(ROWS), streamed, frame, dataset, table])
def test_rows_of_any_library_are_the_same_file(tmp_path: Path, make: Any):
    rows = make()
    assert are_rows(rows)
    assert written(tmp_path, rows) == ROWS
    assert [file.name for file in tmp_path.glob("rows-*")] == [Files(tmp_path).write("tasks", ROWS)]


def test_rows_that_do_not_end_or_cannot_be_written_are_refused_by_their_number(tmp_path: Path):
    itself: dict[str, Any] = {"prompt": "1+1="}
    itself["answer"] = [itself]
    with pytest.raises(RecipeError, match="tasks: row 0 contains itself, or is nested too deeply"):
        Files(tmp_path).write("tasks", [itself])
    with pytest.raises(RecipeError, match=r"tasks: row 1: .*digits.*; allowed: such a number as text"):
        Files(tmp_path).write("tasks", [ROWS[0], {"prompt": "1+1=", "answer": 10**5000}])


@pytest.mark.parametrize("kind", ["dataset", "streamed"])
def test_a_dataset_is_read_in_batches_as_row_by_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str):
    import datasets

    monkeypatch.setattr("lyceum.api.rows.AT_ONCE", 7)
    rows = [
        {**row, "info": {"n": [index, None]}, "seldom": None if index % 3 else "x"} for index, row in enumerate(ROWS)
    ]
    found: Any = datasets.Dataset.from_list(rows)
    found = found if kind == "dataset" else found.to_iterable_dataset(num_shards=3)
    assert written(tmp_path, found) == [*found] == rows
    doubled = found.map(lambda row: {"odd": row["odd"] * 2})
    assert written(tmp_path, doubled) == [*doubled]


def test_rows_of_polars_are_the_same_file(tmp_path: Path):
    polars = pytest.importorskip("polars")
    assert written(tmp_path, polars.DataFrame(ROWS)) == ROWS


def test_cells_are_written_as_json_has_them(tmp_path: Path):
    import pandas

    cells = [np.float32(0.5), np.array([1, 2]), (1, None), math.nan, pandas.NaT, pandas.NA, 10**30, {1: True}]
    plain = [0.5, [1, 2], [1, None], None, None, None, 10**30, {"1": True}]
    assert written(tmp_path, [{"a": cell} for cell in cells]) == [{"a": cell} for cell in plain]
    dates = [{"a": datetime.date(2026, 1, 2), "b": pandas.Timestamp("2026-01-02 03:04")}]
    assert written(tmp_path, dates) == [{"a": "2026-01-02", "b": "2026-01-02T03:04:00"}]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (iter(()), "tasks: got no rows; allowed: at least one"),
        ([{"a": 1}, 5], "tasks: row 1 is a number; allowed: a mapping"),
        ([{"a": b"x"}], "tasks: row 0 holds a value of type 'bytes' in column 'a'; allowed: texts, numbers"),
        ([{"a": [math.inf]}], "tasks: row 0 holds a value of type 'float' in column 'a'"),
        ([{1: "x"}], "tasks: row 0 has the column 1; allowed: texts as names"),
    ],
)
def test_what_cannot_be_written_is_refused_by_its_row(tmp_path: Path, rows: Any, said: str):
    with pytest.raises(RecipeError) as error:
        Files(tmp_path).write("tasks", rows)
    assert said in str(error.value)


def test_a_dataset_of_several_splits_is_refused_with_its_splits():
    import datasets

    both = datasets.DatasetDict({"train": datasets.Dataset.from_list(ROWS), "test": datasets.Dataset.from_list(ROWS)})
    for splits in (both, dict(both), {"train": ROWS, "test": ROWS}):
        with pytest.raises(RecipeError, match=r"splits train, test; allowed: one of them, such as data\['train'\]"):
            lyceum.train("grpo", tasks=splits)


def test_a_list_of_kinds_and_files_is_no_rows():
    assert not are_rows(["chain", "data.jsonl"])
    assert not are_rows([{"kind": "chain"}])
    assert are_rows([{"kind": "algebra", "prompt": "1"}])
    with rows_as_file("tasks", "chain") as tasks:
        assert tasks == "chain"


def test_rows_train_as_their_file_does_and_are_kept_with_the_run(tmp_path: Path):
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    run = lyceum.train("grpo", tasks=ROWS, **TINY, **{"evaluate.tasks": ROWS[:20], "tasks.heldout_share": 0.5})
    kept = sorted((run.path / "tasks").iterdir())
    assert [len(file.read_text().splitlines()) for file in kept].count(40) == 1
    assert len(kept) == 2
    recipe = lyceum.load_recipe(str(run.path / "recipe.yaml"))
    assert Path(recipe.tasks.path) in [file.relative_to(tmp_path) for file in map(Path.resolve, kept)]
    assert run.evaluate(k=(1,), n=2, progress="silent")["tasks"] == 2
    found = lyceum.evaluate(run.path, ROWS[:7], k=(1,), progress="silent")
    assert found["tasks"] == 7
    # Its own folder may be an input where the run goes on, and not where it is replaced.
    with pytest.raises(RecipeError, match=r"output: got .* which holds"):
        lyceum.train("grpo", tasks=str(kept[0]), overwrite=True, **TINY)
    again = lyceum.train("grpo", tasks=iter(ROWS), overwrite=True, **TINY)
    assert len(list((again.path / "tasks").iterdir())) == 1


def test_a_search_and_a_comparison_take_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    told: dict[str, Any] = {"strategies": "best-of-n", "sizes": (1,), "n": 1, "progress": "silent"}
    told["max_completion_tokens"] = 8
    first = lyceum.search(tasks=iter(ROWS), output=tmp_path / "search", **told)
    again = lyceum.search(tasks=ROWS, output=tmp_path / "search", **told)  # the same rows: nothing is searched anew
    assert first["results"] == again["results"]
    assert [file.parent for file in tmp_path.glob("**/rows-*.jsonl")] == [tmp_path / "rows"]

    monkeypatch.setattr(lyceum.api, "run_plan", lambda planned, **_: planned)
    with pytest.raises(RecipeError, match="did you mean"):
        lyceum.compare(["grpo"], tasks=ROWS, output=str(tmp_path / "refused"), objectiv=1)
    assert not (tmp_path / "refused").exists()
    planned: Any = lyceum.compare(["grpo"], tasks=ROWS, output=str(tmp_path / "runs"), seeds=1)
    assert {Path(recipe.tasks.path).parent for recipe in planned.recipes} == {tmp_path / "runs/rows"}


def test_a_run_on_rows_resumes_with_the_same_rows_alone(tmp_path: Path):
    graded: list[str] = []

    def length(completion: str) -> float:
        graded.append(completion)
        if len(graded) == 1:
            signal.raise_signal(signal.SIGINT)
        return len(completion) / 8

    given: dict[str, Any] = {"reward": length, "name": "kept", **TINY}
    with pytest.raises(Interrupted):
        lyceum.train("grpo", tasks=ROWS, **given)
    with pytest.raises(RecipeError, match=r"tasks.path: "):
        lyceum.train("grpo", tasks=ROWS[1:], resume=True, **given)
    assert len(lyceum.train("grpo", tasks=iter(ROWS), resume=True, **given).metrics) == 2


def test_a_refused_run_on_rows_leaves_nothing(tmp_path: Path):
    with pytest.raises(RecipeError, match=r"row 0 of the rows passed in has no column 'question'"):
        lyceum.train("grpo", tasks=ROWS, **TINY, **{"tasks.columns.prompt": "question"})
    assert not list(tmp_path.iterdir())


def test_rows_are_graded(tmp_path: Path):
    rows = [{"prompt": "1+1=", "completion": text, "answer": "2"} for text in ("2", "3")]
    found = lyceum.grade(rows, "exact", progress="silent")
    assert (found.rows, found.correct) == (2, 1)


def test_preference_pairs_are_rows_too(tmp_path: Path):
    pairs = [{"prompt": f"{i}+1=", "chosen": f"{i + 1}", "rejected": f"{i + 2}"} for i in range(8)]
    tiny = {key: value for key, value in TINY.items() if not key.startswith("evaluate")}
    run = lyceum.train("dpo", data=pairs, epochs=1, **tiny | {"steps": 9})
    assert run.summary["steps"] == 4  # 8 pairs, 2 per step
    assert run.metrics[0]["data/groups"] == 8


def test_rows_that_are_all_one_problem_cannot_be_split_and_say_so():
    same = [{"prompt": "1+1=", "solution": "2"}] * 40
    with pytest.raises(RecipeError, match=r"40 rows of the rows passed in, which are 1 problem \(rows of one problem"):
        lyceum.train("grpo", tasks=same, **TINY)

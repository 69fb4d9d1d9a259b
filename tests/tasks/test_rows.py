"""Rows of files that are larger than memory: by offsets, the same rows as of small ones."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from lyceum.recipe.schema import load_recipe
from lyceum.tasks import rows as reading
from lyceum.tasks.dataset import Dataset
from lyceum.tasks.rows import UnreadableRow, read_rows
from lyceum.utils.errors import RecipeError

ROWS: list[dict[str, Any]] = [{"prompt": f"{i}+1=", "answer": str(i + 1), "note": "ä\n" * (i % 7)} for i in range(50)]


def read(path: Path) -> reading.DatasetRows:
    return read_rows(str(path), subset=None, split="train", key="tasks.path")


@pytest.fixture(params=["jsonl", "parquet", "csv"])
def file(request: Any, tmp_path: Path) -> Path:
    import pyarrow
    from pyarrow import csv, parquet

    place = tmp_path / f"rows.{request.param}"
    table = pyarrow.Table.from_pylist(ROWS)
    if request.param == "parquet":
        parquet.write_table(table, place, row_group_size=7)
    elif request.param == "csv":
        csv.write_csv(table, place)
    else:
        place.write_text("\n \n".join(json.dumps(row, ensure_ascii=False) for row in ROWS))
    return place


def test_a_large_files_rows_are_those_that_a_small_one_has(file: Path, monkeypatch: pytest.MonkeyPatch):
    small = read(file)
    monkeypatch.setattr(reading, "HELD", 0)
    monkeypatch.setattr(reading, "AT_ONCE", 64)  # less than some lines have
    large = read(file)
    assert list(large.read()) == list(small.read()) == ROWS
    assert [large[i] for i in (49, 0, 17)] == [ROWS[i] for i in (49, 0, 17)]
    assert large.where(30) == small.where(30)


def test_a_large_files_tasks_are_those_that_a_small_one_has(file: Path, monkeypatch: pytest.MonkeyPatch):
    settings = Dataset(path=str(file), heldout_share=0.3)
    small = [settings.build(split, 0) for split in ("train", "heldout")]
    expected = [[source[i] for i in range(len(source))] for source in small]
    del small
    monkeypatch.setattr(reading, "HELD", 0)
    found = [settings.build(split, 0) for split in ("train", "heldout")]
    assert [[source[i] for i in range(len(source))] for source in found] == expected


def test_a_large_file_that_changes_while_it_is_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(reading, "HELD", 0)
    place = tmp_path / "rows.jsonl"
    place.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    rows = read(place)
    (tmp_path / "new").write_text("{}\n")
    os.replace(tmp_path / "new", place)  # another file of that name: this one is still open
    assert rows[3] == ROWS[3]
    place.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    rows = read(place)
    with place.open("a") as more:
        more.write("{}\n")
    with pytest.raises(RecipeError, match=r"rows.jsonl' was changed while it was read; allowed: a file that stays"):
        rows[3]


def test_a_line_that_cannot_be_read_does_not_keep_others_from_it(tmp_path: Path):
    place = tmp_path / "rows.jsonl"
    place.write_text('{"a": 1}\n{"a"\n\n{"a": 2}\n')
    rows = read(place)
    first, second, third = rows.read()
    assert (first, third) == ({"a": 1}, {"a": 2})
    assert isinstance(second, UnreadableRow)
    with pytest.raises(RecipeError, match=r"tasks.path: line 2 of .*: not JSON"):
        rows[1]
    assert rows.where(2) == "line 4 of 'rows.jsonl'"


def test_a_rows_place_in_a_pattern_names_its_file(tmp_path: Path):
    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_text('{"a": 1}\n{"a": 2}\n')
    assert read(tmp_path / "*.jsonl").where(3) == "line 2 of 'b.jsonl'"


SUMS = [{"prompt": f"{i}+1=", "answer": str(i + 1)} for i in range(9)]
LINES = "".join(json.dumps(row) + "\n" for row in SUMS)
CELLS = [list(SUMS[0]), *(list(row.values()) for row in SUMS)]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("ending", "text"),
    [
        *((".jsonl", LINES), (".ndjson", LINES), (".json", json.dumps(SUMS))),
        *((".csv", "\n".join(map(",".join, CELLS))), (".tsv", "\n".join(map("\t".join, CELLS)))),
    ],
)
def test_files_are_read_by_their_endings_compressed_or_not(ending, text, packed, tmp_path):
    path = tmp_path / f"rows{ending}{'.gz' if packed else ''}"
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    rows = read(path)
    assert list(rows.read()) == SUMS
    assert rows[8] == SUMS[8]
    assert load_recipe("grpo", [f"tasks={path.name}"]).tasks.kind == "dataset"  # and no kind of tasks


def test_a_compressed_file_larger_than_what_is_held_is_read_from_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr("lyceum.tasks.rows.HELD", 100)
    for name, text in (("rows.jsonl.gz", LINES), ("rows.csv.gz", "\n".join(map(",".join, CELLS)))):
        (tmp_path / name).write_bytes(gzip.compress(text.encode()))
        rows = read(tmp_path / name)
        assert getattr(rows, "held", None) is None
        assert [rows[index] for index in range(9)] == SUMS
    (tmp_path / "torn.jsonl.gz").write_bytes(gzip.compress(LINES.encode())[:-20])
    with pytest.raises(RecipeError, match=r"torn.jsonl.gz' cannot be read: "):
        read(tmp_path / "torn.jsonl.gz")

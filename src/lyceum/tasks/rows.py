"""Rows of a dataset from a file, a folder or the Hugging Face hub, with a clear message if there are none."""

from __future__ import annotations

import math
import os
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from glob import glob
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, Protocol

from lyceum.core.hub import check_on_hub
from lyceum.core.types import Row, TaskSource
from lyceum.core.user_files import describe
from lyceum.utils.documents import DATA, DocumentError, read_json
from lyceum.utils.errors import RecipeError, nearest
from lyceum.utils.numbers import plain

SUFFIXES = (".jsonl", ".json", ".parquet", ".csv")


class Rows(Protocol):
    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Row: ...

    def __iter__(self) -> Iterator[Row]: ...


def read_rows(path: str, *, subset: str | None, split: str, key: str) -> Rows:
    """The rows of ``path``: a JSON-lines, JSON, parquet or CSV file, a pattern such as ``data/*.jsonl`` of several,
    a folder, or a name on the Hugging Face hub.

    Args:
        subset: configuration of a hub dataset.
        split: which split, where there are several.
        key: the recipe's key that holds the path, for the message.
    Raises:
        RecipeError: the path does not exist, cannot be read, or is empty; also raised on access to an unreadable row.
    """
    place = Path(path).expanduser()
    if place.is_file():
        rows: Rows = _read_file(place, key)
    elif files := matching(path):
        rows = _Chained([_read_file(file, key) for file in files])
    elif place.is_dir():
        rows = _Guarded(_read_folder(place, split, key), place.name, key)
    elif _is_local(path):
        raise _missing(path, key)
    else:
        rows = _Guarded(_read_hub(path, subset, split, key), path, key)
    if len(rows) == 0:
        raise RecipeError(f"{key}: {path!r} has no rows; allowed: a dataset with at least one")
    return rows


def written_row(source: TaskSource, index: int) -> dict[str, Any]:
    """A task as a row that a dataset can be read from: the dataset's own, or a generated task's prompt, answer and
    columns."""
    own = source.row(index)
    if own is None:
        task = source[index]
        own = {"prompt": [dict(message) for message in task.messages], "answer": task.answer, **task.columns}
    return plain(own, other=str)


def check_there(path: str, key: str) -> None:
    """Raise RecipeError where a path can only be a file or a folder, and there is none; nothing is read."""
    if _is_local(path) and not Path(path).expanduser().exists() and not matching(path):
        raise _missing(path, key)


def _is_local(path: str) -> bool:
    return Path(path).suffix in SUFFIXES or path.startswith((".", "/", "~")) or path.count("/") > 1


def _missing(path: str, key: str) -> RecipeError:
    near = _neighbour(Path(path).expanduser())
    return RecipeError(f"{key}: got {path!r}, which does not exist{near}; allowed: a file or a folder")


def matching(path: str) -> list[Path]:
    """The files that a pattern with ``*``, ``?`` or ``[...]`` means, in order of their names."""
    return [Path(found) for found in sorted(glob(os.path.expanduser(path))) if Path(found).is_file()]


class _Chained:
    """Rows of several files, one after another."""

    def __init__(self, parts: Sequence[Rows]) -> None:
        self.parts = parts
        self.starts = [0, *accumulate(map(len, parts))]

    def __len__(self) -> int:
        return self.starts[-1]

    def __getitem__(self, index: int) -> Row:
        part = bisect_right(self.starts, index) - 1
        return self.parts[part][index - self.starts[part]]

    def __iter__(self) -> Iterator[Row]:
        return chain.from_iterable(self.parts)


class _Table:
    """Rows of an Arrow table, made on access."""

    def __init__(self, table: Any) -> None:
        self.table = table

    def __len__(self) -> int:
        return self.table.num_rows

    def __getitem__(self, index: int) -> Mapping[str, Any]:
        return self.table.slice(index, 1).to_pylist()[0]

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        for batch in self.table.to_batches(max_chunksize=1000):
            yield from batch.to_pylist()


class _Guarded:
    """Rows whose decoding may fail: a date outside Python's range, bytes that are not text, a broken image."""

    def __init__(self, rows: Rows, name: str, key: str) -> None:
        self.rows, self.name, self.key = rows, name, key

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Mapping[str, Any]:
        try:
            return self.rows[index]
        except Exception as error:
            raise RecipeError(f"{self.key}: row {index} of {self.name!r} cannot be read: {describe(error)}") from error

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        made = 0
        try:
            for row in self.rows:
                yield row
                made += 1
        except Exception:
            for index in range(made, len(self)):  # whole batches fail: find the row
                yield self[index]


def _read_file(place: Path, key: str) -> Rows:
    match place.suffix:
        case ".jsonl":
            return _read_json_lines(place, key)
        case ".json":
            try:
                rows = read_json(place.read_bytes(), limits=DATA)
            except DocumentError as error:
                raise RecipeError(f"{key}: {str(place)!r} is not JSON: {error}") from None
            if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
                raise RecipeError(f"{key}: {str(place)!r} must be a JSON list of objects, or JSON lines named .jsonl")
            return rows
        case ".parquet":
            return _Guarded(_read_parquet(place, key), place.name, key)
        case ".csv":
            return _Table(_read_csv(place, key))
    raise RecipeError(
        f"{key}: got {str(place)!r}, a file named {place.suffix or 'without an ending'}; allowed: {', '.join(SUFFIXES)}"
    )


def _read_parquet(place: Path, key: str) -> Rows:
    import pyarrow.parquet

    try:
        return _Table(pyarrow.parquet.read_table(place, memory_map=True))
    except Exception as error:
        raise RecipeError(f"{key}: {str(place)!r} cannot be read as parquet: {describe(error)}") from error


def _read_csv(place: Path, key: str) -> Any:
    """A table of texts: CSV has no types, and an answer 007 is not 7."""
    from pyarrow import csv, string

    try:
        with csv.open_csv(place, parse_options=csv.ParseOptions(newlines_in_values=True)) as head:
            names = head.schema.names
        as_text = csv.ConvertOptions(column_types=dict.fromkeys(names, string()), strings_can_be_null=False)
        lines = csv.ParseOptions(newlines_in_values=True)
        return csv.read_csv(place, parse_options=lines, convert_options=as_text)
    except Exception as error:
        raise RecipeError(f"{key}: {str(place)!r} cannot be read as CSV: {describe(error)}") from error


def _read_json_lines(place: Path, key: str) -> Rows:
    rows: list[Mapping[str, Any]] = []
    try:
        with place.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                where = f"line {number} of {str(place)!r}"
                try:
                    row = read_json(line, limits=DATA)
                except DocumentError as error:
                    raise RecipeError(f"{key}: {where}: not JSON: {error}") from None
                if not isinstance(row, dict):
                    raise RecipeError(f"{key}: {where} holds {kind_of(row)}; allowed: an object with named cells")
                rows.append(row)
    except OSError as error:
        raise RecipeError(f"{key}: {str(place)!r} cannot be read: {error}") from None
    return rows


def _read_folder(place: Path, split: str, key: str) -> Rows:
    """A folder written by ``save_to_disk``, or one of data files that ``load_dataset`` reads."""
    import datasets

    saved = any((place / name).is_file() for name in ("dataset_dict.json", "state.json"))
    try:
        found: Any = datasets.load_from_disk(str(place)) if saved else datasets.load_dataset(str(place))
    except Exception as error:
        raise RecipeError(f"{key}: the folder {str(place)!r} cannot be read as a dataset: {describe(error)}") from error
    return _choose_split(found, split, str(place), key)


def _read_hub(name: str, subset: str | None, split: str, key: str) -> Rows:
    import datasets

    check_on_hub(key, name, "dataset")
    try:
        return _choose_split(datasets.load_dataset(name, subset), split, name, key)
    except RecipeError:
        raise
    except Exception as error:  # not found, gated, no network, a subset that must be named: the hub says which
        raise RecipeError(
            f"{key}: got {name!r}: no such file or folder, and the Hugging Face hub gave {describe(error)}; "
            "allowed: a .jsonl, .json or .parquet file, a folder, or a dataset's name on the hub"
        ) from error


def _choose_split(found: Any, split: str, name: str, key: str) -> Rows:
    if not isinstance(found, dict):
        return found
    if split in found:
        return found[split]
    where = key.rpartition("path")[0] + "split"
    raise RecipeError(f"{where}: got {split!r}{nearest(split, found)}; {name!r} has {', '.join(found)}")


def _neighbour(place: Path) -> str:
    if not place.parent.is_dir():
        return f" (nor does the folder {str(place.parent)!r})"
    return nearest(place.name, os.listdir(place.parent))


def kind_of(value: Any) -> str:
    """A cell's type in plain words."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value}, which is not a number,"
    names = {
        str: "a text" if value else "an empty text",
        bool: "a truth value",
        int: "a number",
        float: "a number",
        list: "a list" if value else "an empty list",
        dict: "an object",
        type(None): "nothing",
    }
    return names.get(type(value), type(value).__name__)

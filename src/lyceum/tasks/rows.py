"""Rows of a dataset from a file, a folder or the Hugging Face hub, with a clear message if there are none.

No row stays in memory: of JSON lines the offset of each line is kept, and tables larger than ``HELD`` are mapped from
an uncompressed copy on the disk.
"""

from __future__ import annotations

import gzip
import math
import os
import re
import shutil
import tempfile
import weakref
import zlib
from abc import ABC, abstractmethod
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from glob import glob
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from lyceum.core.hub import check_on_hub
from lyceum.core.types import Row, TaskSource
from lyceum.core.user_files import describe
from lyceum.utils.documents import DATA, DocumentError, read_json
from lyceum.utils.errors import RecipeError, nearest
from lyceum.utils.numbers import plain
from lyceum.utils.paths import local_path
from lyceum.utils.terminal import quoted

SUFFIXES = (".jsonl", ".json", ".parquet", ".csv", ".tsv", ".ndjson")
PACKED = (".jsonl.gz", ".ndjson.gz", ".json.gz", ".csv.gz", ".tsv.gz")
"""Endings of files that are decompressed: lines to a file on the disk, which is gone with the process."""
UNPACKED_BY = {".zst": "zstd -d", ".bz2": "bunzip2 -k", ".xz": "unxz -k", ".zip": "unzip", ".lz4": "lz4 -d"}

HELD = 1 << 26
"""Size of a file, uncompressed, up to which it is held in memory (64 MiB)."""

AT_ONCE = 1 << 20
"""Bytes of a larger file that are read at once."""


PASSED_IN = re.compile(r"rows-[0-9a-f]{16}\.jsonl")
"""Name of a file of rows that were passed in from Python, which the user has never seen."""


def called(path: str) -> str:
    """A dataset's path, for messages."""
    return "the rows passed in" if PASSED_IN.fullmatch(Path(path).name) else repr(path)


@dataclass(frozen=True)
class UnreadableRow:
    """A row that cannot be read, and why, as a line of a message."""

    why: str


class DatasetRows(ABC):
    """Rows of one dataset, read when they are asked for.

    Args:
        name: of the dataset, for messages.
        key: the recipe's key that holds its path.
    """

    def __init__(self, name: str, key: str) -> None:
        self.name, self.key = name, key

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def read(self) -> Iterator[Row | UnreadableRow]:
        """All rows in order."""

    @abstractmethod
    def _row(self, index: int) -> Row | UnreadableRow: ...

    def __getitem__(self, index: int) -> Row:
        """A row. Raises RecipeError where it cannot be read."""
        if isinstance(row := self._row(index), UnreadableRow):
            raise RecipeError(f"{self.key}: {row.why}")
        return row

    def where(self, index: int) -> str:
        """``row 3 of 'name.parquet'``, rows being numbered from 0, or ``line 4 of 'name.jsonl'``."""
        return f"row {index} of {quoted(self.name)}"


def read_rows(path: str, *, subset: str | None, split: str, key: str) -> DatasetRows:
    """The rows of ``path``: a JSON-lines, JSON, parquet or CSV file, a pattern such as ``data/*.jsonl`` of several,
    a folder, or a name on the Hugging Face hub.

    Args:
        subset: configuration of a hub dataset.
        split: which split, where there are several.
        key: the recipe's key that holds the path, for the message.
    Raises:
        RecipeError: the path does not exist, cannot be read, or is empty; also raised on access to an unreadable row.
    """
    place = local_path(path)
    if place.is_file():
        rows = _read_file(place, key)
    elif files := matching(path):
        rows = _Chained([_read_file(file, key) for file in files], place.name, key)
    elif place.is_dir():
        rows = _Decoded(_read_folder(place, split, key), place.name, key)
    elif _is_local(path):
        raise _missing(path, key)
    else:
        rows = _Decoded(_read_hub(path, subset, split, key), path, key)
    if len(rows) == 0:
        raise RecipeError(f"{key}: {path!r} has no rows; allowed: a dataset with at least one")
    return rows


def refuse_part_of_file(path: str, key: str, given: str | None, *, usual: str | None = None, further: str = "") -> None:
    """Raise RecipeError where a split or a subset is named, but the path is a file, which has none.

    Args:
        key: the recipe's key that names the part.
        usual: its default.
        further: what else is allowed.
    """
    if given != usual and local_path(path).is_file():
        part = "split" if key.endswith("split") else "subset"
        allowed = [usual or "null", "a folder or a dataset of the hub", *([further] if further else [])]
        raise RecipeError(
            f"{key}: got {quoted(given)}, but {path!r} is a file, which has no {part}s; allowed: "
            f"{', '.join(allowed[:-1])}, or {allowed[-1]}"
        )


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
    if _is_local(path) and not local_path(path).exists() and not matching(path):
        raise _missing(path, key)


def is_named_as_file(path: str) -> bool:
    """Whether a path ends as the files do that can be read."""
    return path.endswith((*SUFFIXES, *PACKED))


def _is_local(path: str) -> bool:
    """Whether a path that is not there can be no name on the hub, which is ``owner/name``, or ``name`` of a few."""
    return (
        is_named_as_file(path)
        or path.startswith((".", "/", "~"))
        or path.count("/") > 1
        or ("/" not in path and bool(Path(path).suffix))
        or _is_pattern(path)
    )


def names_rows(path: str) -> bool:
    """Whether a text means rows, which are there or not, and no kind of a component."""
    # Not Path.exists(), which raises an error on a name that is too long.
    return "/" in path or _is_local(path) or os.path.exists(path)


def _is_pattern(path: str) -> bool:
    return any(sign in path for sign in "*?[")


def _missing(path: str, key: str) -> RecipeError:
    if _is_pattern(path):
        return RecipeError(f"{key}: got {path!r}, a pattern that no file matches; allowed: one that some do")
    near = _neighbour(local_path(path))
    return RecipeError(f"{key}: got {path!r}, which does not exist{near}; allowed: a file or a folder")


def files_of(path: str) -> list[Path]:
    """The files that a path means: itself, or those that a pattern matches; none of a folder or a name on the hub."""
    place = local_path(path)
    return [place] if place.is_file() else [] if place.exists() else matching(path)


def matching(path: str) -> list[Path]:
    """The files that a pattern with ``*``, ``?`` or ``[...]`` means, in order of their names."""
    return [Path(found) for found in sorted(glob(os.path.expanduser(path))) if Path(found).is_file()]


class _Chained(DatasetRows):
    """Rows of several files, one after another."""

    def __init__(self, parts: Sequence[DatasetRows], name: str, key: str) -> None:
        super().__init__(name, key)
        self.parts = parts
        self.starts = [0, *accumulate(map(len, parts))]

    def __len__(self) -> int:
        return self.starts[-1]

    def read(self) -> Iterator[Row | UnreadableRow]:
        for part in self.parts:
            yield from part.read()

    def _row(self, index: int) -> Row | UnreadableRow:
        part, inner = self._part(index)
        return part._row(inner)

    def where(self, index: int) -> str:
        part, inner = self._part(index)
        return part.where(inner)

    def _part(self, index: int) -> tuple[DatasetRows, int]:
        number = bisect_right(self.starts, index) - 1
        return self.parts[number], index - self.starts[number]


class _Decoded(DatasetRows):
    """Rows whose decoding may fail: a date outside Python's range, bytes that are not text, a broken image.

    Args:
        rows: a dataset, an Arrow table, or a list.
    """

    def __init__(self, rows: Any, name: str, key: str) -> None:
        super().__init__(name, key)
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def read(self) -> Iterator[Row | UnreadableRow]:
        made = 0
        try:
            for row in self._decode_all():
                yield row
                made += 1
        except Exception:
            # Whole batches fail: each row of the rest is decoded alone.
            yield from (self._row(index) for index in range(made, len(self)))

    def _row(self, index: int) -> Row | UnreadableRow:
        try:
            return self._decode(index)
        except Exception as error:
            return UnreadableRow(f"{self.where(index)} cannot be read: {describe(error)}")

    def _decode_all(self) -> Iterable[Row]:
        return self.rows

    def _decode(self, index: int) -> Row:
        return self.rows[index]


class _Table(_Decoded):
    """Rows of an Arrow table, made on access."""

    def _decode_all(self) -> Iterable[Row]:
        for batch in self.rows.to_batches(max_chunksize=1000):
            yield from batch.to_pylist()

    def _decode(self, index: int) -> Row:
        return self.rows.slice(index, 1).to_pylist()[0]


class _JsonLines(DatasetRows):
    """The lines of a file that are not empty: 8 bytes of memory each, and the file itself where it is small."""

    def __init__(self, place: Path, key: str) -> None:
        super().__init__(place.name, key)
        self.place = place
        try:
            self.file = _opened(place)
            weakref.finalize(self, os.close, self.file)
            self.stamp = stamp(os.fstat(self.file))
            starts, at = array("q"), 0
            with open(self.file, "rb", closefd=False) as lines:
                for line in lines:
                    if not line.isspace():
                        starts.append(at)
                    at += len(line)
            starts.append(at)
            self.starts = np.frombuffer(starts, np.int64)
            self.held: bytes | None = None
            if at <= HELD:
                self.held = self._from_disk(0, at)
        except (OSError, EOFError, zlib.error) as error:
            raise RecipeError(f"{key}: {str(place)!r} cannot be read: {error}") from None

    def __len__(self) -> int:
        return len(self.starts) - 1

    def read(self) -> Iterator[Row | UnreadableRow]:
        first = 0
        while first < len(self):
            # As many whole lines as fit, and at least one.
            last = int(np.searchsorted(self.starts, self.starts[first] + AT_ONCE, side="right")) - 1
            last = max(last, first + 1)
            bounds = self.starts[first : last + 1].tolist()
            block = self._bytes(bounds[0], bounds[-1])
            for number, (start, end) in enumerate(pairwise(bounds), first):
                yield self._parsed(block[start - bounds[0] : end - bounds[0]], number)
            first = last

    def _row(self, index: int) -> Row | UnreadableRow:
        return self._parsed(self._bytes(int(self.starts[index]), int(self.starts[index + 1])), index)

    def where(self, index: int) -> str:
        if PASSED_IN.fullmatch(self.name):
            return f"row {index} of {called(self.name)}"
        return f"line {self._line(index)} of {quoted(self.name)}"

    def _parsed(self, line: bytes, index: int) -> Row | UnreadableRow:
        try:
            row = read_json(line.strip(), limits=DATA)
        except DocumentError as error:
            return UnreadableRow(f"line {self._line(index)} of {str(self.place)!r}: not JSON: {error}")
        if not isinstance(row, dict):
            what = f"line {self._line(index)} of {str(self.place)!r} holds {kind_of(row)}"
            return UnreadableRow(f"{what}; allowed: an object with named cells")
        return row

    def _line(self, index: int) -> int:
        """The number of a row's line in the file, from 1; empty lines count."""
        before, at, start = 0, 0, int(self.starts[index])
        while at < start:
            block = self._bytes(at, min(at + AT_ONCE, start))
            before, at = before + block.count(b"\n"), at + len(block)
        return before + 1

    def _bytes(self, start: int, end: int) -> bytes:
        return self._from_disk(start, end) if self.held is None else self.held[start:end]

    def _from_disk(self, start: int, end: int) -> bytes:
        try:
            read = os.pread(self.file, end - start, start)
            same = stamp(os.fstat(self.file)) == self.stamp
        except OSError as error:
            raise RecipeError(f"{self.key}: {str(self.place)!r} cannot be read: {error}") from None
        if not same or len(read) < end - start:
            raise RecipeError(
                f"{self.key}: {str(self.place)!r} was changed while it was read; allowed: a file that stays as it is, "
                "or a new one under another name"
            )
        return read


def stamp(file: os.stat_result) -> tuple[int, int, int, int]:
    """What changes where a file is written or replaced."""
    return file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns


def _opened(place: Path) -> int:
    """A file to read lines from, decompressed where it has to be."""
    if place.suffix != ".gz":
        return os.open(place, os.O_RDONLY)
    with gzip.open(place) as packed, tempfile.TemporaryFile() as unpacked:
        shutil.copyfileobj(packed, unpacked, AT_ONCE)
        unpacked.seek(0)
        return os.dup(unpacked.fileno())


def _read_file(place: Path, key: str) -> DatasetRows:
    ending = Path(place.stem).suffix if place.name.endswith(PACKED) else place.suffix
    match ending:
        case ".jsonl" | ".ndjson":
            return _JsonLines(place, key)
        case ".json":
            try:
                rows = read_json(_whole(place), limits=DATA)
            except DocumentError as error:
                raise RecipeError(f"{key}: {str(place)!r} is not JSON: {error}") from None
            except (OSError, EOFError, zlib.error) as error:
                raise RecipeError(f"{key}: {str(place)!r} cannot be read: {error}") from None
            if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
                raise RecipeError(f"{key}: {str(place)!r} must be a JSON list of objects, or JSON lines named .jsonl")
            return _Decoded(rows, place.name, key)
        case ".parquet":
            return _Table(_read_parquet(place, key), place.name, key)
        case ".csv" | ".tsv":
            return _Table(_read_csv(place, key, "," if ending == ".csv" else "\t"), place.name, key)
        case _:
            pass
    if by := UNPACKED_BY.get(place.suffix):
        raise RecipeError(
            f"{key}: got {str(place)!r}, which is compressed; allowed: {', '.join((*SUFFIXES, *PACKED))}; to "
            f"decompress it: {by} {place}"
        )
    raise RecipeError(
        f"{key}: got {str(place)!r}, a file named {place.suffix or 'without an ending'}; allowed: "
        f"{', '.join((*SUFFIXES, *PACKED))}"
    )


def _whole(place: Path) -> bytes:
    if place.suffix != ".gz":
        return place.read_bytes()
    with gzip.open(place) as packed:
        return packed.read(DATA.characters + 1)  # one more than is read at all


def _read_parquet(place: Path, key: str) -> Any:
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(place) as file:
            groups = range(file.num_row_groups)
            if sum(file.metadata.row_group(group).total_byte_size for group in groups) > HELD:
                return _mapped(file.schema_arrow, file.iter_batches(batch_size=1000))
        return parquet.read_table(place, memory_map=True)
    except Exception as error:
        raise RecipeError(f"{key}: {str(place)!r} cannot be read as parquet: {describe(error)}") from error


def _read_csv(place: Path, key: str, delimiter: str) -> Any:
    """A table of texts: CSV has no types, and an answer 007 is not 7. Arrow decompresses by the file's name."""
    from pyarrow import csv, string

    lines = csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    try:
        with csv.open_csv(place, parse_options=lines) as head:
            names = head.schema.names
        as_text = csv.ConvertOptions(column_types=dict.fromkeys(names, string()), strings_can_be_null=False)
        if place.suffix != ".gz" and place.stat().st_size <= HELD:
            return csv.read_csv(place, parse_options=lines, convert_options=as_text)
        with csv.open_csv(place, parse_options=lines, convert_options=as_text) as batches:
            return _mapped(batches.schema, batches)
    except Exception as error:
        raise RecipeError(f"{key}: {str(place)!r} cannot be read as CSV: {describe(error)}") from error


def _mapped(schema: Any, batches: Iterable[Any]) -> Any:
    """Batches of Arrow rows as a table that is mapped from a file, which is gone with the process."""
    import pyarrow

    with tempfile.NamedTemporaryFile(suffix=".arrow") as file:
        # The stream format: the file format allows one dictionary per column, and each batch may have its own.
        with pyarrow.ipc.new_stream(file.name, schema) as stream:
            for batch in batches:
                stream.write_batch(batch)
        return pyarrow.ipc.open_stream(pyarrow.memory_map(file.name)).read_all()


def _read_folder(place: Path, split: str, key: str) -> Any:
    """A folder written by ``save_to_disk``, or one of data files that ``load_dataset`` reads."""
    import datasets

    saved = any((place / name).is_file() for name in ("dataset_dict.json", "state.json"))
    try:
        found: Any = datasets.load_from_disk(str(place)) if saved else datasets.load_dataset(str(place))
    except Exception as error:
        raise RecipeError(f"{key}: the folder {str(place)!r} cannot be read as a dataset: {describe(error)}") from error
    return _choose_split(found, split, str(place), key)


def _read_hub(name: str, subset: str | None, split: str, key: str) -> Any:
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


def _choose_split(found: Any, split: str, name: str, key: str) -> Any:
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


def cell_of(row: Mapping[str, Any], column: str) -> Any:
    """A cell by its column, or by ``column.key`` inside one. Raises KeyError."""
    if column in row:
        return row[column]
    outer, dot, inner = column.partition(".")
    if dot and isinstance(row.get(outer), Mapping):
        return cell_of(row[outer], inner)
    raise KeyError(column)


def kind_of(value: Any) -> str:
    """A cell's type in plain words."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value}, which is not a number,"
    empty = isinstance(value, str | list) and not value
    names = {
        str: "an empty text" if empty else "a text",
        bool: "a truth value",
        int: "a number",
        float: "a number",
        list: "an empty list" if empty else "a list",
        dict: "an object",
        type(None): "nothing",
    }
    return names.get(type(value), type(value).__name__)

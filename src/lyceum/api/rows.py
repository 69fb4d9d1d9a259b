"""Rows that are passed in from Python, written to files, from where they are read like any other dataset."""

from __future__ import annotations

import datetime
import inspect
import json
import math
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import numpy as np
from pydantic import BaseModel

from lyceum.api.loaded import is_loaded, write_loaded
from lyceum.core.component import kinds
from lyceum.recipe.schema import Overrides, Recipe, load_recipe, read_override, tasks_from_text
from lyceum.run.folder import INITIAL, KEPT
from lyceum.tasks.dataset import QUESTIONS
from lyceum.tasks.rows import kind_of
from lyceum.training.train import Given
from lyceum.utils.errors import RecipeError, closest


class Frame(Protocol):
    """A DataFrame of pandas or polars, or a Table of Arrow."""

    @property
    def columns(self) -> Any: ...

    def __len__(self) -> int: ...


class Columned(Protocol):
    """A ``datasets.Dataset`` or ``IterableDataset``, whose ``__iter__`` has no type that is of mappings."""

    @property
    def column_names(self) -> Any: ...


Rows = Iterable[Mapping[str, Any]] | Frame | Columned
"""One mapping per row: a list, a ``datasets.Dataset`` or ``IterableDataset``, a generator; or a DataFrame."""

READERS: Mapping[str, Callable[[str], Any]] = {
    "tasks": lambda path: {"kind": "dataset", "path": path},
    "evaluate.tasks": lambda path: {"kind": "dataset", "path": path},
    "data": lambda path: {"kind": "file", "path": path},
}
"""Keys whose values may be rows, and the settings that read them from a file."""

ROWS = 'a list of mappings such as {"prompt": "1+1=", "answer": "2"}, a datasets.Dataset, or a DataFrame'
"""What rows are, in a message."""

AT_ONCE = 1000
"""Rows of a DataFrame or a dataset that are converted at once."""


def are_rows(value: Any) -> bool:
    """Whether a value is rows; a list of kinds, files or settings of tasks is a mixture and not rows."""
    if isinstance(value, (str, Path, Mapping, BaseModel)) or value is None:
        return False
    if isinstance(value, Sequence) and value:
        first = value[0]
        return isinstance(first, Mapping) and first.get("kind") not in kinds("tasks")
    return isinstance(value, Iterable) or _frame_rows(value) is not None


def load_from_python(recipe: str, overrides: Overrides, folder: Path) -> tuple[Recipe, Given | None]:
    """A recipe whose overrides may be rows, or a model in memory; these are written to the folder first.

    Returns:
        The recipe of the run, which names them by where the run is going to keep them, and where they are now; None
        without any.
    """
    files = Files(folder)
    now = load_recipe(recipe, files.instead_of_values(overrides, folder, folder))
    if not files.written and not files.models:
        return now, None
    run = Path(now.output) / now.name
    kept = {f"{KEPT}/{name}": file for name, file in files.written.items()}
    kept |= {f"{INITIAL}/{name}": file for name, file in files.models.items()}
    return load_recipe(recipe, files.instead_of_values(overrides, run / KEPT, run / INITIAL)), Given(now, kept)


@contextmanager
def rows_as_file(key: str, value: Any) -> Iterator[Any]:
    """The path of a file with the rows, which is removed afterwards; a value that is not rows as it is."""
    if not are_rows(_one_table(key, value)):
        yield value
        return
    with TemporaryDirectory(prefix="lyceum-") as folder:
        yield str(Path(folder) / Files(Path(folder)).write(key, value))


def rows_kept(key: str, value: Any, output: Path, check: Callable[[str], object]) -> Any:
    """The path of a file with the rows in ``output/rows``, named after what it holds: the same rows are the same file,
    which a later call finds again. A value that is not rows as it is.

    Args:
        check: raises RecipeError where the file cannot be used, before anything is written to ``output``.
    """
    if not are_rows(_one_table(key, value)):
        return value
    with TemporaryDirectory(prefix="lyceum-") as folder:
        written = Path(folder) / Files(Path(folder)).write(key, value)
        check(str(written))
        (output / "rows").mkdir(parents=True, exist_ok=True)
        return shutil.copy(written, str(output / "rows"))


@contextmanager
def folder_for_rows() -> Iterator[Path]:
    with TemporaryDirectory(prefix="lyceum-") as folder:
        yield Path(folder)


@dataclass
class Files:
    """Files of rows, and models, in a folder.

    Attributes:
        written: name -> file of rows.
        models: name -> folder of a model.
    """

    folder: Path
    written: dict[str, Path] = field(default_factory=dict)
    models: dict[str, Path] = field(default_factory=dict)
    _names: dict[int, str] = field(default_factory=dict)

    def instead_of_values(self, overrides: Overrides, rows: Path, models: Path) -> list[tuple[str, Any]]:
        """The overrides, with the settings that read a file of the folder ``rows`` in the place of rows, and a folder
        in ``models`` in that of a model in memory.

        Raises:
            RecipeError: a row or the model cannot be written.
        """
        named: list[tuple[str, Any]] = []
        for override in overrides:
            key, value = read_override(override)
            if isinstance(override, tuple) and key in READERS and are_rows(_one_table(key, value)):
                if id(value) not in self._names:  # a generator can be read once
                    self._names[id(value)] = self.write(key, value)
                value = READERS[key](str(rows / self._names[id(value)]))
            elif isinstance(override, tuple) and key == "model" and is_loaded(value):
                if id(value) not in self._names:
                    self._names[id(value)] = name = write_loaded(value, self.folder)
                    self.models[name] = self.folder / name
                value = {"path": str(models / self._names[id(value)])}
            named.append((key, value))
        return named

    def write(self, key: str, rows: Any) -> str:
        """Write rows to a file that is named after what it holds: the same rows have the same name."""
        digest, encode = blake2b(digest_size=8), json.JSONEncoder(allow_nan=False).encode
        partial = self.folder / "partial"
        with partial.open("wb") as lines:
            number = -1
            for number, row in enumerate(_rows(rows)):
                try:
                    line = encode(_plain_row(key, number, row)).encode() + b"\n"
                except RecipeError:
                    raise
                except RecursionError as error:
                    told = "contains itself, or is nested too deeply; allowed: cells that end"
                    raise RecipeError(f"{key}: row {number} {told}") from error
                except ValueError as error:  # whole numbers of more digits than Python writes
                    raise RecipeError(f"{key}: row {number}: {error}; allowed: such a number as text") from error
                digest.update(line)
                lines.write(line)
        if number < 0:
            raise RecipeError(f"{key}: got no rows; allowed: at least one")
        name = f"rows-{digest.hexdigest()}.jsonl"
        os.replace(partial, self.folder / name)
        self.written[name] = self.folder / name
        return name


def _rows(value: Any) -> Iterable[Any]:
    datasets = sys.modules.get("datasets")
    of_batches = () if datasets is None else (datasets.Dataset, datasets.IterableDataset)
    if isinstance(value, of_batches) and value.features:  # else a row may lack a column, and a batch has it as None
        # One by one takes ten times as long.
        batches = value.iter(batch_size=AT_ONCE)
        return (dict(zip(batch, row, strict=True)) for batch in batches for row in zip(*batch.values(), strict=True))
    found = _frame_rows(value)
    return value if found is None else found


def _frame_rows(value: Any) -> Iterator[Any] | None:
    """The rows of a DataFrame or an Arrow table; None for anything else. Who holds one has imported its library."""
    pandas, polars, pyarrow = (sys.modules.get(name) for name in ("pandas", "polars", "pyarrow"))
    if pandas is not None and isinstance(value, pandas.DataFrame):
        starts = range(0, len(value), AT_ONCE)
        return (row for start in starts for row in value.iloc[start : start + AT_ONCE].to_dict("records"))
    if polars is not None and isinstance(value, polars.DataFrame):
        return value.iter_rows(named=True)
    if pyarrow is not None and isinstance(value, pyarrow.Table):
        return (row for batch in value.to_batches(max_chunksize=AT_ONCE) for row in batch.to_pylist())
    return None


def _one_table(key: str, value: Any) -> Any:
    if isinstance(value, Mapping) and value and all(map(are_rows, value.values())):  # a DatasetDict among others
        splits, first = ", ".join(map(str, value)), next(iter(value))
        raise RecipeError(f"{key}: got a dataset of the splits {splits}; allowed: one of them, such as data[{first!r}]")
    if isinstance(value, Mapping) and any(isinstance(value.get(name), list) for name in ("prompt", *QUESTIONS)):
        rows = "rows, such as datasets.Dataset.from_dict(columns)"
        raise RecipeError(f"{key}: got a mapping of columns; allowed: {rows}")
    if isinstance(value, list) and _are_questions(key, value):
        row = json.dumps({"prompt": value[0], "answer": "..."}, ensure_ascii=False, allow_nan=False)
        raise RecipeError(f"{key}: got a list of texts; allowed: a list of rows, such as {row}, or of kinds and files")
    if not are_rows(value) and (said := _why_no_rows(value)) is not None:
        raise RecipeError(f"{key}: got {said}")
    return value


def _why_no_rows(value: Any) -> str | None:
    """What a value is that can be no tasks, and what to give instead; None where the recipe answers."""
    settings = (str, Path, Mapping, BaseModel)
    parts = value.get("parts") if isinstance(value, Mapping) else value
    of_mixture = parts if isinstance(parts, list | tuple) else ()
    if any(are_rows(part.get("tasks") if isinstance(part, Mapping) else part) for part in of_mixture):
        return "rows within a mixture; allowed: all rows in one list or DataFrame, or a file of them (.jsonl) as a part"
    if value is None or isinstance(value, (*settings, type)):
        return None
    name = type(value).__name__
    if isinstance(value, list | tuple):
        odd = [part for part in value if not isinstance(part, settings)]
        return f"a list with a {type(odd[0]).__name__} in it; allowed: {ROWS}" if odd else None
    if hasattr(value, "collect"):
        return f"a {name}, which is not computed yet; allowed: {name}.collect()"
    if inspect.isfunction(value):
        return f"the function {value.__name__}; allowed: what it returns, {value.__name__}()"
    if hasattr(value, "__getitem__") and hasattr(value, "__len__"):
        return f"a {name}, which cannot be iterated over; allowed: [data[i] for i in range(len(data))]"
    return f"a value of type {name!r}; allowed: a kind, a file, settings, or rows: {ROWS}"


def _are_questions(key: str, texts: Sequence[Any]) -> bool:
    """Whether what should be tasks are texts, none of which is, or is near, a kind of tasks, a file or a dataset."""
    known = list(kinds("tasks")) if key in ("tasks", "evaluate.tasks") else []

    def is_tasks(text: str) -> bool:
        settings = tasks_from_text(text)
        return settings["kind"] in known or closest(text, known) is not None

    return bool(known and texts) and all(isinstance(text, str) and not is_tasks(text) for text in texts)


def _plain_row(key: str, number: int, row: Any) -> dict[str, Any]:
    if not isinstance(row, Mapping):
        raise RecipeError(f"{key}: row {number} is {kind_of(row)}; allowed: a mapping of columns to cells")
    plain: dict[str, Any] = {}
    for column, value in row.items():
        if not isinstance(column, str):
            raise RecipeError(f"{key}: row {number} has the column {column!r:.80}; allowed: texts as names")
        # Most cells are texts, of which no message is needed.
        text = type(value) is str
        plain[column] = value if text else _plain(value, f"{key}: row {number} holds {{}} in column {column!r:.80}")
    return plain


def _plain(value: Any, message: str) -> Any:
    """A cell as JSON has it; what is missing in a DataFrame is null."""
    if value is None or isinstance(value, str | bool) or type(value) is int:
        return value
    if isinstance(value, Mapping):
        return {str(name): _plain(inner, message) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner, message) for inner in value]
    if type(value).__name__ in ("NAType", "NaTType"):  # pandas' missing values
        return None
    if isinstance(value, np.generic):
        return _plain(value.item(), message)
    if isinstance(value, np.ndarray):
        return _plain(value.tolist(), message)
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, float) and not math.isinf(value):
        return None if math.isnan(value) else float(value)
    raise RecipeError(
        f"{message.format(f'a value of type {type(value).__name__!r}')}; allowed: texts, numbers, true and false, "
        "None, dates, lists and mappings of these"
    )

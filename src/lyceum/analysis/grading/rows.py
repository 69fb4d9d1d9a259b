"""Completions to grade, from a file of rows or a run's rollout tables, in order and in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, Any

from pydantic import Field

from lyceum.core.component import Settings
from lyceum.core.types import Message, Task, is_answer, is_scalar
from lyceum.core.user_files import describe
from lyceum.reward.extract import after_last
from lyceum.tasks.prompt import fault_of, plain_messages
from lyceum.tasks.rows import DatasetRows, UnreadableRow, cell_of, kind_of, read_rows
from lyceum.utils.documents import DocumentError, DocumentLimits, read_json
from lyceum.utils.errors import RecipeError, RunError
from lyceum.utils.terminal import quoted

LONGEST_ROW = 1 << 25
"""Maximum bytes of a row of a JSON-lines file (32 MiB); a longer one is ungraded, and never held in memory."""
MOST_TOKENS = 1 << 22
"""Maximum number of tokens of a completion."""
LOOKED_AT = 100
"""First rows that are looked at for the columns that they have."""
MOST_TOGETHER = 1024
"""Maximum completions that are graded as one group."""
_ROW = DocumentLimits(characters=LONGEST_ROW, depth=200, values=1 << 20, digits=300)
_AT_ONCE = 64
"""Rows of a parquet file that are decoded at once."""


class GradedColumns(Settings):
    """Names of the columns."""

    prompt: str = "prompt"
    """The prompt: a text or chat messages."""
    completion: str = "completion"
    """The completion: a text."""
    answer: str = "answer"
    """The reference answer: a text, a number, a list or an object. ``a.b`` is the cell ``b`` of the column ``a``."""
    answer_after: str | None = Field(None, min_length=1)
    """Mark before the answer in its column, as ``tasks.answer_after``: the answer is the text after the last one
    (``####`` for GSM8K)."""
    id: str = "id"
    """The task's id, a text or a number; by default the row's number."""
    group: str = "group"
    """Rows one after another with the same value here, prompt and answer are graded together, for rewards that compare
    the completions of a group; without it each row is alone."""
    tokens: str = "tokens"
    """Number of the completion's tokens, for rewards that count them; without it, a model's tokenizer counts."""
    finish: str = "finish"
    """``length`` where the completion was truncated."""


@dataclass(frozen=True)
class Completion:
    """A row.

    Attributes:
        number: of the row, from 0.
        fault: why it cannot be graded; None where it can.
        group: rows one after another with the same group are graded together; None stands alone.
        about: entries of its output line.
        size: about how many bytes it takes.
    """

    number: int
    task: Task
    text: str = ""
    tokens: int | None = None
    finish: str = "stop"
    fault: str | None = None
    group: Any = None
    about: Mapping[str, Any] = field(default_factory=dict)
    size: int = 0


Raw = tuple[Any, int]
"""A row's cells, or a text that says why there are none, and its size in bytes."""


def check_file(path: Path) -> None:
    """Raise RecipeError for a file that cannot be graded whatever its rows hold."""
    if not path.is_file():
        what = "is not a regular file" if path.exists() else "does not exist"
        raise RecipeError(f"file: got {quoted(str(path))}, which {what}; allowed: a file of rows, or a run")
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise RecipeError(f"file: {str(path)!r} cannot be read: {error.strerror}") from None
    if path.suffix == ".parquet":
        parquet_file(path)
    elif path.suffix != ".jsonl":
        _read_whole(path)


def check_completions(path: Path, columns: GradedColumns) -> None:
    """Raise RecipeError where none of the first rows has the column of completions."""
    first = [cells for cells, _ in islice(_rows(path), LOOKED_AT) if isinstance(cells, Mapping)]
    if first and not any(columns.completion in cells for cells in first):
        there = dict.fromkeys(name for cells in first for name in cells)
        raise RecipeError(
            f"columns.completion: got {quoted(columns.completion)}, which the rows of {quoted(path.name)} do not have; "
            f"they have {', '.join(map(quoted, there))}; allowed: columns.completion=NAME of one of these"
        )


def rollout_files(run: Path) -> list[Path]:
    """The rollout tables of a run, in the order of its steps.

    Raises:
        RecipeError: it has none.
    """
    files = sorted((run / "rollouts").glob("step-*.parquet"))
    if not files:
        raise RecipeError(f"file: the run {run} has written no rollouts; allowed: a run with rollouts/step-*.parquet")
    for file in files:
        parquet_file(file)
    return files


def read_completions(path: Path, columns: GradedColumns) -> Iterator[Completion]:
    """The rows of a file.

    Raises:
        RunError: the file cannot be read on from some row.
    """
    for number, (cells, size) in enumerate(_rows(path)):
        yield _completion(number, cells, size, columns, path.stem)


def read_rollouts(files: Iterable[Path]) -> Iterator[Completion]:
    """The trajectories of a run; those of one tree are one group."""
    number = 0
    for file in files:
        for cells, size in _rows(file):
            yield _trajectory(number, cells, size)
            number += 1


def parquet_file(path: Path) -> Any:
    import pyarrow.parquet

    try:
        return pyarrow.parquet.ParquetFile(path)
    except Exception as error:  # Arrow's errors have no common class
        raise RecipeError(f"file: {str(path)!r} cannot be read as parquet: {describe(error)}") from error


def _read_whole(path: Path) -> DatasetRows:
    """The rows of a file of another format, as tasks are read from it."""
    return read_rows(str(path), subset=None, split="train", key="file")


def _rows(path: Path) -> Iterator[Raw]:
    if path.suffix == ".parquet":
        yield from _parquet_rows(path)
        return
    if path.suffix != ".jsonl":
        for row in _read_whole(path).read():
            yield (row.why, 0) if isinstance(row, UnreadableRow) else (row, len(repr(row)))
        return
    with path.open("rb") as file:
        while (line := _line(file)) is not None:
            if isinstance(line, bytes):
                try:
                    yield read_json(line, limits=_ROW), len(line)
                except DocumentError as error:
                    yield f"not JSON: {error}", 0
            elif line:
                yield f"the row has more than {LONGEST_ROW} bytes", 0


def _line(file: IO[bytes]) -> bytes | bool | None:
    """The next line that is not empty; True for one that is too long, whose rest is skipped; None at the end."""
    while line := file.readline(LONGEST_ROW + 1):
        if len(line) > LONGEST_ROW:
            while line and not line.endswith(b"\n"):
                line = file.readline(LONGEST_ROW)
            return True
        if line.strip():
            return line
    return None


def _parquet_rows(path: Path) -> Iterator[Raw]:
    file, made = parquet_file(path), 0
    try:
        for batch in file.iter_batches(batch_size=_AT_ONCE):
            size = batch.nbytes // max(1, batch.num_rows)
            for place in range(batch.num_rows):
                try:
                    yield batch.slice(place, 1).to_pylist()[0], size
                except (ValueError, OverflowError, TypeError) as error:  # a date outside Python's range, no UTF-8
                    yield f"the row cannot be read: {describe(error)}", 0
                made += 1
    except Exception as error:
        if isinstance(error, GeneratorExit):
            raise
        raise RunError(f"{str(path)!r} cannot be read from row {made} on: {describe(error)}") from error


def _completion(number: int, cells: Any, size: int, columns: GradedColumns, name: str) -> Completion:
    if not isinstance(cells, Mapping):
        said = cells if isinstance(cells, str) and not size else f"the row is {kind_of(cells)}; allowed: an object"
        return _faulty(number, name, said)
    id, text, group = cells.get(columns.id), cells.get(columns.completion), cells.get(columns.group)
    prompt, answer, tokens = cells.get(columns.prompt), _answer(cells, columns), cells.get(columns.tokens)
    named = f"{name}/{number}" if id is None else str(id)
    marked = answer if columns.answer_after is None or answer is None else _after(answer, columns.answer_after)
    task = Task(named, _messages(prompt), marked, _further(cells, columns), name)
    faults = [
        _fault(columns.completion, text, isinstance(text, str), "a text"),
        _fault(columns.prompt, prompt, prompt is None or isinstance(prompt, str) or not fault_of(prompt), "a prompt"),
        _fault(columns.answer, answer, answer is None or is_answer(answer), "a text, a number, a list or an object"),
        None if marked is not None or answer is None else _unmarked(columns),
        _fault(columns.id, id, id is None or (isinstance(id, str | int) and not isinstance(id, bool)), "a text"),
        _fault(columns.tokens, tokens, tokens is None or _is_count(tokens), f"a count up to {MOST_TOKENS}"),
    ]
    if fault := next((fault for fault in faults if fault), None):
        return _faulty(number, name, fault)
    finish = "length" if cells.get(columns.finish) == "length" else "stop"
    return Completion(number, task, text or "", tokens, finish, group=_key(group), size=size)


def _trajectory(number: int, cells: Any, size: int) -> Completion:
    if not isinstance(cells, Mapping):
        return _faulty(number, "run", str(cells))
    text, tokens = cells.get("completion"), cells.get("tokens")
    about = {name: cells.get(column) for name, column in ABOUT.items()}
    prompt = cells.get("prompt")
    task_id = str(cells.get("task_id"))
    if not isinstance(text, str) or not isinstance(prompt, str) or not _is_count(tokens):
        return _faulty(number, "run", "the row is none that a run wrote", about)
    try:
        told = read_json(cells["task"], limits=_ROW)
    except (KeyError, TypeError, DocumentError):
        told = None
    if not isinstance(told, dict) or not isinstance(told.get("columns"), dict):
        return _faulty(number, "run", "the run did not write the task's answer and columns", about)
    task = Task(task_id, _messages(prompt), told.get("answer"), told["columns"], "run")
    group = (cells.get("stage"), cells.get("step"), cells.get("tree"))
    return Completion(number, task, text, tokens, str(cells.get("finish") or "stop"), None, group, about, size)


ABOUT = {"step": "step", "task": "task_id", "recorded": "outcome"}
"""Entries of a run's output lines, and the columns that they come from."""


def _faulty(number: int, name: str, fault: str, about: Mapping[str, Any] | None = None) -> Completion:
    return Completion(number, Task(f"{name}/{number}", ()), fault=fault, about=about or {})


def _fault(column: str, value: Any, fits: bool, allowed: str) -> str | None:
    return None if fits else f"column {quoted(column)} holds {kind_of(value)}; allowed: {allowed}"


def _answer(cells: Mapping[str, Any], columns: GradedColumns) -> Any:
    try:
        return cell_of(cells, columns.answer)
    except KeyError:
        return None


def _after(answer: Any, mark: str) -> Any:
    """What follows the mark, of each answer; None where one has none."""
    found = [after_last(str(one), mark) if is_scalar(one) else None for one in _listed(answer)]
    if None in found:
        return None
    return found if isinstance(answer, list) else found[0]


def _listed(answer: Any) -> list[Any]:
    return answer if isinstance(answer, list) else [answer]


def _unmarked(columns: GradedColumns) -> str:
    return f"column {quoted(columns.answer)} has nothing after {quoted(str(columns.answer_after))}"


def _messages(prompt: Any) -> tuple[Message, ...]:
    if isinstance(prompt, list) and not fault_of(prompt):
        return tuple(plain_messages(prompt))
    return ({"role": "user", "content": prompt if isinstance(prompt, str) else ""},)


def _further(cells: Mapping[str, Any], columns: GradedColumns) -> dict[str, Any]:
    return {name: value for name, value in cells.items() if name not in (columns.prompt, columns.completion)}


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS


def _key(group: Any) -> Any:
    """A group's key; only a text or a number is one."""
    return group if isinstance(group, str | int) else None

"""Verdicts of a model's samples by task: sampled here, or in a file of an earlier command or of another program.

One JSON object per line: ``task`` (or ``id``), ``correct`` (true, false or null; or a list of these), and ``level`` and
``hint`` where there are some. Lines of one task and hint are added up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from lyceum.core.types import Scored
from lyceum.utils.atomic_files import atomic_write
from lyceum.utils.documents import DATA, DocumentError, read_json
from lyceum.utils.errors import RecipeError
from lyceum.utils.numbers import to_json
from lyceum.utils.terminal import quoted

REQUEST = "sampled_with"
"""Entry of a file's first line: the settings of the samples, where this program wrote it."""
MOST_VERDICTS = 100_000
"""Maximum verdicts per task in a file."""


@dataclass(frozen=True)
class TaskSamples:
    """One task's samples under one model.

    Attributes:
        hint: tier of the hints in the prompt; None without.
        correct: verdict of each sample; None where it could not be graded.
        right: some of the correct answers as tokens, for their perplexity under another model.
    """

    task: str
    level: str | None
    hint: str | None
    correct: tuple[bool | None, ...]
    right: tuple[Scored, ...] = ()

    @property
    def graded(self) -> int:
        return sum(verdict is not None for verdict in self.correct)

    @property
    def solved(self) -> int:
        """Number of correct samples."""
        return sum(verdict is True for verdict in self.correct)

    @property
    def accuracy(self) -> float:
        """Raises ZeroDivisionError where nothing is graded."""
        return self.solved / self.graded

    def to_json(self) -> dict[str, Any]:
        line: dict[str, Any] = {"task": self.task, "level": self.level, "hint": self.hint, "correct": self.correct}
        return line | ({"right": [[path.start, list(path.tokens)] for path in self.right]} if self.right else {})


@dataclass(frozen=True)
class ModelSamples:
    """All samples of one model; ``request`` is empty where another program drew them."""

    label: str
    tasks: Sequence[TaskSamples]
    request: Mapping[str, Any]

    @cached_property
    def _by_task(self) -> dict[str | None, dict[str, TaskSamples]]:
        found: dict[str | None, dict[str, TaskSamples]] = {}
        for task in self.tasks:
            found.setdefault(task.hint, {})[task.task] = task
        return found

    def by_task(self, hint: str | None) -> dict[str, TaskSamples]:
        """Task id -> its samples with the hints of a tier, or without any."""
        return self._by_task.get(hint, {})

    def write(self, file: Path) -> None:
        lines = [{REQUEST: self.request}, *(task.to_json() for task in self.tasks)]
        atomic_write(file, "".join(to_json(line) + "\n" for line in lines))


def read_samples(key: str, file: Path, label: str) -> ModelSamples:
    """The samples in a file.

    Raises:
        RecipeError: it cannot be read, or a line is none of samples; the message begins with ``key``.
    """
    request: Mapping[str, Any] = {}
    verdicts: dict[tuple[str, str | None], list[bool | None]] = {}
    levels: dict[tuple[str, str | None], str | None] = {}
    right: dict[tuple[str, str | None], list[Scored]] = {}
    for number, line in enumerate(_lines(key, file), 1):
        where = f"{key}: line {number} of {str(file)!r}"
        if number == 1 and isinstance(line, dict) and isinstance(line.get(REQUEST), dict):
            request = line[REQUEST]
            continue
        of = (_name(where, line), _text(where, line, "hint"))
        levels.setdefault(of, _text(where, line, "level"))
        known = verdicts.setdefault(of, [])
        known += _verdicts(where, line["correct"])
        if len(known) > MOST_VERDICTS:
            raise RecipeError(f"{where}: more than {MOST_VERDICTS} verdicts of task {quoted(of[0])}")
        right.setdefault(of, []).extend(_paths(where, line.get("right")))
    if not verdicts:
        raise RecipeError(f"{key}: {str(file)!r} holds no samples; allowed: lines with 'task' and 'correct'")
    tasks = [
        TaskSamples(task, levels[task, hint], hint, tuple(known), tuple(right[task, hint]))
        for (task, hint), known in verdicts.items()
    ]
    return ModelSamples(label, tasks, request)


def _lines(key: str, file: Path) -> Iterable[Any]:
    try:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    try:
                        yield read_json(line, limits=DATA)
                    except DocumentError as error:
                        raise RecipeError(f"{key}: line {number} of {str(file)!r}: not JSON: {error}") from None
    except RecipeError:
        raise
    except (OSError, ValueError) as error:  # a NUL in the name
        raise RecipeError(f"{key}: {str(file)!r} cannot be read: {error}") from None


def _name(where: str, line: Any) -> str:
    given = line.get("task", line.get("id")) if isinstance(line, dict) else None
    if not isinstance(given, str | int) or isinstance(given, bool) or "correct" not in line:
        raise RecipeError(f"{where}: got {quoted(line)}; allowed: an object with 'task' (or 'id') and 'correct'")
    return str(given)


def _text(where: str, line: Mapping[str, Any], name: str) -> str | None:
    value = line.get(name)
    if isinstance(value, bool) or not isinstance(value, str | int | float | None):
        raise RecipeError(f"{where}: {name}: got {quoted(value)}; allowed: a text, a number or null")
    return None if value is None else str(value)


def _verdicts(where: str, value: Any) -> list[bool | None]:
    given = value if isinstance(value, list) else [value]
    if odd := [each for each in given if each is not None and not isinstance(each, bool)]:
        raise RecipeError(f"{where}: correct: got {quoted(odd[0])}; allowed: true, false, null, or a list of these")
    return given


def _paths(where: str, value: Any) -> list[Scored]:
    if value is None:
        return []
    try:
        paths = [Scored(tokens, start, len(tokens)) for start, tokens in value]
        if all(1 <= path.start < path.stop and all(_is_token(token) for token in path.tokens) for path in paths):
            return paths
    except (TypeError, ValueError):
        pass
    raise RecipeError(f"{where}: right: got {quoted(value)}; allowed: lists of a start and tokens, or no such entry")


def _is_token(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31

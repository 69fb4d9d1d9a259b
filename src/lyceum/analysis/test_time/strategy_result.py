"""One strategy at one size: what it chose for each task, what that cost, and the folder that keeps it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lyceum.evaluation.intervals import Interval, share_interval
from lyceum.utils.atomic_files import atomic_write
from lyceum.utils.documents import DATA, DocumentError, read_json
from lyceum.utils.errors import RecipeError
from lyceum.utils.numbers import level_order, plain, to_json

REQUEST = "request.json"
FIGURES = ("search.json", "search.png")


@dataclass(frozen=True)
class StrategyResult:
    """Metrics of a strategy at a size; the three lists have one entry per task, costs are means over tasks.

    Attributes:
        settings: the strategy's rollout at this size, as in a recipe, and its choice.
        right: whether the chosen answer is correct; None if it could not be graded.
        any_correct: whether any trajectory is correct (oracle choice); None if none was graded.
        levels: of the tasks; None for a task without one.
        tokens_sampled: tokens sampled.
        tokens_computed: tokens fed to the policy, including prompts; shared prefixes count once.
        tokens_valued: tokens read by the value model; a path counts once per evaluation.
        trajectories: number of finished ones.
        seconds: of all tasks together, from the first token to the choice; grading is not part of it.
        unanswered: tasks without a finished trajectory; they count as incorrect.
        reasons: why answers could not be graded -> count.
    """

    strategy: str
    size: int
    settings: dict[str, Any]
    right: list[bool | None]
    any_correct: list[bool | None]
    levels: list[str | None]
    tokens_sampled: float
    tokens_computed: float
    tokens_valued: float
    trajectories: float
    seconds: float
    unanswered: int
    reasons: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.strategy}-{self.size}"

    @property
    def tokens_spent(self) -> float:
        """Tokens computed by the policy plus tokens read by the value model."""
        return self.tokens_computed + self.tokens_valued

    def metrics(self) -> dict[str, Any]:
        """As in search.json; shares with ``mean``, ``low``, ``high``."""
        at_levels = sorted({level for level in self.levels if level is not None}, key=level_order)
        return {
            "strategy": self.strategy,
            "size": self.size,
            "accuracy": share(self.right),
            "pass_oracle": share(self.any_correct),
            "by_level": {
                level: share([r for r, of in zip(self.right, self.levels, strict=True) if of == level])
                for level in at_levels
            },
            "tokens_spent": round(self.tokens_spent, 3),
            "tokens_sampled": round(self.tokens_sampled, 3),
            "tokens_computed": round(self.tokens_computed, 3),
            "tokens_valued": round(self.tokens_valued, 3),
            "trajectories": round(self.trajectories, 3),
            "seconds": round(self.seconds, 3),
            "tasks": len(self.right),
            "ungraded": sum(verdict is None for verdict in self.right),
            "unanswered": self.unanswered,
            "reasons_ungraded": self.reasons,
            "notes": self.notes,
            "settings": self.settings,
        }


def share(verdicts: Sequence[bool | None]) -> dict[str, float] | None:
    """Accuracy with its 95 % interval, ungraded answers left out; None if nothing was graded."""
    graded = [float(verdict) for verdict in verdicts if verdict is not None]
    return share_interval(graded).to_json() if graded else None


def interval(found: Mapping[str, float] | None) -> Interval | None:
    return None if found is None else Interval.from_json(found)


def _read(file: Path) -> dict[str, Any]:
    try:
        found = read_json(file.read_bytes(), limits=DATA)
    except (DocumentError, OSError) as error:
        raise RecipeError(f"{file}: {error}; allowed: as the search wrote it, or no such file") from error
    if not isinstance(found, dict):
        raise RecipeError(f"{file}: holds a {type(found).__name__}; allowed: as the search wrote it, or no such file")
    return found


def differences(before: Any, now: Any, key: str = "") -> Iterator[str]:
    """``KEY OLD and now NEW`` of each setting that is not the same, by its whole key."""
    if isinstance(before, dict) and isinstance(now, dict):
        for name in {**before, **now}:
            yield from differences(before.get(name), now.get(name), f"{key}.{name}" if key else name)
    elif before != now:
        yield f"{key} {before} and now {now}"


class Folder:
    """A search's output folder: a strategy at a size is done once its .json exists, which is written last."""

    def __init__(self, path: Path, request: Mapping[str, Any]) -> None:
        """
        Raises:
            RecipeError: the path is a file, or holds a search of something else.
        """
        self.path, self.request = path, plain(request, other=str)
        if (path / REQUEST).is_file():
            before = _read(path / REQUEST)
            keys = [key for key in {**before, **self.request} if before.get(key) != self.request.get(key)]
            if keys:
                raise RecipeError(
                    f"output: {path} holds a search with {key} {before.get(key)}, now {self.request.get(key)}; "
                    "allowed: the same, or another folder"
                    for key in keys
                )

    def done(self, name: str, settings: Mapping[str, Any]) -> StrategyResult | None:
        """The result of that name; None if it is not finished.

        Raises:
            RecipeError: it was searched with other settings.
        """
        file = self.path / f"{name}.json"
        if not file.is_file():
            return None
        try:
            found = StrategyResult(**_read(file))
        except TypeError as error:
            raise RecipeError(f"{file}: {error}; allowed: as the search wrote it, or no such file") from error
        now = plain(settings)
        if found.settings != now:
            was = ", ".join(differences(found.settings, now))
            raise RecipeError(f"output: {file} was searched with {was}; allowed: the same, or another folder")
        return found

    def refuse_others(self, names: Iterable[str]) -> None:
        """Raise RecipeError if the folder holds no search, but a file that this one would overwrite."""
        if not (self.path / REQUEST).is_file():
            ours = [*FIGURES, *(f"{name}{suffix}" for name in names for suffix in (".json", ".jsonl"))]
            if there := [name for name in ours if os.path.lexists(self.path / name)]:
                raise RecipeError(
                    f"output: {self.path} has {there[0]} already, which no search wrote; allowed: another folder"
                )

    def write(self, result: StrategyResult, answers: Sequence[Mapping[str, Any]]) -> None:
        """Write the answers first: the metrics file marks it as done."""
        self.path.mkdir(parents=True, exist_ok=True)
        if not (self.path / REQUEST).is_file():
            atomic_write(self.path / REQUEST, to_json(self.request, indent=2) + "\n")
        lines = "".join(to_json(answer, other=str) + "\n" for answer in answers)
        atomic_write(self.path / f"{result.name}.jsonl", lines)
        atomic_write(self.path / f"{result.name}.json", to_json(asdict(result), indent=1) + "\n")

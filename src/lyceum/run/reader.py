"""Reads what a run wrote: recipe.yaml, summary.json, metrics.jsonl and examples.json, of a finished run or of one
still going. A damaged file is refused by its name, so that callers can rely on what they get."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from lyceum.utils.documents import DocumentError, read_yaml
from lyceum.utils.errors import RecipeError
from lyceum.utils.terminal import quoted

FILES = (
    *("recipe.yaml", "summary.json", "metrics.jsonl", "examples.json", "report.html"),
    *(
        "rollouts",
        "checkpoints",
        "model",
        "models",
        "value",
        "model.partial",
        "best",
        "best.partial",
        "value.partial",
        "stages",
        "kept_models",
    ),
    *("digests", "trees", "replay", "ahead", "data", "judgements", "tasks", "initial"),
    *("tensorboard", "wandb", ".wandb-id"),
)
"""What a run writes into its folder."""

TO_DO = "allowed: the file as the run wrote it; to repair it, resume the run (lyceum train ... --resume)"


class _Written(BaseModel):
    """The keys of a file that readers depend on."""

    model_config = ConfigDict(extra="allow", strict=True)


class _Figure(_Written):
    mean: float
    low: float
    high: float


class _Measured(_Written):
    overall: _Figure | None = None
    by_level: dict[str, _Figure] | None = None
    greedy: _Measured | None = None
    pass_at: dict[str, _Figure] | None = None
    maj_at: dict[str, _Figure] | None = None
    reward: _Figure | None = None
    tasks: int | None = None
    samples: int | None = None
    ungraded: int | None = None
    unjudged: int | None = None
    to_judge: str | None = None
    reasons_ungraded: dict[str, int] | None = None


class _Best(_Written):
    step: int
    overall: _Figure


class _Ended(_Written):
    steps: int
    why: str


class _Summary(_Written):
    finished: bool = False
    best: _Best | None = None
    before: _Measured | None = None
    after: _Measured | None = None
    versions: dict[str, Any] = {}
    seconds: dict[str, float] = {}
    seed: int | None = None
    title: str | None = None
    steps: int | None = None
    ended: dict[str, _Ended] | None = None
    tokens_sampled: int | None = None
    tokens_trained: int | None = None
    trajectories: int | None = None
    truncated: int | None = None
    ungraded: int | None = None
    skipped_steps: int | None = None
    reasons_ungraded: dict[str, int] | None = None
    learnt: bool | None = None
    threads: Annotated[int, Field(ge=1)] | None = None
    nothing_learnt: list[str] | None = None
    recipe: str | None = None


class _Line(_Written):
    step: int
    time: float | None = None
    tokens_sampled: int | None = None
    tokens_trained: int | None = None


class _Answer(_Written):
    completion: str
    correct: bool | None


class _Example(_Written):
    task_id: str
    prompt: str
    before: _Answer | None = None
    after: _Answer | None = None


class _Recipe(_Written):
    model: dict[str, Any] | None = None
    evaluate: dict[str, Any] | None = None
    stages: list[dict[str, Any]] | None = None


_SUMMARY, _LINE, _EXAMPLES, _RECIPE = map(TypeAdapter[Any], (_Summary, _Line, list[_Example], _Recipe))


def is_run(path: Path) -> bool:
    """Whether a run wrote this folder: a recipe.yaml alone is not enough."""
    return (path / "recipe.yaml").is_file() and any((path / name).is_file() for name in ("summary.json", ".lock"))


@dataclass(frozen=True)
class RunFolder:
    """One run.

    Attributes:
        path: the folder.
        summary: summary.json; empty where it is not written yet.
        metrics: lines of metrics.jsonl in order; metrics that are not finite numbers are None.
        notes: what was missing or unreadable, in readable sentences.
    """

    path: Path
    summary: Mapping[str, Any] = field(default_factory=dict)
    metrics: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def finished(self) -> bool:
        return bool(self.summary.get("finished"))

    @property
    def seconds(self) -> float | None:
        """Seconds of all phases together."""
        phases = self.summary.get("seconds")
        return float(sum(phases.values())) if phases else None

    def curve(self, key: str) -> list[tuple[float, float]]:
        """(tokens sampled, key) of the lines that have both."""
        points = ((line.get("tokens_sampled"), line.get(key)) for line in self.metrics)
        return [(float(tokens), float(value)) for tokens, value in points if tokens is not None and value is not None]


def require_folder(path: Path | str) -> Path:
    """The path of a folder. Raises RecipeError where there is none."""
    path = Path(path)
    if not path.is_dir():
        raise RecipeError(f"run folder: got {str(path)!r}, which is not a folder; allowed: one that a run wrote")
    return path


def read_run_folder(path: Path | str) -> RunFolder:
    """Whatever of a run can be read; missing pieces are noted.

    Raises:
        RecipeError: no such folder, or an invalid file in it.
    """
    path = require_folder(path)
    notes: list[str] = []
    summary = read_summary(path)
    if not (path / "summary.json").exists():
        notes.append("There is no summary.json yet.")
    metrics: list[dict[str, Any]] = []
    if (path / "metrics.jsonl").exists():
        metrics = _read_metrics(path / "metrics.jsonl", notes)
    else:
        notes.append("There is no metrics.jsonl yet.")
    return RunFolder(path, summary, metrics, notes)


def read_summary(path: Path) -> dict[str, Any]:
    """A run's summary.json; empty where it is not written yet.

    Raises:
        RecipeError: it is not what a run wrote.
    """
    file = path / "summary.json"
    return _json(str(file), _text(file), _SUMMARY) if file.exists() else {}


def read_examples(path: Path) -> list[dict[str, Any]]:
    """A run's examples.json: tasks with their first answers before and after training; empty where there is none.

    Raises:
        RecipeError: it is not what a run wrote.
    """
    file = path / "examples.json"
    return _json(str(file), _text(file), _EXAMPLES, "allowed: as the run wrote it, or none") if file.exists() else []


def read_recipe(path: Path) -> dict[str, Any]:
    """What a run's recipe.yaml says.

    Raises:
        RecipeError: it is not what a run wrote.
    """
    file = path / "recipe.yaml"
    try:
        written = read_yaml(_text(file))
    except DocumentError as error:
        raise RecipeError(f"{file}: not YAML ({error}); allowed: as the run wrote it") from error
    return _shaped(str(file), written, _RECIPE, "allowed: keys, as the run wrote them")


def _read_metrics(path: Path, notes: list[str]) -> list[dict[str, Any]]:
    lines = _text(path).split("\n")
    # A line is complete with its newline: what follows the last one is still being written.
    if lines.pop():
        notes.append("The last line of metrics.jsonl was still being written and is left out.")
    found = [_json(f"{path}, line {number}", line, _LINE) for number, line in enumerate(lines, 1) if line.strip()]
    broken = sorted({key for line in found for key, value in line.items() if _not_finite(value)})
    if broken:
        notes.append(f"Not a finite number on some steps, and left out there: {', '.join(broken)}.")
    return [{key: None if _not_finite(value) else value for key, value in line.items()} for line in found]


def _not_finite(value: Any) -> bool:
    if isinstance(value, int):
        return value.bit_length() > 1023  # no float is so large
    return value is None or (isinstance(value, float) and not math.isfinite(value))


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise RecipeError(f"{file}: not a text ({error.reason}, byte {error.start}); {TO_DO}") from error
    except OSError as error:
        raise RecipeError(f"{file}: cannot be read ({error.strerror}); {TO_DO}") from error


def _json(where: str, text: str, shape: TypeAdapter[Any], to_do: str = TO_DO) -> Any:
    try:
        value = json.loads(text)  # takes NaN, which earlier versions wrote
    except (ValueError, RecursionError) as error:
        raise RecipeError(f"{where}: not JSON ({str(error)[:200]}); {to_do}") from error
    return _shaped(where, value, shape, to_do)


def _shaped(where: str, value: Any, shape: TypeAdapter[Any], to_do: str) -> Any:
    """The value itself, if it has the shape."""
    try:
        shape.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = "".join(f"{part}: " for part in [".".join(map(str, first["loc"]))] if part)
        said = (
            f"{first['msg'][0].lower()}{first['msg'][1:]}" if first["type"] != "model_type" else "should be a mapping"
        )
        raise RecipeError(f"{where}: {key}got {quoted(first['input'])}, {said}; {to_do}") from error
    return value

"""Reads what a run wrote down: recipe.yaml, summary.json and metrics.jsonl, of a finished run or of one still going."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from lyceum.component import RecipeError


@dataclass(frozen=True)
class RunFolder:
    """One run.

    Attributes:
        path: the folder.
        summary: summary.json; empty where it is not written yet.
        metrics: lines of metrics.jsonl in order; figures that are not finite numbers are left out of their line.
        notes: what was missing or unreadable, in sentences for a person.
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
        """Of all phases together."""
        phases = self.summary.get("seconds")
        return float(sum(phases.values())) if phases else None

    def curve(self, key: str, *, over: str = "tokens_sampled") -> list[tuple[float, float]]:
        """(over, key) of the lines that have both."""
        return [(float(line[over]), float(line[key])) for line in self.metrics if key in line and over in line]


def read_run_folder(path: Path | str) -> RunFolder:
    """What of a run can be read; pieces that are not there yet are noted and not made up.

    Raises:
        RecipeError: no such folder, or a file in it that is not what it should be.
    """
    path = Path(path)
    if not path.is_dir():
        raise RecipeError(f"run folder: got {str(path)!r}, which is not a folder; allowed: one that a run wrote")
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
    return _object(file, file.read_text("utf-8")) if file.exists() else {}


def read_recipe(path: Path) -> dict[str, Any]:
    """What a run's recipe.yaml says.

    Raises:
        RecipeError: it is not what a run wrote.
    """
    file = path / "recipe.yaml"
    try:
        written = yaml.safe_load(file.read_text("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise RecipeError(f"{file}: not YAML ({' '.join(str(error).split())}); allowed: as the run wrote it") from error
    if not isinstance(written, dict):
        raise RecipeError(f"{file}: holds a {type(written).__name__}; allowed: keys, as the run wrote them")
    return written


def _read_metrics(path: Path, notes: list[str]) -> list[dict[str, Any]]:
    lines = path.read_text("utf-8").split("\n")
    # A line counts from its newline on: what follows the last one is still being written.
    if lines.pop():
        notes.append("The last line of metrics.jsonl was still being written and is left out.")
    found = [_object(path, line, number) for number, line in enumerate(lines, 1) if line.strip()]
    broken = sorted({key for line in found for key, value in line.items() if _not_finite(value)})
    if broken:
        notes.append(f"Not a finite number on some steps, and left out there: {', '.join(broken)}.")
    return [{key: value for key, value in line.items() if not _not_finite(value)} for line in found]


def _not_finite(value: Any) -> bool:
    return value is None or (isinstance(value, float) and not math.isfinite(value))


def _object(path: Path, text: str, line: int | None = None) -> dict[str, Any]:
    where = str(path) if line is None else f"{path}, line {line}"
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise RecipeError(f"{where}: not JSON ({error.msg}, column {error.colno}); allowed: a JSON object") from error
    if not isinstance(value, dict):
        raise RecipeError(f"{where}: got a {type(value).__name__}; allowed: a JSON object")
    return value

"""Where two runs first differ, by the digests that each wrote (``run/digests.py``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lyceum.core.user_files import user_file
from lyceum.run.digests import FOLDER, PARTS
from lyceum.utils.documents import DATA, read_json
from lyceum.utils.errors import RecipeError


@dataclass(frozen=True)
class FirstDifference:
    """Where two runs first differ.

    Attributes:
        step: the first step that differs.
        part: the first part in it that differs, or ``end`` where one of the runs has no such step.
        values: name -> (in the first run, in the second); None where a run has no value.
    """

    step: int
    part: str
    values: Mapping[str, tuple[Any, Any]]


Digests = Mapping[int, Mapping[str, Mapping[str, Any]]]
"""Step -> part -> name -> digest or number."""


def first_difference(a: Digests, b: Digests) -> FirstDifference | None:
    """The first step, and in it the first part, in which two runs' digests differ; None where all are equal."""
    for step in sorted({*a, *b}):
        if step not in a or step not in b:
            return FirstDifference(step, "end", {"step": (step if step in a else None, step if step in b else None)})
        for part in PARTS:
            values = dict(_differing(a[step].get(part, {}), b[step].get(part, {})))
            if values:
                return FirstDifference(step, part, values)
    return None


def _differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[tuple[str, tuple[Any, Any]]]:
    for name in dict.fromkeys([*a, *b]):
        if a.get(name) != b.get(name):
            yield name, (a.get(name), b.get(name))


def read_digests(run: Path) -> Digests:
    """A run's digests, by step.

    Raises:
        RecipeError: there is no such run, it has none, or a file cannot be read.
    """
    if not run.is_dir():
        raise RecipeError(f"run: {run} is not a run's folder; allowed: one that lyceum train wrote")
    files = sorted((run / FOLDER).glob("step-*.json"))
    if not files:
        raise RecipeError(f"run: {run} has no {FOLDER}; allowed: a run that was trained with digests=true")
    found: dict[int, Any] = {}
    for file in files:
        with user_file("run", file, "allowed: the file as the run wrote it"):
            found[int(file.stem.removeprefix("step-"))] = _by_part(read_json(file.read_bytes(), limits=DATA))
    return found


def _by_part(value: Any) -> Mapping[str, Mapping[str, Any]]:
    if not isinstance(value, dict) or not all(isinstance(of_part, dict) for of_part in value.values()):
        raise TypeError("not a mapping of parts")
    return value

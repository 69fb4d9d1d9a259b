"""The trees that a stage of a run has left: those that an offline stage trained on, and those of ``trees_every``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from lyceum.run.reader import is_run, read_recipe
from lyceum.run.trees import FOLDER, read_heading
from lyceum.utils.errors import RecipeError, nearest
from lyceum.utils.terminal import quoted

_STEP = re.compile(r"step-([0-9]{6,18})\.parquet")
_PART = re.compile(r"part-([0-9]{6,18})\.parquet")


def part_file(folder: Path, number: int) -> Path:
    """File of a part of an offline stage's data.

    Args:
        folder: of the stage.
    """
    return folder / "data" / f"part-{number:06d}.parquet"


def tree_files(run: Path, stage: str | None, key: str) -> list[Path]:
    """Files with the trees of a stage, or of all stages, in the order in which they were written.

    Args:
        key: of the recipe, for error lines.
    Raises:
        RecipeError: no run, no such stage, or no trees of it.
    """
    if not is_run(run):
        raise RecipeError(f"{key}.path: {run} is not a run's folder; allowed: one that lyceum train wrote")
    names = [str(each.get("name") or each.get("kind")) for each in read_recipe(run).get("stages") or ()]
    if stage is not None and stage not in names:
        raise RecipeError(
            f"{key}.from_stage: got {quoted(stage)}{nearest(stage, names)}, which is no stage of {run}; allowed: "
            f"{', '.join(names)}"
        )
    wanted = [number for number, name in enumerate(names) if stage in (None, name)]
    found = [file for number in wanted for file in _of_stage(run, names, number)]
    if not found:
        of = "" if stage is None else f" of stage {quoted(stage)}"
        raise RecipeError(f"{key}: {run} has no trees{of}; allowed: an offline stage, or a run with trees_every=STEPS")
    return found


def _of_stage(run: Path, names: list[str], number: int) -> Iterator[Path]:
    folder = run if number == len(names) - 1 else run / "stages" / names[number]
    yield from _numbered(folder / "data", _PART)
    yield from (file for file in _numbered(run / FOLDER, _STEP) if read_heading(file).stage == number)


def _numbered(folder: Path, named: re.Pattern[str]) -> list[Path]:
    return sorted(file for file in folder.glob("*.parquet") if named.fullmatch(file.name))

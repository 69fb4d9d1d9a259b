"""Which steps of a run can be replayed: those whose trees are written, and whose starting weights are there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from lyceum.recipe.schema import Recipe
from lyceum.run import checkpoint
from lyceum.training.stages.online import Online
from lyceum.utils.errors import RecipeError

if TYPE_CHECKING:
    from lyceum.run.trees import Heading, StepTrees

_STEP = re.compile(r"step-([0-9]{6,18})\.parquet")


def find_recorded(run: Path, step: int, recipe: Recipe) -> tuple[StepTrees, Path | None]:
    """A step's trees, and the checkpoint it began from; None where that is the initial model.

    Raises:
        RecipeError: there are no trees of the step, or no weights that it began with.
    """
    from lyceum.run.trees import FOLDER, read_heading, read_trees

    files = {file: match for file in (run / FOLDER).glob("step-*.parquet") if (match := _STEP.fullmatch(file.name))}
    of_step = {int(match[1]): file for file, match in sorted(files.items())}
    if not of_step:
        raise RecipeError(f"run: {run} has no {FOLDER}; allowed: a run that was trained with trees_every=STEPS")
    saved = {checkpoint.step_of(path): path for path in reversed(checkpoint.found(run / "checkpoints"))}
    why = "whose trees the run did not write (trees_every)"
    if step in of_step and (why := _why_not(read_heading(of_step[step]), saved, recipe)) is None:
        recorded = read_trees(of_step[step])
        if any(tree.graded for tree in recorded.trees):
            return recorded, saved.get(step - 1)
        why = "which had no graded trajectory to train on"
    begins = [file for other, file in of_step.items() if other - 1 in (0, *saved) and other != step]
    can = [of.step for of in map(read_heading, begins) if _why_not(of, saved, recipe) is None]
    allowed = ", ".join(map(str, can)) or "none of this run: a step that begins from a checkpoint, with its trees"
    raise RecipeError(f"step: got {step}, {why}; allowed: {allowed}")


def _why_not(of: Heading, saved: Mapping[int, Path], recipe: Recipe) -> str | None:
    """Why a step cannot be replayed; None where it can."""
    stage = recipe.stages[of.stage] if of.stage < len(recipe.stages) else None
    if not isinstance(stage, Online):
        return "which fine-tuned on what its search found, without credit"
    if stage.replay is not None and stage.replay.warms_up(of.step - of.first_step - 1):
        return "which trained nothing: what it sampled was only stored (replay.warm_up)"
    if of.step == 1:
        return None  # from the initial model
    if of.step - 1 not in saved:
        return f"but the run has no checkpoint of step {of.step - 1}, whose weights it began with (checkpoint_every)"
    return None

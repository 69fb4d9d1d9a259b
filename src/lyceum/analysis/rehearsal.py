"""``lyceum train --dry-run``: what a run would begin with, and what it would take."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Literal

from lyceum.analysis.sizes import Sizes, sizes_of
from lyceum.core.types import Task
from lyceum.models.renderer import Renderer
from lyceum.models.trial import over_rows, rows_ahead
from lyceum.recipe.schema import Recipe
from lyceum.reward.base import allow_code
from lyceum.training.train import claimed, get_ready, threads_of

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Rehearsal:
    """What a run would begin with.

    Attributes:
        tasks: how many there are to train on; None where the first stage trains on a file of completions.
        held_out: how many there are to evaluate on; 0 where nothing is evaluated.
        evaluated: how many of them are.
        first: the first task, or the first row of that file.
        prompt: its prompt, as the model's chat template writes it.
        tokens: of that prompt.
        threads: of the CPU.
        sizes: of memory and disk.
    """

    tasks: int | None
    held_out: int
    evaluated: int
    first: Task
    prompt: str
    tokens: int
    threads: int
    sizes: Sizes


def rehearse(
    recipe: Recipe, *, resume: bool | Literal["auto"] = False, overwrite: bool = False, card: str | None = None
) -> Rehearsal:
    """Everything that a training does before it loads a model; nothing is written.

    Args:
        card: a card that is not here, whose memory the run is held against.
    Raises:
        RecipeError: as :func:`lyceum.training.train.train`.
    """
    ready = get_ready(recipe, own=resume is not False and not overwrite)
    recipe, source = ready.recipe, ready.source
    run = claimed(recipe, resume=resume, overwrite=overwrite)
    try:
        threads = threads_of(recipe, run)
    finally:
        run.leave()
    of = recipe.stages[0].composition()
    data = of.data if of.data is not None and of.data.given else None
    first = source[0] if data is None else data.first_task()
    if (how := rows_ahead(recipe.model)) is not None:
        log.warning("%s", over_rows(how))
    with allow_code():
        tools = () if of.rollout is None or data is not None else of.rollout.tools
    prompt = Renderer(ready.tokenizer).render(first.messages, tools)
    held = len(ready.held_out) if recipe.evaluate.n else 0
    tasks = len(source) if data is None else None
    sizes = sizes_of(ready, card)
    return Rehearsal(tasks, held, ready.evaluated, first, prompt.text, len(prompt.tokens), threads, sizes)

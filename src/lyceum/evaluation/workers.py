"""Evaluations by several processes, each of which samples and grades a part of the tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from functools import partial
from typing import Any

from lyceum.core.types import Sampling
from lyceum.core.waves import Runtime
from lyceum.evaluation.held_out import Draws, HeldOut
from lyceum.models.load import load_policy
from lyceum.recipe.schema import Recipe
from lyceum.reward.base import allow_code, combine
from lyceum.runtime.processes import Processes, Workers
from lyceum.utils.lazy_imports import torch


def begun(recipe: Recipe) -> Callable[[HeldOut], AbstractContextManager[Runtime]]:
    """Where a recipe's held-out tasks grow, as ``evaluate.workers`` says: its processes end with what is entered."""
    return nullcontext if recipe.evaluate.workers == 1 else partial(_workers, recipe)


@contextmanager
def _workers(recipe: Recipe, here: HeldOut) -> Iterator[Runtime]:
    workers = recipe.evaluate.workers
    start = {
        "recipe": recipe.resolved(),
        "held_out": {"sampling": here.draws.sampling.model_dump(mode="json"), "samples": here.draws.samples},
        "seed": here.runtime.seed,
        "threads": max(1, torch.get_num_threads() // workers),
    }
    with closing(Workers(Processes(workers=workers), here, start, key="evaluate")) as runtime:
        runtime.publish(0)
        yield runtime


def held_out_elsewhere(told: Mapping[str, Any]) -> HeldOut:
    """In another process than the run's, from what it is told: with the weights of no snapshot yet."""
    recipe = Recipe.model_validate(told["recipe"])
    policy, how = load_policy(recipe.model), told["held_out"]
    source = (recipe.evaluate.tasks or recipe.tasks).build("heldout", recipe.seed)
    with allow_code():  # the user allowed the recipe's code when it was loaded
        grader = combine(recipe.reward, source)
    draws = Draws(recipe.evaluation_rollout, Sampling.model_validate(how["sampling"]), how["samples"])
    return HeldOut(policy, recipe.evaluation_engine.build(policy), grader, draws, seed=told["seed"])

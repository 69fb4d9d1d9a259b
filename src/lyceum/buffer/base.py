"""What kinds of replay share: settings of what is drawn when, reading drawn groups, and what a forest says of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray
from pydantic import Field, model_validator

from lyceum.buffer._index import Index
from lyceum.core.forest import AGE, START_LOGPROB, Forest
from lyceum.core.settings import ReplaySettings
from lyceum.core.tree import REPLAY_NOTE, Tree
from lyceum.core.types import Origin, ReplayedGroup
from lyceum.objective.kl import LOG_RATIO_LIMIT
from lyceum.utils.lazy_imports import Tensor, torch

Keep = Literal["all", "with-gradient", "solved"]


class DrawnSettings(ReplaySettings):
    """Which of the stored groups are drawn, and when."""

    keep: Keep = "all"
    """Which groups are stored: ``with-gradient``, whose rewards differ; ``solved``, with a correct trajectory."""
    most: int = Field(default=100_000, ge=1, le=100_000_000)
    """Maximum groups that may be drawn from, the newest; 16 bytes of memory each. Trees stay on the disk until they are
    drawn."""
    least: int = Field(default=1, ge=1)
    """Stored groups below which none is drawn."""
    max_age: int | None = Field(default=None, ge=1)
    """Maximum age of a drawn group, in steps of the stage since it was stored: 1 is the step before; null: any."""
    priority: Literal["uniform", "newest", "advantage"] = "uniform"
    """Which stored groups are drawn: any alike, the newest, or in proportion to their mean |advantage| when they were
    trained first."""
    once: bool = False
    """Draw each stored group at most once."""
    after: int = Field(default=0, ge=0)
    """Steps of the stage before the first that replays."""
    every: int = Field(default=1, ge=1)
    """Steps between steps that replay; 1: each."""

    @model_validator(mode="after")
    def _enough_are_stored(self) -> Self:
        if self.least > self.most:
            raise ValueError(
                f"least: got {self.least}, but most is {self.most}, so that none is drawn; allowed: at most that"
            )
        return self

    def due(self, done: int) -> bool:
        """Whether the step after ``done`` steps of the stage replays."""
        return done >= self.after and (done + 1) % self.every == 0

    def keeps(self, tree: Tree) -> bool:
        outcomes = {outcome for _, _, outcome in tree.graded_with_outcome()}
        return {"all": bool(outcomes), "with-gradient": len(outcomes) > 1, "solved": bool(tree.solved)}[self.keep]

    def priority_of(self, tree: Tree) -> float:
        """Weight with which a group is drawn, where draws are weighted."""
        return 1.0 if self.priority != "advantage" else tree.mean_abs_advantage or 0.0


def drawn(settings: DrawnSettings, index: Index, number: int, *, seed: int, step: int, since: int) -> Places:
    """Places of the groups that a step draws: a function of seed, step and what is stored.

    Args:
        since: the lowest file number that may be drawn from.
    """
    if len(index) - int(np.searchsorted(index.file, since)) < settings.least:
        return np.empty(0, np.int64)
    rng = np.random.default_rng([seed, step])
    weighted, newest = settings.priority == "advantage", settings.priority == "newest"
    return index.draw(rng, number, since=since, weighted=weighted, newest=newest)


Places = Int[NDArray[Any], " k"]


def read(index: Index, places: Places, file_of: dict[int, Path], age_of: dict[int, int]) -> list[ReplayedGroup]:
    """The groups at these places of an index, each marked with its age.

    Raises:
        RecipeError: a file cannot be read, or is not what a run wrote.
    """
    from lyceum.run.trees import read_some  # here: imports pyarrow

    found: list[ReplayedGroup] = []
    of_file = [(int(index.file[place]), int(index.row[place])) for place in places]
    for file, group in groupby(of_file, key=lambda pair: pair[0]):
        for tree, weight in read_some(file_of[file], [row for _, row in group]):
            tree.sampled_tokens = 0  # not by this step
            tree.metadata[REPLAY_NOTE] = {"age": age_of[file]}
            found.append(ReplayedGroup(tree, weight, age_of[file]))
    return found


def metrics_of(groups: Sequence[ReplayedGroup], stored: int) -> dict[str, float]:
    """What a step drew, and how many groups it could draw from."""
    ages = [group.age for group in groups]
    return {"groups": len(ages), "stored": stored} | ({"age": sum(ages) / len(ages)} if ages else {})


def with_ages(forest: Forest, trees: Sequence[Tree]) -> Forest:
    """The forest of these trees with each token's age, where some tree was recorded."""
    ages = [tree.age for tree in trees]
    if not any(ages):
        return forest
    return forest.with_columns(**{AGE: torch.tensor(ages, dtype=torch.float32)[forest.tree]})


def replayed_tokens(forest: Forest) -> Tensor:
    """The recorded tokens (T,) that the policy wrote."""
    return (forest.columns[AGE] > 0) & (forest.origin == int(Origin.POLICY))


def ratio_metrics(forest: Forest) -> dict[str, float]:
    """How far the policy has moved since recorded tokens were sampled, before the step's updates: means over them."""
    tokens = replayed_tokens(forest)
    moved = (forest.columns["old_logprob"] - forest.behaviour_logprob)[tokens]
    if not len(moved):
        return {}
    ratio = moved.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()
    return {"replay/ratio": float(ratio.mean()), "replay/moved": float(moved.abs().mean())}


def relative_to_behaviour(forest: Forest) -> Forest:
    """``old_logprob`` of recorded tokens replaced by the log-probabilities under which they were sampled."""
    old: Float[Tensor, " T"] = forest.columns["old_logprob"]
    mixed = torch.where(replayed_tokens(forest), forest.behaviour_logprob.to(old.dtype), old)
    return forest.with_columns(**{"old_logprob": mixed, START_LOGPROB: old})

"""What kinds of replay share: what is drawn when, reading it, and what a forest says of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray
from pydantic import Field, model_validator

from lyceum.core.component import require_keys
from lyceum.core.forest import Forest
from lyceum.core.group import AGE, START_LOGPROB, Group
from lyceum.core.settings import ReplaySettings
from lyceum.core.tree import Tree
from lyceum.core.types import GroupSource, Origin
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


_OF_INDEX = {"file": np.int64, "row": np.int32, "priority": np.float32}


class Index:
    """Which groups are stored, without their content (16 bytes each), in the order in which they were stored.

    Attributes:
        file: number of the file that holds each group, never decreasing.
        row: which of the file's groups it is.
        priority: weight with which it is drawn, where draws are weighted; 0 is never drawn.
    """

    def __init__(self) -> None:
        self.file: Int[NDArray[Any], " n"] = np.empty(0, np.int64)
        self.row: Int[NDArray[Any], " n"] = np.empty(0, np.int32)
        self.priority: Float[NDArray[Any], " n"] = np.empty(0, np.float32)

    def __len__(self) -> int:
        return len(self.file)

    def add(self, file: int, priority: Sequence[float], *, rows: Sequence[int], most: int) -> None:
        """Append groups of a file, in its order; the oldest beyond ``most`` are forgotten."""
        added = {"file": [file] * len(rows), "row": rows, "priority": priority}
        for name, dtype in _OF_INDEX.items():
            setattr(self, name, np.concatenate([getattr(self, name), np.array(added[name], dtype)])[-most:])

    def draw(
        self, rng: np.random.Generator, number: int, *, since: int, weighted: bool, newest: bool
    ) -> Int[NDArray[Any], " k"]:
        """Places of at most so many groups, without replacement, in order.

        Args:
            since: the lowest file number that may be drawn from.
            weighted: in proportion to ``priority``; else all alike.
            newest: the last ones instead of random ones.
        """
        first = int(np.searchsorted(self.file, since))
        if newest:
            return np.arange(max(first, len(self) - number), len(self))
        if not weighted:
            left = len(self) - first
            return np.sort(first + rng.choice(left, min(number, left), replace=False))
        # The smallest of exponential times with rates `priority`: draws without replacement in proportion to them.
        likely = first + np.flatnonzero(self.priority[first:] > 0)
        times = rng.exponential(size=len(likely)) / self.priority[likely]
        return np.sort(likely[np.argsort(times, kind="stable")[:number]])

    def remove(self, places: Int[NDArray[Any], " k"]) -> None:
        for name in _OF_INDEX:
            setattr(self, name, np.delete(getattr(self, name), places))

    def state_dict(self) -> dict[str, Any]:
        return {name: torch.from_numpy(getattr(self, name)) for name in _OF_INDEX}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("stage.replay.index", given=state, needed=_OF_INDEX)
        for name, dtype in _OF_INDEX.items():
            setattr(self, name, state[name].numpy().astype(dtype))


class ReplayedGroups:
    """A source of groups around another one: recorded groups beside those that it gives, or in the place of some.

    Memory holds an index; trees are read from their files when they are drawn.
    """

    def __init__(self, settings: DrawnSettings, sampled: GroupSource, *, seed: int, first_step: int) -> None:
        self.settings, self.sampled, self.seed, self.first_step = settings, sampled, seed, first_step
        self.index = Index()
        self.last: list[Group] = []
        """What the current step drew."""

    def since(self, done: int) -> int:
        """The lowest number of a file that the step after ``done`` steps of the stage may draw from."""
        raise NotImplementedError

    def file(self, number: int) -> tuple[Path, int]:
        """A file of the index, and the steps of the stage that were done when it came."""
        raise NotImplementedError

    async def take(self, done: int, size: int) -> list[Group]:
        self.last = self.draw(done, self.settings.number(size))
        groups = await self.sampled.take(done, size - len(self.last) if self.settings.instead else size)
        if self.settings.warms_up(done):
            groups = [replace(group, stored=True) for group in groups]
        finished, unfinished = ([group for group in groups if group.finished is which] for which in (True, False))
        return [*finished, *self.last, *unfinished]

    def draw(self, done: int, number: int) -> list[Group]:
        """At most so many recorded groups for the step after ``done`` steps of the stage: a function of the seed, the
        step and what is stored.

        Raises:
            RecipeError: a file cannot be read, or is not what a run wrote.
        """
        settings, index, since = self.settings, self.index, self.since(done)
        if not settings.due(done) or len(index) - int(np.searchsorted(index.file, since)) < settings.least:
            return []
        from lyceum.run.trees import read_some  # here: imports pyarrow

        rng = np.random.default_rng([self.seed, self.first_step + done + 1])
        weighted, newest = settings.priority == "advantage", settings.priority == "newest"
        places = index.draw(rng, number, since=since, weighted=weighted, newest=newest)
        found: list[Group] = []
        of_file = [(int(index.file[place]), int(index.row[place])) for place in places]
        for number_of_file, rows in groupby(of_file, key=lambda pair: pair[0]):
            file, came = self.file(number_of_file)
            stored = read_some(file, [row for _, row in rows])
            found += [Group.recorded(group.tree, group.weight, done + 1 - came) for group in stored]
        if settings.once:
            index.remove(places)
        return found

    def observe(self, done: int, groups: Sequence[Group]) -> None:
        self.sampled.observe(done, groups)

    def metrics(self) -> dict[str, float]:
        return self.sampled.metrics() | {f"replay/{name}": value for name, value in self.measured().items()}

    def measured(self) -> dict[str, float]:
        """What the step drew, and how many groups it could draw from."""
        ages = [group.age for group in self.last]
        return {"groups": len(ages), "stored": len(self.index)} | ({"age": sum(ages) / len(ages)} if ages else {})

    def state_dict(self) -> dict[str, Any]:
        return {"sampled": self.sampled.state_dict(), "index": self.index.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("stage.replay", given=state, needed=self.state_dict())
        self.sampled.load_state_dict(state["sampled"])
        self.index.load_state_dict(state["index"])


def replayed_tokens(forest: Forest) -> Tensor:
    """The recorded tokens (T,) that the policy wrote."""
    return (forest.columns[AGE] > 0) & (forest.origin == int(Origin.POLICY))


def ratio_metrics(forest: Forest) -> dict[str, float]:
    """How far the policy has moved since recorded tokens were sampled, before the step's updates: means over them.

    Args:
        forest: with the column of ages.
    """
    start = forest.columns.get(START_LOGPROB, forest.columns["old_logprob"])
    moved = (start - forest.behaviour_logprob)[replayed_tokens(forest)]
    if not len(moved):
        return {}
    ratio = moved.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()
    return {"replay/ratio": float(ratio.mean()), "replay/moved": float(moved.abs().mean())}


def relative_to_behaviour(forest: Forest, tokens: Tensor | None = None) -> Forest:
    """``old_logprob`` replaced by the log-probabilities (nats) under which tokens were sampled.

    Args:
        tokens: which, (T,); None: recorded ones, where there are some. All others have 0 where there is no column.
    """
    if tokens is None:
        if AGE not in forest.columns:
            return forest
        tokens = replayed_tokens(forest)
    old: Float[Tensor, " T"] | None = forest.columns.get("old_logprob")
    if old is None:
        return forest.with_columns(old_logprob=torch.where(tokens, forest.behaviour_logprob, 0).float())
    mixed = torch.where(tokens, forest.behaviour_logprob.to(old.dtype), old)
    return forest.with_columns(**{"old_logprob": mixed, START_LOGPROB: old})

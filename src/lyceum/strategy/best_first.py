"""Best-first search: the likeliest unfinished path is gone on with, wherever in the tree it stands."""

from __future__ import annotations

import heapq
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from lyceum.rollout.best_first import BestFirst
from lyceum.rollout.best_first import BestFirstSearch as Search
from lyceum.rollout.growth import at_most, extend_all
from lyceum.rollout.steps import Steps, write_texts
from lyceum.rooms import Composition
from lyceum.strategy.base import Growth, Strategy, usual_step
from lyceum.strategy.choice import Choice
from lyceum.tree import Node, Tree
from lyceum.types import Context, Rollout, Sampling, Task


class BestFirstSearch(Strategy, room="strategy"):
    """The search of rollout kind ``best-first`` (BFS-Prover, arXiv:2502.03438), which goes on to its size.

    A prover ends it with the first proof; here nothing says what is right. What a tree lacks of its size when its nodes
    are spent is drawn to the end from its best open paths. No two of those found before are the same, so that votes
    among them are not those of samples.
    """

    kind: Literal["best-first"] = "best-first"
    choose: Choice = "best"
    """How the answer is chosen among the trajectories."""
    rank: Literal["likelihood", "value"] = "likelihood"
    """Which path is gone on with: the likeliest, its length taken into account, or the one of the greatest value."""
    alpha: float = Field(default=0.5, ge=0, le=1)
    """For ``likelihood``: the sum of log-probabilities is divided by the number of nodes to this power (no unit)."""
    width: int = Field(default=2, ge=1)
    """Steps drawn below a node."""
    at_once: int = Field(default=1, ge=1)
    """Nodes gone on with in a round; 1 is strictly best-first."""
    depth: int = Field(default=64, ge=1)
    """Most nodes of a path."""
    step: Steps | None = None
    """How paths are cut into nodes; null: a line, of at most an eighth of the longest completion."""
    max_nodes: int | None = Field(default=None, ge=1)
    """Most nodes of a tree; null is ``width`` at every node of as many paths of full length as the size."""

    @property
    def reads_values(self) -> bool:
        return self.rank == "value" or super().reads_values

    def growth(self, size: int, sampling: Sampling) -> Growth:
        step = self.step or usual_step(sampling)
        search = BestFirst(
            trajectories=size,
            until_right=False,
            width=self.width,
            at_once=self.at_once,
            rank=self.rank,
            alpha=self.alpha,
            depth=self.depth,
            step=step,
            sampling=sampling,
            max_nodes=self.max_nodes or size * self.width * step.longest_path(sampling, self.depth),
        )
        return Completed(search=search)


class Completed(BaseModel):
    """A best-first search that always has its number of trajectories, as long as a path is open."""

    model_config = ConfigDict(frozen=True)

    search: BestFirst

    def build(self) -> Rollout:
        return self.roll

    def check(self, stage: Composition) -> list[str]:
        return self.search.check(stage)

    async def roll(self, task: Task, context: Context) -> Tree:
        wanted = task.samples or self.search.trajectories
        search = Search(self.search, context, context.tree(task), wanted)
        with context.returning():
            await search.run()
            search.finished += await self.completed(search, (wanted or 0) - len(search.finished), context)
        return search.finish()

    async def completed(self, search: Search, missing: int, context: Context) -> list[Node]:
        """The best open paths, each drawn to its end."""
        best = [heapq.heappop(search.frontier)[-1] for _ in range(min(missing, len(search.frontier)))]
        sampling = self.search.sampling
        left = [min(sampling.max_completion_tokens - place.tokens, context.room(place.node)) for place in best]
        asked = [(place.node, 1, at_most(sampling, tokens)) for place, tokens in zip(best, left, strict=True)]
        ends = [child for children in await extend_all(context, asked, keep=False) for child in children]
        for end in ends:
            write_texts([end], context.decode, terminal=True)
        return ends

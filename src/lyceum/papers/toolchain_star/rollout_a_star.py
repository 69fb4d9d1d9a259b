"""A* over steps (ToolChain*): the path of the least cost so far and to come is expanded next.

Source: ToolChain*, arXiv:2310.13227, as its abstract and reviews tell: costs in the place of likelihoods,
self-consistency of what is proposed, and an imagined completion.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from lyceum.core.steps import GrownStep
from lyceum.core.tree import Node
from lyceum.core.types import Context
from lyceum.rollout.best_first import BestFirst, BestFirstSearch, Open
from lyceum.utils.aio import gather


class AStar(BestFirst):
    """As ``best-first``, ranked by costs, the least first.

    f(n) = g(n) + h(n)
    g(n) = sum of 1 - s over the steps down to n    s: share of the draws at its place that are the step
    h(n) = future (1 - d / (d + r))                 d: steps down to n, r: those of an imagined rest
    """

    kind: Literal["a-star"] = "a-star"  # pyright: ignore[reportIncompatibleVariableOverride]
    width: int = Field(default=4, ge=2)
    """Steps drawn per node; those with the same tokens are one, and say how sure the policy is of it."""
    future: float = Field(default=1.0, ge=0, le=100)
    """Weight of the cost to come beside the cost so far; 0 imagines nothing, and expands by the cost so far alone."""

    async def roll(self, context: Context, start: Node, n: int | None) -> list[Node]:
        search = AStarSearch(self, context, start, n or self.trajectories)
        await search.run()
        if self.complete:
            await search.complete()
        return search.finish()


class AStarSearch(BestFirstSearch):
    """One search; its costs are of its own nodes, by their addresses."""

    def __init__(self, settings: AStar, context: Context, start: Node, wanted: int | None) -> None:
        super().__init__(settings, context, start, wanted)
        self.own = settings
        self.cost: dict[int, float] = {start.address: 0.0}
        self.imagined = 0

    def add(self, place: Open, steps: Sequence[GrownStep], fresh: list[Open], ends: list[Node]) -> None:
        """As in the general search; notes the cost so far of each new node."""
        drawn = Counter(tuple(step.nodes[0].tokens) for step in steps)
        above = self.cost[place.node.address]
        for step in steps:
            cost = above + 1 - drawn[tuple(step.nodes[0].tokens)] / len(steps)
            for node in step.nodes:
                self.cost[node.address] = cost
        super().add(place, steps, fresh, ends)

    async def scores(self, places: Sequence[Open]) -> list[float]:
        ahead = await gather([self.to_come(place) for place in places])
        return [-(self.cost[place.node.address] + cost) for place, cost in zip(places, ahead, strict=True)]

    async def to_come(self, place: Open) -> float:
        """The cost to come: what share of the whole plan, as it is imagined, is still to be done."""
        of, node = self.own, place.node
        most = min(
            of.sampling.max_completion_tokens - node.policy_tokens,
            self.context.tokens_left(node),
            self.context.budget_left,
        )
        if not of.future or most < 1:
            return 0.0
        key = (of.kind, node.address)
        (drawn,) = await self.context.ask(node.path_tokens(), 1, of.sampling.at_most(most), key=key)
        self.imagined += 1
        text = self.context.decode(drawn.tokens)
        rest = 1 + sum(text.count(mark) for mark in of.step.separators)
        return of.future * (1 - place.depth / (place.depth + rest))

    def counts(self) -> dict[str, float | str]:
        costs = [self.cost[leaf.address] for leaf in self.finished if leaf.address in self.cost]
        least: dict[str, float | str] = {"least_cost": round(min(costs), 6)} if costs else {}
        return {**super().counts(), "imagined": self.imagined, **least}

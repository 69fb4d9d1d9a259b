"""Beam search over steps: the paths with the highest value, by a value model, are expanded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from lyceum.core.steps import GrownStep, Steps, grow
from lyceum.core.tree import Node
from lyceum.core.types import Context
from lyceum.rollout._search import SearchSettings
from lyceum.utils.aio import gather
from lyceum.utils.numbers import evenly


class Beam(SearchSettings):
    """Keeps the best ``beams`` of ``beams`` x ``width`` next steps, by the stage's value model.

    Source: Snell et al., arXiv:2408.03314, section 5.2 (beam search against a verifier of steps; N = beams x width, M =
    width there), and the search-and-learn code, from which come: a path's value is the value after its last
    step, a finished path leaves the beam and frees its slot, and ``subtrees`` equal to ``beams`` is diverse verifier
    tree search, in which each beam continues with the best of its own next steps only. Unlike there, the search ends
    once it has its trajectories, and no unfinished path is repeated to fill the beam.
    """

    requires: ClassVar = ("value",)

    kind: Literal["beam"] = "beam"
    beams: int = Field(default=4, ge=1)
    """Paths kept after each step, over all subtrees."""
    width: int = Field(default=4, ge=1)
    """Next steps drawn per path; ``beams`` x ``width`` from the prompt."""
    subtrees: int = Field(default=1, ge=1)
    """Independent searches that share ``beams``: paths are ranked within their own search."""
    trajectories: int | None = Field(default=None, ge=1)
    """Finished paths after which a search ends, unless the curriculum sets the number of samples; null is ``beams`` x
    ``width``. A search whose paths end together has a few more."""
    step: Steps = Steps()
    """How paths are cut into steps. With ``entropy`` a step is all that was drawn at once, possibly several nodes."""
    distinct: bool = True
    """Keep one of several unfinished paths with the same tokens, so that no two beams are the same."""

    @model_validator(mode="after")
    def _beams_are_shared_out(self) -> Beam:
        if self.beams % self.subtrees:
            raise ValueError(f"subtrees: got {self.subtrees} with beams {self.beams}; allowed: a divisor of beams")
        return self

    def sized(self, n: int) -> Beam:
        """The same search for ``n`` trajectories: ``n / width`` beams, at least one. One subtree per beam stays one
        per beam; otherwise the number of subtrees stays a divisor of that of the beams."""
        width = min(self.width, n)
        beams = max(1, n // width)
        subtrees = beams if self.subtrees == self.beams > 1 else math.gcd(self.subtrees, beams)
        return self.model_copy(update={"beams": beams, "width": width, "subtrees": subtrees, "trajectories": n})

    async def roll(self, context: Context, start: Node, n: int | None) -> list[Node]:
        search = BeamSearch(self, context, start, n or self.trajectories or self.beams * self.width)
        await search.run()
        return search.finish()


@dataclass(eq=False)
class Subtree:
    """One of several independent searches: its open paths, best first, and how many are to be finished."""

    open: list[Node]
    wanted: int
    finished: int = 0
    drawn: list[GrownStep] = field(default_factory=list)

    @property
    def is_done(self) -> bool:
        return not self.open or self.finished >= self.wanted


class BeamSearch:
    """One search."""

    def __init__(self, settings: Beam, context: Context, start: Node, wanted: int) -> None:
        self.settings, self.context, self.start = settings, context, start
        shares = evenly(wanted, settings.subtrees)
        self.subtrees = [Subtree([start], share) for share in shares if share]
        self.finished: list[Node] = []
        self.rounds = self.drawn = self.dropped = 0
        self.ended = "finished"

    async def run(self) -> None:
        while going := [subtree for subtree in self.subtrees if not subtree.is_done]:
            requests = self.affordable(self.requests(going))
            drawing = [subtree for subtree in going if any(of is subtree for of, _, _ in requests)]
            self.cut([subtree for subtree in going if subtree not in drawing])
            if not requests:
                return
            await self.draw(requests)
            await self.rank(drawing)
            self.rounds += 1

    def requests(self, going: Sequence[Subtree]) -> list[tuple[Subtree, Node, int]]:
        """(subtree, path, next steps) of a round; below the start one request draws for all."""
        settings = self.settings
        first = settings.beams // settings.subtrees * settings.width
        return [
            (subtree, node, first if node is self.start else settings.width)
            for subtree in going
            for node in subtree.open
        ]

    def affordable(self, requests: Sequence[tuple[Subtree, Node, int]]) -> list[tuple[Subtree, Node, int]]:
        """The same with fewer next steps per path, or fewer paths, if the task's budget is short."""
        settings = self.settings
        longest = max(min(settings.step.tokens, self.left(node)) for _, node, _ in requests)
        steps = self.context.budget_left // longest
        if steps >= sum(n for _, _, n in requests):
            return list(requests)
        shares = evenly(steps, len(requests))
        return [
            (subtree, node, min(n, share)) for (subtree, node, n), share in zip(requests, shares, strict=True) if share
        ]

    def left(self, node: Node) -> int:
        return self.settings.sampling.max_completion_tokens - node.policy_tokens

    async def draw(self, requests: Sequence[tuple[Subtree, Node, int]]) -> None:
        """Next steps of all paths at once, so that they share the engine's batch."""
        settings = self.settings
        # Subtrees start at the same node; the engine computes tokens shared by the samples of one request only once.
        together: dict[Node, list[tuple[Subtree, int]]] = {}
        for subtree, node, n in requests:
            together.setdefault(node, []).append((subtree, n))
        found = await gather(
            grow(
                self.context,
                node,
                sum(n for _, n in shares),
                settings.step,
                settings.sampling,
                depth_left=settings.depth - (len(node.path()) - len(self.start.path())),
            )
            for node, shares in together.items()
        )
        for shares, grown in zip(together.values(), found, strict=True):
            for subtree, n in shares:
                subtree.drawn += grown[:n]
                grown = grown[n:]
                self.drawn += n

    async def rank(self, going: Sequence[Subtree]) -> None:
        """Finished paths leave the beam; the best of the others stay."""
        ends = [one.nodes[-1] for subtree in going for one in subtree.drawn]
        for node, value in zip(ends, await self.context.value(ends), strict=True):
            node.value = value
        for subtree in going:
            still: list[Node] = []
            for one in subtree.drawn:
                end = one.nodes[-1]
                if one.terminal:
                    self.finished.append(end)
                    subtree.finished += 1
                else:
                    still.append(end)
            subtree.open = self.best(still, self.settings.beams // self.settings.subtrees)
            subtree.drawn = []

    def best(self, paths: Sequence[Node], n: int) -> list[Node]:
        """The n paths of highest value; ties go to those drawn first."""
        distinct: dict[Any, Node] = {}
        for number, node in enumerate(paths):
            distinct.setdefault(tuple(node.path_tokens()) if self.settings.distinct else number, node)
        self.dropped += max(0, len(paths) - n)
        return sorted(distinct.values(), key=lambda node: -(node.value or 0.0))[:n]

    def cut(self, going: Sequence[Subtree]) -> None:
        """End the subtrees that the budget allows no further step; their paths stay as they are, truncated."""
        for subtree in going:
            self.ended = "budget"
            for node in subtree.open:
                if node is not self.start:
                    node.finish = "length"
                    self.finished.append(node)
            subtree.open = []

    def finish(self) -> list[Node]:
        counts = {
            "ended": self.ended,
            "rounds": self.rounds,
            "drawn": self.drawn,
            "dropped": self.dropped,
            "finished": len(self.finished),
        }
        self.context.tree.record("beam", counts)
        return self.finished

"""Best-first search (BFS-Prover): the most likely path of the frontier, length-normalised, is expanded."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import Field

from lyceum.core.needs import Need
from lyceum.core.settings import Composition
from lyceum.core.steps import GrownStep, grow
from lyceum.core.tree import Node, is_correct
from lyceum.core.types import Context
from lyceum.rollout._growth import extend_to_end
from lyceum.rollout._search import SearchSettings
from lyceum.utils.aio import gather


class BestFirst(SearchSettings):
    """Expands the best nodes of a frontier of unfinished nodes, each once, until something is proved.

    Source: BFS-Prover, arXiv:2502.03438, section 3. There a step is a tactic, which a proof assistant runs or refuses;
    here steps are text, nothing is refused before the end, and a finished incorrect trajectory is a dead end.
    """

    test_time: ClassVar[Mapping[str, Any]] = {"until_right": False, "complete": True}
    requires: ClassVar = (
        "model_logprob",
        Need("verifier", when=lambda own: own.until_right),
        Need(
            "value",
            when=lambda own: own.rank == "value",
            line="rollout.rank: got 'value', but the stage has no value model; allowed: 'likelihood', or a stage with "
            "`value`",
        ),
    )

    kind: Literal["best-first"] = "best-first"
    trajectories: int | None = Field(default=8, ge=1)
    """Finished trajectories after which the search ends, unless the curriculum sets the number of samples; null leaves
    the end to ``until_right`` and the budgets."""
    until_right: bool = True
    """End at the first correct trajectory, as a prover does; otherwise continue up to ``trajectories``."""
    complete: bool = False
    """If ``max_nodes`` ends the search, fill up ``trajectories`` by drawing the best open paths to their ends."""
    width: int = Field(default=2, ge=1)
    """Steps drawn per node; one of those with the same tokens is kept."""
    at_once: int = Field(default=1, ge=1)
    """Nodes expanded per round, the best of the frontier: more of them fill the engine's batch, 1 is strictly
    best-first."""
    rank: Literal["likelihood", "value"] = "likelihood"
    """Ranking of nodes: by the path's likelihood, or by the stage's value model."""
    alpha: float = Field(default=0.5, ge=0, le=1)
    """For ``likelihood``: the sum of log-probabilities is divided by the length to this power (no unit); 0 ranks by the
    path's likelihood, which favours short paths, 1 by the mean per step."""
    length: Literal["steps", "tokens"] = "steps"
    """What length counts: nodes below the prompt, as in the paper, or their tokens."""
    depth: int = Field(default=64, ge=1)
    """Maximum nodes per trajectory, without the prompt; an unfinished one counts as incorrect there."""
    max_nodes: int | None = Field(default=None, ge=1)
    """Maximum nodes per tree; null sets no bound beside the task's token budget. The last round may exceed it
    where ``step`` cuts draws into several nodes."""

    def sized(self, n: int) -> BestFirst:
        """The same search for ``n`` trajectories, bounded by the nodes of as many paths of full length.

        Without a bound, a search ranked by likelihood would expand all short paths before any deep one.
        """
        nodes = n * self.width * self.step.longest_path(self.sampling, self.depth)
        return self.model_copy(update={"trajectories": n, "max_nodes": self.max_nodes or nodes})

    @property
    def most_nodes(self) -> int | None:
        return self.max_nodes

    def check(self, stage: Composition) -> list[str]:
        """Budgets too small for one path of full length, or a search that never ends."""
        lines = super().check(stage)
        if self.trajectories is None and self.max_nodes is None and stage.max_tokens_per_task is None:
            lines.append(
                "rollout.trajectories: got null, and nothing else ends a search that finds nothing; allowed: a number, "
                "or null with rollout.max_nodes or max_tokens_per_task"
            )
        return lines

    async def roll(self, context: Context, start: Node, n: int | None) -> list[Node]:
        search = BestFirstSearch(self, context, start, n or self.trajectories)
        await search.run()
        if self.complete:
            await search.complete()
        return search.finish()


@dataclass(frozen=True, eq=False)
class Open:
    """An expandable node.

    Attributes:
        depth: nodes below the start, itself included.
        logprob: sum over all tokens below the start, in nats, of the untempered model.
        tokens: number of these tokens.
    """

    node: Node
    depth: int = 0
    logprob: float = 0.0
    tokens: int = 0

    def below(self, node: Node) -> Open:
        return Open(node, self.depth + 1, self.logprob + sum(node.model_logprob), self.tokens + len(node.tokens))


class BestFirstSearch:
    """One search."""

    def __init__(self, settings: BestFirst, context: Context, start: Node, wanted: int | None) -> None:
        self.settings, self.context, self.start, self.wanted = settings, context, start, wanted
        self.frontier: list[tuple[float, int, Open]] = []
        self.finished: list[Node] = []
        self.seen: set[tuple[int, ...]] = set()
        self.nodes = self.expansions = self.rounds = self.pushed = 0
        self.ended = "exhausted"

    async def run(self) -> None:
        await self.push([Open(self.start)])
        while not self.is_done() and self.frontier:
            requests = self.affordable()
            if not requests:
                break
            grown = await gather(self.grow(place, count) for place, count in requests)
            self.rounds += 1
            fresh: list[Open] = []
            ends: list[Node] = []
            for (place, _), steps in zip(requests, grown, strict=True):
                self.add(place, steps, fresh, ends)
            if ends:
                await self.context.grade(ends)
                self.finished += ends
            await self.push(fresh)

    async def complete(self) -> None:
        """Fill up the missing trajectories: the best open paths, each drawn to its end."""
        missing = 0 if self.wanted is None or self.ended == "solved" else self.wanted - len(self.finished)
        best = [heapq.heappop(self.frontier)[-1] for _ in range(min(missing, len(self.frontier)))]
        sampling, share = self.settings.sampling, self.context.budget_left // max(1, len(best))
        left = [
            min(sampling.max_completion_tokens - place.node.policy_tokens, self.context.tokens_left(place.node), share)
            for place in best
        ]
        requests = [(place.node, 1, sampling.at_most(n)) for place, n in zip(best, left, strict=True) if n > 0]
        self.finished += await extend_to_end(self.context, requests)

    def is_done(self) -> bool:
        if self.settings.until_right and any(is_correct(leaf) for leaf in self.finished):
            self.ended = "solved"
        elif self.wanted is not None and len(self.finished) >= self.wanted:
            self.ended = "trajectories"
        return self.ended != "exhausted"

    def affordable(self) -> list[tuple[Open, int]]:
        """The best nodes with the steps to draw below each, within the budgets; notes a budget that is spent."""
        settings = self.settings
        tokens = self.context.budget_left
        nodes = None if settings.max_nodes is None else settings.max_nodes - self.nodes
        requests: list[tuple[Open, int]] = []
        while self.frontier and len(requests) < settings.at_once:
            place = self.frontier[0][-1]
            longest = min(settings.step.tokens, settings.sampling.max_completion_tokens - place.node.policy_tokens)
            count = min(settings.width, tokens // longest, settings.width if nodes is None else nodes)
            if count <= 0:
                if not requests:
                    self.ended = "tokens" if tokens < longest else "nodes"
                break
            heapq.heappop(self.frontier)
            requests.append((place, count))
            tokens -= count * longest
            nodes = None if nodes is None else nodes - count
        return requests

    async def grow(self, place: Open, count: int) -> list[GrownStep]:
        settings = self.settings
        place.node.stats["expanded"] = self.expansions
        self.expansions += 1
        return await grow(
            self.context, place.node, count, settings.step, settings.sampling, depth_left=settings.depth - place.depth
        )

    def add(self, place: Open, steps: Sequence[GrownStep], fresh: list[Open], ends: list[Node]) -> None:
        """Sort a node's new steps into expandable and finished ones; drop duplicates."""
        for one in steps:
            if self.is_known(one.nodes[-1]):
                one.nodes[0].detach()
                continue
            above = place
            for node in one.nodes:
                above = above.below(node)
                self.nodes += 1
                if node is not one.nodes[-1]:
                    # Two split draws may share their first parts: one of these is enough to branch from.
                    if not self.is_known(node):
                        fresh.append(above)
                elif one.terminal:
                    ends.append(node)
                else:
                    fresh.append(above)

    def is_known(self, node: Node) -> bool:
        """Whether another node had the same tokens up to its end; remembers this one's."""
        path = tuple(node.completion_tokens)
        known = path in self.seen
        self.seen.add(path)
        return known

    async def push(self, places: Sequence[Open]) -> None:
        """Put nodes into the frontier: best first, ties go to the one drawn first."""
        for place, score in zip(places, await self.scores(places), strict=True):
            place.node.stats["score"] = round(score, 6)
            heapq.heappush(self.frontier, (-score, self.pushed, place))
            self.pushed += 1

    async def scores(self, places: Sequence[Open]) -> list[float]:
        settings = self.settings
        if settings.rank == "value":
            return await self.context.value([place.node for place in places]) if places else []
        return [
            path_score(place.logprob, place.depth if settings.length == "steps" else place.tokens, settings.alpha)
            for place in places
        ]

    def finish(self) -> list[Node]:
        self.context.tree.record(self.settings.kind, self.counts())
        return self.finished

    def counts(self) -> dict[str, float | str]:
        """What the tree is noted with."""
        return {
            "ended": self.ended,
            "rounds": self.rounds,
            "expansions": self.expansions,
            "nodes": self.nodes,
            "open": len(self.frontier),
            "finished": len(self.finished),
            "right": sum(is_correct(leaf) for leaf in self.finished),
            "ungraded": sum(leaf.grade is not None and leaf.grade.outcome is None for leaf in self.finished),
        }


def path_score(logprob: float, length: int, alpha: float) -> float:
    """Length-normalised log-probability of a path: higher is better, never above 0.

        score(s_L) = sum_{t < L} log p(a_t | s_t) / L^alpha;  0 for the prompt

    Args:
        logprob: the sum over the path's steps, in nats.
        length: L, the number of steps.
        alpha: 0 ranks by likelihood, which falls with every step; the closer to 1, the less depth is penalised.
    Source:
        BFS-Prover, arXiv:2502.03438, equation 1.
    """
    return logprob / length**alpha if length else 0.0

"""Monte Carlo tree search in training (DeepSearch): a tree of steps instead of a flat group of samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from lyceum.core.needs import Need
from lyceum.core.steps import grow
from lyceum.core.tree import Node
from lyceum.core.types import Context
from lyceum.reward.extract import vote
from lyceum.rollout._search import SearchSettings
from lyceum.rollout._search_tree import (
    INCOMPLETE,
    RIGHT,
    WRONG,
    DepthBonus,
    Negative,
    SearchNode,
    back_up,
    best_child,
    choose_terminal,
    descend,
    frontier,
    frontier_score,
    judge,
)


class MCTS(SearchSettings):
    """A search whose backed-up terminals are the training group, and whose nodes have values.

    Source: DeepSearch, arXiv:2509.25454, section 3, and its released code. ``width`` steps are drawn below a node at
    once. If none of them ends, the search continues at the most promising one; if some do, one is backed up, and
    ``selection`` says where the search continues.
    """

    test_time: ClassVar[Mapping[str, Any]] = {"judge": "value"}
    requires: ClassVar = (
        "model_logprob",
        Need("verifier", when=lambda own: own.judge == "verifier"),
        Need(
            "value",
            when=lambda own: own.judge == "value",
            line="rollout.judge: got 'value', but the stage has no value model; allowed: 'verifier', 'agreement', or a "
            "stage with `value`",
        ),
    )

    kind: Literal["mcts"] = "mcts"
    trajectories: int = Field(default=8, ge=1)
    """Terminals backed up per tree, the training group, unless the curriculum sets the number of samples."""
    judge: Literal["verifier", "value", "agreement"] = "verifier"
    """Source of a terminal's outcome: the verifier, 1 or -1; the stage's value model; or the share v of the answers so
    far that agree with it. The latter two are backed up as 2 v - 1, and the verifier grades the trajectories after the
    search."""
    width: int = Field(default=8, ge=1)
    """Steps drawn per node."""
    selection: Literal["global", "uct-from-root", "local"] = "global"
    """Where the search continues after a terminal: at the frontier's best node, at the node that UCT selects from the
    prompt down, or at the nearest ancestor of the terminal that is not exhausted."""
    negative: Negative = "most-confident"
    """Which terminal of an expansion is backed up if none is correct."""
    exploration: float = Field(default=2.0, ge=0)
    """Weight of UCT's exploration term, in units where a correct answer is 1."""
    quality: float = Field(default=0.4, ge=0)
    """Weight of the parent's value in the frontier score (no unit)."""
    uncertainty: float = Field(default=0.0, ge=0)
    """Weight of the step's mean -log p in the frontier score (per nat); 0.4 in the paper's ablation."""
    depth_weight: float = Field(default=0.01, ge=0)
    """Weight of the depth in the frontier score (no unit)."""
    depth_bonus: DepthBonus = "sqrt"
    """How depth counts: sqrt(d / depth), ln(d + 1), or d."""
    least_decay: float = Field(default=0.1, ge=0, le=1)
    """Minimum share of a terminal's outcome credited to its ancestors (no unit)."""
    incomplete: float = Field(default=-1.0, ge=-1, le=0)
    """Outcome of a trajectory truncated before its answer, in units where a correct answer is 1. Incorrect ones with an
    answer are preferred for training."""
    distinct: bool = False
    """Keep one of several steps with the same tokens below a node, so that all trajectories differ: for small models,
    whose short steps often coincide. A tree that runs out of distinct paths ends with fewer trajectories."""
    max_nodes: int | None = Field(default=None, ge=1)
    """Maximum nodes per tree; null sets no bound beside the task's token budget. The last draw may exceed it
    where ``step`` cuts draws into several nodes."""

    @property
    def most_nodes(self) -> int | None:
        return self.max_nodes

    async def roll(self, context: Context, start: Node, n: int | None) -> list[Node]:
        search = MCTSSearch(self, context, start, n or self.trajectories)
        await search.run()
        return search.finish()


class MCTSSearch:
    """One search."""

    def __init__(self, settings: MCTS, context: Context, start: Node, wanted: int) -> None:
        self.settings, self.context, self.wanted = settings, context, wanted
        self.root = SearchNode(start)
        self.found: list[SearchNode] = []
        self.ungraded: list[SearchNode] = []
        self.nodes = self.expansions = self.failed = 0
        self.uct_moves = self.uct_moves_by_value = self.frontier_moves = self.negatives = self.negatives_with_choice = 0
        self.ended = "trajectories"
        self.votes: Counter[str] = Counter()

    async def run(self) -> None:
        at: SearchNode | None = self.root
        while at is not None and not self.is_done:
            if at.children_drawn < self.settings.width:
                count = self.affordable(at)
                if not count:
                    break
                await self.expand(at, count)
            terminal = self.take(at) if at.waiting else None
            at = self.next_after(terminal or at) if terminal or at.exhausted else self.next_below(at)
        else:
            self.ended = "trajectories" if self.is_done else "exhausted"
        self.take_what_is_left()

    @property
    def is_done(self) -> bool:
        return len(self.found) + self.failed >= self.wanted

    def affordable(self, at: SearchNode) -> int:
        """Number of missing steps that the budgets allow; notes a budget that is spent."""
        settings = self.settings
        left = settings.sampling.max_completion_tokens - at.node.policy_tokens
        tokens = self.context.budget_left // min(settings.step.tokens, left)
        nodes = tokens if settings.max_nodes is None else settings.max_nodes - self.nodes
        if min(tokens, nodes) <= 0:
            self.ended = "tokens" if tokens <= 0 else "nodes"
        return max(0, min(settings.width - at.children_drawn, tokens, nodes))

    async def expand(self, at: SearchNode, count: int) -> None:
        """Draw steps below a node, and grade those that end a trajectory."""
        settings = self.settings
        grown = await grow(
            self.context, at.node, count, settings.step, settings.sampling, depth_left=settings.depth - at.depth
        )
        self.expansions += 1
        at.children_drawn += count
        terminals: list[SearchNode] = []
        for one in grown:
            tokens = tuple(token for node in one.nodes for token in node.tokens)
            if settings.distinct and tokens in at.drawn:
                one.nodes[0].detach()
                continue
            at.drawn.add(tokens)
            place = at
            for node in one.nodes:
                last = node is one.nodes[-1]
                place = place.add(node, terminal=one.terminal and last)
                # A draw that was split is a chain: each node but its last already has one drawn child.
                place.children_drawn = 0 if last else 1
                tokens = tokens[len(node.tokens) :]
                place.drawn |= set() if last else {tokens}
                self.nodes += 1
                if place.terminal:
                    terminals.append(place)
                else:
                    place.arrive()
        at.close(settings.width)
        for place in terminals:
            if place.above is not None and place.above is not at:
                place.above.close(settings.width)
        if terminals:
            await self.judge(at, terminals)

    async def judge(self, at: SearchNode, terminals: list[SearchNode]) -> None:
        by = self.verdicts if self.settings.judge == "verifier" else self.estimates
        for place, judged in zip(terminals, await by([place.node for place in terminals]), strict=True):
            if judged is None:
                self.ungraded.append(place)
            else:
                place.outcome, place.order = judged
                at.waiting.append(place)
        # An expansion none of whose terminals could be graded counts as a trajectory: otherwise a verifier that always
        # fails would keep the search running forever.
        self.failed += not at.waiting

    async def verdicts(self, leaves: Sequence[Node]) -> list[tuple[float, int] | None]:
        return [
            judge(grade, complete=leaf.finish != "length", incomplete=self.settings.incomplete)
            for leaf, grade in zip(leaves, await self.context.grade(leaves), strict=True)
        ]

    async def estimates(self, leaves: Sequence[Node]) -> list[tuple[float, int]]:
        """(outcome, order) of an expansion's terminals without the verifier; the best counts as correct."""
        worth = await self.context.value(leaves) if self.settings.judge == "value" else self.agreement(leaves)
        most = max(worth)
        return [
            (2 * value - 1, RIGHT if value == most else WRONG)
            if leaf.finish != "length"
            else (self.settings.incomplete, INCOMPLETE)
            for leaf, value in zip(leaves, worth, strict=True)
        ]

    def agreement(self, leaves: Sequence[Node]) -> list[float]:
        """Share of the complete answers so far, these included, that equal each leaf's answer; 0 without an answer."""
        answers = [vote(leaf.completion) if leaf.finish != "length" else None for leaf in leaves]
        self.votes.update(answer for answer in answers if answer is not None)
        return [0.0 if answer is None else self.votes[answer] / self.votes.total() for answer in answers]

    def take(self, at: SearchNode) -> SearchNode | None:
        """Back up one of the waiting terminals."""
        number = len(self.found)
        chosen = choose_terminal(
            at.waiting, self.settings.negative, lambda n: self.context.seed("mcts", self.root.node.address, number) % n
        )
        if chosen is not None:
            if chosen.order != RIGHT:
                rivals = {tuple(leaf.node.completion_tokens) for leaf in at.waiting if leaf.order == chosen.order}
                self.negatives += 1
                self.negatives_with_choice += len(rivals) > 1
            at.waiting.remove(chosen)
            back_up(chosen, least=self.settings.least_decay)
            self.found.append(chosen)
        return chosen

    def next_below(self, at: SearchNode) -> SearchNode | None:
        """The child to continue at, while the path has not ended."""
        open_ones = [child for child in at.children if not child.exhausted]
        self.uct_moves += len(open_ones) > 1
        self.uct_moves_by_value += len({(child.q, child.visits) for child in open_ones}) > 1
        return best_child(at, self.settings.exploration) or self.next_after(at)

    def next_after(self, at: SearchNode) -> SearchNode | None:
        """Where the search continues once a path has ended; None if nothing is left to draw."""
        settings = self.settings
        match settings.selection:
            case "global":
                places = frontier(self.root, settings.width)
                self.frontier_moves += len(places) > 1
                return max(places, key=self.score, default=None)
            case "uct-from-root":
                return descend(self.root, settings.width, settings.exploration)
            case "local":
                start: SearchNode | None = at
                while start is not None and start.exhausted:
                    start = start.above
                return None if start is None else descend(start, settings.width, settings.exploration)

    def score(self, place: SearchNode) -> float:
        assert place.above is not None
        settings = self.settings
        return frontier_score(
            place.above.mean,
            place.surprise if settings.uncertainty else 0.0,
            place.depth,
            settings.depth,
            quality=settings.quality,
            uncertainty=settings.uncertainty,
            depth_weight=settings.depth_weight,
            bonus=settings.depth_bonus,
        )

    def take_what_is_left(self) -> None:
        """A search that ended early also trains on the terminals that were not backed up."""
        left = [place for place in self.root.walk() if place.waiting]
        while left and not self.is_done:
            # One per expansion in turn, as if the search had returned to it.
            for place in left:
                if not self.is_done:
                    self.take(place)
            left = [place for place in left if place.waiting]

    def finish(self) -> list[Node]:
        """The trajectories, and the tree with its values and statistics."""
        for place in self.root.walk():
            place.node.stats |= {"visits": place.visits, "q": round(place.q, 6)}
            if place.above is not None:
                place.node.value = place.q if place.outcome is None else place.outcome
        for number, place in enumerate(self.found):
            place.node.stats["backed_up"] = number
        counts: dict[str, Any] = {
            "ended": self.ended,
            "expansions": self.expansions,
            "nodes": self.nodes,
            "ends": sum(place.terminal for place in self.root.walk()),
            "uct_moves": self.uct_moves,
            "uct_moves_by_value": self.uct_moves_by_value,
            "frontier_moves": self.frontier_moves,
            "negatives": self.negatives,
            "negatives_with_choice": self.negatives_with_choice,
            "backed_up": len(self.found),
            **({"right": sum(place.outcome == 1 for place in self.found)} if self.settings.judge == "verifier" else {}),
            "ungraded": len(self.ungraded),
        }
        self.context.tree.record("mcts", counts)
        return [place.node for place in (*self.found, *self.ungraded)]

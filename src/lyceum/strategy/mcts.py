"""Monte Carlo tree search as in training, whose terminals are judged by a value model or by one another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from lyceum.evaluate.run import vote
from lyceum.rollout.mcts import MCTS, Search
from lyceum.rollout.search_tree import INCOMPLETE, RIGHT, WRONG, SearchNode
from lyceum.rollout.steps import Steps
from lyceum.rooms import Composition
from lyceum.strategy.base import Growth, Strategy, usual_step
from lyceum.strategy.choice import Choice
from lyceum.tree import Node, Tree
from lyceum.types import Context, Rollout, Sampling, Task

Judge = Literal["agreement", "value"]


class TreeSearch(Strategy, room="strategy"):
    """The search of rollout kind ``mcts`` (DeepSearch, arXiv:2509.25454), its size the terminals that are backed up.

    Where training backs up the verifier's 1 or -1, here it is 2 v - 1, where v is what the value model says, or the
    share of the answers found so far that are the same.
    """

    kind: Literal["mcts"] = "mcts"
    choose: Choice = "best"
    """How the answer is chosen among the terminals that were backed up."""
    judge: Judge = "value"
    """What a terminal is worth: what the value model says, or the share of answers so far that agree with it."""
    width: int = Field(default=4, ge=1)
    """Steps drawn below a node."""
    depth: int = Field(default=64, ge=1)
    """Most nodes of a path."""
    step: Steps | None = None
    """How paths are cut into nodes; null: a line, of at most an eighth of the longest completion."""
    selection: Literal["global", "uct-from-root", "local"] = "global"
    """Where the search goes on after a terminal; see rollout kind ``mcts``."""
    exploration: float = Field(default=2.0, ge=0)
    """Weight of the second part of UCT, in the unit of a right answer."""
    distinct: bool = False
    """Keep one of steps with the same tokens below a node: more answers for the tokens, whose votes are no longer those
    of samples."""
    max_nodes: int | None = Field(default=None, ge=1)
    """Most nodes of a tree; null sets no bound."""

    @property
    def reads_values(self) -> bool:
        return self.judge == "value" or super().reads_values

    def growth(self, size: int, sampling: Sampling) -> Growth:
        search = MCTS(
            trajectories=size,
            width=self.width,
            depth=self.depth,
            step=self.step or usual_step(sampling),
            sampling=sampling,
            selection=self.selection,
            exploration=self.exploration,
            distinct=self.distinct,
            max_nodes=self.max_nodes,
        )
        return Judged(search=search, judge=self.judge)


class Judged(BaseModel):
    """A tree search without a verifier."""

    model_config = ConfigDict(frozen=True)

    search: MCTS
    judge: Judge

    def build(self) -> Rollout:
        return self.roll

    def check(self, stage: Composition) -> list[str]:
        return self.search.check(stage)

    async def roll(self, task: Task, context: Context) -> Tree:
        tree = context.tree(task)
        search = JudgedSearch(self.search, context, tree, task.samples or self.search.trajectories, self.judge)
        with context.returning():
            await search.run()
        return search.finish()


class JudgedSearch(Search):
    """The search of training but for what a terminal is worth."""

    def __init__(self, settings: MCTS, context: Context, tree: Tree, wanted: int, judge: Judge) -> None:
        super().__init__(settings, context, tree, wanted)
        self.judge = judge
        self.votes: Counter[str] = Counter()

    async def grade(self, at: SearchNode, terminals: list[SearchNode]) -> None:
        leaves = [place.node for place in terminals]
        worth = await self.context.value(leaves) if self.judge == "value" else self.agreement(leaves)
        most = max(worth)
        for place, value in zip(terminals, worth, strict=True):
            complete = place.node.finish != "length"
            place.outcome = 2 * value - 1 if complete else self.settings.incomplete
            # Of an expansion's terminals the one worth most is backed up first, as training takes a right one first.
            place.order = (RIGHT if value == most else WRONG) if complete else INCOMPLETE
            at.waiting.append(place)

    def agreement(self, leaves: Sequence[Node]) -> list[float]:
        """Share of the complete answers so far, these included, that are the same as each; 0 where there is none."""
        answers = [vote(leaf.completion) if leaf.finish != "length" else None for leaf in leaves]
        self.votes.update(answer for answer in answers if answer is not None)
        return [0.0 if answer is None else self.votes[answer] / self.votes.total() for answer in answers]

    def finish(self) -> Tree:
        tree = super().finish()
        del tree.record["mcts"]["right"]  # nobody knows
        return tree

"""Curiosity: steps that surprise the model that wrote them moderately, neither foreseeable nor at random."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar, Literal

from pydantic import Field

from lyceum.core.settings import RewardSettings
from lyceum.core.steps import Steps, step_ends
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, GradingContext, Task, TaskSource
from lyceum.utils.numbers import mean


class Curiosity(RewardSettings):
    """An inverted U in the surprise of each step, averaged over a trajectory's steps; nobody is told what is correct.

        c(s) = max(0, 1 - ((s - target) / width)^2)        s = mean of -log p over the step's tokens, nats

    log p is of the model that sampled, without temperature. It leads a search that grades what it draws (``value-mcts``
    with ``believe: outcome``). What makes no sense surprises too: another part has to say what fits.

    Source:
        COS(M+O)S, arXiv:2501.17104, abstract: moderate surprisal is rewarded. The parabola is ours.
    """

    requires: ClassVar = ("model_logprob",)

    kind: Literal["curiosity"] = "curiosity"
    step: Steps = Steps()
    """How trajectories are cut into steps; as in the search."""
    target: float = Field(1.0, ge=0, le=100)
    """Surprise of a step that earns 1 (nats per token)."""
    width: float = Field(1.0, gt=0, le=100)
    """Distance from ``target`` at which a step earns nothing (nats per token)."""

    def build(self, source: TaskSource) -> Grader:
        return self.grade

    async def grade(self, task: Task, leaves: Sequence[Node], context: GradingContext) -> list[Grade]:
        return [self.of(leaf, context) for leaf in leaves]

    def of(self, leaf: Node, context: GradingContext) -> Grade:
        # What a guide wrote surprised nobody: it has no log-probabilities.
        written = [node for node in leaf.path()[1:] if node.model_logprob]
        tokens = [token for node in written for token in node.tokens]
        logprob = [value for node in written for value in node.model_logprob]
        if not tokens:
            return Grade.ungraded("the policy wrote nothing that could be surprising")
        ends = step_ends(tokens, logprob, self.step, context.decode)
        surprises = [-mean(logprob[start:end]) for start, end in pairwise([0, *ends])]
        earned = mean([inverted_u(surprise, self.target, self.width) for surprise in surprises])
        return Grade(earned, parts={"surprise": mean(surprises), "steps": float(len(surprises))})


def inverted_u(surprise: float, target: float, width: float) -> float:
    """max(0, 1 - ((s - target) / width)^2), in 0 .. 1; all in nats per token."""
    distance = min(1.0, abs(surprise - target) / width)
    return 1.0 - distance * distance

"""The unlikeliness reward: a correct answer pays less, the likelier the policy finds it among the group's answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from lyceum.core.settings import RewardSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, GradingContext, ShapingGrader, Task, TaskSource
from lyceum.utils.numbers import mean


class Unlikeliness(RewardSettings):
    """0 for incorrect answers; for correct ones minus the share of the group's samples that are less likely.

    Beside a verifier that gives 1 a correct answer then earns 1 - weight * rank / n, where the least likely of the n
    samples that are judged together, correct or not, has rank 0.

    Source:
        Rewarding the Unlikely, arXiv:2506.02355; AndreHe02/rewarding-unlikely-release, ``_compute_advantages`` of
        verl/trainer/ppo/ray_lean_trainer.py.
    """

    after_verdict: ClassVar[bool] = True
    requires: ClassVar = ("company", "model_logprob")

    kind: Literal["unlikeliness"] = "unlikeliness"
    weight: float = 0.25
    """What the likeliest of many correct answers loses of a verifier's 1 (the paper's beta)."""

    def build(self, source: TaskSource) -> ShapingGrader:
        return self.score

    async def score(
        self, task: Task, leaves: Sequence[Node], context: GradingContext, verdicts: Sequence[bool | None]
    ) -> list[Grade]:
        judged = [i for i, verdict in enumerate(verdicts) if verdict is not None]
        shares = dict(zip(judged, less_likely([mean_logprob(leaves[i]) for i in judged]), strict=True))
        return [
            Grade.ungraded("nothing says whether the answer is right")
            if verdict is None
            else Grade(0.0 - shares[i] if verdict else 0.0)
            for i, verdict in enumerate(verdicts)
        ]


def mean_logprob(leaf: Node) -> float:
    """Mean log-probability of the tokens that the policy wrote, nats per token; 0 where it wrote none."""
    logprob = [value for node in leaf.path()[1:] for value in node.model_logprob]
    return mean(logprob) if logprob else 0.0


def less_likely(logprob: Sequence[float]) -> list[float]:
    """Share of all answers that are less likely than each; of equal ones the first is taken for the less likely.

        rank_i / n        rank 0: the lowest mean log-probability

    Args:
        logprob: nats per token.
    """
    shares = [0.0] * len(logprob)
    for rank, i in enumerate(sorted(range(len(logprob)), key=lambda i: logprob[i])):
        shares[i] = rank / len(logprob)
    return shares

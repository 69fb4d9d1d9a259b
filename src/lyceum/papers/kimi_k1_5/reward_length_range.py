"""The length reward of Kimi k1.5: short answers are promoted among the samples of a prompt, long ones penalised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from lyceum.core.settings import RewardSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, GradingContext, ShapingGrader, Task, TaskSource


class LengthRange(RewardSettings):
    """From 1/2 for the shortest of a group to -1/2 for its longest; incorrect answers earn at most 0."""

    after_verdict: ClassVar[bool] = True

    kind: Literal["length-range"] = "length-range"

    def build(self, source: TaskSource) -> ShapingGrader:
        return self.score

    async def score(
        self, task: Task, leaves: Sequence[Node], context: GradingContext, verdicts: Sequence[bool | None]
    ) -> list[Grade]:
        judged = [leaf.policy_tokens for leaf, verdict in zip(leaves, verdicts, strict=True) if verdict is not None]
        return [
            Grade.ungraded("nothing says whether the answer is right")
            if verdict is None
            else Grade(length_reward(leaf.policy_tokens, min(judged), max(judged), correct=verdict))
            for leaf, verdict in zip(leaves, verdicts, strict=True)
        ]


def length_reward(length: int, shortest: int, longest: int, *, correct: bool) -> float:
    """Reward of an answer by its length among those of its prompt, without unit.

        l = 1/2 - (length - shortest) / (longest - shortest)        0 where all are of one length
        l for a correct answer, min(0, l) for an incorrect one

    Args:
        length, shortest, longest: in tokens that the policy wrote; of correct and incorrect answers alike.
    Source:
        Kimi k1.5, arXiv:2501.12599, section 2.3.3.
    """
    if longest == shortest:
        return 0.0
    reward = 0.5 - (length - shortest) / (longest - shortest)
    return reward if correct else min(0.0, reward)

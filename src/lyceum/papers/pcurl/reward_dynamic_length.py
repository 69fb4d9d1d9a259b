"""The dynamic length reward (PCuRL): incorrect answers are pulled to the length at which this prompt is solved."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from lyceum.core.settings import RewardSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, GradingContext, ShapingGrader, Task, TaskSource


class DynamicLength(RewardSettings):
    """0 for correct answers; for incorrect ones at most 0, and highest at the target length."""

    after_verdict: ClassVar[bool] = True

    kind: Literal["dynamic-length"] = "dynamic-length"
    target: Literal["mean", "shortest", "fixed"] = "mean"
    """Target length of a prompt: the mean of the group's correct answers, the shortest one, or always ``fallback``."""
    fallback: int = Field(750, ge=1)
    """Target in tokens where no answer of the group is correct: shorter ones are pulled up to it, longer ones are free
    up to ``limit``."""
    limit: int = Field(4096, ge=2)
    """Length in tokens from which an answer of a group without a correct one gets the full penalty."""

    def build(self, source: TaskSource) -> ShapingGrader:
        return self.score

    async def score(
        self, task: Task, leaves: Sequence[Node], context: GradingContext, verdicts: Sequence[bool | None]
    ) -> list[Grade]:
        lengths = [leaf.policy_tokens for leaf in leaves]
        right = [length for length, verdict in zip(lengths, verdicts, strict=True) if verdict]
        target = None
        if right and self.target != "fixed":
            target = min(right) if self.target == "shortest" else sum(right) / len(right)
        return [
            Grade.ungraded("nothing says whether the answer is right")
            if verdict is None
            else shaped(0.0 if verdict else self._wrong(length, target))
            for length, verdict in zip(lengths, verdicts, strict=True)
        ]

    def _wrong(self, length: int, target: float | None) -> float:
        if target is None:
            return length_without_target(length, self.fallback, self.limit)
        return length_at_target(length, target)


def shaped(reward: float) -> Grade:
    """A shaping reward, and whether it did anything: ``acted`` is averaged over samples in the metrics."""
    return Grade(reward, parts={"acted": float(reward != 0)})


def length_at_target(length: float, target: float) -> float:
    """Reward of an incorrect answer where the group has correct ones.

        l(L; T) = -1/4 (1 + cos(pi L / T))    L < 2 T        0 at L = T, -1/2 at L = 0
                  -1/2                        L >= 2 T

    Args:
        length: L, in tokens that the policy wrote.
        target: T > 0, in tokens.
    Returns:
        In -1/2 .. 0, without unit.
    Source:
        VL-Cogito, arXiv:2507.22607: its released code, verl/workers/reward/custom.py and
        verl/utils/reward_score/aux.py (reward ``r1v+length+cir``).
    """
    return -0.5 if length >= 2 * target else -0.25 * (1 + math.cos(math.pi * length / target))


def length_without_target(length: float, fallback: float, limit: float) -> float:
    """Reward of an incorrect answer where no answer of the group is correct.

        l_0(L) = 1/2 * ( -1/4 (1 + cos(pi L / T_0))    L < T_0
                         0                             T_0 <= L < limit
                         -1/2                          L >= limit )

    Args:
        length: L, in tokens that the policy wrote.
        fallback: T_0 > 0, in tokens.
        limit: in tokens.
    Returns:
        In -1/4 .. 0, without unit.
    Source:
        As :func:`length_at_target`.
    """
    if length >= limit:
        return -0.25
    return 0.0 if length >= fallback else -0.125 * (1 + math.cos(math.pi * length / fallback))

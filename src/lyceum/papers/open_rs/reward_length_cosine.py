"""The cosine length reward (Yeo et al.; Open-RS): short correct answers earn most, and long correct ones more than any
incorrect one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from lyceum.core.settings import RewardSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, GradingContext, ShapingGrader, Task, TaskSource


class LengthCosine(RewardSettings):
    """A cosine of the length between two rewards for correct answers and two for incorrect ones.

    It contains the reward of being correct: the part that judges has weight 0 beside it. Resists padding (a longer
    correct answer earns less) and giving up (a short incorrect one earns least).
    """

    after_verdict: ClassVar[bool] = True

    kind: Literal["length-cosine"] = "length-cosine"
    max_tokens: int = Field(1000, ge=1)
    """Length from which an answer earns the rewards of the longest, in tokens that the policy wrote."""
    correct_short: float = 1.0
    """Reward of a correct answer of length 0."""
    correct_long: float = 0.5
    """Reward of a correct answer of ``max_tokens`` or more."""
    wrong_short: float = -1.0
    """Reward of an incorrect answer of length 0."""
    wrong_long: float = -0.5
    """Reward of an incorrect answer of ``max_tokens`` or more."""

    @model_validator(mode="after")
    def _correct_answers_earn_more(self) -> LengthCosine:
        rewards = (self.correct_short, self.correct_long, self.wrong_short, self.wrong_long)
        if not all(map(math.isfinite, rewards)):
            raise ValueError(f"got rewards {', '.join(map(str, rewards))}; allowed: finite numbers")
        least, most = min(rewards[:2]), max(rewards[2:])
        if least <= most:
            raise ValueError(
                f"got {least:g} for a correct answer and {most:g} for an incorrect one; allowed: more for every "
                "correct answer than for any incorrect one"
            )
        return self

    def build(self, source: TaskSource) -> ShapingGrader:
        return self.score

    async def score(
        self, task: Task, leaves: Sequence[Node], context: GradingContext, verdicts: Sequence[bool | None]
    ) -> list[Grade]:
        return [
            Grade.ungraded("nothing says whether the answer is right")
            if verdict is None
            else Grade(self._reward(leaf.policy_tokens, verdict))
            for leaf, verdict in zip(leaves, verdicts, strict=True)
        ]

    def _reward(self, length: int, correct: bool) -> float:
        short, long = (self.correct_short, self.correct_long) if correct else (self.wrong_short, self.wrong_long)
        return cosine_between(short, long, min(1.0, length / self.max_tokens))


def cosine_between(short: float, long: float, progress: float) -> float:
    """R(p) = long + 1/2 (short - long) (1 + cos(pi p)): ``short`` at p = 0, ``long`` at p = 1, flat at both ends.

    Args:
        progress: p, length by maximum length, 0 to 1.
    Source:
        Open-RS, arXiv:2503.16219, its code's ``get_cosine_scaled_reward``, which counts characters and lets the cosine
        rise again beyond the maximum; Yeo et al., arXiv:2502.03373, who propose it.
    """
    return long + 0.5 * (short - long) * (1 + math.cos(math.pi * progress))

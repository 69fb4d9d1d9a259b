"""Soft length penalty for completions near the maximum length (DAPO)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from lyceum.core.settings import Composition, RewardSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, Task, TaskSource
from lyceum.reward.base import each


class Overlong(RewardSettings):
    """0 up to an expected length, falling to -1 at the maximum, in tokens that the policy wrote."""

    kind: Literal["overlong"] = "overlong"
    weight: float = 1.0
    """Weight of the part in the outcome. The paper's is 1 beside rewards of 1 and -1; beside 1 and 0, where correct and
    incorrect are half as far apart, 0.5 is the same."""
    max_tokens: int = Field(ge=1)
    """Maximum completion length, in tokens; from here on the penalty is full."""
    buffer_tokens: int = Field(ge=1)
    """Tokens before ``max_tokens`` over which the penalty grows."""

    @model_validator(mode="after")
    def _buffer_fits(self) -> Overlong:
        if self.buffer_tokens > self.max_tokens:
            raise ValueError(
                f"buffer_tokens: got {self.buffer_tokens}, but max_tokens is {self.max_tokens}; "
                f"allowed: 1 to {self.max_tokens}"
            )
        return self

    def check(self, stage: Composition) -> list[str]:
        """Also a line where the rollout's limit is so low that no completion is ever penalised."""
        lines: list[str] = []
        limit = None if stage.rollout is None else stage.rollout.sampling.max_completion_tokens
        free = self.max_tokens - self.buffer_tokens
        if limit is None or limit > free:
            return lines
        return [
            *lines,
            f"reward.overlong.max_tokens: got {self.max_tokens} with buffer_tokens {self.buffer_tokens}, but "
            f"rollout.sampling.max_completion_tokens {limit} never passes {free}; allowed: a smaller max_tokens, "
            f"as a rule {limit}",
        ]

    def build(self, source: TaskSource) -> Grader:
        return each(self.score)

    def score(self, task: Task, leaf: Node) -> Grade:
        length = leaf.policy_tokens
        return Grade(soft_overlong(length, max_tokens=self.max_tokens, buffer_tokens=self.buffer_tokens))


def soft_overlong(length: int, *, max_tokens: int, buffer_tokens: int) -> float:
    """Soft overlong penalty of one completion.

        R(y) = 0                                      |y| <= L_max - L_cache
               ((L_max - L_cache) - |y|) / L_cache    L_max - L_cache < |y| <= L_max
               -1                                     |y| > L_max

    Args:
        length: |y|, in tokens.
        max_tokens: L_max, in tokens.
        buffer_tokens: L_cache, in tokens.
    Returns:
        In -1 .. 0, without unit; added to a correctness reward.
    Source:
        DAPO, arXiv:2503.14476, equation 13.
    """
    return max(-1.0, min(0.0, (max_tokens - buffer_tokens - length) / buffer_tokens))

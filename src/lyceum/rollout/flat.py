"""Flat groups: independent samples of the task's prompt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from lyceum.core.needs import Gives
from lyceum.core.settings import Composition, RolloutSettings
from lyceum.core.tree import Node
from lyceum.core.types import Context, Rollout, Sampling


class Flat(RolloutSettings):
    """Independent samples of one prompt; shorter if the task's budget is short."""

    test_time: ClassVar[Mapping[str, Any]] = {"tokens_per_step": None}
    gives: ClassVar = (
        Gives("unfinished", when=lambda own: own.tokens_per_step is not None),
        Gives("equal-rows", when=lambda own: own.sampling.temperature == 0),
    )
    continues: ClassVar[bool] = False

    sized_by: ClassVar = "samples"

    kind: Literal["flat"] = "flat"
    samples: int = Field(default=8, ge=1)
    """Completions per task, unless the curriculum sets the number."""
    sampling: Sampling = Sampling()
    """How tokens are sampled."""
    tokens_per_step: int | None = Field(default=None, ge=1)
    """Maximum tokens that a completion gets in one step; null: all of them. What is unfinished then goes on in the
    next step, under the newer weights, and its group is trained once it is finished (partial rollouts: Kimi k1.5,
    arXiv:2501.12599, section 2.6.2)."""

    def build(self) -> Rollout:
        return self.roll

    async def roll(self, context: Context, start: Node, n: int | None) -> list[Node]:
        samples = n or self.samples
        sampling = self.sampling.affordable(start.policy_tokens, context.budget_left // samples)
        limit = self.tokens_per_step
        if limit is None or limit >= sampling.max_completion_tokens:
            return await context.extend(start, samples, sampling)
        leaves = await context.extend(start, samples, sampling.at_most(limit))
        for leaf in leaves:
            if leaf.finish == "length" and context.tokens_left(leaf):
                leaf.finish = None
        return leaves

    def check(self, stage: Composition) -> list[str]:
        if self.tokens_per_step is None or not stage.guidance:
            return []
        guide = stage.guidance[0].kind
        return [
            f"rollout.tokens_per_step: got {self.tokens_per_step} with guidance {guide!r}, which needs "
            "whole completions in one step; allowed: null"
        ]

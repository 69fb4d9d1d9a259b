"""ReNorm: process rewards shifted by the outcome, so that no step of a wrong answer is paid (PPR)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator

from lyceum.core.component import slot
from lyceum.core.settings import RewardSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, GradingContext, ShapingGrader, Task, TaskSource
from lyceum.reward.base import BaseGrader


class ReNorm(RewardSettings):
    """The judged steps of another part, each shifted by the outcome: r_k + r_o - mu, with the verdict as r_o.

    With rewards from 0 to 1 and mu 1, steps of a wrong answer earn 0 or less and those of a correct one 0 or more: good
    steps alone do not pay. The last step is the answer itself and earns nothing here, as the outcome pays it.

    Source:
        PPR, arXiv:2509.25598 (reward normalisation), as in the authors' code, verl/trainer/main_ppo.py, where the last
        turn is not judged.
    """

    after_verdict: ClassVar[bool] = True

    kind: Literal["renorm"] = "renorm"
    of: Annotated[RewardSettings, slot("reward", "steps")]
    """The part whose steps are shifted; their rewards should be from 0 to 1."""
    mu: float = Field(1.0, ge=-1e6, le=1e6)
    """What is subtracted, in the unit of reward; 1 in the authors' runs."""
    last: Literal["dropped", "kept"] = "dropped"
    """Whether the last judged step earns nothing, as in the paper; ``kept`` where only steps before the answer are
    judged (kind ``steps``)."""

    @field_validator("of")
    @classmethod
    def _can_be_shifted(cls, of: RewardSettings) -> RewardSettings:
        if type(of).after_verdict or not of.is_plain:
            raise ValueError(
                f"got kind {of.kind!r} with weight {of.weight:g}; allowed: weight 1, to be added (set renorm's own), "
                "and a kind that is not told the verdicts"
            )
        return of

    def build(self, source: TaskSource) -> ShapingGrader:
        return Shifted(self, self.of.build(source))  # pyright: ignore[reportArgumentType]

    def shifted(self, grade: Grade, verdict: bool | None) -> Grade:
        if grade.outcome is None:
            return grade
        if verdict is None:
            return Grade.ungraded("no part says whether the answer is correct")
        raw = [step.reward for step in grade.steps]
        new = renormed(raw, float(verdict), mu=self.mu, last=self.last)
        steps = tuple(step._replace(reward=reward) for step, reward in zip(grade.steps, new, strict=True))
        parts = {**grade.parts, "steps": len(raw), "raw": sum(raw), "shifted": sum(new)}
        return replace(grade, steps=steps, parts=parts)


class Shifted(BaseGrader):
    """The grades of another part, shifted."""

    def __init__(self, settings: ReNorm, inner: Grader) -> None:
        self.settings, self.inner = settings, inner

    def within(self) -> Mapping[str, Any]:
        return {self.settings.of.kind: self.inner}

    async def __call__(
        self, task: Task, leaves: Sequence[Node], context: GradingContext, verdicts: Sequence[bool | None]
    ) -> list[Grade]:
        found = await self.inner(task, leaves, context)
        return [self.settings.shifted(grade, verdict) for grade, verdict in zip(found, verdicts, strict=True)]


def renormed(reward: Sequence[float], outcome: float, *, mu: float, last: Literal["dropped", "kept"]) -> list[float]:
    """Process rewards r_1 .. r_K of a trajectory's steps, shifted by its outcome r_o.

        r_k <- r_k + r_o - mu,  k < K;    r_K <- 0        with ``kept`` r_K is shifted as well

    Args:
        reward: of each step, 0 to 1.
        outcome: 0 or 1.
    Source:
        Xu et al., arXiv:2509.25598, the authors' ``_apply_process_reward_optimizations`` (beta is mu).
    """
    shifted = [r + outcome - mu for r in (reward if last == "kept" else reward[:-1])]
    return shifted + [0.0] * (len(reward) - len(shifted))

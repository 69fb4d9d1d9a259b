"""Clip and Delta: process rewards refined so that no number of steps can earn more than a bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field, field_validator

from lyceum.core.component import of_kind, slot
from lyceum.core.settings import Composition, RewardSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, GradingContext, Task, TaskSource
from lyceum.reward.base import BaseGrader


class ClipDelta(RewardSettings):
    """The judged steps of another part, clipped and replaced by their differences; its outcome stays as it is.

    Summed process rewards pay for repeating correct but needless steps. Clipped, no step earns more than 0; as
    differences, what is earned from a step on is that step's own reward, however many come after it.
    """

    kind: Literal["clip-delta"] = "clip-delta"
    of: Annotated[RewardSettings, slot("reward", "steps")] = of_kind("steps")
    """The part whose steps are refined."""
    clip: float | None = Field(0.5)
    """Threshold eta, in the steps' reward: higher rewards become 0, lower ones their negative distance from it. It
    should leave most steps at 0. Null does not clip."""
    delta: bool = True
    """Replace each step's reward by its difference from the next one's."""
    last: Literal["dropped", "kept"] = "dropped"
    """Whether the last judged step earns nothing, as in the paper, where it is the answer, which the outcome rewards;
    ``kept`` where only steps before the answer are judged (kind ``steps``)."""

    @field_validator("of")
    @classmethod
    def _can_be_refined(cls, of: RewardSettings) -> RewardSettings:
        if type(of).after_verdict or not of.is_plain:
            raise ValueError(
                f"got kind {of.kind!r} with weight {of.weight:g}; allowed: weight 1, to be added (set clip-delta's "
                "own), and a kind that is not told the verdicts"
            )
        return of

    def check(self, stage: Composition) -> list[str]:
        lines: list[str] = []
        if self.clip is None and not self.delta:
            lines.append("reward.clip-delta: got clip null and delta false, which refine nothing; allowed: one of them")
        return lines

    def build(self, source: TaskSource) -> Grader:
        return Refined(self, self.of.build(source))  # pyright: ignore[reportArgumentType]

    def refined(self, grade: Grade) -> Grade:
        raw = [step.reward for step in grade.steps]
        new = refine(raw, clip=self.clip, delta=self.delta, last=self.last)
        steps = tuple(step._replace(reward=reward) for step, reward in zip(grade.steps, new, strict=True))
        parts = {
            **grade.parts,
            "steps": len(raw),
            "changed": sum(a != b for a, b in zip(raw, new, strict=True)),
            "raw": sum(raw),
            "refined": sum(new),
        }
        return replace(grade, steps=steps, parts=parts)


class Refined(BaseGrader):
    """The grades of another part, refined."""

    def __init__(self, settings: ClipDelta, inner: Grader) -> None:
        self.settings, self.inner = settings, inner

    def within(self) -> dict[str, Grader]:
        return {self.settings.of.kind: self.inner}

    async def __call__(self, task: Task, leaves: Sequence[Node], context: GradingContext) -> list[Grade]:
        return [self.settings.refined(grade) for grade in await self.inner(task, leaves, context)]


def refine(
    reward: Sequence[float], *, clip: float | None, delta: bool, last: Literal["dropped", "kept"]
) -> list[float]:
    """Process rewards r_1 .. r_K of a trajectory's steps, refined.

        clip:   r_k <- min(r_k - eta, 0)
        delta:  r_k <- r_k - r_{k+1},  k < K - 1;    r_{K-1} <- r_{K-1};    r_K <- 0

    Both: first clipped, then differences. With ``kept`` r_K counts as r_{K-1} does here. What is earned from step k on
    is then its own (clipped) reward, 0 or less: the sum telescopes.

    Args:
        clip: eta, in the reward's unit; None does not clip.
    Source:
        Gao et al., arXiv:2410.15115, section 5 (the Clip and the Delta mechanism).
    """
    refined = [min(r - clip, 0.0) for r in reward] if clip is not None else list(reward)
    if last == "dropped":
        refined = refined[:-1]
    if delta:
        refined = [a - b for a, b in pairwise([*refined, 0.0])]
    return refined + [0.0] * (len(reward) - len(refined))

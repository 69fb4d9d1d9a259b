"""A bonus for correct answers that follow from their reasoning, as a slow average of the policy sees it (GRPO-CARE)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field, field_validator

from lyceum.core.component import require_keys
from lyceum.core.settings import RewardSettings
from lyceum.core.spans import TokenEnds, token_span
from lyceum.core.tallies import TALLY, Tally
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Grade, GradingContext, Scored, ShapingGrader, State, Task, TaskSource
from lyceum.reward.base import BaseGrader
from lyceum.reward.extract import Extract
from lyceum.utils.numbers import mean


class ConsistencyBonus(RewardSettings):
    """1 for correct answers that are at least as likely, below their own reasoning, as the group's correct ones are on
    average; else 0. The likelihoods are those of the stage's ``average``.

    Source:
        GRPO-CARE, arXiv:2506.16141, and its released code (trainer/grpo_trainer_ref_ema.py, trainer/ema_trainer.py).
    """

    after_verdict: ClassVar[bool] = True
    requires: ClassVar = ("average",)

    kind: Literal["consistency-bonus"] = "consistency-bonus"
    weight: float = 0.5
    """Weight of the bonus in the outcome, beside a verifier's 1 for a correct answer."""
    extract: Extract = Extract.model_validate({"tags": "answer"})
    """Where a completion has its answer: boxed, {after: MARK} or {tags: NAME}; the text before it is the reasoning."""
    most: float = Field(0.95, gt=0, le=1)
    """Higher likelihoods count as this one: among certain answers none is preferred."""
    margin: float = Field(0.0, ge=0, le=1)
    """How far below the group's mean a likelihood may be and still be paid; 0.01 in the authors' runs on mixed data."""

    @field_validator("extract")
    @classmethod
    def _reasoning_ends_somewhere(cls, extract: Extract) -> Extract:
        if extract.form == "whole":
            raise ValueError("got 'whole', which leaves no reasoning; allowed: boxed, {after: MARK} or {tags: NAME}")
        return extract

    def build(self, source: TaskSource) -> ShapingGrader:
        return ConsistencyGrader(self)


class ConsistencyGrader(BaseGrader):
    """Compares the correct answers of one task that are graded together."""

    def __init__(self, settings: ConsistencyBonus) -> None:
        self.settings = settings
        self.tally = Tally("compared", "parted", "lead")
        """Of the current step: groups compared and parted, and the sum of the latter's leads."""
        self.measured: dict[str, float] = {}

    async def __call__(
        self, task: Task, leaves: Sequence[Node], context: GradingContext, verdicts: Sequence[bool | None]
    ) -> list[Grade]:
        ends = TokenEnds(context.decode)
        answers = {i: self.answer(leaf, ends) for i, leaf in enumerate(leaves) if verdicts[i]}
        asked = {i: answer for i, answer in answers.items() if answer is not None}
        found = await context.score_under("average", list(asked.values())) if asked else []
        likely = {i: min(self.settings.most, math.exp(mean(each))) for i, each in zip(asked, found, strict=True)}
        paid = dict(zip(likely, consistent(list(likely.values()), margin=self.settings.margin), strict=True))
        if paid:
            parted = [[likely[i] for i, is_paid in paid.items() if is_paid is side] for side in (True, False)]
            self.tally.count(compared=1)
            if parted[1]:
                self.tally.count(parted=1, lead=mean(parted[0]) - mean(parted[1]))

        def grade(i: int) -> Grade:
            if verdicts[i] is None:
                return Grade.ungraded("nothing says whether the answer is right")
            if not verdicts[i]:
                return Grade(0.0)
            bonus = float(paid.get(i, False))
            return Grade(bonus, parts={"paid": bonus} | ({"likelihood": likely[i]} if i in likely else {}))

        return [grade(i) for i in range(len(leaves))]

    def answer(self, leaf: Node, ends: TokenEnds) -> Scored | None:
        """The answer's tokens below everything before them; None where a completion has none."""
        text, prompt = leaf.completion, len(leaf.root.tokens)
        reasoning, answer = self.settings.extract.until_answer(text), self.settings.extract(text)
        if reasoning is None or answer is None:
            return None
        start = text.index(answer, len(reasoning))
        span = token_span(ends.of(leaf), start, start + len(answer))
        return Scored(leaf.path_tokens(), prompt + span.start, prompt + span.stop) if span.stop > span.start else None

    def observe(self, trees: Sequence[Tree]) -> None:
        of = self.tally.taken()
        self.measured = {"groups/compared": of["compared"], "groups/parted": of["parted"]}
        if of["parted"]:
            self.measured["likelihood/lead"] = of["lead"] / of["parted"]

    def metrics(self) -> dict[str, float]:
        """Groups with correct answers, those of them in which some were paid and some were not, and in these the mean
        likelihood of the paid ones above that of the others."""
        return self.measured

    def state_dict(self) -> State:
        return {TALLY: dict(self.tally)}

    def load_state_dict(self, state: State) -> None:
        require_keys("reward.consistency-bonus", given=state, needed=self.state_dict())
        self.tally.update(state[TALLY])


def consistent(likelihood: Sequence[float], *, margin: float = 0.0) -> list[bool]:
    """Which of a group's correct answers get the bonus.

        b_i = 1 where p_i >= mean_j p_j - margin

    Args:
        likelihood: p, geometric mean over the answer's tokens, 0 .. 1, clipped from above.
        margin: in the same unit.
    Returns:
        All of them where they are equal.
    Source:
        GRPO-CARE, arXiv:2506.16141; the released code's ``confident_mask``.
    """
    if not likelihood:
        return []
    # From the lowest: a rounded mean of equal numbers may lie above all of them.
    low = min(likelihood)
    above = mean([p - low for p in likelihood])
    return [p - low >= above - margin for p in likelihood]

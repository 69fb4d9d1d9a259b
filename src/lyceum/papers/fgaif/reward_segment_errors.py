"""A judge marks each segment of a completion by one kind of error: fine, wrong, or nothing of the kind (FGAIF)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from pydantic import Field, field_validator

from lyceum.core.settings import RewardSettings
from lyceum.core.spans import TokenEnds
from lyceum.core.steps import Steps
from lyceum.core.tree import Node
from lyceum.core.types import Grade, GradingContext, Task, TaskSource
from lyceum.reward._judging import JudgingGrader, cuts_any_text, numbered, segments
from lyceum.reward.base import ungraded_by
from lyceum.reward.scorer.judging import SEGMENTS, JudgeModel, Question
from lyceum.reward.scorer.models import filled
from lyceum.utils.aio import gather
from lyceum.utils.numbers import mean

MARKS = {"+": 1.0, "0": 0.5, "-": 0.0}
"""The reward of a segment by its mark: what there is of the kind holds, there is nothing of it, or an error."""


class SegmentErrors(RewardSettings):
    """Process rewards alone: of each segment 1, 1/2 or 0, as a judge finds that all statements of one kind in it are
    right, finds none, or finds an error. Labels for a reward model (stage ``reward-model`` with ``labels: steps``), one
    for each kind of error, or a reward. A completion of which no reply can be read has no judged segment.

    Source:
        FGAIF, arXiv:2404.05046 (feedback of AI tools by kind of hallucination, on segments). There a language model
        writes the atomic facts of each kind and another one verifies them; here it is one question, in our words.
    """

    kind: Literal["segment-errors"] = "segment-errors"
    judge: JudgeModel = JudgeModel()
    """Who judges. Of several votes the mean counts. With form ``words`` the segments are shown with their numbers."""
    error: str = Field(min_length=1)
    """The kind of statement that is checked: "an object in the picture", "a number taken from the table"."""
    ask: str = Field(
        "Look at statements of this kind alone: {error}. Mark each numbered segment of the answer, in order and with "
        "nothing between the marks: + where all such statements in it are right, - where one of them is wrong, 0 where "
        "there is none.",
        pattern=r"\{error\}",
    )
    """What the judge is told."""
    step: Steps = Steps(by="lines")
    """Where a segment ends."""

    _cuts_any_text = field_validator("step")(cuts_any_text)

    @property
    def waits_for_model(self) -> bool:
        return self.judge.waits_for_model

    def build(self, source: TaskSource) -> SegmentJudge:
        self.judge.check_files()
        return SegmentJudge(self)


class SegmentJudge(JudgingGrader):
    def __init__(self, settings: SegmentErrors) -> None:
        super().__init__(settings.judge)
        self.settings = settings

    async def __call__(self, task: Task, leaves: Sequence[Node], context: GradingContext) -> list[Grade]:
        ends = TokenEnds(context.decode)
        return await gather([self.grade(task, leaf, ends, context) for leaf in leaves])

    async def grade(self, task: Task, leaf: Node, ends: TokenEnds, context: GradingContext) -> Grade:
        of = self.settings
        cut = segments(leaf, of.step, ends, context.decode)
        text = leaf.completion if of.judge.form == "turns" else numbered(leaf.completion, cut)
        rubric = filled(of.ask, {"error": of.error})
        question = Question(task.messages, [text], rubric, SEGMENTS, f"the {len(cut)} marks")
        key = ("segment-errors", of.error, leaf.address)
        try:
            found = await self.asker.verdicts(question, context, key, lambda vote: marks_of(vote, len(cut)))
        except Exception as error:
            return ungraded_by(error)
        counts = {"segments": float(len(cut)), "read": float(bool(found))}
        if not found:
            return Grade(0.0, parts=counts)
        marks = [mean(votes) for votes in zip(*found, strict=True)]
        counts |= {"right": float(sum(mark > 0.5 for mark in marks)), "wrong": float(sum(mark < 0.5 for mark in marks))}
        judged = tuple(step._replace(reward=mark) for step, mark in zip(cut, marks, strict=True))
        return Grade(0.0, steps=judged, parts=counts)


def marks_of(text: str, segments: int) -> list[float] | None:
    """The rewards of so many marks; None where a text is anything else."""
    found = re.sub(r"\s", "", text)
    return [MARKS[mark] for mark in found] if len(found) == segments and set(found) <= MARKS.keys() else None

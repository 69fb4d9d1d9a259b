"""Points that a language model gives completions, by principles that it writes itself, over several votes (SPCT)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from lyceum.core.settings import RewardSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, GradingContext, Task, TaskSource
from lyceum.core.user_files import describe
from lyceum.reward._judging import JudgingGrader
from lyceum.scorer.judging import JudgeModel, Question
from lyceum.utils.aio import gather
from lyceum.utils.numbers import mean

PRINCIPLES = (
    "First write the principles by which answers to this question should be judged, and how much each counts. Then "
    "criticise each answer by them. Then give each its points: most for the best possible answer, 0 for a worthless "
    "one. Length, style and confidence earn nothing."
)


class JudgeReward(RewardSettings):
    """Points over the most that there are, the mean of the judge's votes.

    Several completions of a task may be judged in one question, in which they are seen beside each other. A question
    that fails, or of which no vote can be read, leaves its completions ungraded.

    Source:
        SPCT, arXiv:2504.02495: principles and critiques before points, several samples that vote. The paper adds up
        votes; their mean is the same up to a factor. Its meta model that drops votes is left out.
    """

    kind: Literal["judge"] = "judge"
    judge: JudgeModel = JudgeModel()
    """Who judges, and how many votes it has."""
    principles: str = Field(PRINCIPLES, min_length=1)
    """What the judge is told; it writes principles of its own."""
    most_points: int = Field(10, ge=1, le=1000)
    """The points of the best answer; the worst has 0."""
    together: int = Field(1, ge=1, le=26)
    """Maximum completions per question."""

    @property
    def waits_for_model(self) -> bool:
        return self.judge.waits_for_model

    def build(self, source: TaskSource) -> JudgeGrader:
        self.judge.check_files()
        return JudgeGrader(self)


class JudgeGrader(JudgingGrader):
    def __init__(self, settings: JudgeReward) -> None:
        super().__init__(settings.judge)
        self.settings = settings

    async def __call__(self, task: Task, leaves: Sequence[Node], context: GradingContext) -> list[Grade]:
        size = self.settings.together
        asked = [leaves[at : at + size] for at in range(0, len(leaves), size)]
        found = await gather([self.grade(task, some, context) for some in asked])
        return [grade for grades in found for grade in grades]

    async def grade(self, task: Task, leaves: Sequence[Node], context: GradingContext) -> list[Grade]:
        """The grades of completions that are judged in one question."""
        of, texts = self.settings, [leaf.completion for leaf in leaves]
        values = f"the points of each answer in order, from 0 to {of.most_points}, with commas between them"
        question = Question(task.messages, texts, of.principles, "scores", values)
        try:
            found = await self.asker.verdicts(
                question,
                context,
                ("judge", *(leaf.address for leaf in leaves)),
                lambda vote: points_of(vote, len(leaves), of.most_points),
            )
        except Exception as error:
            return [Grade.ungraded(describe(error))] * len(leaves)
        if not found:
            return [Grade.ungraded("no reply of the judge ends in points")] * len(leaves)
        means = [mean(points) for points in zip(*found, strict=True)]
        return [Grade(points / of.most_points, parts={"points": points, "votes": len(found)}) for points in means]


def points_of(text: str, answers: int, most: int) -> list[float] | None:
    """The points of so many answers, ``7, 3.5``; None where a text is anything else, or one is above ``most``."""
    found = [each.strip() for each in text.split(",")]
    if len(found) != answers or any(re.fullmatch(r"\d{1,4}(\.\d{1,4})?", each) is None for each in found):
        return None
    points = [float(each) for each in found]
    return points if max(points) <= most else None

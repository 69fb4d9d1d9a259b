"""What a judge says of incorrect completions beside a reference: partial credit where the verdict gives none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from lyceum.core.settings import RewardSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, GradingContext, Task, TaskSource
from lyceum.reward._judging import JudgingGrader
from lyceum.reward.base import no_right_answer, right_answers, ungraded_by
from lyceum.reward.judge import points_of
from lyceum.reward.scorer.judging import JudgeModel, Question
from lyceum.utils.aio import gather
from lyceum.utils.numbers import mean

CRITERIA = (
    "The answer is known to be wrong. Compare it with the correct answer below and give points for what it has right: "
    "its meaning, its structure and the names that it uses. Style and length earn nothing. The correct answer:"
)


class Feedback(RewardSettings):
    """Points over the most that there are, the mean of the judge's votes; 1 for a correct completion, without asking.

    The judge sees the task, the completion and the task's answer (the first of several). A question that fails, or of
    which no vote can be read, leaves its completion ungraded.

    Source:
        Reasoning-SQL, arXiv:2503.23157 (AI feedback beside execution, read in its abstract and in summaries of it; that
        a correct completion has all points is ours).
    """

    after_verdict: ClassVar[bool] = True

    kind: Literal["feedback"] = "feedback"
    compares_answers: ClassVar[bool] = True
    judge: JudgeModel = JudgeModel()
    """Who judges, and how many votes it has."""
    criteria: str = Field(CRITERIA, min_length=1)
    """What the judge is told before the reference."""
    most_points: int = Field(10, ge=1, le=1000)
    """The points of the best incorrect answer; the worst has 0."""

    @property
    def waits_for_model(self) -> bool:
        return self.judge.waits_for_model

    def build(self, source: TaskSource) -> FeedbackGrader:
        self.judge.check_files()
        return FeedbackGrader(self)


class FeedbackGrader(JudgingGrader):
    def __init__(self, settings: Feedback) -> None:
        super().__init__(settings.judge)
        self.settings = settings

    async def __call__(
        self, task: Task, leaves: Sequence[Node], context: GradingContext, verdicts: Sequence[bool | None]
    ) -> list[Grade]:
        references = right_answers(task)
        if not references:
            return [no_right_answer(task)] * len(leaves)
        paired = zip(leaves, verdicts, strict=True)
        return await gather([self.grade(task, str(references[0]), leaf, right, context) for leaf, right in paired])

    async def grade(self, task: Task, reference: str, leaf: Node, right: bool | None, context: GradingContext) -> Grade:
        if right is None:
            return Grade.ungraded("no part of the reward judges whether it is correct")
        if right:
            return Grade(1.0, parts={"asked": 0.0})
        most = self.settings.most_points
        rubric = f"{self.settings.criteria}\n{reference}"
        question = Question(task.messages, [leaf.completion], rubric, "points", f"a number from 0 to {most}")
        try:
            found = await self.asker.verdicts(
                question, context, ("feedback", leaf.address), lambda vote: points_of(vote, 1, most)
            )
        except Exception as error:
            return ungraded_by(error)
        if not found:
            return Grade.ungraded("no reply of the judge ends in points")
        points = mean([points for [points] in found])
        return Grade(points / most, parts={"asked": 1.0, "points": points})

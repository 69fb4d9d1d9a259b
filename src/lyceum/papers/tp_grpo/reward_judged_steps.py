"""A judge that has read the whole solution says which of its steps were wrong, or were not used (TP-GRPO)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field, field_validator

from lyceum.core.settings import RewardSettings
from lyceum.core.spans import TokenEnds
from lyceum.core.steps import Steps
from lyceum.core.tree import Node
from lyceum.core.types import Grade, GradingContext, Task, TaskSource
from lyceum.reward._judging import JudgingGrader, cuts_any_text, numbered, segments
from lyceum.reward.base import ungraded_by
from lyceum.reward.scorer.judging import STEPS, JudgeModel, Question, numbers_of
from lyceum.utils.aio import gather

CORRECTED = (
    "The answer is correct, so every mistake on the way was noticed and corrected. Do not solve the problem again. "
    "Find the places where the writer takes something back, what each of them takes back, and which steps built on "
    "that. List those wrong steps; a correction itself is not one."
)
UNUSED = (
    "The answer is incorrect. Do not solve the problem again. Compare each step with what the answer rests on, and "
    "list the steps that the answer does not use: attempts that were given up, or lead elsewhere."
)


class JudgedSteps(RewardSettings):
    """Process rewards alone, 1 for a good step and 0 for another, by what a judge reads in the finished solution.

    The judge need not be able to solve the task. Where the answer is correct it looks for what the writer took back:
    those steps are wrong, all others good. Where it is incorrect, the steps that the answer rests on are wrong, and
    those that it does not use are spared. A solution of which no reply can be read has no judged step. ``credit:
    thoughts`` reads them.

    Source:
        TP-GRPO, arXiv:2507.23317 (intrinsic signals), as notes on its version for ICLR 2026 tell. The authors ask for
        reflections, their cause and each step in between one after another; here it is one question, in our words.
    """

    after_verdict: ClassVar[bool] = True

    kind: Literal["judged-steps"] = "judged-steps"
    judge: JudgeModel = JudgeModel()
    """Who judges. Votes list a step where more than half of those that can be read do. With form ``words`` the steps
    are shown with their numbers."""
    step: Steps = Steps(by="lines")
    """Where a step ends."""
    corrected: str = Field(CORRECTED, min_length=1)
    """What the judge is asked to list of a correct solution: its wrong steps."""
    unused: str = Field(UNUSED, min_length=1)
    """What it is asked to list of an incorrect one: the steps that its answer does not use."""

    _cuts_any_text = field_validator("step")(cuts_any_text)

    @property
    def waits_for_model(self) -> bool:
        return self.judge.waits_for_model

    def build(self, source: TaskSource) -> StepJudge:
        self.judge.check_files()
        return StepJudge(self)


class StepJudge(JudgingGrader):
    def __init__(self, settings: JudgedSteps) -> None:
        super().__init__(settings.judge)
        self.settings = settings

    async def __call__(
        self, task: Task, leaves: Sequence[Node], context: GradingContext, verdicts: Sequence[bool | None]
    ) -> list[Grade]:
        ends = TokenEnds(context.decode)

        async def one(leaf: Node, correct: bool | None) -> Grade:
            if correct is None:
                return Grade.ungraded("no part says whether the answer is correct")
            try:
                return await self.grade(task, leaf, ends, correct, context)
            except Exception as error:
                return ungraded_by(error)

        return await gather([one(*each) for each in zip(leaves, verdicts, strict=True)])

    async def grade(self, task: Task, leaf: Node, ends: TokenEnds, correct: bool, context: GradingContext) -> Grade:
        steps = segments(leaf, self.settings.step, ends, context.decode)
        if not steps:
            return Grade(0.0, parts={"steps": 0.0})
        text = leaf.completion if self.settings.judge.form == "turns" else numbered(leaf.completion, steps)
        rubric = self.settings.corrected if correct else self.settings.unused
        question = Question(task.messages, [text], rubric, STEPS, "their numbers with commas between them, or none")
        found = await self.asker.verdicts(
            question, context, ("judged-steps", leaf.address), lambda vote: numbers_of(vote, len(steps))
        )
        if not found:
            return Grade(0.0, parts={"steps": float(len(steps)), "read": 0.0})
        listed = {n for n in range(1, len(steps) + 1) if 2 * sum(n in vote for vote in found) > len(found)}
        # What is listed of a correct solution is wrong; of an incorrect one it is all that is spared.
        judged = tuple(step._replace(reward=float((n in listed) != correct)) for n, step in enumerate(steps, 1))
        name = "wrong" if correct else "unused"
        return Grade(0.0, steps=judged, parts={"steps": float(len(steps)), "read": 1.0, name: float(len(listed))})

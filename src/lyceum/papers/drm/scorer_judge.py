"""A language model reads the reasoning and gives points by a rubric: the run's own model, or one behind an endpoint."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field, model_validator

from lyceum.core.settings import ScorerSettings
from lyceum.core.types import Grade, GradingContext, Reasoned, Sampling, Scorer, State, Task, TaskSource
from lyceum.reward.base import ungraded_by
from lyceum.reward.scorer._endpoint import Endpoint, EndpointSettings
from lyceum.reward.scorer.base import BaseScorer
from lyceum.reward.scorer.judging import fenced, said
from lyceum.utils.aio import gather

LONGEST_POINTS = 12
"""Maximum characters of the points in a reply."""

RUBRIC = (
    "Give 10 points where every step follows from the question and from the steps before it, and the answer follows "
    "from the last step. Take off points for each step that does not follow, most of all where later steps rest on it. "
    "Length, style and confidence earn nothing."
)


class JudgeScorer(ScorerSettings):
    """Points that a model gives a reasoning, divided by the most that it may give.

    The completion is data: it stands between two marks that are made of its own hash, so that it cannot close them,
    after the instructions and before their reminder. Of the reply counts the last line alone, which has to be
    ``score: N``; what a reply quotes of the completion cannot be the points. A reply without that line, or a judge that
    fails, leaves the trajectory without a score; nothing is guessed. What a judge makes of flattery that it reads is
    its own: measure it with completions that contain some.
    """

    kind: Literal["judge"] = "judge"
    endpoint: EndpointSettings | None = None
    """The model behind an OpenAI-compatible endpoint; null asks the run's own model."""
    rubric: str = Field(RUBRIC, min_length=1)
    """What earns points, and what loses some."""
    most_points: int = Field(10, ge=1, le=1000)
    """The points of the best reasoning; the worst has 0."""
    max_reply_tokens: int = Field(256, ge=1)
    """Maximum tokens of a reply."""

    @model_validator(mode="after")
    def _rubric_says_something(self) -> JudgeScorer:
        if not self.rubric.strip():
            raise ValueError("rubric: got white space; allowed: what earns points")
        return self

    def build(self, source: TaskSource) -> Scorer:
        return Judge(self)


class Judge(BaseScorer):
    def __init__(self, settings: JudgeScorer) -> None:
        self.settings = settings
        self.endpoint = None if settings.endpoint is None else Endpoint(settings.endpoint)

    async def __call__(self, task: Task, reasonings: Sequence[Reasoned], context: GradingContext) -> list[Grade]:
        return await gather([self.grade(of, context) for of in reasonings])

    async def grade(self, of: Reasoned, context: GradingContext) -> Grade:
        prompt = judge_prompt(of, self.settings.rubric, self.settings.most_points)
        try:
            reply = await self.reply(prompt, of, context)
        except Exception as error:
            return ungraded_by(error)
        points = points_of(reply, self.settings.most_points)
        if points is None:
            return Grade.ungraded("the last line of the judge's reply is no score")
        return Grade(points / self.settings.most_points, parts={"points": points})

    async def reply(self, prompt: str, of: Reasoned, context: GradingContext) -> str:
        most = self.settings.max_reply_tokens
        messages = [{"role": "user", "content": prompt}]
        if self.endpoint is not None:
            return await self.endpoint.ask(messages, most_tokens=most, folder=context.folder)
        sampling = Sampling(temperature=0.0, max_completion_tokens=most)
        [drawn] = await context.ask(context.render(messages), 1, sampling, key=("judge", of.leaf.address))
        return context.decode(drawn.tokens)

    def metrics(self) -> dict[str, float]:
        return {} if self.endpoint is None else self.endpoint.metrics()

    def state_dict(self) -> State:
        return {} if self.endpoint is None else self.endpoint.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if self.endpoint is None:
            super().load_state_dict(state)
        else:
            self.endpoint.load_state_dict(dict(state))


def judge_prompt(of: Reasoned, rubric: str, most: int) -> str:
    """The question to a judge, with the completion fenced."""
    data = f"Question:\n{of.question}\n\nReasoning:\n{of.reasoning}\n\nAnswer:\n{of.answer}"
    instructions = f"You judge the reasoning of another writer.\n\n{rubric}"
    return fenced(instructions, data, f"score: N, with N from 0 to {most}")


def points_of(reply: str, most: int) -> float | None:
    """The points in the last line of a reply, ``score: 7``; None where that line is anything else."""
    found = said(reply, "score")
    if found is None or len(found) > LONGEST_POINTS or re.fullmatch(r"[0-9]+(\.[0-9]+)?", found) is None:
        return None
    points = float(found)
    return points if points <= most else None

"""Points that a language model gives completions, by principles that it writes itself, over several votes (SPCT)."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import Field, model_validator

from lyceum.core.component import require_keys
from lyceum.core.needs import Need
from lyceum.core.settings import RewardSettings
from lyceum.core.tallies import TALLY
from lyceum.core.tree import Node
from lyceum.core.types import Grade, GradingContext, MarkedPath, State, Task, TaskSource
from lyceum.reward._judging import JudgingGrader
from lyceum.reward.base import ungraded_by
from lyceum.reward.scorer.base import question_of
from lyceum.reward.scorer.judging import JudgeModel, Question, said
from lyceum.utils.aio import gather
from lyceum.utils.numbers import mean, real

LABEL = "scores"
"""What the last line of a reply begins with."""
PRINCIPLES = (
    "First write the principles by which answers to this question should be judged, and how much each counts. Then "
    "criticise each answer by them. Then give each its points: most for the best possible answer, 0 for a worthless "
    "one. Length, style and confidence earn nothing."
)


class JudgeReward(RewardSettings):
    """Points over the most that there are, the mean of the judge's votes.

    Several completions of a task may be judged in one question, in which they are seen beside each other. A question
    that fails, or of which no vote can be read, leaves its completions ungraded.

    With ``keep`` a meta model drops votes: the stage's ``value`` model, which an earlier stage ``reward-model`` fitted
    to judgements by whether they are right (``reward: ranking``), reads the question and each reply.

    Source:
        SPCT, arXiv:2504.02495: principles and critiques before points, several samples that vote, a meta reward model
        that chooses k_meta of k. The paper adds up votes; their mean is the same up to a factor.
    """

    requires: ClassVar = (Need("judgements", when=lambda own: own.keep is not None),)

    kind: Literal["judge"] = "judge"
    judge: JudgeModel = JudgeModel()
    """Who judges, and how many votes it has."""
    principles: str = Field(PRINCIPLES, min_length=1)
    """What the judge is told; it writes principles of its own."""
    most_points: int = Field(10, ge=1, le=1000)
    """The points of the best answer; the worst has 0."""
    together: int = Field(1, ge=1, le=26)
    """Maximum completions per question."""
    shuffle: bool = False
    """Each vote sees the completions in an order of its own, so that a place earns nothing; costs a prompt per vote."""
    keep: int | None = Field(None, ge=1, le=63)
    """Number of votes that count: those that the stage's value model finds likeliest to be right; the paper keeps half
    of them. Null: all."""

    @model_validator(mode="after")
    def _drops_votes(self) -> JudgeReward:
        if self.shuffle and self.together == 1:
            raise ValueError("shuffle: got true with one completion per question; allowed: together of 2 or more")
        if self.keep is not None and self.keep >= self.judge.votes:
            raise ValueError(
                f"keep: got {self.keep} of {self.judge.votes} votes; allowed: fewer than judge.votes, or null"
            )
        return self

    @property
    def waits_for_model(self) -> bool:
        return self.judge.waits_for_model

    def build(self, source: TaskSource) -> JudgeGrader:
        self.judge.check_files()
        return JudgeGrader(self)


class Vote(NamedTuple):
    """What a judge replied to a question, and the points of the completions, in their own order."""

    question: Question
    reply: str
    points: list[float]


class JudgeGrader(JudgingGrader):
    def __init__(self, settings: JudgeReward) -> None:
        super().__init__(settings.judge)
        self.settings = settings
        self.dropped = 0

    async def __call__(self, task: Task, leaves: Sequence[Node], context: GradingContext) -> list[Grade]:
        size = self.settings.together
        asked = [leaves[at : at + size] for at in range(0, len(leaves), size)]
        found = await gather([self.grade(task, some, context) for some in asked])
        return [grade for grades in found for grade in grades]

    async def grade(self, task: Task, leaves: Sequence[Node], context: GradingContext) -> list[Grade]:
        """The grades of completions that are judged in one question."""
        try:
            found = await self.kept(await self.votes(task, leaves, context), context)
        except Exception as error:
            return [ungraded_by(error)] * len(leaves)
        if not found:
            return [Grade.ungraded("no reply of the judge ends in points")] * len(leaves)
        means = [mean(points) for points in zip(*found, strict=True)]
        return [
            Grade(points / self.settings.most_points, parts={"points": points, "votes": len(found)}) for points in means
        ]

    async def votes(self, task: Task, leaves: Sequence[Node], context: GradingContext) -> list[Vote]:
        """The votes that can be read."""
        of, key = self.settings, ("judge", *(leaf.address for leaf in leaves))
        values = f"the points of each answer in order, from 0 to {of.most_points}, with commas between them"

        async def ask(order: Sequence[int], *vote: int) -> list[Vote]:
            texts = [leaves[i].completion for i in order]
            question = Question(task.messages, texts, of.principles, LABEL, values)
            found = await self.asker.votes(
                question,
                context,
                (*key, *vote),
                lambda text: points_of(text, len(leaves), of.most_points),
                vote or None,
            )
            return [
                Vote(question, reply, [points[order.index(i)] for i in range(len(order))]) for reply, points in found
            ]

        order = list(range(len(leaves)))
        if not of.shuffle:
            return await ask(order)
        orders = [
            random.Random(context.seed("order", *key, vote)).sample(order, len(order)) for vote in range(of.judge.votes)
        ]
        asked = await gather([ask(order, vote) for vote, order in enumerate(orders)])
        return [one for votes in asked for one in votes]

    async def kept(self, votes: Sequence[Vote], context: GradingContext) -> list[list[float]]:
        """The points of the votes that count."""
        points, keep = [vote.points for vote in votes], self.settings.keep
        if keep is None or len(votes) <= keep:
            return points
        prompts = [context.render(vote.question.messages(self.settings.judge.form)) for vote in votes]
        paths = [
            MarkedPath([*prompt, *context.encode(vote.reply)], len(prompt), ())
            for prompt, vote in zip(prompts, votes, strict=True)
        ]
        trust = [judged.outcome for judged in await context.judge(paths)]
        self.dropped += len(votes) - keep
        return [points[i] for i in most_trusted(trust, keep)]

    def metrics(self) -> dict[str, float]:
        return super().metrics() | ({} if self.settings.keep is None else {"votes/dropped": self.dropped})

    def state_dict(self) -> State:
        return {"asker": super().state_dict(), TALLY: {"dropped": self.dropped}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("reward.judge", given=state, needed=self.state_dict())
        self.dropped = int(state[TALLY]["dropped"])
        super().load_state_dict(state["asker"])


def most_trusted(trust: Sequence[float], keep: int) -> list[int]:
    """The votes with the highest trust, in the order in which they were given; ties go to the first."""
    return sorted(sorted(range(len(trust)), key=lambda i: -trust[i])[:keep])


def points_of(text: str, answers: int, most: int) -> list[float] | None:
    """The points of so many answers, ``7, 3.5``; None where a text is anything else, or one is above ``most``."""
    found = [each.strip() for each in text.split(",")]
    if len(found) != answers or any(re.fullmatch(r"\d{1,4}(\.\d{1,4})?", each) is None for each in found):
        return None
    points = [float(each) for each in found]
    return points if max(points) <= most else None


def labels_of(task: Task, column: str) -> list[float]:
    """The label of each answer that a task's prompt shows.

    Raises:
        ValueError: they are no numbers, or none of several is the highest.
    """
    where, given = f"column {column!r} of task {task.id!r}", task.columns.get(column)
    if not isinstance(given, list | tuple) or not given:
        got = "none" if given is None else type(given).__name__
        raise ValueError(f"{where}: got {got}; allowed: a list of numbers")
    try:
        labels = [real(one, "a label") for one in given]
    except TypeError as error:
        raise ValueError(f"{where}: {error}") from None
    if not all(map(math.isfinite, labels)) or (len(labels) > 1 and labels.count(max(labels)) > 1):
        raise ValueError(f"{where}: got {labels!r:.100}; allowed: finite numbers, one of them above all others")
    return labels


def read_points(task: Task, leaf: Node, answers: int, most: int) -> list[float] | None:
    """The points in a judgement's last line; None where it is truncated, or that line is anything else.

    A prompt that ends in ``scores:``, as judges are asked in turns, may be gone on with by the points alone.
    """
    begun = f"{LABEL}:" if question_of(task.messages[-1:]).endswith(f"{LABEL}:") else ""
    text = None if leaf.finish == "length" else said(begun + leaf.completion, LABEL)
    return None if text is None else points_of(text, answers, most)


def ranks_as(points: Sequence[float], labels: Sequence[float]) -> bool:
    """Whether points put the best answer first; of a single answer, whether they are its label.

        n > 1:  S_j > S_i for all i != j        j: the answer with the highest label
        n = 1:  S_1 = l_1

    Args:
        points: S_i of each answer.
        labels: l_i of each answer, of which one is the highest.
    """
    if len(labels) == 1:
        return points[0] == labels[0]
    best = max(range(len(labels)), key=labels.__getitem__)
    return all(points[best] > other for i, other in enumerate(points) if i != best)

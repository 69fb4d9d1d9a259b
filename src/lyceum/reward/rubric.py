"""The share of a rubric's points that a completion earns, each criterion checked by rule or by a judge."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from pydantic import Field, model_validator

from lyceum.core.component import Settings
from lyceum.core.settings import RewardSettings
from lyceum.core.sources import checked_tasks
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, GradingContext, Task, TaskSource
from lyceum.reward._judging import JudgingGrader
from lyceum.reward.base import each, ungraded_by
from lyceum.reward.criteria import Criterion, dimension_of, has_rule, is_met, rubric_of
from lyceum.reward.scorer.judging import JudgeModel, Question, numbers_of
from lyceum.utils.aio import gather
from lyceum.utils.errors import RecipeError

CHECKED = 64
"""Number of tasks whose rubrics are checked before a model is loaded; for a dataset all."""


class SharedCriterion(Settings):
    """A criterion of all tasks: as in a task's own rubric."""

    criterion: str = Field(min_length=1)
    """What a completion should, or with points below 0 should not, have or do."""
    points: float = 1.0
    """Points for meeting it."""
    contains: str | None = Field(None, min_length=1)
    """Met by a completion that contains this; without ``contains`` and ``ends`` a judge decides."""
    ends: str | None = Field(None, min_length=1)
    """Met by a completion that ends in this."""
    veto: bool = False
    """Whether violating it costs all points: not meeting it, or meeting it where its points are below 0."""
    dimension: str | None = Field(None, min_length=1, max_length=100)
    """Criteria of one dimension saturate together; null: it is one of its own."""

    @model_validator(mode="after")
    def _has_one_rule_at_most(self) -> SharedCriterion:
        if self.contains is not None and self.ends is not None:
            raise ValueError("got contains and ends; allowed: one of them, or none for a judge")
        return self


class Rubric(RewardSettings):
    """Points of the criteria met, over all points above 0.

    A criterion has a rule (``contains`` or ``ends``) or is put to the judge, together with the task's others, in one
    question per completion. Criteria may have a ``veto``, and dimensions whose points saturate, so that nobody earns
    much by doing more of the same. What a judge makes of flattery is its own: a veto by rule is deaf to it.

    Source:
        RuscaRL, arXiv:2508.16949, section 3; vetoes and saturation: Rubric Anchors, arXiv:2508.12790 (the paper names
        them without formulas: those here are ours).
    """

    kind: Literal["rubric"] = "rubric"
    criteria: tuple[SharedCriterion, ...] = ()
    """Criteria of all tasks, beside each one's own (column ``rubric``)."""
    judge: JudgeModel | None = None
    """Who decides on criteria without a rule; null refuses such criteria."""
    saturation: float = Field(0.0, ge=0, le=50)
    """How fast a dimension saturates (no unit): at 3 half of its points earn 82 % of what all of them do; 0: not."""
    vetoed: float = 0.0
    """Score of a completion that violates a criterion with a veto."""

    @property
    def waits_for_model(self) -> bool:
        return self.judge is not None and self.judge.waits_for_model

    @property
    def shared(self) -> list[Criterion]:
        return [one.model_dump() for one in self.criteria]

    def of(self, task: Task) -> list[Criterion]:
        """The criteria that a task's completions are checked by."""
        return [*rubric_of(task.columns), *self.shared]

    def build(self, source: TaskSource) -> Grader:
        if self.judge is not None:
            self.judge.check_files()
        for task in [source[index] for index in checked_tasks(source, CHECKED)]:
            _check(task, self.of(task), judged=self.judge is not None)
        return each(self.score) if self.judge is None else JudgedRubric(self, self.judge)

    def score(self, task: Task, leaf: Node) -> Grade:
        rubric = self.of(task)
        return self.grade(task, rubric, [is_met(criterion, leaf.completion) for criterion in rubric])

    def grade(self, task: Task, rubric: Sequence[Criterion], met: Sequence[bool]) -> Grade:
        points = [criterion["points"] for criterion in rubric]
        if not any(p > 0 for p in points):
            return Grade.ungraded(f"task {task.id!r} has no criterion with points above 0")
        score = plain = rubric_score(points, met)
        if self.saturation:
            score = saturated_score(points, met, [dimension_of(rubric, i) for i in range(len(rubric))], self.saturation)
        vetoes = [m == (p < 0) for p, m, one in zip(points, met, rubric, strict=True) if one.get("veto")]
        if any(vetoes):
            score = self.vetoed
        parts = {"points": plain} if self.saturation or vetoes else {}
        return Grade(score, parts=parts | ({"vetoed": float(any(vetoes))} if vetoes else {}))


class JudgedRubric(JudgingGrader):
    """Rules first, then one question per completion for the rest."""

    def __init__(self, settings: Rubric, judge: JudgeModel) -> None:
        super().__init__(judge)
        self.settings = settings

    async def __call__(self, task: Task, leaves: Sequence[Node], context: GradingContext) -> list[Grade]:
        return await gather([self.grade_one(task, leaf, context) for leaf in leaves])

    async def grade_one(self, task: Task, leaf: Node, context: GradingContext) -> Grade:
        rubric = self.settings.of(task)
        ruled = {i: is_met(one, leaf.completion) for i, one in enumerate(rubric) if has_rule(one)}
        asked = [i for i in range(len(rubric)) if i not in ruled]
        try:
            judged = await self.judged([rubric[i]["criterion"] for i in asked], task, leaf, context) if asked else []
        except Exception as error:
            return ungraded_by(error)
        if judged is None:
            return Grade.ungraded("no reply of the judge ends in a list of criteria")
        met = ruled | dict(zip(asked, judged, strict=True))
        return self.settings.grade(task, rubric, [met[i] for i in range(len(rubric))])

    async def judged(
        self, criteria: Sequence[str], task: Task, leaf: Node, context: GradingContext
    ) -> list[bool] | None:
        """Which of the criteria are met, as most votes say; None without a vote that can be read."""
        listed = "\n".join(f"{number}. {criterion}" for number, criterion in enumerate(criteria, 1))
        values = "the numbers of the criteria that it meets, such as 1, 3, or none"
        question = Question(task.messages, [leaf.completion], listed, "met", values)
        key = ("rubric", leaf.address)
        found = await self.asker.verdicts(question, context, key, lambda vote: numbers_of(vote, len(criteria)))
        if not found:
            return None
        return [2 * sum(number in vote for vote in found) > len(found) for number in range(1, len(criteria) + 1)]


def rubric_score(points: Sequence[float], met: Sequence[bool]) -> float:
    """Weighted share of the criteria that are met.

        S = sum_i b_i p_i / sum_{i: p_i > 0} p_i

    Args:
        points: p_i of each criterion, in the rubric's unit; below 0 for what should not be there.
        met: b_i, whether the completion meets it.
    Returns:
        At most 1, without unit; below 0 where what should not be there outweighs the rest.
    Raises:
        ZeroDivisionError: no criterion has points above 0.
    Source:
        RuscaRL, arXiv:2508.16949, section 3 (rubric-based rewards); not clipped at 0, as in the released code.
    """
    return sum(p for p, b in zip(points, met, strict=True) if b) / sum(p for p in points if p > 0)


def saturated_score(points: Sequence[float], met: Sequence[bool], dimension: Sequence[str], rate: float) -> float:
    """As :func:`rubric_score`, with each dimension's points worth less the more of them are earned.

        S = (sum_k P_k g(e_k / P_k) + sum_{k: P_k = 0} e_k) / sum_k P_k
        g(s) = (1 - exp(-a s)) / (1 - exp(-a)) for s > 0, else s

    P_k are the points above 0 of dimension k, and e_k those earned in it, both with and without sign.

    Args:
        dimension: of each criterion.
        rate: a > 0, without unit.
    Source:
        The idea: Rubric Anchors, arXiv:2508.12790 (saturation-aware aggregation). The form is ours.
    """
    most, earned = dict.fromkeys(dimension, 0.0), dict.fromkeys(dimension, 0.0)
    for p, b, k in zip(points, met, dimension, strict=True):
        most[k] += max(p, 0.0)
        earned[k] += p if b else 0.0

    def g(s: float) -> float:
        return math.expm1(-rate * s) / math.expm1(-rate) if s > 0 else s

    total = sum(P * g(earned[k] / P) if P else earned[k] for k, P in most.items())
    return total / sum(most.values())


def _check(task: Task, rubric: Sequence[Criterion], *, judged: bool) -> None:
    if not rubric:
        raise RecipeError(
            f"reward.rubric: task {task.id!r} has no criteria; allowed: tasks with a rubric (tasks.columns.rubric of a "
            "dataset), reward.criteria, or another reward"
        )
    for criterion in rubric:
        rules = sum(criterion.get(rule) is not None for rule in ("contains", "ends"))
        if rules > 1 or not (rules or judged):
            raise RecipeError(
                f"reward.rubric: criterion {criterion['criterion']!r} of task {task.id!r} has no rule to check it by; "
                "allowed: exactly one of contains and ends, or none beside reward.judge"
            )

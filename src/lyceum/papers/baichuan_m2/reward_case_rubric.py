"""A rubric that the run's own model writes for each case, and a bonus for short answers among the best of a group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from lyceum.core.settings import RewardSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, GradingContext, Sampling, Task, TaskSource
from lyceum.papers.baichuan_m2._cases import meets, read, ruled
from lyceum.papers.baichuan_m2.tasks_case import record_of, to_rubric
from lyceum.reward.rubric import rubric_score
from lyceum.utils.errors import RecipeError

COUNTED = ("agrees", "eligible", "brevity")


class CaseRubric(RewardSettings):
    """The share of a rubric's points that an answer earns, at least 0, and a bonus for brevity where that is high.

    The run's model writes the rubric once for each case, from the record that the doctor may not see. Where what it
    writes is no rubric, the group is ungraded. Part ``agrees`` says whether it is the one of the rule, which pays
    nothing; ``eligible`` which answers the bonus is for, and ``brevity`` the bonus.

    Source:
        Baichuan-M2, arXiv:2509.02208 (the generator of clinical rubrics; the length penalty is conditioned on the
        score among the group). Its constants could not be read: those here are ours.
    """

    asks_model: ClassVar[bool] = True

    kind: Literal["case-rubric"] = "case-rubric"
    generated: bool = True
    """Whether the run's model writes the rubrics; else they are those of the rule."""
    sampling: Sampling = Sampling(temperature=0.0, max_completion_tokens=32)
    """How rubrics are sampled; greedy, so that a case has one."""
    brevity: float = Field(default=0.2, ge=0, le=10)
    """Bonus of the shortest among the eligible answers of a group; its longest gets none (in the unit of the score)."""
    quantile: float = Field(default=0.8, ge=0, le=1)
    """Answers are eligible whose score is at least this quantile of their group's."""
    threshold: float = Field(default=0.6, ge=0, le=1)
    """No answer of a group is eligible where that quantile is below this score."""

    def check_tasks(self, source: TaskSource) -> None:
        super().check_tasks(source)
        if "record" not in source[0].columns:
            raise RecipeError("reward.case-rubric: the tasks have no record; allowed: tasks 'case'")

    def build(self, source: TaskSource) -> Grader:
        return self.grade

    async def grade(self, task: Task, leaves: Sequence[Node], context: GradingContext) -> list[Grade]:
        record = record_of(task)
        rubric = right = ruled(record)
        if self.generated:
            prompt = context.render(to_rubric(record))
            [drawn] = await context.ask(prompt, 1, self.sampling, key=("case-rubric",))
            found = read(context.decode(drawn.tokens).strip())
            if found is None:
                return [Grade.ungraded("the model wrote no rubric of the case")] * len(leaves)
            rubric = found
        points = [item.points for item in rubric]
        scores = []
        for leaf in leaves:
            said = "".join(node.text.strip() for node in leaf.written)
            scores.append(max(0.0, rubric_score(points, [meets(said, item) for item in rubric])))
        eligible = among_the_best(scores, quantile=self.quantile, threshold=self.threshold)
        lengths = [leaf.policy_tokens for leaf in leaves]
        bonuses = [self.brevity * share for share in brevity(lengths, eligible)]
        agrees = float(sorted(rubric) == sorted(right))
        return [
            Grade(score + bonus, parts=dict(zip(COUNTED, (agrees, float(of), bonus), strict=True)))
            for score, bonus, of in zip(scores, bonuses, eligible, strict=True)
        ]


def among_the_best(scores: Sequence[float], *, quantile: float, threshold: float) -> list[bool]:
    """Which answers of a group may be paid for being short.

        e_i = s_i >= Q and Q >= threshold        Q: the least score that at least a share q of the group does not exceed

    Args:
        scores: of a group's answers, in 0 .. 1, without unit.
        quantile: q, in 0 .. 1.
        threshold: in the unit of the scores.
    """
    if not scores:
        return []
    place = max(0, math.ceil(quantile * len(scores)) - 1)
    least = sorted(scores)[place]
    return [least >= threshold and score >= least for score in scores]


def brevity(lengths: Sequence[int], eligible: Sequence[bool]) -> list[float]:
    """How short each eligible answer is among those of its group.

        b_i = (l_max - l_i) / (l_max - l_min) for the eligible, else 0        0 where they are of one length

    Args:
        lengths: l_i, in tokens that the policy wrote; l_min and l_max are of the eligible answers.
    Returns:
        In 0 .. 1, without unit.
    """
    among = [length for length, of in zip(lengths, eligible, strict=True) if of]
    shortest, longest = (min(among), max(among)) if among else (0, 0)
    if shortest == longest:
        return [0.0] * len(lengths)
    return [(longest - length) / (longest - shortest) * of for length, of in zip(lengths, eligible, strict=True)]

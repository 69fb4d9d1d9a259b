"""Parts that add, multiply, gate, are standardised within the group, and whose weights follow a schedule."""

import asyncio

import pytest
from judges import JudgeContext
from leaves import Source, grades, leaf, task
from pydantic import ValidationError

from lyceum.core.settings import Composition, RewardSettings
from lyceum.core.types import Grade, JudgedStep
from lyceum.papers.clip_delta.reward_clip_delta import ClipDelta
from lyceum.reward.base import RewardTerm, add_up, combine, each
from lyceum.reward.exact import Exact
from lyceum.reward.overlong import Overlong
from lyceum.rollout.flat import Flat
from lyceum.utils.errors import RecipeError


class Reads(RewardSettings):
    """The number that a completion says in the place of this part: ``0.5 2`` is 0.5 for the first, 2 for the second;
    ``-`` cannot be graded."""

    kind: str = "reads"
    place: int = 0

    def build(self, source):
        return each(self.score)

    def score(self, task, leaf):
        said = leaf.completion.split()[self.place]
        if said == "-":
            return Grade.ungraded("nothing said")
        return Grade(float(said), steps=(JudgedStep(0, 1, 1.0),))


def reads(n, *how):
    """Parts that read one number each, the i-th with the i-th settings."""
    return [Reads(place=i, **(how[i] if i < len(how) else {})) for i in range(n)]


def outcomes(parts, *texts):
    return [grade.outcome for grade in grades(parts, task(), *texts)]


def test_what_multiplies_multiplies_the_whole_sum_wherever_it_is_listed():
    # (1 * 2 + 0.5 * 4) * 0.25 = 1
    assert outcomes(reads(3, {"combine": "multiply"}, {}, {"weight": 0.5}), "0.25 2 4") == [1.0]
    # Half of its weight, half of its effect: (2 + 4) * (1 + 0.5 * (0.25 - 1)) = 6 * 0.625
    assert outcomes(reads(3, {"combine": "multiply", "weight": 0.5}), "0.25 2 4") == [3.75]
    # A penalty is 0 where all is well: 4 * (1 + 0.5 * -0.5) = 3
    penalty = {"combine": "multiply", "passes_at": 0, "weight": 0.5}
    assert outcomes(reads(2, {}, penalty), "4 0", "4 -0.5") == [4.0, 3.0]
    # Two of them: 2 * 0.5 * 3
    assert outcomes(reads(3, {}, {"combine": "multiply"}, {"combine": "multiply"}), "2 0.5 3") == [3.0]


def test_where_a_gate_fails_the_outcome_is_its_own_and_elsewhere_it_adds_nothing():
    gate = {"combine": "gate", "passes_at": 0.5, "weight": 2}
    assert outcomes(reads(2, {}, gate), "3 0.5", "3 0.4", "-3 -1") == [3.0, 0.8, -2.0]
    [passed, failed] = grades(reads(2, {}, gate), task(), "3 0.5", "3 0.4")
    assert (passed.parts["reads#2/failed"], failed.parts["reads#2/failed"]) == (0.0, 1.0)
    assert failed.parts["reads"] == 3.0, "every part is logged, those too that do not count"
    # Of two that fail the first one listed decides; a gate of weight 0 is only logged.
    both = [{"combine": "gate", "passes_at": 1}, {"combine": "gate", "passes_at": 1, "weight": 10}]
    assert outcomes(reads(3, *both), "0.1 0.2 5", "1 0.2 5", "1 1 5") == [0.1, 2.0, 5.0]
    assert outcomes(reads(2, {"combine": "gate", "weight": 0}), "0 5") == [5.0]


def test_how_a_part_failed_is_told_beside_the_outcome():
    found = add_up({"code": Grade(0.0, False, details="f(0)"), "code#2": Grade(0.5, details="f(1)")}, [0.0, 1.0])
    assert (found.outcome, found.reason, found.details) == (0.5, None, "f(0)")


def test_where_a_gate_fails_the_others_need_no_grade_and_elsewhere_they_do():
    assert outcomes(reads(2, {"combine": "gate"}, {}), "0 -", "1 -", "- 1") == [0.0, None, None]
    assert outcomes(reads(2, {}, {"combine": "multiply"}), "1 -", "1 2") == [None, 2.0]


def test_steps_are_of_what_adds_and_are_multiplied_alike():
    parts = reads(3, {"weight": 2}, {"combine": "multiply"}, {"combine": "gate", "passes_at": 0})
    [passed, failed] = grades(parts, task(), "1 0.5 0", "1 0.5 -1")
    assert passed.steps == ((0, 1, 1.0),)  # 2 * 0.5
    assert failed.steps == ((0, 1, 1.0),)  # the gate's own, with weight 1


def test_a_standardised_part_counts_alike_in_any_unit_and_its_own_value_is_logged():
    # Values 10, 20, 30: mean 20, deviation sqrt(200 / 3), so -1.2247, 0, 1.2247; the other part adds 1, 1, 0.
    found = grades(reads(2, {"standardise": True}), task(), "10 1", "20 1", "30 0")
    assert [grade.outcome for grade in found] == pytest.approx([1 - 1.5**0.5, 1, 1.5**0.5])
    assert [grade.parts["reads/raw"] for grade in found] == [10, 20, 30]
    assert outcomes(reads(2, {"standardise": True}), "5 1", "5 0") == [1.0, 0.0]


def scheduled(progress, **how):
    one = task()
    grader = combine(reads(2, {}, how), Source(one))
    return asyncio.run(grader(one, [leaf("1 10")], JudgeContext(progress=progress)))[0]


def test_a_weight_follows_its_schedule_over_the_stage_and_is_logged():
    how = {"weight": 0.5, "schedule": [0, 1]}
    assert [scheduled(progress, **how).outcome for progress in (0, 0.5, 1)] == [1.0, 3.5, 6.0]
    assert scheduled(0.5, **how).parts == {"reads": 1.0, "reads#2": 10.0, "reads#2/weight": 0.25}
    # A gate that closes half way: 10 is below 11.
    gate = {"combine": "gate", "passes_at": 11, "schedule": {"values": [0, 1], "form": "steps"}}
    assert [scheduled(progress, **gate).outcome for progress in (0.4, 0.5)] == [1.0, 10.0]


def test_where_everything_adds_the_sum_is_what_it_was():
    assert outcomes(reads(3, {"weight": 0.1}, {"weight": 0.2}, {"weight": 0.3}), "1 1 1") == [0.1 + 0.2 + 0.3]
    assert add_up({"a": Grade(1.0), "b": Grade(0.5)}, [RewardTerm(1.0), 2.0]).outcome == 2.0


def test_the_verdict_does_not_depend_on_how_parts_join():
    parts = [Exact(), Overlong(max_tokens=10, buffer_tokens=5, combine="gate", passes_at=0.0)]
    right, long = grades(parts, task("42"), leaf("42", tokens=1), leaf("42", tokens=99))
    assert (right.outcome, right.correct) == (1.0, True)
    assert (long.outcome, long.correct) == (-1.0, True)


def test_what_cannot_join_as_it_says_is_refused():
    for wrong in (
        {"standardise": True, "combine": "multiply"},
        {"passes_at": 0.5},
        {"combine": "divide"},
        {"schedule": [1]},
    ):
        with pytest.raises(ValidationError):
            Exact(**wrong)
    with pytest.raises(RecipeError, match="only parts that multiply or gate"):
        combine(reads(1, {"combine": "gate"}), Source(task()))
    with pytest.raises(ValidationError, match="weight 1, to be added"):
        ClipDelta(of={"kind": "steps", "combine": "multiply"})
    alone = Composition(rollout=Flat(samples=1))
    assert "standardise compares" in Overlong(max_tokens=2, buffer_tokens=1, standardise=True).conflicts(alone)[0]

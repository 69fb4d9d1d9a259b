import asyncio
import math
from collections.abc import Sequence
from typing import Literal

import pytest
from fake_task import NO_MODEL
from leaves import Source, grades, leaf, task

from lyceum.core.settings import RewardSettings
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Grade, Grader, JudgedStep, Task, TaskSource
from lyceum.papers.clip_delta.reward_clip_delta import ClipDelta, Refined
from lyceum.reward.base import BaseGrader, add_up, allow_code, code_allowed, combine, each
from lyceum.reward.exact import Exact
from lyceum.reward.overlong import Overlong
from lyceum.reward.task import TaskReward
from lyceum.utils.errors import RecipeError


class Says(RewardSettings, slot="tests"):
    """Gives the same grade to all; of another room, so that no recipe can name it."""

    kind: Literal["Says"] = "Says"
    grade: Grade | None = None

    def build(self, source: TaskSource) -> Grader:
        def score(task: Task, leaf: Node) -> Grade:
            if self.grade is None:
                raise LookupError("no oracle today")
            return self.grade

        return each(score)


def test_the_outcome_is_the_weighted_sum_and_parts_are_recorded_before_weighting():
    # 1 * 1 + 0.5 * (-0.25): 40 + 20 - 45 = 15 below 60 - ... : (60 - 20 - 45) / 20 = -0.25
    parts = [Exact(), Overlong(max_tokens=60, buffer_tokens=20, weight=0.5)]
    [grade] = grades(parts, task(), leaf("42", tokens=45))
    assert grade.outcome == pytest.approx(1 - 0.125)
    assert grade.parts == {"exact": 1.0, "overlong": -0.25}


def test_correctness_comes_from_the_parts_that_know_and_not_from_the_shaping():
    # A punishment makes the outcome less than 1; the answer stays right.
    parts = [Exact(), Overlong(max_tokens=10, buffer_tokens=5)]
    right, wrong = grades(parts, task(), leaf("42", tokens=99), leaf("41", tokens=1))
    assert (right.outcome, right.correct) == (0.0, True)
    assert (wrong.outcome, wrong.correct) == (0.0, False)
    assert grades(parts[1], task(), "anything")[0].correct is None


def test_a_part_that_raises_leaves_the_trajectory_ungraded_with_its_name():
    [grade] = grades([Exact(), Says()], task(), "42")
    assert grade.outcome is None
    assert grade.correct is None
    assert grade.reason == "Says: LookupError: no oracle today"


def test_a_part_that_is_only_recorded_leaves_the_outcome_alone_where_it_fails():
    [grade] = grades([Exact(), Says(weight=0)], task(), "42")
    assert (grade.outcome, grade.correct) == (1.0, True)
    assert grade.parts == {"exact": 1.0}
    assert grade.reason == "Says: LookupError: no oracle today"


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_an_outcome_that_is_no_finite_number_is_ungraded_and_never_zero(value: float):
    [grade] = grades([Says(grade=Grade(value))], task(), "42")
    assert grade.outcome is None
    assert str(value) in (grade.reason or "")


def test_parts_that_weights_carry_past_the_largest_reward_are_ungraded():
    both = {"a": Grade(1e15), "b": Grade(1e15, steps=(JudgedStep(0, 1, 1e15),))}
    assert add_up(both, [0.5, 0.5]).outcome == 1e15
    assert add_up(both, [1.0, 1.0]).reason == "the weighted sum of the parts is not a finite number of at most 1e+15"
    assert add_up(both, [1.0, -10.0]).outcome is None
    assert add_up({"b": Grade(0.0, steps=(JudgedStep(0, 1, 1e15),))}, [10.0]).outcome is None


def test_there_is_an_answer_where_one_of_the_parts_that_say_found_one():
    # A penalty of the length does not say.
    def combined(*said):
        return add_up({str(i): Grade(0.0, answered=one) for i, one in enumerate(said)}, [1.0] * len(said)).answered

    assert combined(None, False) is False
    assert combined(False, True) is True
    assert combined(None, None) is None


def test_two_parts_of_a_kind_have_different_names():
    # The same name twice would drop one part from the record, and from the sum.
    [grade] = grades([Exact(), Exact(weight=0.5), Exact(weight=2)], task(), "42")
    assert grade.outcome == 3.5
    assert grade.parts == {"exact": 1.0, "exact#2": 1.0, "exact#3": 1.0}


def test_judged_steps_are_weighted_and_added_where_they_are_the_same():
    first, second = JudgedStep(0, 3, 1.0), JudgedStep(3, 5, 0.0)
    parts = [Says(grade=Grade(1.0, steps=(first, second))), Says(grade=Grade(1.0, steps=(first,)), weight=0.5)]
    [grade] = grades(parts, task(), "12345")
    assert grade.steps == ((0, 3, 1.5), (3, 5, 0.0))


def test_a_grader_that_loses_a_trajectory_is_ungraded_and_not_misaligned():
    class Loses(Says):
        def build(self, source: TaskSource) -> Grader:
            async def grade(task: Task, leaves: Sequence[Node]) -> list[Grade]:
                return [Grade(1.0)]

            return grade

    assert [grade.outcome for grade in grades(Loses(), task(), "a", "b")] == [None, None]


def test_the_task_part_is_the_sources_own_verifier():
    one = task()
    grader = combine([TaskReward(weight=2)], Source(one, each(lambda task, leaf: Grade(0.5, False))))

    async def ask() -> list[Grade]:
        return await grader(one, [leaf("x")], NO_MODEL)

    [grade] = asyncio.run(ask())
    assert (grade.outcome, grade.correct, grade.parts) == (1.0, False, {"task": 0.5})


def test_a_reward_without_parts_is_refused():
    with pytest.raises(RecipeError, match="got no part"):
        combine([], Source(task()))


def test_code_is_allowed_only_inside_the_switch():
    assert not code_allowed()
    with allow_code():
        assert code_allowed()
        with allow_code(False):
            assert not code_allowed()
    assert not code_allowed()


class Steps(BaseGrader):
    """Gives the number of steps that it has observed."""

    def __init__(self, steps: int = 0) -> None:
        self.steps = steps

    async def __call__(self, task, leaves, context):
        return [Grade(float(self.steps)) for _ in leaves]

    def observe(self, trees: Sequence[Tree]) -> None:
        self.steps += 1

    def metrics(self):
        return {"steps/observed": self.steps}

    def state_dict(self):
        return {"steps": self.steps}

    def load_state_dict(self, state):
        self.steps = state["steps"]


@pytest.mark.parametrize("inner", [lambda steps: steps, lambda steps: Refined(ClipDelta(), steps)])
def test_a_grader_with_state_observes_and_is_saved_wherever_it_stands_beside_functions(inner):
    def combined(steps: int):
        return combine([Says(grade=Grade(10.0)), TaskReward()], Source(task(), inner(Steps(steps))))

    grader = combined(0)
    grader.observe([])
    grader.observe([])
    [grade] = asyncio.run(grader(task(), [leaf("x")], NO_MODEL))
    assert grade.outcome == 12.0
    assert list(grader.metrics().values()) == [2]
    assert next(iter(grader.metrics())).startswith("task/")
    other = combined(7)
    other.load_state_dict(grader.state_dict())
    [grade] = asyncio.run(other(task(), [leaf("x")], NO_MODEL))
    assert grade.outcome == 12.0


def test_a_state_of_other_graders_is_refused():
    grader = combine([TaskReward()], Source(task(), Steps()))
    with pytest.raises(ValueError, match=r"reward: state lacks \['task'\], has unknown \['math'\]"):
        grader.load_state_dict({"math": {}})
    functions = combine([Says(grade=Grade(1.0))], Source(task()))
    assert functions.state_dict() == functions.metrics() == {}

import json

import fake_task
import pytest
from guidance_fakes import RIGHT, WRONG, FakeContext, Source, ask, flat, prompt_of
from hypothesis import given
from hypothesis import strategies as st

from lyceum.core.forest import build_forest
from lyceum.core.types import Grade
from lyceum.papers.seele._item_response import Curve
from lyceum.papers.seele.guidance_seele import Seele, split
from lyceum.training.stages.online import Online
from lyceum.utils.errors import RecipeError

STEPS = [f"step{i}" for i in range(1, 9)]
TASK = ask(steps=STEPS)


def given_steps(prompt):
    """How many steps a prompt gives."""
    return prompt.count("step")


def student(least, samples=16):
    """Right once ``least`` steps are given, and never before."""
    grades = {}
    for count in range(8):
        text = "Q" if not count else "Q|The solution begins:\n" + "\n".join(STEPS[:count])
        grades[text] = [RIGHT if count >= least else WRONG]
    return grades


def roll(context, task=TASK, *, guide=None, samples=16, **settings):
    guide = guide or Seele(**settings).build(Source(TASK), seed=0)
    return fake_task.roll(guide(flat(samples)), context, task, samples)


def test_a_group_is_drawn_in_rounds_each_graded_before_the_next():
    context = FakeContext(student(4))
    tree = roll(context)
    assert [n for _, n in context.asked] == [4, 4, 4, 4]
    assert context.held == 4
    assert len(tree.trajectories) == 16
    assert all(leaf.grade is not None for leaf in tree.trajectories)


def test_the_first_round_gives_all_but_the_last_step_and_the_next_what_the_fit_asks_for():
    context = FakeContext(student(4))
    roll(context)
    counts = [given_steps(prompt) for prompt, _ in context.asked]
    # 7 of 8, right: less. From there the edge between 3 (never right) and 4 (always) is closed in on.
    assert counts[0] == 7
    assert counts[1] < 7
    assert counts[-1] in (3, 4)


def test_all_rounds_are_one_group_under_their_own_prompts():
    tree = roll(FakeContext(student(4)))
    forest = build_forest([tree])
    assert forest.group.tolist() == [0] * 16
    assert len({prompt_of(leaf) for leaf in tree.trajectories}) > 1


def test_the_next_group_of_a_task_begins_where_this_one_ended():
    guide = Seele().build(Source(TASK), seed=0)
    first = roll(FakeContext(student(4)), guide=guide)
    guide.observe([first])
    context = FakeContext(student(4))
    roll(context, guide=guide)
    share = first.metadata["seele"].next
    assert given_steps(context.asked[0][0]) == round(8 * share) < 7

    resumed = Seele().build(Source(TASK), seed=1)
    resumed.load_state_dict(json.loads(json.dumps(guide.state_dict())))
    again = FakeContext(student(4))
    roll(again, guide=resumed)
    assert again.asked == context.asked
    with pytest.raises(ValueError, match=r"state lacks"):
        resumed.load_state_dict({})


def test_accuracy_closes_in_on_the_target_over_the_rounds():
    # A student whose accuracy rises with the share along a curve of its own; 8 samples a round, as in the paper.
    curve = Curve(10.0, -0.4)
    grades = {}
    for count in range(8):
        text = "Q" if not count else "Q|The solution begins:\n" + "\n".join(STEPS[:count])
        right = round(8 * curve.accuracy(count / 8))
        grades[text] = ([RIGHT] * right + [WRONG] * (8 - right)) * 8
    guide = Seele().build(Source(TASK), seed=0)
    tree = roll(FakeContext(grades), guide=guide, samples=32)
    accuracy = [accuracy for _, accuracy in tree.metadata["seele"].rounds]
    assert accuracy[0] == 1.0
    assert abs(accuracy[-1] - 0.5) <= 0.25  # f(3/8) = 0.44; a step more or less is 0.73 or 0.18
    guide.observe([tree])
    assert guide.metrics()["accuracy/round_4"] == accuracy[-1]
    assert guide.metrics()["share/round_1"] == 7 / 8


def test_another_target_asks_for_other_shares():
    curve = Curve(8.0, -0.4)
    counts = {}
    for target in (0.25, 0.75):
        grades = {}
        for count in range(8):
            text = "Q" if not count else "Q|The solution begins:\n" + "\n".join(STEPS[:count])
            right = round(8 * curve.accuracy(count / 8))
            grades[text] = ([RIGHT] * right + [WRONG] * (8 - right)) * 8
        context = FakeContext(grades)
        roll(context, samples=32, target=target)
        counts[target] = given_steps(context.asked[-1][0])
    assert counts[0.25] < counts[0.75]


def test_a_task_that_is_solved_without_help_is_no_longer_hinted():
    guide = Seele().build(Source(TASK), seed=0)
    for _ in range(3):
        context = FakeContext(student(0))
        guide.observe([roll(context, guide=guide)])
    assert [prompt for prompt, _ in context.asked] == ["Q"] * 4


def test_a_round_that_nobody_could_grade_says_nothing():
    grades = student(4) | {"Q|The solution begins:\n" + "\n".join(STEPS[:7]): [Grade.ungraded("timeout")]}
    context = FakeContext(grades)
    tree = roll(context)
    assert [given_steps(prompt) for prompt, _ in context.asked] == [7, 7, 7, 7]
    assert tree.metadata["seele"].rounds == []


def test_tasks_without_a_solution_are_drawn_at_once_and_counted():
    guide = Seele().build(Source(TASK), seed=0)
    context = FakeContext()
    tree = roll(context, ask("R"), guide=guide)
    assert context.asked == [("R", 16)]
    guide.observe([tree])
    assert guide.metrics() == {"without_hints/tasks": 1}
    assert guide.state_dict() == {"shares": {}}
    with pytest.raises(RecipeError, match=r"guidance.seele: none of the tasks has a solution"):
        Seele().check_tasks(Source(ask("R")))


def test_no_more_is_given_than_the_context_has_room_for():
    five = "Q|The solution begins:\n" + "\n".join(STEPS[:5])
    context = FakeContext(limit=len(five) + 1)
    tree = roll(context)
    assert [given_steps(prompt) for prompt, _ in context.asked] == [5] * 4
    assert tree.metadata["seele"].rounds[0][0] == 5 / 8, "the share that was really given"


@given(st.integers(1, 40), st.integers(2, 8))
def test_rounds_are_as_equal_as_can_be(n, rounds):
    sizes = split(n, rounds)
    assert sum(sizes) == n
    assert len(sizes) == min(n, rounds)
    assert max(sizes) - min(sizes) <= 1


def test_more_rounds_than_samples_are_refused():
    stage = Online(rollout={"kind": "flat", "samples": 3}, guidance=[{"kind": "seele"}])
    assert "guidance.seele.rounds: got 4 with 3 trajectories per task" in "\n".join(
        stage.conflicts(stage.composition())
    )

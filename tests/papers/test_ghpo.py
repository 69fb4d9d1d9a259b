import fake_task
import pytest
from guidance_fakes import RIGHT, WRONG, FakeContext, Source, ask, flat, prompt_of

from lyceum.core.forest import build_forest
from lyceum.core.types import Grade
from lyceum.papers.ghpo.guidance_ghpo import GHPO
from lyceum.tasks.chain import Chain, make_task
from lyceum.utils.errors import RecipeError

# Eight words: a quarter is two, half four, three quarters six.
TASK = ask(answer="7", demonstration="first take two add two then add three")
QUARTER, HALF, MOST = (
    f"Q|The solution begins:\n{text}" for text in ("first take ", "first take two add ", "first take two add two then ")
)


def roll(context, task=TASK, *, source=None, guide=None, samples=3, **settings):
    guide = guide or GHPO(**settings).build(source or Source(task), seed=0)
    return fake_task.roll(guide(flat(samples)), context, task, samples)


def test_a_failed_group_is_rolled_out_again_with_more_of_the_solution_until_one_is_right():
    context = FakeContext({HALF: [WRONG, RIGHT]})
    tree = roll(context)
    assert context.asked == [("Q", 3), (QUARTER, 3), (HALF, 3)]
    # The whole group is replaced, and not one of it: 1 of 3 is right among those under the hint.
    assert [prompt_of(leaf) for leaf in tree.trajectories] == [HALF] * 3
    assert [leaf.grade.outcome for leaf in tree.trajectories] == [0, 1, 1]
    assert tree.sampled_tokens == 9
    assert build_forest([tree]).n_rows == 3
    assert tree.roots[0].text == "Q"


def test_a_group_with_one_right_answer_is_left_alone():
    context = FakeContext({"Q": [WRONG, WRONG, RIGHT]})
    tree = roll(context)
    assert context.asked == [("Q", 3)]
    assert [prompt_of(leaf) for leaf in tree.chosen] == ["Q"] * 3


def test_a_group_that_fails_to_the_end_is_trained_under_the_last_prompt():
    context = FakeContext()
    tree = roll(context)
    assert [prompt for prompt, _ in context.asked] == ["Q", QUARTER, HALF, MOST]
    assert [prompt_of(leaf) for leaf in tree.trajectories] == [MOST] * 3


def test_the_first_steps_are_not_guided():
    for step, guided in ((0, False), (19, False), (20, True)):
        context = FakeContext(step=step)
        roll(context)
        assert (len(context.asked) > 1) == guided
    context = FakeContext(step=0)
    roll(context, cold_start_steps=0)
    assert len(context.asked) == 4


def test_a_chain_is_given_its_first_results_in_the_words_of_its_hints():
    chain = make_task("t", 37, [8, -2, 5, 1])  # results 45 43 48 49
    context = FakeContext()
    roll(context, chain, source=Chain().build("train", 0))
    asked = [prompt for prompt, _ in context.asked]
    assert asked == ["37+8-2+5+1=", "37+8-2+5+1|45=", "37+8-2+5+1|45,43=", "37+8-2+5+1|45,43,48="]


def test_shares_that_give_no_more_than_the_one_before_are_not_tried_twice():
    # Two operations: a quarter is round(0.5) = 0 results, half is 1, three quarters are round(1.5) = 2: the answer.
    context = FakeContext()
    roll(context, make_task("t", 37, [8, -2]), source=Chain().build("train", 0))
    assert [prompt for prompt, _ in context.asked] == ["37+8-2=", "37+8-2|45="]
    context = FakeContext()
    tree = roll(context, make_task("t", 37, [8]), source=Chain().build("train", 0))
    assert context.asked == [("37+8=", 3)]
    assert tree.metadata["ghpo"].hints == 0


def test_what_is_given_ends_before_the_answer():
    task = ask(answer="7", demonstration="so 7 it is in the end then")
    context = FakeContext()
    roll(context, task)
    assert [prompt for prompt, _ in context.asked] == ["Q", "Q|The solution begins:\nso "]
    context = FakeContext()
    roll(context, task, allow_leaks=True)
    assert "so 7 it is" in context.asked[-1][0]


def test_tasks_without_any_solution_are_refused_and_a_single_one_is_counted():
    with pytest.raises(RecipeError, match=r"guidance.ghpo: none of the tasks has a solution"):
        GHPO().check_tasks(Source(ask(), ask(demonstration="word")))
    GHPO().check_tasks(Source(ask(), TASK))
    guide = GHPO().build(Source(TASK), seed=0)
    trees = [
        roll(FakeContext(), ask("R"), guide=guide),
        roll(FakeContext({HALF: [RIGHT]}), guide=guide),
        roll(FakeContext(), guide=guide),
        roll(FakeContext(step=3), guide=guide),
    ]
    guide.observe(trees)
    assert guide.metrics() == {
        "groups/failed": 4,
        "groups/cold_start": 1,
        "groups/guided": 2,
        "without_hints/tasks": 1,
        "too_long/hints": 0,
        "tried/0.25": 2,
        "solved_at/0.25": 0,
        "tried/0.5": 2,
        "solved_at/0.5": 1,
        "tried/0.75": 1,
        "solved_at/0.75": 0,
        "solved_at/nothing": 1,
    }


def test_a_hinted_group_that_nobody_could_grade_does_not_take_the_place_of_the_first():
    context = FakeContext({QUARTER: [Grade.ungraded("timeout")]})
    tree = roll(context)
    assert [prompt for prompt, _ in context.asked] == ["Q", QUARTER]
    assert [prompt_of(leaf) for leaf in tree.trajectories] == ["Q"] * 3


def test_a_spent_budget_ends_it_and_only_grades_that_may_be_followed_are_waited_for():
    context = FakeContext(budget=6)
    roll(context)
    assert [prompt for prompt, _ in context.asked] == ["Q", QUARTER]
    context = FakeContext()
    roll(context)
    assert context.held == 4, "the engine waits for the grades by which the guide goes on"


def test_what_the_context_has_no_room_for_is_not_given():
    context = FakeContext(limit=len(HALF) + 1)
    tree = roll(context)
    assert [prompt for prompt, _ in context.asked] == ["Q", QUARTER, HALF]
    assert tree.metadata["ghpo"].too_long == 1


@pytest.mark.parametrize("shares", [(0.5, 0.25), (0.5, 0.5), (0.0,), (1.0,), ()])
def test_shares_that_do_not_rise_are_refused(shares):
    with pytest.raises(ValueError, match=r"shares"):
        GHPO(shares=shares)

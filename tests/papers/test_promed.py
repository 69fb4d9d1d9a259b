import pytest
from leaves import task as any_task

from lyceum.core.tree import Node
from lyceum.core.types import Continuation, Origin
from lyceum.papers.promed.reward_shapley_gain import ShapleyGain, facts_of, left, shapley
from lyceum.tasks.chain import Chain
from lyceum.utils.errors import RecipeError

TASK = any_task("7", low=2, high=9)


def dialogue(*exchanges):
    """A leaf after guesses and what was said to them, as ``guess-user`` names its states; the last is not answered."""
    node, text = Node.prompt([1], "2:9?"), ""
    for guess, said in exchanges:
        node = node.add_drawn(Continuation([guess], [-1.0], [-1.0], [0], "stop"), str(guess))
        if said:
            text += f"{guess}{said}"
            node.key = f"2:9?{text}"
            node = node.add([50], Origin.PROMPT, said)
    return node


def test_facts_narrow_down_the_range():
    assert left(2, 9, []) == 8
    assert left(2, 9, [(5, ">"), (8, "<")]) == 2
    assert left(2, 9, [(5, ">"), (3, "<")]) == 0


def test_values_add_up_and_an_answer_that_another_implies_is_worth_less():
    # v: none 1/8, "> 5" leaves 4: 1/4, "> 3" leaves 6: 1/6, both 4: 1/4. phi(> 5) = (1/8 + 1/12) / 2, phi(> 3) = 1/48.
    facts = [(5, ">"), (3, ">")]
    found = shapley(facts, lambda known: 1 / left(2, 9, known))
    assert found == pytest.approx([5 / 48, 1 / 48])
    assert sum(found) == pytest.approx(1 / 4 - 1 / 8)
    assert shapley(facts[::-1], lambda known: 1 / left(2, 9, known)) == pytest.approx([1 / 48, 5 / 48])


def test_each_answered_turn_is_paid_and_the_last_one_is_not():
    leaf = dialogue((5, ">"), (3, ">"), (7, None))
    assert facts_of(leaf) == [(5, ">"), (3, ">")]
    grade = ShapleyGain(scale=48).graded(TASK, leaf, [0, 1, 1, 2, 2, 3])
    assert [(step.start, step.stop) for step in grade.steps] == [(0, 1), (1, 2)]
    assert [step.reward for step in grade.steps] == pytest.approx([5, 1])
    assert grade.outcome == 0
    assert grade.parts == {"gain": pytest.approx(1 / 8), "questions": 2, "wasted": 0}


def test_a_guess_at_once_has_no_questions():
    assert ShapleyGain().graded(TASK, dialogue((7, None)), [0, 1]).parts == {"gain": 0, "questions": 0, "wasted": 0}


def test_tasks_without_a_range_are_refused():
    with pytest.raises(RecipeError, match="the tasks ask for no number of a range; allowed: tasks 'guess'"):
        ShapleyGain().check_tasks(Chain().build("train", 0))

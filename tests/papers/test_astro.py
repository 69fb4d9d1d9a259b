"""Searches told as chains of thought, worked by hand on trees of chained arithmetic."""

import asyncio

import pytest
from fake_task import NO_MODEL
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from tiny_models import plain_model, policy_like

from lyceum.core.tree import Node, Tree
from lyceum.core.types import Grade, Origin
from lyceum.models.demonstrations import demonstrated
from lyceum.papers.astro.traces_reflection import Reflection, search_order, shared
from lyceum.tasks.chain import grade_leaves, make_task
from lyceum.utils.errors import RecipeError

POLICY = policy_like(plain_model())
TASK = make_task("t", 37, [8, -2, 5])  # 45, 43, 48
SHORT = {"answers": ["#"], "reflection": "?", "backtrack": "{step}:", "restart": "0:", "direct": 0}


def encode(text):
    return POLICY.encode(text)[:-1]


def grow(*paths, task=TASK, finish="stop"):
    """A tree of steps: each path a text with ``|`` between its steps; equal beginnings are the same nodes."""
    tree = Tree(task, [Node(None, encode("37+8-2+5="), Origin.PROMPT)])
    for path in paths:
        at = tree.root
        for text in path.split("|"):
            below = next((node for node in at.children if node.text == text), None)
            at = below or at.add(encode(text), Origin.POLICY, text)
        at.finish = finish
        at.tokens = POLICY.encode(at.text)
        (at.grade,) = asyncio.run(grade_leaves(task, [at], NO_MODEL))
    return tree


def leaf_of(tree, text):
    return next(node for node in tree.root.walk() if node.completion == text and not node.children)


RIGHT = "37+8=|45-2=|43+5=|48#48"
SLIP_AT_2 = "37+8=|45-2=|53+5=|58#58"
SLIP_AT_1 = "37+8=|55-2=|53+5=|58#58"
BOTH_SLIP = "37+8=|55-2=|63+5=|68#68"


def tell(tree, *wrong, **of):
    told = Reflection(**SHORT | of)
    return told.tell(leaf_of(tree, RIGHT.replace("|", "")), [leaf_of(tree, path.replace("|", "")) for path in wrong])


def test_one_wrong_turn_by_hand():
    tree = grow(RIGHT, SLIP_AT_2)
    # The steps 37+8= and 45-2= stay: back to step 2. The wrong turn ends before #58: what follows the first # is what
    # the grader reads. Going back to step 1, one too far, would write 45-2= a second time.
    assert tell(tree, SLIP_AT_2) == "37+8=45-2=53+5=58?2:43+5=48#48"


def test_two_wrong_turns_each_go_back_to_where_the_next_path_parts():
    tree = grow(RIGHT, SLIP_AT_2, SLIP_AT_1)
    # First the turn that parts earlier; then along the right path to the second. Chosen in whichever order.
    by_hand = "37+8=55-2=53+5=58?1:45-2=53+5=58?2:43+5=48#48"
    assert tell(tree, SLIP_AT_2, SLIP_AT_1) == tell(tree, SLIP_AT_1, SLIP_AT_2) == by_hand


def test_a_wrong_turn_inside_a_wrong_turn_goes_back_only_as_far_as_the_two_share():
    tree = grow(RIGHT, SLIP_AT_1, BOTH_SLIP)
    # 55-2= is shared: back to step 2, which is 55-2= of the wrong path, and only then to step 1 of the right one.
    assert tell(tree, SLIP_AT_1, BOTH_SLIP) == "37+8=55-2=53+5=58?2:63+5=68?1:45-2=43+5=48#48"


def test_from_the_beginning_where_nothing_stays():
    tree = grow(RIGHT, "73+8=|81#81")
    assert tell(tree, "73+8=|81#81") == "73+8=81?0:37+8=45-2=43+5=48#48"
    assert tell(tree, "73+8=|81#81", restart="Anew:") == "73+8=81?Anew:37+8=45-2=43+5=48#48"
    assert tell(tree, "73+8=|81#81", restart=None, backtrack="go to {step}:") == (
        "73+8=81?go to 0:37+8=45-2=43+5=48#48"
    )


def test_a_wrong_turn_may_be_left_early():
    tree = grow(RIGHT, SLIP_AT_2, SLIP_AT_1)
    # One step of each, counted from where it leaves the right path and not from where it leaves the turn before.
    assert tell(tree, SLIP_AT_1, SLIP_AT_2, longest_turn=1) == "37+8=55-2=?1:45-2=53+5=?2:43+5=48#48"
    assert tell(tree, SLIP_AT_1, longest_turn=2) == "37+8=55-2=53+5=?1:45-2=43+5=48#48"


def test_a_turn_ends_before_the_answer_wherever_in_its_steps_that_is():
    tree = grow(RIGHT, "37+8=|45-2=|53#53|+5", "37+8=|45-2=|63+5|#68", SLIP_AT_1)
    # The turns that share a step which is not told, or told in part, never go back to it: 53 is left for step 2.
    assert tell(tree, "37+8=|45-2=|53#53|+5", "37+8=|45-2=|63+5|#68") == "37+8=45-2=53?2:63+5?2:43+5=48#48"
    assert tell(tree, "37+8=|45-2=|63+5|#68", SLIP_AT_1, longest_turn=1) == "37+8=55-2=?1:45-2=63+5?2:43+5=48#48"


def test_wrong_turns_that_differ_only_in_what_is_not_told_are_told_once():
    tree = grow(RIGHT, SLIP_AT_2, "37+8=|45-2=|53+5=|58#59")
    assert tell(tree, SLIP_AT_2, "37+8=|45-2=|53+5=|58#59") == "37+8=45-2=53+5=58?2:43+5=48#48"


def traces(tree, **of):
    return Reflection(**SHORT | of)([tree], POLICY.decode)


def test_what_the_right_path_says_too_is_no_wrong_turn():
    # Stopping early: 43, then an answer. Cut before it, the turn says 43, as the right path does.
    assert traces(grow(RIGHT, "37+8=|45-2=|43#43")) == []
    assert len(traces(grow(RIGHT, "37+8=|45-2=|43#43", SLIP_AT_2), searched=1)) == 1


def test_a_tree_without_a_right_leaf_has_no_trace():
    assert traces(grow(SLIP_AT_1, SLIP_AT_2), direct=3) == []


def test_a_tree_without_a_wrong_leaf_has_direct_traces_only():
    assert traces(grow(RIGHT)) == []
    (trace,) = traces(grow(RIGHT), direct=3)
    assert (trace.text, trace.tokens) == ("37+8=45-2=43+5=48#48", (*encode("37+8=45-2=43+5=48#48"), 1))


def test_what_was_cut_short_or_never_graded_is_no_wrong_turn():
    tree = grow(RIGHT, SLIP_AT_2)
    leaf = leaf_of(tree, SLIP_AT_2.replace("|", ""))
    leaf.finish = "length"
    assert traces(tree) == []
    leaf.finish, leaf.grade = "stop", Grade.ungraded("no verdict")
    assert traces(tree) == []


def test_a_right_trajectory_that_was_drawn_often_is_one():
    tree = grow(RIGHT, "37+8=|45!45-2=|43+5=|48#48")
    for _ in range(8):
        again = tree.root.add(POLICY.encode(RIGHT.replace("|", "")), Origin.POLICY, RIGHT.replace("|", ""))
        again.grade, again.finish = Grade(1.0, True), "stop"
    assert len(traces(tree, direct=2)) == 2


@settings(max_examples=25)
@given(st.integers(1, 3), st.integers(1, 8), st.integers(0, 3))
def test_traces_keep_to_their_numbers_and_are_right_and_read_back(backtracks, searched, direct):
    others = [f"37+8=|45-2=|{n}+5=|{n + 5}#{n + 5}" for n in (53, 63, 73, 83)]
    tree = grow(RIGHT, SLIP_AT_1, BOTH_SLIP, *others, "37+8=|45!45-2=|43+5=|48#48")
    made = traces(tree, backtracks=backtracks, searched=searched, direct=direct)
    told = [trace for trace in made if "?" in trace.text]
    assert 1 <= len(told) <= searched
    assert len(made) - len(told) == min(direct, 2)
    assert len({trace.text for trace in made}) == len(made)
    assert all(1 <= trace.text.count("?") <= backtracks for trace in told)
    for trace in made:
        (leaf,) = demonstrated(POLICY, trace).trajectories
        assert POLICY.decode(leaf.tokens) == trace.text
        assert POLICY.encode(trace.text) == leaf.tokens
        leaf.finish = "stop"
        (grade,) = asyncio.run(grade_leaves(TASK, [leaf], NO_MODEL))
        assert grade.correct


def test_more_traces_are_other_draws_and_the_same_every_time():
    others = [f"37+8=|45-2=|{n}+5=|{n + 5}#{n + 5}" for n in range(53, 93)]
    tree = grow(RIGHT, *others)
    first = traces(tree, searched=20)
    assert len(first) > 10
    assert traces(tree, searched=20) == first


def test_without_a_maximum_the_whole_search_is_told():
    # Three turns, two with the answer 58: all are told, each once, and there is one such trace.
    tree = grow(RIGHT, SLIP_AT_1, SLIP_AT_2, BOTH_SLIP)
    (trace,) = traces(tree, backtracks=None, searched=4)
    assert trace.text.count("?") == 3


def test_no_two_wrong_turns_of_a_trace_have_the_same_answer():
    # Three turns, two with the answer 58: with 3 turns allowed there are never more than 2.
    tree = grow(RIGHT, SLIP_AT_1, SLIP_AT_2, BOTH_SLIP)
    assert max(trace.text.count("?") for trace in traces(tree, backtracks=3, searched=30)) == 2


@settings(max_examples=25)
@given(st.permutations(range(5)))
def test_search_order_tells_nothing_twice(order):
    paths = [SLIP_AT_2, SLIP_AT_1, BOTH_SLIP, "37+8=|45-2=|63+5=|68#69", "73+8=|81#81"]
    tree = grow(RIGHT, *(paths[i] for i in order))
    right = leaf_of(tree, RIGHT.replace("|", ""))
    leaves = [leaf_of(tree, path.replace("|", "")) for path in paths]
    ordered = [*search_order(right, leaves), right]
    met, at = set(), []
    for leaf in ordered:
        path = leaf.path()[1:]
        new = path[shared(at, path) :]
        assert not met & set(map(id, new)), "a step that was told before would be told again"
        met |= set(map(id, new))
        at = path


def test_templates_that_cannot_work_are_refused():
    with pytest.raises(ValidationError, match=r"backtrack: got 'back'; allowed: a text with \{step\} in it"):
        Reflection(backtrack="back")
    with pytest.raises(ValidationError, match=r"reflection: got 'No\. #', which has '#' of answers in it"):
        Reflection(reflection="No. #", answers=("#",))
    with pytest.raises(ValidationError, match="answers: got an empty text"):
        Reflection(answers=("",))


def test_templates_that_the_vocabulary_lacks_are_refused():
    Reflection().check_policy(POLICY)
    with pytest.raises(RecipeError, match=r"traces\.reflection: got ' Hmm…', which the model's tokenizer reads back"):
        Reflection(reflection=" Hmm…").check_policy(POLICY)
    with pytest.raises(RecipeError, match=r"traces\.restart: got 'Zurück'"):
        Reflection(restart="Zurück").check_policy(POLICY)

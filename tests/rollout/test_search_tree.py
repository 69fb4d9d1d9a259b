"""Backups, scores and choices of a tree search against numbers worked by hand."""

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lyceum.core.tree import Node
from lyceum.core.types import Grade, Origin
from lyceum.rollout._search_tree import (
    INCOMPLETE,
    RIGHT,
    WRONG,
    SearchNode,
    back_up,
    backed_up,
    best_child,
    choose_terminal,
    decay,
    descend,
    frontier,
    frontier_score,
    judge,
    uct,
)

outcomes = st.sampled_from([1.0, -1.0, -0.5])


def place(above=None, *, surprise=0.5, tokens=1, terminal=False):
    logprob = [-surprise] * tokens
    node = Node(above and above.node, [1] * tokens, Origin.POLICY, logprob, logprob, [0] * tokens)
    return SearchNode(node) if above is None else above.add(node, terminal=terminal)


def chain(depth):
    found = [place()]
    for _ in range(depth):
        found.append(place(found[-1]))
    return found


def test_uct_by_hand():
    # Q = 0.5; ln 8 = 2.0794, over 2 visits: sqrt(1.0397) = 1.0197, twice. Taking N(parent) / N(s) without the
    # logarithm gives 4.5.
    assert uct(0.5, 2, 8, 2.0) == pytest.approx(0.5 + 2 * 1.01967, abs=1e-4)
    assert uct(0.5, 2, 0, 2.0) == uct(0.5, 0, 8, 2.0) == 0.5, "without a bonus where either was never visited"


def test_frontier_score_by_hand():
    # 0.4 tanh(1) = 0.30464; depth 16 of 64: 0.01 * 0.5. With the uncertainty, 0.4 * 0.25 nats more.
    assert frontier_score(1.0, 0.25, 16, 64) == pytest.approx(0.30464 + 0.005, abs=1e-5)
    assert frontier_score(1.0, 0.25, 16, 64, uncertainty=0.4) == pytest.approx(0.30464 + 0.005 + 0.1, abs=1e-5)
    assert frontier_score(0.0, 0.0, 3, 64, bonus="log", depth_weight=1) == pytest.approx(math.log(4))
    assert frontier_score(0.0, 0.0, 3, 64, bonus="linear", depth_weight=1) == 3


def test_a_terminal_counts_less_the_higher_a_node_stands():
    # A leaf at depth 3: 4/4 for itself, 3/4, 2/4, 1/4 for the prompt. At depth 63 the prompt's 1/64 becomes 0.1.
    assert [decay(d, 3) for d in (3, 2, 1, 0)] == [1, 0.75, 0.5, 0.25]
    assert decay(0, 63) == 0.1
    assert decay(0, 63, least=0.0) == 1 / 64


@pytest.mark.parametrize(
    ("q", "outcome", "after"),
    [
        (0.0, -1.0, -0.5),
        (-0.5, -1.0, -1.0),
        (0.5, 1.0, 1.0),
        (-3.0, 1.0, 0.5),  # overwritten: adding would leave -2.5
        (0.25, -1.0, 0.25),  # kept: adding would give -0.25
        (0.25, 0.0, 0.25),
    ],
)
def test_what_a_backup_may_overwrite(q, outcome, after):
    assert backed_up(q, outcome, 0.5) == after


def test_three_backups_by_hand():
    #   root - a - b      b wrong, then a second leaf c below a right, then b's sibling d wrong
    root, a, b = chain(2)
    c, d = place(a), place(a)
    for leaf, outcome in ((b, -1.0), (c, 1.0), (d, -1.0)):
        leaf.outcome = outcome
        back_up(leaf)
    # Weights are 1, 2/3, 1/3. Wrong: a -2/3, root -1/3. Right overwrites: a 2/3, root 1/3. Wrong again: nothing moves.
    assert [p.q for p in (b, c, d)] == [-1, 1, -1]
    assert a.q == pytest.approx(2 / 3)
    assert root.q == pytest.approx(1 / 3)
    assert (root.visits, a.visits, b.visits) == (3, 3, 1)
    assert a.mean == pytest.approx(2 / 9)


@given(st.lists(st.tuples(outcomes, st.floats(0.1, 1)), max_size=20))
def test_a_node_that_led_to_a_right_answer_never_goes_negative(backups):
    q, seen_right = 0.0, False
    for outcome, weight in backups:
        q = backed_up(q, outcome, weight)
        seen_right |= outcome > 0
        assert q > 0 if seen_right else q <= 0


@given(st.integers(0, 2**32))
def test_visits_into_a_node_are_its_own_and_those_through_its_children(seed):
    rng = Random(seed)
    places = [place()]
    for _ in range(rng.randint(1, 30)):
        above = rng.choice([p for p in places if not p.terminal])
        places.append(place(above, terminal=rng.random() < 0.4))
        if not places[-1].terminal:
            places[-1].arrive()
    backups = 0
    for leaf in (p for p in places if p.terminal and rng.random() < 0.7):
        leaf.outcome = rng.choice((1.0, -1.0))
        back_up(leaf)
        backups += 1
    assert places[0].visits == backups
    for p in places:
        through = sum(child.visits - child.born for child in p.children)
        assert p.visits == p.born + int(p.backed_up) + through


def test_the_most_confident_wrong_trajectory_is_chosen_over_its_whole_length():
    root = place()
    sure_start, unsure_start = place(root, surprise=0.1, tokens=3), place(root, surprise=1.0, tokens=3)
    # By their last step alone, the second would be surer (0.2 against 0.9); over all tokens it is 0.3 against 0.8.
    first, second = place(sure_start, surprise=0.9, terminal=True), place(unsure_start, surprise=0.2, terminal=True)
    for leaf in (first, second):
        leaf.outcome = -1.0
    assert choose_terminal([first, second], "most-confident", lambda n: 0) is first
    assert choose_terminal([first, second], "least-confident", lambda n: 0) is second
    assert choose_terminal([first, second], "random", lambda n: 1) is second
    second.outcome, second.order = 1.0, RIGHT
    for negative in ("most-confident", "least-confident", "random"):
        assert choose_terminal([first, second], negative, lambda n: 0) is second, "a right one comes first"


def test_incomplete_trajectories_come_last_and_ungraded_ones_never():
    root = place()
    cut, wrong, lost = (place(root, surprise=s, terminal=True) for s in (0.1, 2.0, 0.0))
    cut.outcome, cut.order = -1.0, INCOMPLETE
    wrong.outcome = -1.0
    assert choose_terminal([cut, wrong, lost], "most-confident", lambda n: 0) is wrong
    assert choose_terminal([cut, lost], "most-confident", lambda n: 0) is cut
    assert choose_terminal([lost], "most-confident", lambda n: 0) is None


def test_grades_become_outcomes():
    assert judge(Grade(1.0, True), complete=False, incomplete=-0.5) == (1.0, RIGHT)
    assert judge(Grade(-0.3, True), complete=True, incomplete=-1) == (1.0, RIGHT), "a penalty makes nothing wrong"
    assert judge(Grade(0.0, False), complete=True, incomplete=-0.5) == (-1.0, WRONG)
    assert judge(Grade(0.0, False), complete=False, incomplete=-0.5) == (-0.5, INCOMPLETE)
    assert judge(Grade(0.4), complete=True, incomplete=-1) == (1.0, RIGHT)


def test_what_was_cut_short_is_incomplete_only_without_an_answer():
    cut = {"complete": False, "incomplete": -0.5}
    assert judge(Grade(0.0, False, answered=False), **cut) == (-0.5, INCOMPLETE)
    assert judge(Grade(0.0, False, answered=True), **cut) == (-1.0, WRONG)
    assert judge(Grade(0.0, False), **cut) == (-0.5, INCOMPLETE), "nobody says: as one without"
    assert judge(Grade(0.0, False, answered=False), complete=True, incomplete=-0.5) == (-1.0, WRONG)


def test_a_grade_that_is_missing_has_no_outcome():
    assert judge(Grade.ungraded("x"), complete=True, incomplete=-1) is None


def test_selection_passes_by_what_is_exhausted():
    root = place()
    done, poor, rich = place(root), place(root), place(root)
    place(done, terminal=True)
    root.children_drawn, done.children_drawn = 3, 1
    for child, q in ((done, 5.0), (poor, 0.1), (rich, 0.5)):
        child.q, child.visits = q, 1
    root.visits = 3
    assert best_child(root, 2.0) is done
    done.close(1)
    assert done.exhausted
    assert not root.exhausted
    assert best_child(root, 2.0) is rich
    assert descend(root, 3, 2.0) is rich
    assert frontier(root, 1) == [poor, rich], "neither what is full nor terminals"
    assert frontier(place(), 2) == [], "nor the prompt, which has no node above to be judged by"
    for child in (poor, rich):
        place(child, terminal=True)
        child.children_drawn = 3
        child.close(3)
    assert root.exhausted
    assert descend(root, 3, 2.0) is None

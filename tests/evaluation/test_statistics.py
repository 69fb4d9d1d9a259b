"""pass@k, maj@k and the summary on numbers small enough to count subsets by hand."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lyceum.evaluation.statistics import TaskResult, avg_at_k, maj_at_k, pass_at_k, summarise


@pytest.mark.parametrize(
    ("n", "c", "k", "expected"),
    [
        (5, 2, 3, 9 / 10),  # C(3,3) / C(5,3) = 1/10; the biased 1 - (3/5)^3 = 0.784
        (4, 1, 2, 1 / 2),  # C(3,2) / C(4,2) = 3/6
        (4, 0, 2, 0.0),
        (4, 3, 2, 1.0),  # fewer wrong ones than k
        (8, 2, 1, 1 / 4),  # k = 1 is the plain share
    ],
)
def test_pass_at_k_counts_subsets(n, c, k, expected):
    assert pass_at_k(n, c, k) == pytest.approx(expected, abs=1e-12)


def test_pass_at_k_holds_for_numbers_whose_binomials_overflow():
    # C(5000, 2000) is not a float64. With 1 right of 5000 the chance is k / n exactly.
    assert pass_at_k(5000, 1, 2000) == pytest.approx(0.4, abs=1e-9)


@given(st.integers(1, 40), st.data())
def test_pass_at_k_is_the_ratio_of_binomials(n, data):
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    assert pass_at_k(n, c, k) == pytest.approx(1 - math.comb(n - c, k) / math.comb(n, k), abs=1e-12)


@pytest.mark.parametrize(("n", "c", "k"), [(4, 5, 1), (4, 1, 5), (4, 1, 0)])
def test_pass_at_k_refuses_impossible_counts(n, c, k):
    with pytest.raises(ValueError, match="allowed"):
        pass_at_k(n, c, k)


def test_majority_of_three():
    # 7 7 9 with 7 right: all three vote, 7 wins. Of the three pairs, 77 is right and twice 79 ties: (1 + 1/2 + 1/2) / 3
    votes = [("7", True), ("7", True), ("9", False)]
    assert maj_at_k(votes, 3) == 1.0
    assert maj_at_k(votes, 2) == pytest.approx(2 / 3)
    assert maj_at_k(votes, 1) == pytest.approx(2 / 3)


def test_majority_can_be_surely_wrong_where_pass_is_surely_right():
    votes = [("9", False)] * 3 + [("7", True)] * 2
    assert maj_at_k(votes, 5) == 0.0
    assert pass_at_k(5, 2, 5) == 1.0


def test_samples_without_an_answer_do_not_vote():
    # Were "no answer" a vote, it would win 3 to 1.
    assert maj_at_k([(None, False)] * 3 + [("7", True)], 4) == 1.0
    assert maj_at_k([(None, False)] * 4, 4) == 0.0


def _by_hand(votes, k):
    """All subsets, one by one."""
    total = 0.0
    for chosen in itertools.combinations(range(len(votes)), k):
        cast = [votes[i][0] for i in chosen if votes[i][0] is not None]
        most = max((cast.count(a) for a in cast), default=0)
        winners = {a for a in cast if cast.count(a) == most}
        right = [[c for b, c in votes if b == a] for a in winners]
        total += sum(sum(r) / len(r) for r in right) / len(winners) if winners else 0.0
    return total / math.comb(len(votes), k)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["1", "2", "3", None]), st.booleans()), min_size=1, max_size=8), st.data())
def test_majority_equals_the_mean_over_all_subsets(votes, data):
    votes = [(a, c and a is not None) for a, c in votes]
    k = data.draw(st.integers(1, len(votes)))
    assert maj_at_k(votes, k) == pytest.approx(_by_hand(votes, k), abs=1e-12)


def test_majority_of_all_tied_singletons_is_their_share_right():
    # 64 different answers, one right: whatever the subset, the right one is drawn and then picked with chance 1/64
    assert maj_at_k([(str(i), i == 5) for i in range(64)], 32) == pytest.approx(1 / 64)


def test_avg_of_no_sample_is_refused():
    with pytest.raises(ValueError, match="no sample"):
        avg_at_k([])


def _result(name, level, correct, answers=None, tokens=()):
    return TaskResult(name, level, correct, answers or ["x" if c else "y" for c in correct], tokens)


def test_summary_averages_tasks_and_not_samples():
    # 1/1 and 0/3: over tasks 0.5, over samples 0.25
    summary = summarise([_result("a", 1, [True]), _result("b", 2, [False] * 3)])
    assert summary["overall"]["mean"] == 0.5
    assert {level: ci["mean"] for level, ci in summary["by_level"].items()} == {"1": 1.0, "2": 0.0}


def test_ungraded_samples_are_counted_and_left_out():
    results = [_result("a", 1, [True, None]), _result("b", 1, [None, None]), _result("c", 1, [False, True])]
    summary = summarise(results, ks=[1, 2])
    # a: 1 of 1, c: 1 of 2, b has nothing. Counted as wrong they would give (1/2 + 0 + 1/2) / 3.
    assert summary["overall"]["mean"] == pytest.approx(0.75)
    assert (summary["tasks"], summary["samples"], summary["ungraded"]) == (2, 2, 3)
    # pass@2 needs two graded samples: only c has them
    assert summary["pass_at"]["2"]["mean"] == 1.0
    assert summary["left_out_at"] == {"1": 1, "2": 2}


def test_a_reward_that_is_neither_right_nor_wrong_is_graded_all_the_same():
    # 0.5 says nothing of right or wrong, None that there was no grade: means 0.5 and 0.75, over tasks 0.625
    first = TaskResult("a", None, [None, None], ["x", "y"], rewards=[0.5, None])
    second = TaskResult("b", None, [True, None], ["x", "y"], rewards=[1.0, 0.5])
    summary = summarise([first, second])
    assert (summary["ungraded"], summary["unjudged"], summary["tasks"]) == (1, 2, 1)
    assert summary["reward"]["mean"] == pytest.approx(0.625)
    assert summarise([first])["reward"] is None  # one task has no interval


def test_nothing_graded_is_no_figure_and_not_zero():
    summary = summarise([_result("a", 1, [None])], ks=[1])
    assert summary["overall"] is None
    assert (summary["pass_at"], summary["ungraded"], summary["tasks"]) == ({}, 1, 0)


def test_a_k_that_no_task_reaches_has_no_figure():
    summary = summarise([_result("a", 1, [True, False])], ks=[2, 8])
    assert list(summary["pass_at"]) == ["2"]
    assert summary["left_out_at"]["8"] == 1


def test_levels_stand_in_the_order_of_their_numbers():
    results = [_result(str(level), level, [True]) for level in (10, 2, 1)]
    assert list(summarise(results)["by_level"]) == ["1", "2", "10"]


def test_greedy_stands_apart_and_avg_is_named_after_the_samples():
    sampled = [_result("a", 1, [True, False], tokens=[4, 8]), _result("b", 1, [False, False], tokens=[6, 6])]
    greedy = [_result("a", 1, [True]), _result("b", 1, [False])]
    summary = summarise(sampled, greedy=greedy)
    assert summary["greedy"]["overall"]["mean"] == 0.5
    assert summary["avg_at"] == {"2": summary["overall"]}
    assert summary["overall"]["mean"] == 0.25
    assert summary["tokens_mean"] == 6.0


def test_answers_and_verdicts_of_different_number_are_refused():
    with pytest.raises(ValueError, match="task 'a': got 1 answers for 2 samples"):
        TaskResult("a", None, [True, False], ["x"])

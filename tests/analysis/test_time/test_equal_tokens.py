"""Accuracy at equal tokens, by hand."""

import pytest

from lyceum.analysis.test_time.equal_cost import accuracy_at, at_equal_tokens, usual_budgets
from lyceum.analysis.test_time.strategy_result import StrategyResult


def result(tokens, right, *, strategy="majority", valued=0.0):
    return StrategyResult(
        strategy=strategy,
        size=1,
        settings={},
        right=right,
        any_correct=right,
        levels=[None] * len(right),
        tokens_sampled=tokens,
        tokens_computed=tokens - valued,
        tokens_valued=valued,
        trajectories=1.0,
        seconds=0.0,
        unanswered=0,
    )


def test_between_two_sizes_it_goes_with_the_logarithm():
    # 100 tokens: 1 of 4 right; 400: 3 of 4. 200 is half way in the logarithm: 1/2. A straight line would give 0.416.
    sizes = [result(100, [True, False, False, False]), result(400, [True, True, True, False])]
    assert accuracy_at(sizes, 200)["mean"] == pytest.approx(0.5)
    assert accuracy_at(sizes, 100)["mean"] == pytest.approx(0.25)
    assert accuracy_at(sizes, 400)["mean"] == pytest.approx(0.75)


def test_nothing_is_said_beyond_what_was_measured():
    sizes = [result(100, [True]), result(400, [True])]
    assert accuracy_at(sizes, 99) is None
    assert accuracy_at(sizes, 401) is None


def test_a_strategy_of_one_size_stays_what_it_is():
    greedy = [result(50, [True, False], strategy="greedy")]
    assert accuracy_at(greedy, 49) is None
    assert accuracy_at(greedy, 5000)["mean"] == 0.5


def test_what_a_value_model_read_counts_as_spent():
    assert accuracy_at([result(100, [True], valued=60.0)], 99) is None


def test_an_interval_between_two_sizes_lies_between_theirs():
    # 0 of 4 and 1 of 4: a twentieth of the way up, 4 tasks know no more than at the size itself, whose interval reaches
    # to 0.49. That of the tasks' own interpolated values, 0 and 0.05, would end near 0.05.
    sizes = [result(100, [False] * 4), result(400, [True, False, False, False])]
    at_size, near = accuracy_at(sizes, 100), accuracy_at(sizes, 107)
    assert near["mean"] == pytest.approx(0.25 * 0.0488, abs=1e-3)
    assert near["high"] > at_size["high"] > 0.4


def test_a_size_that_could_not_be_graded_says_nothing():
    sizes = [result(100, [True, None, False]), result(400, [None, True, True])]
    # Half way between 1/2 and 1, each of the tasks that it could grade.
    assert accuracy_at(sizes, 200)["mean"] == pytest.approx(0.75)
    assert accuracy_at([result(100, [None]), result(400, [True])], 200) is None


def test_budgets_are_where_all_strategies_have_been():
    curves = {
        "majority": [result(100, [True]), result(1000, [True])],
        "beam": [result(160.5, [True]), result(4000, [True])],
        "greedy": [result(20, [True])],
    }
    budgets = usual_budgets(curves)
    assert (budgets[0], budgets[-1], len(budgets)) == (161, 1000, 4)
    for row in at_equal_tokens(curves, budgets):
        assert all(found is not None for found in row["accuracy"].values())


def test_without_a_common_budget_all_of_them_are_covered():
    curves = {"majority": [result(10, [True]), result(20, [True])], "beam": [result(40, [True]), result(80, [True])]}
    assert usual_budgets(curves) == [10, 20, 40, 80]
    assert usual_budgets({"greedy": [result(20, [True])]}) == []


def test_a_range_that_holds_no_whole_number_of_tokens_has_no_budget():
    assert usual_budgets({"beam": [result(13.3, [True]), result(13.3, [True])]}) == []

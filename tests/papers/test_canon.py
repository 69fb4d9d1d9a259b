import pytest
import torch

from lyceum.papers.canon.credit_canon import Canon, upper_half

LONG_WINS = [(0.0, 1), (0.0, 2), (1.0, 3), (0.0, 4)]


def by_length(forest, **settings):
    return Canon(by="length", **settings).build()(forest)


def test_a_row_is_compared_with_the_other_half_of_its_group(forest_of):
    # Short: 0 0, mean 0; long: 1 0, mean 1/2. Short rows: 0 - 1/2; long ones: 1 - 0 and 0 - 0.
    credited = by_length(forest_of(LONG_WINS))
    assert credited.advantage[:, 1].tolist() == [-0.5, -0.5, 1.0, 0.0]
    assert credited.metrics == {"between": 1.0, "high_ahead": 1.0, "low_ahead": 0.0}


def test_within_its_own_half_only_the_long_rows_differ(forest_of):
    # 1 - 1/2 and 0 - 1/2; a quarter of it with three quarters of the other comparison: 7/8, and -1/8 for the last.
    assert by_length(forest_of(LONG_WINS), between=0).advantage[:, 1].tolist() == [0.0, 0.0, 0.5, -0.5]
    assert by_length(forest_of(LONG_WINS), between=0.75).advantage[:, 1].tolist() == [-0.375, -0.375, 0.875, -0.125]


def test_the_blend_may_follow_the_steps_accuracy(forest_of):
    # One of four is correct: mu = 1/4 or 3/4.
    forest = forest_of(LONG_WINS)
    for named, mu in (("accuracy", 0.25), ("errors", 0.75)):
        assert by_length(forest, follows=named).advantage.equal(by_length(forest, between=mu).advantage)


def test_a_factor_below_1_prefers_the_shorter_of_two_correct_rows(forest_of):
    # alpha 1/2: the long row counts 1/2. Short: 1 - 1/2; long: 1/2 - 1. With alpha 1 equal rewards are exactly 0.
    forest = forest_of([(1.0, 1), (1.0, 2)], [(0.9, 1)] * 3)
    assert by_length(forest, favour=0.5).advantage[:2, 1].tolist() == [0.5, -0.5]
    assert not by_length(forest).advantage.any()


def test_by_entropy_a_factor_below_1_prefers_the_less_certain_half(forest_of):
    # Entropies 1 and 3 per token, whatever the lengths; the certain row counts 1/2.
    forest = forest_of([(1.0, 2), (1.0, 1)])
    forest = forest.with_columns(old_entropy=torch.where(forest.token >= 200, 3.0, 1.0))
    assert Canon(favour=0.5).build()(forest).advantage[:, 1].tolist() == [-0.5, 0.5]


def test_halves_are_cut_at_the_median_and_ties_are_in_the_rows_order():
    # Of three the lowest is the lower half; of equal ones the first. Groups are ragged, and 1 is missing.
    measure = torch.tensor([5.0, 7.0, 6.0, 4.0, 2.0, 2.0])
    group = torch.tensor([0, 2, 0, 0, 2, 2])
    assert upper_half(measure, group).tolist() == [True, True, True, False, False, True]


def test_a_row_alone_has_no_advantage(forest_of):
    credited = by_length(forest_of([(1.0, 2)], [(0.0, 1), (1.0, 2)]), favour=0.5)
    assert credited.advantage[:, 1].tolist() == [0.0, -0.5, 0.5]
    assert credited.metrics["high_ahead"] == 1


@pytest.mark.parametrize("between", [-0.1, 1.1, float("nan")])
def test_weights_beyond_0_and_1_are_refused(between):
    with pytest.raises(ValueError, match="between"):
        Canon(between=between)

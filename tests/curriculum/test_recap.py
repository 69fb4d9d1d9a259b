import math

import pytest
from levelled import Source, graded

from lyceum.curriculum.recap import Recap, priority, softmax_weights


def test_an_objective_that_improves_or_stands_still_is_left_to_itself():
    # Saturated: nothing moves. From 0.2 to 0.6: shortfalls 0.8 and 0.4, so c = 1/2; mean 0.4, std 0.2, i = 1/2.
    assert priority([1.0, 1.0, 1.0, 1.0]) == 0
    assert priority([0.2, 0.2, 0.6, 0.6]) == pytest.approx(0.25)
    # The same numbers the other way round are forgotten: c = 2, the rest is alike. Dividing older by newer swaps them.
    assert priority([0.6, 0.6, 0.2, 0.2]) == pytest.approx(1.0)
    assert priority([0.0, 0.0]) == 0  # never solved: nothing to divide by


def test_weights_have_a_mean_of_one_and_follow_the_priorities():
    first, second = softmax_weights([1.0, 0.25], temperature=0.75)
    assert first + second == pytest.approx(2)
    assert first / second == pytest.approx(math.e)  # exp((1 - 1/4) / (3/4))


def test_a_forgotten_category_weighs_more_once_all_have_been_seen_often_enough():
    source = Source(levels=("old", "new"))
    curriculum = Recap(by="level", window=2, temperature=1).build(source, seed=0)
    old, new = source[0], source[1]
    curriculum.observe([graded(old, [True, True]), graded(new, [True, False])])
    assert curriculum.weight(graded(old, [True])) == 1
    again = Recap(by="level", window=2, temperature=1).build(source, seed=0)
    again.load_state_dict(curriculum.state_dict())
    for each in (curriculum, again):
        each.observe([graded(old, [True, False]), graded(new, [True, False])])
        # old: 1, then 1/2: no shortfall at first, so c = 1; i = (1/4) / (3/4). new: 1/2 twice: i = 0.
        rise = math.exp(1 / 3)
        assert each.weight(graded(old, [True])) == pytest.approx(2 * rise / (rise + 1))
        assert each.metrics()["weight/new"] == pytest.approx(2 / (rise + 1))
    with pytest.raises(ValueError, match="state lacks"):
        again.load_state_dict({"rewards": {}})

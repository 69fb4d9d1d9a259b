import math

import pytest
from levelled import Source, graded

from lyceum.papers.recap.curriculum_recap import Recap, priority, softmax_weights


def test_an_objective_that_improves_or_varies_gets_more_and_one_that_stands_still_gets_1():
    # From 0.2 to 0.6: losses 0.8, then 0.4, so c = 2. Deviations from the newer mean 0.4: 0.4 twice, 0 twice, and
    # i = sqrt(2 * 0.16 / 3) / 1.2. Older over newer the other way round, or the mean of all in the deviations, differ.
    assert priority([0.2, 0.2, 0.6, 0.6]) == pytest.approx(2 + math.sqrt(0.32 / 3) / 1.2)
    # Forgotten: c = 1/2, the same deviations. As in the paper it gets less than one that improves as much.
    assert priority([0.6, 0.6, 0.2, 0.2]) == pytest.approx(0.5 + math.sqrt(0.32 / 3) / 1.2)
    assert priority([1.0] * 4) == priority([0.0] * 4) == priority([0.5] * 4) == 1


def test_a_loss_near_zero_does_not_make_a_priority_of_any_size():
    # Losses 0.1 and 0: c = 0.1 / 0.05, not 0.1 / 0; deviations from 0: i = sqrt(0.02 / 3) / 0.15.
    assert priority([0.9, 0.9, 1.0, 1.0]) == pytest.approx(2 + math.sqrt(0.02 / 3) / 0.15)


def test_weights_have_a_mean_of_one_and_follow_the_priorities():
    first, second = softmax_weights([1.0, 0.25], temperature=0.75)
    assert first + second == pytest.approx(2)
    assert first / second == pytest.approx(math.e)  # exp((1 - 1/4) / (3/4))


def test_a_category_that_moves_weighs_more_once_all_have_been_seen_often_enough():
    source = Source(levels=("old", "new"))
    curriculum = Recap(by="level", window=2, temperature=1).build(source, seed=0)
    old, new = source[0], source[1]
    curriculum.observe([graded(old, [True, True]), graded(new, [True, False])])
    assert curriculum.weight(graded(old, [True])) == 1
    again = Recap(by="level", window=2, temperature=1).build(source, seed=0)
    again.load_state_dict(curriculum.state_dict())
    for each in (curriculum, again):
        each.observe([graded(old, [True, False]), graded(new, [True, False])])
        # old: losses 0, then 1/2: c = 0.05 / 0.5, i = 0.5 / 0.55. new: 1/2 twice: c = 1, i = 0.
        rise = math.exp(0.1 + 0.5 / 0.55 - 1)
        assert each.weight(graded(old, [True])) == pytest.approx(2 * rise / (rise + 1))
        assert each.metrics()["weight/new"] == pytest.approx(2 / (rise + 1))
    with pytest.raises(ValueError, match="state lacks"):
        again.load_state_dict({"rewards": {}})

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lyceum.papers.seele._item_response import Curve, fit

shares = st.integers(0, 8).map(lambda eighths: eighths / 8)


def test_a_curve_by_hand():
    # k (p + m) = 4 (0.5 - 0.25) = 1 and 1 / (1 + e^-1) = 0.7311; with b 0.2: 0.2 + 0.8 * 0.7311 = 0.7849.
    assert Curve(4.0, -0.25).accuracy(0.5) == pytest.approx(0.73106, abs=1e-5)
    assert Curve(4.0, -0.25, 0.2).accuracy(0.5) == pytest.approx(0.78485, abs=1e-5)
    # Half way between b and 1 stands at -m: f(0.25) = 0.6, and so 0.6 is asked for at 0.25.
    assert Curve(4.0, -0.25, 0.2).share_at(0.6) == pytest.approx(0.25)


@given(st.floats(1, 50), st.floats(-0.9, -0.1), st.floats(0, 0.4), st.floats(0.45, 0.9))
def test_the_share_at_an_accuracy_has_that_accuracy(slope, ability, guessing, accuracy):
    curve = Curve(slope, ability, guessing)
    share = curve.share_at(accuracy)
    if 0 < share < 1:
        assert curve.accuracy(share) == pytest.approx(accuracy)
    else:
        assert (share == 0) == (curve.accuracy(0) >= accuracy - 1e-9)


def test_a_model_that_guesses_well_enough_needs_no_hint():
    assert Curve(20.0, -0.9, 0.5).share_at(0.5) == 0


def test_exact_points_give_their_curve_back():
    # Not exactly: the penalty that decides between curves through one or two points is still there.
    for true in (Curve(9.0, -0.4), Curve(20.0, -0.6, 0.3), Curve(5.0, -0.5)):
        at = [0.0, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9]
        found = fit(at, [true.accuracy(p) for p in at])
        assert found.share_at(0.5) == pytest.approx(true.share_at(0.5), abs=0.02)
        assert all(found.accuracy(p) == pytest.approx(true.accuracy(p), abs=0.03) for p in at)


def test_rounds_at_one_share_count_by_their_mean():
    # 0 and 1 at one share are a half there, as one round of 0.5 twice is; taken apart they are as far from it, too,
    # but with another share in the data a fit to single rounds would be pulled by the spread of a round.
    assert fit([0.5, 0.5, 0.8], [0.0, 1.0, 0.9]) == fit([0.5, 0.5, 0.8], [0.5, 0.5, 0.9])


def test_one_round_asks_for_less_after_success_and_more_after_failure():
    right, half, wrong = (fit([0.75], [accuracy]).share_at(0.5) for accuracy in (1.0, 0.5, 0.0))
    assert right < 0.5
    assert half == pytest.approx(0.75, abs=0.01)
    assert wrong > 0.75


def test_success_at_every_share_ends_in_no_hint_and_not_at_once():
    # A guessing chance of 1 explains success at one share without an error; it must not be believed after one round.
    asked, seen = [0.75], []
    while len(asked) < 5:
        seen.append(1.0)
        asked.append(fit(asked, seen).share_at(0.5))
    assert asked[1] > 0.2
    assert asked == sorted(asked, reverse=True)
    assert asked[-1] == 0


@given(st.lists(st.tuples(shares, shares), min_size=1, max_size=8))
def test_every_fit_is_finite_within_bounds_and_no_worse_than_a_constant_curve_by_more_than_its_penalty(rounds):
    at, accuracy = zip(*rounds, strict=True)
    found = fit(at, accuracy)
    assert 1 - 1e-9 <= found.slope <= 50 + 1e-9
    assert -2 <= found.ability <= 1
    assert 0 <= found.guessing <= 1
    assert 0 <= found.share_at(0.5) <= 1
    assert fit(at, accuracy) == found


@given(st.lists(st.tuples(shares, shares), min_size=2, max_size=6))
def test_no_curve_of_a_random_sample_fits_better(rounds):
    """Against a search of another kind: random curves, the same penalised error."""
    from lyceum.papers.seele._item_response import _error

    at, accuracy = (np.array(values) for values in zip(*rounds, strict=True))
    means = np.array([accuracy[at == p].mean() for p in at])
    found = fit(at.tolist(), accuracy.tolist())
    rng = np.random.default_rng(0)
    log_slope, ability = rng.uniform(0, math.log(50), 2000), rng.uniform(-2, 1, 2000)
    best = float(_error(at, means, log_slope, ability).min())
    mine = float(_error(at, means, np.asarray(math.log(found.slope)), np.asarray(found.ability)))
    assert mine <= best + 5e-3  # squared accuracy: the grids may pass by a minimum that is narrower than they are


def test_no_round_is_refused():
    with pytest.raises(ValueError, match="at least one round"):
        fit([], [])

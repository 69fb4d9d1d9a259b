import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lyceum.core.types import Sampling
from lyceum.engine._draw import draw, truncate, uniform


def logits_of(p):
    return torch.tensor([p]).log()


def members(n, row=0):
    return torch.full((n,), row, dtype=torch.long)


def test_uniform_numbers_are_splitmix64s():
    # The first five outputs for seed 1234567 as they are published with the generator.
    published = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    got = uniform(np.full(5, 1234567, np.uint64), np.arange(5, dtype=np.uint64))
    assert got.tolist() == [(x >> 11) * 2.0**-53 for x in published]


def test_uniform_numbers_of_neighbouring_seeds_look_independent():
    seed, place = np.meshgrid(np.arange(300, dtype=np.uint64), np.arange(300, dtype=np.uint64), indexing="ij")
    u = uniform(seed.ravel(), place.ravel()).reshape(300, 300)
    assert u.min() >= 0
    assert u.max() < 1
    # mean 1/2 and variance 1/12 within five standard errors; neighbours uncorrelated
    assert abs(u.mean() - 0.5) < 5 * np.sqrt(1 / 12 / u.size)
    assert abs(u.var() - 1 / 12) < 5 * np.sqrt(1 / 180 / u.size)
    for a, b in ((u[1:], u[:-1]), (u[:, 1:], u[:, :-1]), (u, u.T)):
        off = a != b  # the transpose's diagonal is itself
        assert abs(np.corrcoef(a[off], b[off])[0, 1]) < 5 / np.sqrt(a.size)


def test_a_token_is_where_its_uniform_number_falls():
    # cumulative 0.25, 0.75, 1: the lower end belongs to a token, the upper one to the next
    u = torch.tensor([0.0, 0.2499, 0.2501, 0.7499, 0.7501, 1 - 2**-53], dtype=torch.float64)
    drawn = draw(logits_of([0.25, 0.5, 0.25]), members(6), u, Sampling())
    assert drawn.token.tolist() == [0, 0, 1, 1, 2, 2]
    torch.testing.assert_close(drawn.behaviour_logprob.exp(), torch.tensor([0.25, 0.25, 0.5, 0.5, 0.25, 0.25]))


@pytest.mark.parametrize("vocabulary", [5, 1500])
@pytest.mark.parametrize("temperature", [0.0, 0.001, 0.5, 1.0])
@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_logits_that_are_not_finite_draw_some_token_with_a_log_probability_that_is_not(vocabulary, temperature, broken):
    logits = torch.zeros(2, vocabulary)
    logits[0, 3] = broken
    drawn = draw(logits, None, torch.tensor([0.9, 0.9], dtype=torch.float64), Sampling(temperature=temperature))
    assert 0 <= int(drawn.token[0]) < vocabulary
    assert not drawn.model_logprob[0].isfinite()
    assert drawn.model_logprob[1].isfinite()


@pytest.mark.parametrize("sampling", [{"temperature": 0.001}, {"top_p": 1e-6}], ids=repr)
def test_the_coldest_settings_draw_the_most_likely_token(sampling):
    # (0.3 / 0.5) ** 1000 is 0 in float32, and one token alone holds a millionth.
    u = torch.tensor([0.0, 0.5, 1 - 2**-53], dtype=torch.float64)
    drawn = draw(logits_of([0.3, 0.5, 0.2]), members(3), u, Sampling(**sampling))
    assert drawn.token.tolist() == [1, 1, 1]
    assert drawn.behaviour_logprob.tolist() == [0.0] * 3
    torch.testing.assert_close(drawn.model_logprob.exp(), torch.full((3,), 0.5))


def test_the_hottest_setting_draws_every_token_alike():
    # 0.9, 0.05 and 0.05 to the power 1/100: 0.340, 0.330 and 0.330
    u = torch.tensor([0.1, 0.4, 0.9], dtype=torch.float64)
    assert draw(logits_of([0.9, 0.05, 0.05]), members(3), u, Sampling(temperature=100)).token.tolist() == [0, 1, 2]


def test_a_token_without_probability_is_never_drawn():
    u = torch.tensor([0.0, 0.5, 1 - 2**-53], dtype=torch.float64)
    assert draw(logits_of([0.0, 0.5, 0.0, 0.5, 0.0]), members(3), u, Sampling()).token.tolist() == [1, 3, 3]
    wide = torch.full((1, 1500), float("-inf"))
    wide[0, [300, 700]] = 0.0  # in other blocks than the first and the last
    assert draw(wide, members(3), u, Sampling()).token.tolist() == [300, 700, 700]


@pytest.mark.parametrize("vocabulary", [40, 700])
def test_the_greatest_uniform_number_draws_a_token_even_where_probabilities_sum_to_less_than_one(vocabulary):
    # float32 probabilities of 200 rows: the sums of some miss 1 by more than 2^-53, and no token lies beyond them.
    logits = 3 * torch.randn(200, vocabulary, generator=torch.Generator().manual_seed(0))
    logits[:, -2:] = float("-inf")
    assert (logits.softmax(-1).double().sum(-1) < 1 - 2**-53).any()
    u = torch.full((200,), 1 - 2**-53, dtype=torch.float64)
    token = draw(logits, None, u, Sampling()).token
    assert int(token.max()) == vocabulary - 3


@pytest.mark.parametrize("vocabulary", [5, 512, 513, 700, 5000])
def test_both_ways_to_invert_the_cumulative_distribution_agree_with_numpy(vocabulary):
    logits = 3 * torch.randn(4, vocabulary, generator=torch.Generator().manual_seed(vocabulary))
    place = torch.arange(4).repeat_interleave(500)
    u = uniform(np.arange(2000, dtype=np.uint64), np.zeros(2000, np.uint64))
    token = draw(logits, place, torch.from_numpy(u), Sampling()).token.numpy()
    p = logits.double().softmax(-1).numpy()
    cumulative = p.cumsum(-1)
    for t, a, x in zip(token, place.numpy(), u, strict=True):
        # inside its interval, but for float32 probabilities
        assert cumulative[a, t] - p[a, t] - 1e-6 <= x <= cumulative[a, t] + 1e-6


@pytest.mark.parametrize("vocabulary", [6, 700])
def test_draws_follow_the_distribution(vocabulary):
    n = 40_000
    logits = torch.randn(1, vocabulary, generator=torch.Generator().manual_seed(1))
    u = uniform(np.arange(n, dtype=np.uint64), np.full(n, 3, np.uint64))
    token = draw(logits, members(n), torch.from_numpy(u), Sampling(temperature=0.8)).token
    expected = n * (logits[0] / 0.8).softmax(-1)
    chi_square = float(((token.bincount(minlength=vocabulary) - expected).square() / expected).sum())
    # mean V - 1, variance 2 (V - 1): within five standard deviations, and not suspiciously even
    assert abs(chi_square - (vocabulary - 1)) < 5 * np.sqrt(2 * (vocabulary - 1))


def kept(z, **sampling):
    return (truncate(z, Sampling(**sampling)) > float("-inf"))[0].nonzero().squeeze(1).tolist()


def test_truncation_by_hand():
    z = logits_of([0.1, 0.4, 0.05, 0.3, 0.15])
    assert kept(z, top_k=2) == [1, 3]
    assert kept(z, top_k=9) == [0, 1, 2, 3, 4]
    assert kept(z, top_p=0.4) == [1]  # the most likely alone holds as much
    assert kept(z, top_p=0.41) == [1, 3]  # the token that crosses the bound stays
    assert kept(z, top_p=0.7001) == [1, 3, 4]
    assert kept(z, top_p=1e-6) == [1]
    assert kept(z, min_p=0.3) == [1, 3, 4]  # at least 0.3 * 0.4
    assert kept(z, min_p=1.0) == [1]
    # In order: top-k keeps 0.4 and 0.3, of which the first holds 4/7 > 0.5. The other way round both would stay.
    assert kept(z, top_k=2, top_p=0.5) == [1]


def test_ties_at_the_kth_place_all_stay():
    assert kept(logits_of([0.2, 0.2, 0.4, 0.2]), top_k=2) == [0, 1, 2, 3]


@given(
    st.lists(st.floats(-8, 8, width=32), min_size=2, max_size=30),
    st.sampled_from([0.5, 1.0, 1.7]),
    st.integers(0, 5),
    st.sampled_from([0.3, 0.9, 1.0]),
    st.sampled_from([0.0, 0.1]),
)
def test_probabilities_of_what_can_be_drawn_sum_to_one(logits, temperature, top_k, top_p, min_p):
    z = torch.tensor([logits])
    sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    u = (torch.arange(997, dtype=torch.float64) + 0.5) / 997
    drawn = draw(z, members(997), u, sampling)
    behaviour = dict(zip(drawn.token.tolist(), drawn.behaviour_logprob.exp().tolist(), strict=True))
    model = dict(zip(drawn.token.tolist(), drawn.model_logprob.tolist(), strict=True))
    assert sum(behaviour.values()) == pytest.approx(1, abs=0.02)  # what is rarer than 1 in 997 may be missing
    assert all(model[t] == pytest.approx(float(z.log_softmax(-1)[0, t]), abs=1e-5) for t in model)
    counts = drawn.token.bincount()
    assert all(abs(int(counts[t]) - 997 * p) <= 1.01 for t, p in behaviour.items())


def test_greedy_takes_the_greatest_and_is_sure_of_it():
    drawn = draw(logits_of([0.2, 0.5, 0.3]), members(2), torch.tensor([0.01, 0.99]).double(), Sampling(temperature=0))
    assert drawn.token.tolist() == [1, 1]
    assert drawn.behaviour_logprob.tolist() == [0, 0]  # the distribution drawn from has one token
    torch.testing.assert_close(drawn.model_logprob.exp(), torch.tensor([0.5, 0.5]))


@pytest.mark.parametrize("vocabulary", [9, 700])
@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.7}, {"temperature": 1.4, "top_p": 0.8}, {"temperature": 0}])
def test_a_member_of_each_row_needs_no_places(vocabulary, sampling):
    logits = torch.randn(6, vocabulary, generator=torch.Generator().manual_seed(2))
    u = torch.rand(6, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    a, b = (draw(logits, place, u, Sampling(**sampling)) for place in (None, torch.arange(6)))
    assert a.token.tolist() == b.token.tolist()
    assert a.behaviour_logprob.tolist() == b.behaviour_logprob.tolist()
    assert a.model_logprob.tolist() == b.model_logprob.tolist()

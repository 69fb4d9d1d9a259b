import math

import pytest
import torch

from lyceum.papers.empg.credit_empg import EMPG, certainty_factor
from lyceum.utils.errors import RecipeError

HALF = math.log(2)  # exp(-k) = 1/2


def by_token(forest, **entropy):
    of = {int(token.removeprefix("t")): value for token, value in entropy.items()}
    return forest.with_columns(old_entropy=torch.tensor([of.get(token, 9.0) for token in forest.token.tolist()]))


def credited(forest, **settings):
    return EMPG(steps="tokens", step_tokens=1, scale="none", **settings).build()(forest)


def test_certain_steps_count_more_and_a_certain_next_step_pays(forest_of):
    # Steps of one token. Entropies 2 and 6 of the correct row, 6 and 2 of the other: h is 0 1 | 1 0, exp(-k h)
    # 1 1/2 | 1/2 1 with mean 3/4, the factors 4/3 2/3 | 2/3 4/3, the advantages +-1/2 times these. The first steps are
    # paid 1/2 and 1 for the second ones. Together 2/3 + 1/2, 1/3 | -1/3 + 1, -2/3: mean 3/8. The prompt's 9 is none.
    forest = by_token(forest_of([(1.0, 2), (0.0, 2)]), t100=2.0, t101=6.0, t200=6.0, t201=2.0)
    found = credited(forest, certainty_rate=HALF, clarity_rate=HALF, clarity_weight=1.0)
    expected = torch.tensor([[0, 7 / 6, 1 / 3], [0, 2 / 3, -2 / 3]]) - torch.tensor([0, 3 / 8, 3 / 8])
    torch.testing.assert_close(found.advantage, expected)
    # Deviations from 3/8 in 24ths: 19 -1 | 7 -25, squares 1036. Of the outcome, times 16 8 | -8 -16: 640.
    shares = {"outcome/share": pytest.approx(640 / 1036), "clarity/share": pytest.approx(396 / 1036)}
    assert found.metrics == {"steps": 4, "steps_amplified": 2, "steps_with_bonus": 2, **shares}


def test_a_step_of_several_tokens_has_their_mean_entropy(forest_of):
    # Means 2 and 6, whatever the order: the last row's only step, of 1 token, has 4: h 1/2, 2 ** -0.5.
    forest = by_token(forest_of([(1.0, 2), (0.0, 2), (0.0, 1)]), t100=0.0, t101=4.0, t200=5.0, t201=7.0, t300=4.0)
    factors = torch.tensor([1.0, 0.5, 0.5**0.5])
    scaled = torch.tensor([2 / 3, -1 / 3, -1 / 3]) * factors / factors.mean()
    found = EMPG(steps="tokens", step_tokens=2, scale="none", certainty_rate=HALF, clarity_weight=0).build()(forest)
    torch.testing.assert_close(found.advantage[:, 1], scaled - scaled.mean())


def test_without_rate_and_bonus_it_is_centred_over_steps(forest_of):
    # +1/2 on one step, -1/2 on three: the mean over steps is -1/4.
    forest = by_token(forest_of([(1.0, 1), (0.0, 3)]), t100=1.0)
    assert credited(forest, certainty_rate=0, clarity_weight=0).advantage.tolist() == [
        [0, 0.75, 0, 0],
        [0] + [-0.25] * 3,
    ]


def test_equal_entropies_scale_nothing():
    assert certainty_factor(torch.full((3,), 0.7), 5.0).tolist() == [1.0, 1.0, 1.0]


def test_a_run_in_which_nothing_judges_steps_is_refused(forest_of):
    with pytest.raises(RecipeError, match=r"this would be credit.kind 'group'"):
        EMPG().build()(by_token(forest_of([(1.0, 1), (0.0, 3)])))

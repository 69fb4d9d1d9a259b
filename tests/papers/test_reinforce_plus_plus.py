import torch

from lyceum.papers.reinforce_plus_plus.credit_reinforce_plus_plus import ReinforcePlusPlus, globally_normalised


def test_normalisation_is_over_tokens_of_the_whole_step(forest_of):
    # returns 1, 1 (a row of two tokens) and 0 (of one, another task): mean 2/3, variance (1/9 + 1/9 + 4/9) / 3 = 2/9.
    # A mean over rows would give 1 and -1; a mean within each task would give 0.
    advantage = ReinforcePlusPlus().build()(forest_of([(1.0, 2)], [(0.0, 1)])).advantage
    torch.testing.assert_close(advantage, torch.tensor([[0, 0.5, 0.5], [0, -1, 0]]) * 2**0.5)


def test_kl_is_charged_from_each_token_on(forest_of):
    forest = forest_of([(1.0, 2)])
    forest = forest.with_columns(
        old_logprob=torch.tensor([0.0, -1.0, -2.0]), reference_logprob=torch.tensor([0.0, -1.5, -1.0])
    )
    # k1: 0.5, -1; returns with 0.1 of it: 1 + 0.1 = 1.1 on the last, 1.1 - 0.05 on the first: whitened -1 and 1.
    # The KL of the whole row on every token would leave the two equal, and so 0.
    advantage = ReinforcePlusPlus(kl_in_reward={"coefficient": 0.1}).build()(forest).advantage
    torch.testing.assert_close(advantage, torch.tensor([[0.0, -1, 1]]))


def test_gamma_discounts_towards_the_front():
    # returns 1/4, 1/2, 1: mean 7/12, deviations -4/12, -1/12, 5/12, variance 42/432
    reward = torch.tensor([[0.0, 0, 1]])
    advantage = globally_normalised(reward, torch.ones(1, 3, dtype=torch.bool), gamma=0.5)
    torch.testing.assert_close(advantage, torch.tensor([[-4.0, -1, 5]]) / 12 / (42 / 432) ** 0.5)


def test_the_baseline_variant_takes_off_the_tasks_mean_first(forest_of):
    # 1, 0 | 1, 1, one token each: 1/2, -1/2, 0, 0; mean 0, variance 1/8. A task that is always solved teaches nothing.
    forest = forest_of([(1.0, 1), (0.0, 1)], [(1.0, 1), (1.0, 1)])
    advantage = ReinforcePlusPlus(baseline="group").build()(forest).advantage
    torch.testing.assert_close(advantage[:, 1], torch.tensor([1.0, -1, 0, 0]) * 2**0.5)


def test_equal_outcomes_give_exactly_zero(forest_of):
    assert (ReinforcePlusPlus().build()(forest_of([(0.9, 3), (0.9, 2)], [(0.9, 5)])).advantage == 0).all()


def test_outliers_are_set_to_zero_and_the_others_stay(forest_of):
    # One success among 16 rows of a token each: mean 1/16, standard deviation sqrt(15)/16, so sqrt(15) = 3.87 for it
    # and -1/sqrt(15) for the others.
    forest = forest_of([(1.0, 1)], *([(0.0, 1)] for _ in range(15)))
    credited = ReinforcePlusPlus(outliers=3).build()(forest)
    torch.testing.assert_close(credited.advantage[:, 1], torch.tensor([0.0] + [-(15**-0.5)] * 15))
    assert credited.metrics == {"outliers/share": 1 / 16}
    kept = ReinforcePlusPlus(outliers=4).build()(forest)
    torch.testing.assert_close(kept.advantage, ReinforcePlusPlus().build()(forest).advantage)
    assert kept.metrics == {"outliers/share": 0}

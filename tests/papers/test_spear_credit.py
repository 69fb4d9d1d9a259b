"""SPEAR's credit on small numbers: the median baseline, who is imitated, the weight's rise, and its state."""

import pytest
import torch

from lyceum.core.group import AGE
from lyceum.papers.spear.credit_self_imitation import SelfImitation, group_statistics, imitation_weight, recalibrated
from lyceum.recipe.schema import load_recipe
from lyceum.utils.errors import RecipeError

LEAVE = [(1.0, 2), (0.0, 2)]


def aged(forest, *ages):
    return forest.with_columns(**{AGE: torch.tensor(ages, dtype=torch.float32)[forest.tree]})


def of_rows(credited):
    return [row[row != 0].unique().tolist() for row in credited.advantage]


def test_the_weight_rises_along_half_a_cosine():
    # (1 - cos(pi t / 4)) / 2 of t = 0, 1, 2, 4, 9: 0, (1 - sqrt(1/2)) / 2, 1/2, 1, 1.
    found = [imitation_weight(t, 4) for t in (0, 1, 2, 4, 9)]
    assert found == pytest.approx([0, (1 - 0.5**0.5) / 2, 0.5, 1, 1])
    assert imitation_weight(0, 0, 0.7) == 0.7


def test_only_rows_that_beat_both_their_group_and_the_median_are_imitated():
    # Median 0.6: a 1 that beat its group keeps 0.4, a 0.5 that did is below it now, a 1 among 1s did not beat anyone.
    again = recalibrated(torch.tensor([1.0, 0.5, 1.0, 0.0]), torch.tensor([0.5, 0.25, 0.0, -0.5]), 0.6)
    torch.testing.assert_close(again, torch.tensor([0.4, 0, 0, 0]))


def test_means_and_deviations_of_groups_in_their_order():
    means, deviations = group_statistics(torch.tensor([1.0, 0, 0, 0, 3]), torch.tensor([4, 4, 4, 4, 1]))
    assert means == [0.25, 3.0]
    assert deviations == pytest.approx([3**0.5 / 4, 0])  # as in credit group: sqrt((3/16 + 9/16) / 4)


def test_recorded_groups_are_compared_with_the_median_of_recent_ones(forest_of):
    credit = SelfImitation(warm_up_steps=2).build()
    credit.observe(forest_of([(1.0, 2), (0.0, 2)], [(0.0, 2), (0.0, 2)], [(1.0, 2), (1.0, 1)]), {})
    assert credit.means == [0.5, 0.0, 1.0]  # median 1/2
    forest = aged(forest_of(LEAVE, LEAVE), 0, 3)
    # One step done of two: weight 1/2. Sampled rows +-1/2; the recorded success (1 - 1/2) / 2, its failure nothing.
    credited = credit(forest)
    assert of_rows(credited) == [[0.5], [-0.5], [0.25], []]
    assert credited.metrics == {"imitation": pytest.approx(0.5), "baseline": 0.5, "recorded": 2, "imitated": 1}
    credit.observe(forest, {})
    assert credit.means == [0.5, 0.0, 1.0, 0.5]  # the recorded group is not counted again


def test_once_the_policy_earns_as_much_nothing_is_imitated(forest_of):
    credit = SelfImitation(warm_up_steps=0, baseline_groups=2).build()
    for _ in range(2):
        credit.observe(forest_of([(1.0, 2), (1.0, 2)]), {})
    credited = credit(aged(forest_of(LEAVE), 1))
    assert credited.metrics["imitated"] == 0
    assert not credited.advantage.any()


def test_its_state_comes_back(forest_of):
    credit, back = SelfImitation(scale="std").build(), SelfImitation(scale="std").build()
    credit.observe(forest_of([(1.0, 2), (0.0, 2)], [(0.0, 2), (0.5, 2)]), {})
    back.load_state_dict(credit.state_dict())
    forest = aged(forest_of(LEAVE), 2)
    assert torch.equal(credit(forest).advantage, back(forest).advantage)


def test_it_needs_recorded_groups():
    with pytest.raises(
        RecipeError, match=r"replay: got none, but credit\.kind 'self-imitation' imitates recorded groups"
    ):
        load_recipe("grpo", ["credit=self-imitation"])

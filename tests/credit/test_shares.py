from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lyceum.credit.base import KLInReward, whiten
from lyceum.credit.group import GroupRelative, group_relative
from lyceum.credit.leave_one_out import LeaveOneOut
from lyceum.credit.reinforce import Reinforce
from lyceum.credit.shares import row_shares, token_shares
from lyceum.objective.ppo_clip import PPOClip
from lyceum.papers.barfi.credit_by_part import ByPart
from lyceum.papers.prime.credit_prime import Prime
from lyceum.reward.format import Format
from lyceum.reward.task import TaskReward
from lyceum.training.stages.method import Method

ALL = torch.ones(1, 4, dtype=torch.bool)
GROUP = torch.tensor([0, 0, 0, 2, 2])
"""Numbers may be missing."""


def test_a_source_that_opposes_the_sum_is_below_0_and_the_others_above_1():
    # a = 4 0 4 0 and b = -1 1 -1 1: the sum 3 1 3 1 has variance 1, cov(a, sum) = 2 and cov(b, sum) = -1.
    a, b = torch.tensor([[4.0, 0, 4, 0]]), torch.tensor([[-1.0, 1, -1, 1]])
    assert token_shares({"a": a, "b": b}, ALL) == {"a/share": pytest.approx(2), "b/share": pytest.approx(-1)}


def test_shares_are_of_the_masks_tokens_and_the_same_after_the_sum_is_whitened():
    a, b = torch.tensor([[1.0, 5, 2, 9]]), torch.tensor([[2.0, 4, 1, 0]])
    mask = torch.tensor([[True, True, True, False]])
    found = token_shares({"a": a, "b": b}, mask)
    # Sums 3 9 3: deviations -2 4 -2, a's -5/3 7/3 -2/3: 14 of 24.
    assert found == {"a/share": pytest.approx(14 / 24), "b/share": pytest.approx(10 / 24)}
    by = whiten(a + b, mask)[mask] / (a + b - 5)[mask]
    scaled = token_shares({"a": a * by[0], "b": b * by[0] + 7}, mask)
    assert scaled == pytest.approx(found)


def test_nothing_is_logged_where_the_sum_is_the_same_everywhere():
    b = torch.tensor([[0.1, 0.7, 0.3, 0.9]])
    assert token_shares({"a": torch.full((1, 4), 0.9), "b": torch.full((1, 1), 0.1)}, ALL) == {}
    assert token_shares({"a": 1 - b, "b": b}, ALL) == {}
    assert token_shares({"a": b, "b": b}, ~ALL) == {}
    assert row_shares(torch.zeros(5), {"a": torch.arange(5.0), "b": torch.zeros(5)}, GROUP) == {}
    assert (
        row_shares(torch.zeros(0), {"a": torch.zeros(0), "b": torch.zeros(0)}, torch.zeros(0, dtype=torch.long)) == {}
    )


rewards = st.lists(st.floats(-10, 10, width=32), min_size=5, max_size=5).map(torch.tensor)


@given(rewards, rewards, st.sampled_from(["std", "none", "batch"]))
def test_of_rows_compared_in_groups_it_is_the_covariance_with_the_advantage(a, b, scale):
    advantage = group_relative((a + b).double(), GROUP, scale=scale)
    if float(advantage.abs().max()) < 1e-3:
        return
    # The same mean and divisor, taken by hand: a_g from a row that differs, the source's own mean.
    parts = {}
    for name, of in (("a", a.double()), ("b", b.double())):
        parts[name] = torch.zeros(5, dtype=torch.double)
        for rows in ([0, 1, 2], [3, 4]):
            centred = (a + b)[rows].double() - (a + b)[rows].double().mean()
            at = int(centred.abs().argmax())
            by = advantage[rows][at] / centred[at] if float(centred.abs().max()) > 1e-4 else 0.0
            parts[name][rows] = by * (of[rows] - of[rows].mean())
    expected = {f"{name}/share": float((of * advantage).sum() / advantage.square().sum()) for name, of in parts.items()}
    found = row_shares(advantage, {"a": a, "b": b}, GROUP)
    assert found == pytest.approx(expected, abs=1e-3, rel=1e-3)
    assert sum(found.values()) == pytest.approx(1)


def test_with_one_baseline_for_all_the_groups_means_count_too():
    # A = r: rewards 1 1 | 0 0 of a, and 0 1 | 0 1 of b. Sums 1 2 0 1: var 1/2, cov(a) = cov(b) = 1/4.
    group, a, b = torch.tensor([0, 0, 1, 1]), torch.tensor([1.0, 1, 0, 0]), torch.tensor([0.0, 1, 0, 1])
    found = row_shares(a + b - 3, {"a": a, "b": b}, group)
    assert found == {"a/share": pytest.approx(0.5), "b/share": pytest.approx(0.5)}
    # Compared within groups a says nothing.
    found = row_shares(group_relative(a + b, group), {"a": a, "b": b}, group)
    assert found == {"a/share": pytest.approx(0), "b/share": pytest.approx(1)}


def method(credit, *reward):
    return Method.of(SimpleNamespace(credit=credit, objective=PPOClip(), reward=None), reward)


def shares(found):
    return {name: value for name, value in found.metrics.items() if name.endswith("/share")}


def test_the_rewards_parts_are_told_apart_where_several_count(forest_of):
    # A verdict 1 1 0 0 and half a format of 1 0 1 0. Deviations of the sum 3/4 1/4 -1/4 -3/4 with squares 5/4; times
    # the verdict's 1/2: 1, times the format's 1/4: 1/4.
    forest = replace(
        forest_of([(1.5, 2), (1.0, 2), (0.5, 2), (0.0, 2)]),
        parts={"task": torch.tensor([1.0, 1, 0, 0]), "format": torch.tensor([1.0, 0, 1, 0])},
    )
    parts = (TaskReward(), Format(pattern="x", weight=0.5))
    for credit in (GroupRelative(), LeaveOneOut(), Reinforce()):
        found = method(credit, *parts).credited(forest)
        assert shares(found) == {"task/share": pytest.approx(0.8), "format/share": pytest.approx(0.2)}
        assert found.advantage.equal(credit.build()(forest).advantage)
    assert shares(method(GroupRelative(), TaskReward(), Format(pattern="x", weight=0)).credited(forest)) == {}
    by_part = ByPart(parts={"task": 1.0, "format": 1.0}, scale="none")
    assert shares(method(by_part, *parts).credited(forest)) == {"task/share": 0.5, "format/share": 0.5}


def test_parts_of_the_reward_share_what_the_outcome_has_beside_process_rewards(forest_of):
    # As above, with a process reward for the second row of two: its two tokens earn 1 more than the others' means of 0.
    forest = replace(
        forest_of([(1.5, 1), (1.0, 1), (0.5, 1), (0.0, 1)]),
        parts={"task": torch.tensor([1.0, 1, 0, 0]), "format": torch.tensor([1.0, 0, 1, 0])},
    )
    judged = torch.where(forest.segment_start == 0, torch.nan, 0.0)
    judged[3] = 1.0
    forest = replace(forest, segment_reward=judged)
    # Outcomes against the others 1, 1/3, -1/3, -1; the process rewards -1/3, 1, -1/3, -1/3 (of a largest return of 1).
    # Sums 2/3, 4/3, -2/3, -4/3 with squares 40/9; times the outcome's: 2/3 + 4/9 + 2/9 + 4/3 = 24/9.
    found = shares(method(Prime(), TaskReward(), Format(pattern="x", weight=0.5)).credited(forest))
    # Of the row advantages 0.8 and 0.2 of the outcome's 0.6, as above.
    expected = {"task/share": 0.48, "format/share": 0.12, "process/share": 0.4}
    assert found == pytest.approx(expected, abs=1e-5)


def test_a_kl_cost_is_a_source(forest_of):
    # Outcomes 1 and 0; the first row is 0.25 more likely than under the reference at each of two tokens: 1 - 0.5 and 0.
    forest = forest_of([(1.0, 2), (0.0, 2)])
    first = torch.tensor([token // 100 == 1 for token in forest.token.tolist()])
    forest = forest.with_columns(
        old_logprob=torch.where(first, -1.0, -2.0), reference_logprob=torch.where(first, -1.25, -2.0)
    )
    credit = LeaveOneOut(kl_in_reward=KLInReward(coefficient=1.0))
    found = shares(method(credit, TaskReward()).credited(forest))
    assert found == {"outcome/share": pytest.approx(2), "kl/share": pytest.approx(-1)}


def test_of_one_source_nothing_is_computed(forest_of, monkeypatch):
    for name in ("row_shares", "terms"):
        monkeypatch.setattr(f"lyceum.training.stages.method.{name}", None)
    forest = forest_of([(1.0, 2), (0.0, 2)])
    credit = GroupRelative().build()
    found = replace(method(GroupRelative(), TaskReward()), credit=lambda forest: credit(forest)).credited(forest)
    assert found.metrics == {}

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lyceum.core.forest import build_forest
from lyceum.core.settings import Composition
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Continuation, Grade, Origin, Task
from lyceum.credit.group import GroupRelative
from lyceum.papers.barfi.credit_by_part import ByPart
from lyceum.reward.exact import Exact
from lyceum.reward.task import TaskReward


def forest(*groups):
    """Groups of (outcome, verdict, parts); each row is a prompt's token and one of its own."""
    trees = []
    for g, group in enumerate(groups):
        root = Node(None, [1], Origin.PROMPT)
        for r, (outcome, correct, parts) in enumerate(group):
            leaf = root.add_drawn(Continuation([10 + r], [-1.0], [-1.0], [0], "stop"), "a")
            leaf.grade = Grade(outcome, correct, parts=parts)
        trees.append(Tree(Task(f"t{g}", ()), [root]))
    return build_forest(trees)


def of_rows(settings, rows, step=0):
    credit = ByPart.model_validate({"kind": "by-part", **settings}).build()
    for _ in range(step):
        credit.observe(rows, {})
    return credit(rows).advantage[:, 1]


ROWS = [(1.0, True, {"task": 1.0, "drm": 10.0}), (1.0, True, {"task": 1.0, "drm": 30.0})]


def test_two_advantages_are_added_and_not_two_rewards():
    # task: 1 1 0 0 -> 1 1 -1 -1. drm: 10 30 10 30, mean 20, std 10 -> -1 1 -1 1. Sum with weights 1 and 0.5:
    # 0.5 1.5 -1.5 -0.5. Rewards summed first (10.. of drm drown the verdict) would rank row 3 above row 0.
    rows = forest([*ROWS, (0.0, False, {"task": 0.0, "drm": 10.0}), (0.0, False, {"task": 0.0, "drm": 30.0})])
    got = of_rows({"parts": {"task": 1, "drm": 0.5}}, rows)
    torch.testing.assert_close(got, torch.tensor([0.5, 1.5, -1.5, -0.5]), atol=1e-5, rtol=0)


def test_where_every_answer_is_correct_the_score_alone_is_left():
    got = of_rows({"parts": {"task": 1, "drm": 1}}, forest(ROWS))
    torch.testing.assert_close(got, torch.tensor([-1.0, 1.0]), atol=1e-5, rtol=0)


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=2, max_size=9), st.sampled_from(("std", "none", "batch")))
def test_with_one_part_it_is_group_bit_for_bit(rewards, scale):
    rows = forest([(r, None, {"task": r}) for r in rewards], [(r / 3, None, {"task": r / 3}) for r in rewards[:2]])
    group = GroupRelative(scale=scale).build()(rows).advantage
    assert torch.equal(ByPart(scale=scale).build()(rows).advantage, group)
    named = ByPart.model_validate({"parts": {"task": 1}, "scale": scale})
    assert torch.equal(named.build()(rows).advantage, group)


def test_a_part_that_abstains_leaves_its_own_term_0_and_is_left_out_of_the_others_mean():
    # drm: 10 30 and none -> -1 1 0; with the third row in the mean it would be another number. task: 1 1 0:
    # mean 2/3, std sqrt(2)/3 -> 1/sqrt(2), 1/sqrt(2), -sqrt(2).
    rows = forest([*ROWS, (0.0, False, {"task": 0.0})])
    got = of_rows({"parts": {"task": 1, "drm": 1}}, rows)
    half = 1 / math.sqrt(2)
    torch.testing.assert_close(got, torch.tensor([half - 1, half + 1, -2 * half]), atol=1e-5, rtol=0)
    assert of_rows({"parts": {"drm": 1, "task": 0}}, forest([(1.0, True, {"task": 1.0})] * 2)).tolist() == [0, 0]


def test_gated_it_compares_correct_rows_with_correct_ones_alone():
    # drm of the correct rows: 10 30 -> -1 1; the incorrect row's 1000 is in no mean.
    rows = forest([*ROWS, (0.0, False, {"task": 0.0, "drm": 1000.0})])
    got = of_rows({"parts": {"drm": {"gate": "correct"}}}, rows)
    torch.testing.assert_close(got, torch.tensor([-1.0, 1.0, 0.0]), atol=1e-5, rtol=0)
    assert of_rows({"parts": {"drm": {"gate": "incorrect"}}}, rows).tolist() == [0, 0, 0]
    assert of_rows({"parts": {"drm": {"gate": "correct"}}}, replace(rows, correct=rows.correct * math.nan)).any() == 0


@pytest.mark.parametrize(("step", "weight"), [(0, 0.0), (1, 0.25), (4, 1.0), (9, 1.0)])
def test_a_weight_goes_linearly_to_its_end(step, weight):
    got = of_rows({"parts": {"drm": {"weight": 0, "end": 1, "steps": 4}}}, forest(ROWS), step)
    torch.testing.assert_close(got, torch.tensor([-weight, weight]), atol=1e-5, rtol=0)


def test_resumed_it_goes_on_at_the_same_weight():
    settings = ByPart.model_validate({"parts": {"drm": {"weight": 0, "end": 1, "steps": 4}}})
    first, second = settings.build(), settings.build()
    first.observe(forest(ROWS), {})
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(forest(ROWS)).advantage, second(forest(ROWS)).advantage)


def test_without_weights_for_several_parts_it_is_refused_as_it_would_compare_their_sum():
    stage = Composition(reward=(TaskReward(), Exact()))
    allowed = "{'task': 1, 'exact': 1}"
    assert ByPart().conflicts(stage) == [
        f"credit.parts: not given, which would be kind 'group'; allowed: weights, such as {allowed}"
    ]
    assert ByPart().conflicts(Composition(reward=(TaskReward(),))) == []


def test_a_part_that_the_reward_lacks_is_refused():
    stage = Composition(reward=(TaskReward(), Exact()))
    [line] = ByPart.model_validate({"parts": {"task": 1, "drm": 1, "exact/any": 1}}).conflicts(stage)
    assert line.startswith("credit.parts: got 'drm', which is no part of the reward; allowed: outcome, task, exact")

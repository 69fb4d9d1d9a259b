from dataclasses import replace

import pytest
import torch

from lyceum.core.forest import build_forest
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Continuation, Grade, JudgedStep, Origin, Task
from lyceum.credit.leave_one_out import LeaveOneOut
from lyceum.credit.prime import Prime, against_others, returns


def letters(tokens):
    return "".join(map(chr, tokens))


def forest_of(*rows):
    """Rows of one task: (outcome, process reward of each token)."""
    root = Node(None, [1], Origin.PROMPT)
    for number, (outcome, rewards) in enumerate(rows):
        n = len(rewards)
        tokens = [97 + number] * n
        leaf = root.add_drawn(Continuation(tokens, [-1.0] * n, [-1.0] * n, [0] * n, "stop"), letters(tokens))
        steps = tuple(JudgedStep(i, i + 1, reward) for i, reward in enumerate(rewards) if reward is not None)
        leaf.grade = Grade(outcome, steps=steps)
    return build_forest([Tree(Task("t", ()), [root])], decode=letters)


def test_token_rewards_are_compared_with_the_other_rows_means_and_returned():
    forest = forest_of((1.0, [0.5, 0.1]), (0.0, [0.2, -0.4]))
    credited = Prime(whiten=False).build()(forest)
    # Means 0.3 and -0.1. Row 0: 0.6 and 0.2 above -0.1, returns 0.8 and 0.2; row 1: -0.1 and -0.7, returns -0.8, -0.7.
    # Leave-one-out of the outcomes: 1 and -1.
    expected = torch.tensor([[0, 1.8, 1.2], [0, -1.8, -1.7]])
    torch.testing.assert_close(credited.advantage, expected)
    assert credited.metrics["tokens_with_process_reward"] == 1
    half = Prime(whiten=False, process_coefficient=0.5, gamma=0.0).build()(forest)
    torch.testing.assert_close(half.advantage, torch.tensor([[0, 1.3, 1.1], [0, -1.05, -1.35]]))
    torch.testing.assert_close(Prime().build()(forest).advantage[:, 1:].mean(), torch.tensor(0.0), atol=1e-6, rtol=0)


def test_tokens_without_a_process_reward_are_not_compared():
    # Row 0 is judged at its last token alone: its mean is 0.6, and its first token earns what comes after it.
    forest = forest_of((0.0, [None, 0.6]), (0.0, [0.2, 0.4]), (0.0, [None, None]))
    credited = Prime(whiten=False).build()(forest)
    # Means 0.6, 0.3, 0. Row 0: 0.6 - 0.15. Row 1: 0.2 - 0.3 and 0.4 - 0.3. Row 2 has none.
    expected = torch.tensor([[0, 0.45, 0.45], [0, 0.0, 0.1], [0, 0, 0]])
    torch.testing.assert_close(credited.advantage, expected, atol=1e-6, rtol=0)
    assert credited.metrics["tokens_with_process_reward"] == pytest.approx(3 / 6)


def test_a_process_reward_of_zero_is_one_and_without_any_it_is_leave_one_out():
    forest = forest_of((1.0, [0.0, 0.0]), (0.0, [0.4, 0.4]))
    credited = Prime(whiten=False).build()(forest)
    # Row 0 is 0.4 below the other at both tokens.
    torch.testing.assert_close(credited.advantage[0, 1:], torch.tensor([1 - 0.8, 1 - 0.4]))
    off = Prime(whiten=False, process_coefficient=0).build()(forest)
    torch.testing.assert_close(off.advantage, LeaveOneOut().build()(forest).advantage)


def test_a_row_alone_is_compared_with_nothing_and_returns_skip_others_tokens():
    reward = torch.tensor([[0.0, 0.5, 0.25]])
    alone = against_others(reward, reward != 0, torch.tensor([0]))
    torch.testing.assert_close(alone, reward)
    mask = torch.tensor([[True, False, True]])
    torch.testing.assert_close(returns(torch.ones(1, 3), mask, gamma=0.5), torch.tensor([[1.5, 0, 1.0]]))
    forest = forest_of((1.0, [0.5]))
    assert torch.equal(Prime().build()(replace(forest)).advantage, torch.zeros(1, 2))

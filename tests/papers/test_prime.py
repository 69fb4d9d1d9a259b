from dataclasses import replace

import pytest
import torch

from lyceum.core.forest import build_forest
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Continuation, Grade, JudgedStep, Origin, Task
from lyceum.credit.leave_one_out import LeaveOneOut
from lyceum.papers.prime.credit_prime import Prime, against_others, by_largest_return, returns


def letters(tokens):
    return "".join(map(chr, tokens))


def tree_of(*rows, name="t"):
    root = Node(None, [1], Origin.PROMPT)
    for number, (outcome, rewards) in enumerate(rows):
        n = len(rewards)
        tokens = [97 + number] * n
        leaf = root.add_drawn(Continuation(tokens, [-1.0] * n, [-1.0] * n, [0] * n, "stop"), letters(tokens))
        steps = tuple(JudgedStep(i, i + 1, reward) for i, reward in enumerate(rewards) if reward is not None)
        leaf.grade = Grade(outcome, steps=steps)
    return Tree(Task(name, ()), [root])


def forest_of(*rows):
    """Rows of one task: (outcome, process reward of each token)."""
    return build_forest([tree_of(*rows)], decode=letters)


def test_token_rewards_are_compared_with_the_other_rows_means_and_returned():
    forest = forest_of((1.0, [0.5, 0.1]), (0.0, [0.2, -0.4]))
    credited = Prime(normalise="none", whiten=False).build()(forest)
    # Means 0.3 and -0.1. Row 0: 0.6 and 0.2 above -0.1, returns 0.8 and 0.2; row 1: -0.1 and -0.7, returns -0.8, -0.7.
    # Leave-one-out of the outcomes: 1 and -1.
    expected = torch.tensor([[0, 1.8, 1.2], [0, -1.8, -1.7]])
    torch.testing.assert_close(credited.advantage, expected)
    assert credited.metrics["tokens_with_process_reward"] == 1
    half = Prime(normalise="none", whiten=False, process_coefficient=0.5, gamma=0.0).build()(forest)
    torch.testing.assert_close(half.advantage, torch.tensor([[0, 1.3, 1.1], [0, -1.05, -1.35]]))
    torch.testing.assert_close(Prime().build()(forest).advantage[:, 1:].mean(), torch.tensor(0.0), atol=1e-6, rtol=0)


def test_tokens_without_a_process_reward_are_not_compared():
    # Row 0 is judged at its last token alone: its mean is 0.6, and its first token earns what comes after it.
    forest = forest_of((0.0, [None, 0.6]), (0.0, [0.2, 0.4]), (0.0, [None, None]))
    credited = Prime(normalise="none", whiten=False).build()(forest)
    # Means 0.6, 0.3, 0. Row 0: 0.6 - 0.15. Row 1: 0.2 - 0.3 and 0.4 - 0.3. Row 2 has none.
    expected = torch.tensor([[0, 0.45, 0.45], [0, 0.0, 0.1], [0, 0, 0]])
    torch.testing.assert_close(credited.advantage, expected, atol=1e-6, rtol=0)
    assert credited.metrics["tokens_with_process_reward"] == pytest.approx(3 / 6)


def test_a_process_reward_of_zero_is_one_and_without_any_it_is_leave_one_out():
    forest = forest_of((1.0, [0.0, 0.0]), (0.0, [0.4, 0.4]))
    credited = Prime(normalise="none", whiten=False).build()(forest)
    # Row 0 is 0.4 below the other at both tokens.
    torch.testing.assert_close(credited.advantage[0, 1:], torch.tensor([1 - 0.8, 1 - 0.4]))
    off = Prime(normalise="none", whiten=False, process_coefficient=0).build()(forest)
    torch.testing.assert_close(off.advantage, LeaveOneOut().build()(forest).advantage)


def test_a_row_alone_is_compared_with_nothing_and_returns_skip_others_tokens():
    reward = torch.tensor([[0.0, 0.5, 0.25]])
    alone = against_others(reward, reward != 0, torch.tensor([0]))
    torch.testing.assert_close(alone, reward)
    mask = torch.tensor([[True, False, True]])
    torch.testing.assert_close(returns(torch.ones(1, 3), mask, gamma=0.5), torch.tensor([[1.5, 0, 1.0]]))
    forest = forest_of((1.0, [0.5]))
    assert torch.equal(Prime().build()(replace(forest)).advantage, torch.zeros(1, 2))


def test_process_rewards_a_thousand_times_as_large_leave_the_advantages_as_they_are():
    # Whitening the sum does not do this: at 1000 times the scale nearly all of the sum is process reward.
    rows = ((1.0, [0.5, 0.1]), (0.0, [0.2, -0.4]), (1.0, [-0.3, 0.0]))
    large = [(outcome, [1000 * reward for reward in rewards]) for outcome, rewards in rows]
    advantage, scaled = (Prime().build()(forest_of(*each)).advantage for each in (rows, large))
    torch.testing.assert_close(scaled, advantage, atol=1e-5, rtol=0)
    plain, drowned = (Prime(normalise="none").build()(forest_of(*each)).advantage for each in (rows, large))
    assert float((drowned - plain).abs().max()) > 0.1


def test_process_rewards_are_divided_by_the_steps_largest_return():
    # Returns: 0.6, 0.1 and -0.2, -0.4: the largest is 0.6, on a row other than that of the largest negative one.
    reward, mask = torch.tensor([[0.5, 0.1], [0.2, -0.4]]), torch.ones(2, 2, dtype=torch.bool)
    expected = torch.tensor([[0.5, 0.1], [0.2, -0.4]]) / 0.6
    torch.testing.assert_close(by_largest_return(reward, mask), expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(by_largest_return(-reward, mask), -expected, atol=1e-5, rtol=0)
    assert torch.equal(by_largest_return(torch.zeros(2, 2), mask), torch.zeros(2, 2))
    credited = Prime(whiten=False).build()(forest_of((1.0, [0.5, 0.1]), (0.0, [0.2, -0.4])))
    # As in the first test, the process returns 0.8, 0.2 and -0.8, -0.7 over 0.6.
    expected = torch.tensor([[0, 1 + 4 / 3, 1 + 1 / 3], [0, -1 - 4 / 3, -1 - 7 / 6]])
    torch.testing.assert_close(credited.advantage, expected, atol=1e-5, rtol=0)


def as_released(score, outcome):
    """PRIME-RL/PRIME's advantages before they are whitened, by source, of tasks (G, n, L) without padding.

    Restated from dp_prime.py (the norm) and core_algos.py (``compute_rloo_returns``).
    """
    n = score.shape[1]
    largest = score.flip(2).cumsum(2).abs().max()
    process = score / (largest + 1e-6)
    process = process * n / (n - 1) - process.mean(2).sum(1)[:, None, None] / (n - 1)
    verdict = outcome * n / (n - 1) - outcome.sum(1, keepdim=True) / (n - 1)
    return verdict[:, :, None].expand_as(process), process.flip(2).cumsum(2).flip(2)


@pytest.mark.parametrize("size", [0.0005, 0.01, 0.2, 1.0, 100.0])
def test_the_process_rewards_share_is_that_of_the_released_code_at_every_size_of_the_log_ratio(size):
    torch.manual_seed(0)
    outcome = (torch.rand(16, 8) < 0.5).float()
    score = size * torch.randn(16, 8, 40)
    verdict, process = as_released(score, outcome)
    total = verdict + process
    released = float(((process - process.mean()) * (total - total.mean())).mean() / total.var(correction=0))
    tasks = zip(outcome.tolist(), score.tolist(), strict=True)
    trees = [tree_of(*zip(*task, strict=True), name=str(number)) for number, task in enumerate(tasks)]
    forest = build_forest(trees, decode=letters)
    shares = Prime().build()(forest).metrics
    assert shares["process/share"] == pytest.approx(released, abs=0.02)  # 0.130 and theirs 0.139, by the equation's n
    assert shares["process/share"] == pytest.approx(0.1302, abs=1e-3)
    assert shares["outcome/share"] == pytest.approx(1 - shares["process/share"])
    drowned = Prime(normalise="none", process_coefficient=5.0).build()(forest).metrics
    assert (drowned["process/share"] > 0.95) == (size > 0.1)

import pytest
import torch
from random_trees import letters

from lyceum.core.forest import build_forest
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Continuation, Grade, JudgedStep, Origin, Task
from lyceum.papers.igpo.credit_igpo import TurnReturns, normalised


def drawn(node, tokens):
    n = len(tokens)
    return node.add_drawn(Continuation(tokens, [-1.0] * n, [-1.0] * n, [0] * n, "stop"), letters(tokens))


def test_turns_and_outcomes_are_compared_together_or_each_with_their_own():
    # Together 3, -3, 1, -1: mean 0, deviation sqrt(5). Apart: 3, -3 are 1, -1, and so are 1, -1.
    group = torch.zeros(2, dtype=torch.long)
    turn, outcome = torch.tensor([3.0, -3.0]), torch.tensor([1.0, -1.0])
    both = normalised(turn, group, outcome, group, joint=True)
    torch.testing.assert_close(torch.cat(both), torch.tensor([3.0, -3, 1, -1]) / 5**0.5)
    apart = normalised(turn, group, outcome, group, joint=False)
    torch.testing.assert_close(torch.cat(apart), torch.tensor([1.0, -1, 1, -1]))


@pytest.mark.parametrize(("gamma", "first"), [(1.0, 2.0), (0.5, 1.5), (0.0, 1.0)])
def test_a_turn_gets_what_it_earned_and_what_came_after(gamma, first):
    # Two rows: two tokens written, a tool's one, one written. The first turn gains 1/2 or loses it, the outcome is 1 or
    # 0: normalised apart each is 1 or -1. On the first turn's tokens 1 + gamma, on the last 1; nothing on the tool's.
    root = Node(None, [1], Origin.PROMPT)
    for row, (gain, outcome) in enumerate([(0.5, 1.0), (-0.5, 0.0)]):
        leaf = drawn(drawn(root, [10 * row + 10, 11]).add([20], Origin.TOOL, letters([20])), [12])
        leaf.grade = Grade(outcome, steps=(JudgedStep(0, 2, gain),))
    forest = build_forest([Tree(Task("t", ()), [root])], decode=letters)
    found = TurnReturns(gamma=gamma, normalise="separate").build()(forest)
    expected = torch.tensor([0, first, first, 0, 1.0])
    torch.testing.assert_close(found.advantage, torch.stack([expected, -expected]), atol=1e-5, rtol=0)
    # Of squares 2 first^2 + 1 a row the outcome's 2 gamma first + 1.
    share = (2 * gamma * first + 1) / (2 * first**2 + 1)
    shares = {"outcome/share": pytest.approx(share), "process/share": pytest.approx(1 - share)}
    assert found.metrics == {"turns": 2, "turns_with_gain": 2, **shares}


def test_without_judged_turns_it_is_group_relative(forest_of):
    forest = forest_of([(1.0, 2), (0.0, 1)])
    found = TurnReturns().build()(forest)
    torch.testing.assert_close(found.advantage, torch.tensor([[0, 1.0, 1], [0, -1, 0]]), atol=1e-5, rtol=0)

"""Preference pairs of steps: which siblings are paired, and what their loss trains."""

import math
from dataclasses import replace

import pytest
import torch
from pydantic import ValidationError

from lyceum.core.forest import build_forest
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Continuation, Credited, Grade, Origin, Task
from lyceum.objective._pairs import StepPair, sibling_pairs
from lyceum.objective.dpo import DPO
from lyceum.papers.orpo.objective_orpo import ORPO


def drawn(above: Node, *tokens: int, outcome: float | None = None) -> Node:
    n = len(tokens)
    node = above.add_drawn(Continuation([*tokens], [-1.0] * n, [-1.0] * n, [0] * n, "stop"))
    node.grade = None if outcome is None else Grade(outcome)
    return node


def branching():
    """Prompt of 3 tokens; A (rows 0 to 2: 1, 1, 0), B (rows 3 and 4: 0, 0), C (row 5: 1)."""
    root = Node(None, [1, 2, 3], Origin.PROMPT)
    a, b = drawn(root, 10, 11), drawn(root, 20)
    for tokens, outcome in (([12], 1.0), ([13], 1.0), ([14, 15], 0.0)):
        drawn(a, *tokens, outcome=outcome)
    drawn(b, 21, outcome=0.0)
    drawn(b, 22, outcome=0.0)
    drawn(root, 30, 31, outcome=1.0)
    return build_forest([Tree(Task("t", ()), [root])])


def pairs(forest, **how):
    return sibling_pairs(forest, forest.trainable(forest.rows()), **how)


def test_siblings_with_the_most_rows_come_first_and_no_row_is_in_two_pairs():
    # V(A) = 2/3, V(B) = 0, V(C) = 1. A over B has two rows on either side and takes rows 0 and 3. Of the pairs with one
    # row on a side the gap is 1 for A's child of row 1 over that of row 2, and for C over B, which still has row 4. C
    # over A, gap 1/3, has no row of C any more.
    expected = [
        StepPair((0, 3, 5), (3, 3, 4), pytest.approx(2 / 3)),
        StepPair((1, 5, 6), (2, 5, 7), 1.0),
        StepPair((5, 3, 5), (4, 3, 4), 1.0),
    ]
    assert pairs(branching()) == expected
    assert pairs(branching(), most=1) == expected[:1]
    without_the_first = [StepPair((0, 5, 6), (2, 5, 7), 1.0), StepPair((5, 3, 5), (3, 3, 4), 1.0)]
    assert pairs(branching(), margin=0.7) == pairs(branching(), between=0.7) == without_the_first


def test_equal_steps_are_no_pair():
    root = Node(None, [1, 2, 3], Origin.PROMPT)
    for outcome in (1.0, 0.0):
        drawn(root, 10, 11, outcome=outcome)
    assert pairs(build_forest([Tree(Task("t", ()), [root])])) == []


def test_the_tokens_of_the_steps_alone_are_trained():
    forest = branching()
    rows = forest.rows().index.shape
    plan = DPO(of="siblings").build().plan(forest, Credited(torch.zeros(rows)), [torch.arange(6)])
    # Three pairs are six steps, each 1/6, spread over its tokens.
    assert plan.counts == {"pairs": 3, "pairs/later_steps": 1}
    assert plan.label.tolist() == pytest.approx([2 / 3, 1, -1, -2 / 3, -1, 1])
    expected = torch.zeros(rows)
    for row, start, end in ((0, 3, 5), (3, 3, 4), (5, 3, 5), (4, 3, 4), (1, 5, 6), (2, 5, 7)):
        expected[row, start:end] = 1 / 6 / (end - start)
    torch.testing.assert_close(plan.weight, expected)


def of_step(batch_of):
    """A pair whose steps are the first tokens: log-ratios 0.5 and -1 there, anything after."""
    batch = batch_of(
        [[1, 1], [1, 1]],
        "sequence",
        logprob=[[-1.0, -9.0], [-2.0, -7.0]],
        reference_logprob=[[-1.5, -1.0], [-1.0, -1.0]],
    )
    weight = torch.tensor([[0.5, 0.0], [0.5, 0.0]], dtype=torch.float64)
    return replace(batch, weight=weight, couple=torch.tensor([4, 4]), label=torch.tensor([0.75, -0.75]))


def test_the_margin_has_to_exceed_the_difference_of_the_advantages(batch_of):
    # beta (s_w - s_l) = 0.2 * 1.5 = 0.3, less 2 * 0.75: -log sigmoid(-1.2).
    batch = of_step(batch_of)
    loss, metrics = DPO(of="siblings", beta=0.2, advantage=2.0).build()(batch)
    assert loss.item() == pytest.approx(math.log(1 + math.exp(1.2)))
    (gradient,) = torch.autograd.grad(loss, batch.logprob)
    slope = 0.2 / (1 + math.exp(-1.2))
    torch.testing.assert_close(gradient, torch.tensor([[-slope, 0.0], [slope, 0.0]]).double())
    assert float(metrics["dpo/gap"][0]) == 0.75
    assert float(metrics["dpo/margin"][0]) == pytest.approx(0.3)
    plain, _ = DPO(of="siblings", beta=0.2).build()(batch)
    assert plain.item() == pytest.approx(math.log(1 + math.exp(-0.3)))


def test_the_odds_are_of_the_step_alone(batch_of):
    batch = of_step(batch_of)
    loss, _ = ORPO(of="siblings", beta=0.5).build()(batch)
    odds = [math.exp(p) / (1 - math.exp(p)) for p in (-1.0, -2.0)]
    assert loss.item() == pytest.approx(1 + 0.5 * math.log(1 + odds[1] / odds[0]))


@pytest.mark.parametrize(
    "given", [{"between": 0.5}, {"advantage": 1.0}, {"advantage": 1.0, "of": "siblings", "loss": "ipo"}]
)
def test_settings_that_nothing_would_read_are_refused(given):
    with pytest.raises(ValidationError, match=next(iter(given))):
        DPO(**given)

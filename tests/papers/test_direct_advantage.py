"""Direct Advantage Policy Optimization on three trajectories: advantages of steps, and the squared error per step."""

from dataclasses import replace

import pytest
import torch

from lyceum.core.forest import build_forest
from lyceum.core.settings import Composition
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Continuation, Grade, Origin, Task
from lyceum.credit.group import GroupRelative
from lyceum.papers.direct_advantage.credit_value_gain import ValueGain
from lyceum.papers.direct_advantage.objective_direct_advantage import DirectAdvantage
from lyceum.papers.direct_advantage.rollout_next_steps import NextSteps
from lyceum.rollout.flat import Flat

PROMPT, CUT = 0.5, 0.3
"""Values of the prompt's state, and of that after a step that did not go on."""


def drawn(above, tokens):
    n = len(tokens)
    return above.add_drawn(Continuation(tokens, [-1.0] * n, [-1.0] * n, [0] * n, "stop"))


def forest(values=True, weights=None):
    """One prompt: a step of two tokens that goes on with a right or a wrong last step, and a step that does not."""
    root = Node(None, [1], Origin.PROMPT)
    first = drawn(root, [2, 3])
    for tokens, outcome in (([4], 1.0), ([5], 0.0)):
        drawn(first, tokens).grade = Grade(outcome, bool(outcome))
    cut = drawn(root, [6])
    cut.grade = Grade(CUT)
    if values:
        root.value, first.value, cut.value = PROMPT, 0.8, CUT
    return build_forest([Tree(Task("t", ()), [root])], weights=weights)


def test_a_steps_advantage_is_the_gain_in_value_across_it():
    credited = ValueGain().build()(forest())
    # First step 0.8 - 0.5; right 1 - 0.8; wrong 0 - 0.8; the step that ends in a state 0.3 - 0.5.
    expected = torch.tensor([[0, 0.3, 0.3, 0.2], [0, 0.3, 0.3, -0.8], [0, -0.2, 0, 0]])
    torch.testing.assert_close(credited.advantage, expected)
    step = credited.columns["step"]
    assert step[0, 1] == step[0, 2] == step[1, 1]  # the same step in two rows
    assert len(step[step > 0].unique()) == 4
    assert credited.metrics["steps"] == credited.metrics["steps_with_gain"] == 4
    assert credited.metrics["values/spread"] == pytest.approx(torch.tensor([0.5, 0.8, 0.3]).std(correction=0).item())


def test_a_state_without_a_value_has_the_mean_outcome_of_its_trajectories():
    # Prompt (1 + 0 + 0.3) / 3, first step (1 + 0) / 2.
    prompt, first = 1.3 / 3, 0.5
    expected = torch.tensor([
        [0, first - prompt, first - prompt, 1 - first],
        [0, first - prompt, first - prompt, -first],
        [0, CUT - prompt, 0, 0],
    ])  # fmt: skip
    torch.testing.assert_close(ValueGain().build()(forest(values=False)).advantage, expected)


def planned(flat, objective):
    credited = ValueGain().build()(flat)
    return credited, objective.plan(flat, credited, [torch.arange(3)])


def test_a_step_in_several_rows_is_trained_once_and_every_step_counts_the_same():
    _, plan = planned(forest(), DirectAdvantage().build())
    # 4 steps: 1/4 each, the first one's on its two tokens, in the first of its rows.
    expected = torch.tensor([[0, 1 / 8, 1 / 8, 1 / 4], [0, 0, 0, 1 / 4], [0, 1 / 4, 0, 0]])
    torch.testing.assert_close(plan.weight, expected)
    assert plan.trained.tolist() == [True, True, True]
    assert plan.counts == {"direct/steps": 4.0, "direct/steps_with_advantage": 4.0}


LOG_RATIO = [[0, 0.2, 0.4, 0.0], [0, 9.0, 9.0, -1.0], [0, 0.4, 0, 0]]
"""The second row's first step is trained in the first row: its numbers there are not read."""


def batch_of_steps(batch_of, objective):
    flat = forest()
    credited, plan = planned(flat, objective)
    mask = flat.trainable(flat.rows())
    log_ratio = torch.tensor(LOG_RATIO, dtype=torch.float64)
    batch = batch_of(mask.tolist(), logprob=-1 + log_ratio, reference_logprob=torch.full(mask.shape, -1.0))
    columns = {"step": credited.columns["step"]}
    return replace(batch, weight=plan.weight.double(), advantage=credited.advantage.double(), columns=columns)


def test_the_loss_is_the_squared_error_of_whole_steps(batch_of):
    objective = DirectAdvantage(beta=0.5).build()
    batch = batch_of_steps(batch_of, objective)
    loss, metrics = objective(batch)
    # Log-ratios of steps: 0.2 + 0.4 = 0.6, 0, -1, 0.4. Errors: (0.5 * 0.6 - 0.3)^2 / 2 = 0, (0 - 0.2)^2 / 2 = 0.02,
    # (-0.5 + 0.8)^2 / 2 = 0.045, (0.2 + 0.2)^2 / 2 = 0.08; their mean. Per token the first would not be 0.
    assert loss.item() == pytest.approx((0 + 0.02 + 0.045 + 0.08) / 4)
    assert float(metrics["direct/log_ratio"][0] / metrics["direct/log_ratio"][1]) == pytest.approx((0.6 + 1 + 0.4) / 4)
    loss.backward()
    # d/d logprob = beta (beta * ratio - A) / 4, the same on each token of a step.
    expected = 0.5 / 4 * torch.tensor([[0, 0, 0, -0.2], [0, 0, 0, 0.3], [0, 0.4, 0, 0]], dtype=torch.float64)
    torch.testing.assert_close(batch.logprob.grad, expected, atol=1e-7, rtol=1e-6)


def test_losses_of_single_rows_add_up(batch_of, some_rows):
    objective = DirectAdvantage(beta=0.5).build()
    batch = batch_of_steps(batch_of, objective)
    parts = [objective(some_rows(batch, torch.tensor([row])))[0] for row in range(3)]
    torch.testing.assert_close(sum(parts), objective(batch)[0])


def test_at_the_minimum_a_step_is_exp_of_its_advantage_over_beta_as_likely(batch_of):
    objective = DirectAdvantage(beta=0.1).build()
    batch = batch_of_steps(batch_of, objective)
    # A / beta: 3 (over two tokens), 2, -8, -2.
    ratio = torch.tensor([[0, 1.0, 2.0, 2.0], [0, 0, 0, -8.0], [0, -2.0, 0, 0]], dtype=torch.float64)
    assert objective(replace(batch, logprob=ratio - 1))[0].item() == pytest.approx(0, abs=1e-12)


def test_credit_rollout_and_objective_are_refused_without_each_other():
    (line,) = DirectAdvantage().conflicts(Composition(credit=GroupRelative()))
    assert "credit.kind: got 'group'" in line
    (line,) = ValueGain().conflicts(Composition(rollout=Flat()))
    assert "rollout.kind: got 'flat'" in line
    assert ValueGain().conflicts(Composition(rollout=NextSteps(others="finish")))
    assert not ValueGain().conflicts(Composition(rollout=NextSteps()))
    (line,) = NextSteps().conflicts(Composition())
    assert line.startswith("value: got none, but rollout.kind 'next-steps'")

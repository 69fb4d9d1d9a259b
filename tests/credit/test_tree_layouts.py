"""Credits that differ from token to token of a tree give the same gradients in the tree and in the rows layout."""

import copy

import pytest
import torch
from random_trees import letters, random_trees
from tiny_models import plain_model, policy_like

from lyceum.core.forest import build_forest
from lyceum.learner.local import LocalConfig, LocalLearner
from lyceum.objective.ppo_clip import PPOClip
from lyceum.papers.gigpo.credit_gigpo import GiGPO
from lyceum.papers.salt.credit_salt import Salt
from lyceum.papers.treepo.credit_sub_group import SubGroup
from lyceum.papers.treerl.credit_step_value import StepValue

CREDITS = [SubGroup(), SubGroup(weight="size", whiten=False), StepValue(), StepValue(against="parent", leaves="none")]
CREDITS += [GiGPO(), Salt(), Salt(steps="tokens", step_tokens=2, history=0)]


@pytest.mark.parametrize("credit", CREDITS, ids=repr)
def test_gradients_are_the_same_in_both_layouts(credit):
    # Two prompts, tools, hints, grafts: everything that a rollout may grow.
    forest = build_forest([tree for seed in (13, 19, 25, 26) for tree in random_trees(seed)], decode=letters)
    credited, model = credit.build()(forest), plain_model()
    assert (credited.advantage != 0).any()
    gradients = []
    for layout in ("tree", "rows"):
        policy = policy_like(copy.deepcopy(model))
        learner = LocalLearner(
            policy, LocalConfig(layout=layout, lr=1e-30, max_grad_norm=1e9), total_steps=1, needs=frozenset()
        )
        learner.step(forest, credited, PPOClip().build())
        gradients.append([p.grad.clone() for p in learner.parameters if p.grad is not None])
    greatest = max(float(g.abs().max()) for g in gradients[1])
    assert greatest > 0
    for tree, rows in zip(*gradients, strict=True):
        torch.testing.assert_close(tree, rows, atol=1e-5 * greatest, rtol=0)

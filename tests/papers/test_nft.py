import math
from dataclasses import replace

import pytest
import torch
from graded_trees import graded

from lyceum.core.forest import build_forest
from lyceum.core.settings import Composition
from lyceum.core.types import Credited
from lyceum.objective.reinforce import ReinforceLoss
from lyceum.papers.direct_advantage.rollout_next_steps import NextSteps
from lyceum.papers.nft.objective_nft import NFT, negative_loss, negative_ratio, prompt_weight
from lyceum.utils.errors import RecipeError


def test_the_negative_policy_is_what_the_mixture_leaves():
    # r = 1/4: (1 - 1/4 * 2) / (3/4) = 2/3, (1 - 1/8) / (3/4) = 7/6, and past the mixture (1 - 2) / (3/4) = -4/3.
    implicit = negative_ratio(torch.tensor([[2.0, 0.5, 1.0, 8.0]]), torch.tensor([[0.25]]))
    torch.testing.assert_close(implicit, torch.tensor([[2 / 3, 7 / 6, 1.0, -4 / 3]]))


def test_a_floored_token_keeps_its_gradient():
    # -log max(x, 1/2): values -log 2, log 2, log 2; gradients -1/2, -1/(1/2) twice. A plain clamp's would be 0, and a
    # ratio that ran away must not become log 0 by rounding.
    x = torch.tensor([[2.0, 0.25, -3e8]], requires_grad=True)
    loss = negative_loss(x, 0.5)
    torch.testing.assert_close(loss.detach(), torch.tensor([[-1.0, 1.0, 1.0]]) * math.log(2))
    (gradient,) = torch.autograd.grad(loss.sum(), x)
    torch.testing.assert_close(gradient, torch.tensor([[-0.5, -2.0, -2.0]]))


def whole(batch_of, **columns):
    """A group of pass rate 1/4 as the plan of ``linear`` labels it: one correct row and three wrong ones."""
    batch = batch_of([[1]] * 4, "sequence", **columns)
    label = torch.tensor([1.0, 0.25, 0.25, 0.25]).double()
    return replace(batch, weight=batch.weight * prompt_weight(torch.tensor(0.25).double(), "linear"), label=label)


def test_at_the_first_update_it_is_the_policy_gradient(batch_of):
    # Advantages without a standard deviation: 3/4 and three times -1/4, over 4 rows.
    batch = whole(batch_of)
    (gradient,) = torch.autograd.grad(NFT().build()(batch)[0], batch.logprob)
    torch.testing.assert_close(gradient, torch.tensor([[-3.0], [1.0], [1.0], [1.0]]).double() / 16)
    plain = batch_of([[1]] * 4, "sequence", advantage=[[0.75], [-0.25], [-0.25], [-0.25]])
    torch.testing.assert_close(torch.autograd.grad(ReinforceLoss().build()(plain)[0], plain.logprob)[0], gradient)


def test_the_further_a_wrong_token_has_fallen_the_less_it_is_pushed(batch_of):
    # Ratios 2, 1/2, 1 and 2. Correct: -log 2. Wrong: -log of 7/6, 1, and 2/3 that counts as 1: -log(7/6), 0, 0; all
    # times 3/4 over 4 rows. Slopes -r ratio / ((1 - r) max(x, 1)), r = 1/4: 1/7, 1/3 and, floored, 2/3.
    batch = whole(batch_of, logprob=torch.tensor([[2.0], [0.5], [1.0], [2.0]]).log() - 3, old_logprob=[[-3.0]] * 4)
    loss, metrics = NFT().build()(batch)
    torch.testing.assert_close(loss.item(), -(math.log(2) + math.log(7 / 6)) * 3 / 16)
    (gradient,) = torch.autograd.grad(loss, batch.logprob)
    torch.testing.assert_close(gradient, torch.tensor([[-1.0], [1 / 7], [1 / 3], [2 / 3]]).double() * 3 / 16)
    assert [float(x) for x in metrics["nft/floored"]] == [1, 3]


def test_a_plan_weighs_prompts_and_leaves_out_groups_of_one_verdict():
    forest = build_forest([graded(1.0, 0.0, 0.0, 0.0), graded(1.0, 1.0), graded(0.0, 0.0)])
    credited, everything = Credited(torch.zeros(forest.rows().index.shape)), [torch.arange(forest.n_rows)]

    def plan(**settings):
        return NFT(aggregate="sequence", **settings).build().plan(forest, credited, everything)

    found = plan()
    assert found.trained.tolist() == [True] * 4 + [False] * 4
    assert found.label is not None
    assert found.label[:4].tolist() == [1, 0.25, 0.25, 0.25]
    torch.testing.assert_close(found.weight.sum(1), torch.tensor([0.75] * 4 + [0] * 4) / 8)
    assert found.counts == {"nft/groups": 1, "nft/groups_of_one_verdict": 2}
    # sqrt(3/4 / 1/4) = sqrt 3: GRPO's division by the standard deviation.
    torch.testing.assert_close(plan(prompt_weight="root").weight[0].sum().item(), math.sqrt(3) / 8)
    assert plan(negative_weight=0).trained.tolist() == [True] + [False] * 7


def test_without_verdicts_it_is_refused():
    forest = build_forest([graded(0.5, 0.25)])
    with pytest.raises(RecipeError, match=r"objective.kind: got 'nft'.*no verdict.*allowed"):
        NFT().build().plan(forest, Credited(torch.zeros(forest.rows().index.shape)), [torch.arange(2)])
    (line,) = NFT().conflicts(Composition(rollout=NextSteps(others="value")))
    assert "got 'next-steps', which ends next steps without a verdict" in line

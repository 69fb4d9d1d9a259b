import pytest
import torch
from graded_trees import graded

from lyceum.core.forest import build_forest
from lyceum.core.types import Credited
from lyceum.objective.ppo_clip import PPOClip
from lyceum.papers.thinkless.objective_degrpo import DeGRPO, decoupled_weights


def test_the_first_token_weighs_apart_from_the_rest():
    # Rows of 3, 1 and no tokens: control tokens alpha / 2 each; two other tokens, 1/2 each. Plain GRPO: 1/4 each, of
    # which the choice has a half here and next to nothing in long answers.
    mask = torch.tensor([[0, 1, 1, 1], [0, 0, 1, 0], [0, 0, 0, 0]]).bool()
    expected = torch.tensor([[0, 0.1, 0.5, 0.5], [0, 0, 0.1, 0], [0, 0, 0, 0]])
    torch.testing.assert_close(decoupled_weights(mask, 0.2, "token"), expected)
    # By sequence the one row with an answer has it all; with a constant of 4 each of its tokens is 1/4.
    torch.testing.assert_close(decoupled_weights(mask, 0.2, "sequence"), expected)
    torch.testing.assert_close(decoupled_weights(mask, 0.2, "constant", 4)[0], torch.tensor([0, 0.1, 0.25, 0.25]))


def test_the_weight_of_the_choice_does_not_depend_on_the_answers_length():
    for lengths in ((3, 4), (30, 40)):
        forest = build_forest([graded(1.0, 0.0, lengths=lengths)])
        credited = Credited(torch.ones(forest.rows().index.shape))
        plan = DeGRPO(control_weight=0.25).build().plan(forest, credited, [torch.arange(2)])
        assert plan.counts["degrpo/control_share"] == pytest.approx(0.2)  # 1/4 of 1 + 1/4
        torch.testing.assert_close(plan.weight.sum().item(), 1.25)


def test_each_token_s_loss_is_ppo_s(batch_of):
    columns = {"logprob": [[-0.5, -1.0, -2.0]], "advantage": [[1.0, 1.0, -1.0]]}
    batch = batch_of([[1, 1, 1]], **columns)
    loss, plain = (settings.build()(batch)[0] for settings in (DeGRPO(), PPOClip()))
    torch.testing.assert_close(loss, plain)


def test_an_episode_of_two_rows_has_one_control_token():
    mask = torch.tensor([[False, True, True], [False, False, True], [False, True, False]])
    weight = decoupled_weights(mask, 1.0, "token", None, torch.tensor([0, 0, 1]))
    # Control tokens: the first of rows 0 and 2, a half each; the others: two, a half each.
    torch.testing.assert_close(weight, torch.tensor([[0, 0.5, 0.5], [0, 0, 0.5], [0, 0.5, 0]]))

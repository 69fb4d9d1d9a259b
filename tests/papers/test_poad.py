import pytest
import torch

from lyceum.credit.gae import GAE
from lyceum.papers.poad.credit_action_gae import ActionGAE
from lyceum.utils.errors import RecipeError


def advantage(forest, step_tokens, **settings):
    return ActionGAE(steps="tokens", step_tokens=step_tokens, whiten=False, **settings).build()(forest).advantage


def test_the_discount_acts_between_actions_and_lambda_at_each_token(forest_of):
    # Two actions of two tokens, V = 1/4 everywhere, gamma = lambda = 1/2. Last token: 1 - 1/4. Within the action no
    # discount: 0 + 1/2 * 3/4. End of the first action: 1/2 * 1/4 - 1/4 + 1/2 * 1/2 * 3/8. Before it: half of that.
    forest = forest_of([(1.0, 4)], old_value=0.25)
    credited = ActionGAE(steps="tokens", step_tokens=2, gamma=0.5, lam=0.5, whiten=False).build()(forest)
    assert credited.advantage.tolist() == [[0, -0.015625, -0.03125, 0.375, 0.75]]
    assert credited.value_target is not None
    torch.testing.assert_close(credited.value_target, torch.tensor([[0, 0.234375, 0.21875, 0.625, 1.0]]))
    assert credited.metrics == {"actions": 2, "tokens_within_actions": 2}


def test_a_long_action_is_worth_no_less_than_a_short_one(forest_of):
    # The return from the first token: one discount between two actions, whether they have 1, 2 or 3 tokens.
    for tokens in (1, 2, 3):
        forest = forest_of([(1.0, 2 * tokens)], old_value=0.0)
        assert advantage(forest, tokens, gamma=0.5, lam=1)[0, 1] == 0.5
    naive = GAE(gamma=0.5, lam=1, whiten=False).build()(forest_of([(1.0, 6)], old_value=0.0)).advantage
    assert naive[0, 1] == 0.5**5


def test_without_discount_it_is_gae(forest_of):
    forest = forest_of([(1.0, 4), (0.0, 3)], old_value=0.25)
    assert advantage(forest, 2, gamma=1.0).equal(GAE(gamma=1.0, whiten=False).build()(forest).advantage)


def test_an_action_ends_where_the_policy_stops_and_a_tools_answer_is_none(forest_with_tool):
    # Prompt, two actions of one token, a tool's two tokens, an action of two.
    forest = forest_with_tool.with_columns(old_value=torch.zeros(forest_with_tool.n_tokens))
    credited = ActionGAE(gamma=0.5, lam=1, whiten=False).build()(forest)
    assert credited.advantage.tolist() == [[0, 0.25, 0.5, 0, 0, 1, 1]]


def test_a_run_in_which_nothing_judges_steps_is_refused(forest_of):
    with pytest.raises(RecipeError, match=r"this would be credit.kind 'gae'"):
        ActionGAE().build()(forest_of([(1.0, 4)], old_value=0.25))

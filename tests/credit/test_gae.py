import torch
from hypothesis import given
from hypothesis import strategies as st

from lyceum.core.settings import Composition
from lyceum.credit.gae import GAE, generalised_advantage, process_reward
from lyceum.credit.group import GroupRelative
from lyceum.objective.ppo_clip import PPOClip

VALUE = torch.tensor([[0.5, 0.25, 0.75]])
REWARD = torch.tensor([[0.0, 0.0, 1.0]])
ALL = torch.ones(1, 3, dtype=torch.bool)


def test_three_tokens_by_hand():
    # deltas: 1 - 3/4 = 1/4, 3/4 - 1/4 = 1/2, 1/4 - 1/2 = -1/4; with lambda 1/2:
    # A_3 = 1/4, A_2 = 1/2 + 1/8 = 5/8, A_1 = -1/4 + 5/16 = 1/16
    advantage = generalised_advantage(REWARD, VALUE, ALL, gamma=1.0, lam=0.5)
    torch.testing.assert_close(advantage, torch.tensor([[1 / 16, 5 / 8, 1 / 4]]))


def test_gamma_discounts_the_next_value_and_the_next_advantage():
    # deltas with gamma 1/2: 1/4, 3/8 - 1/4 = 1/8, 1/8 - 1/2 = -3/8; gamma lambda = 1/4:
    # 1/4, 1/8 + 1/16 = 3/16, -3/8 + 3/64 = -21/64
    advantage = generalised_advantage(REWARD, VALUE, ALL, gamma=0.5, lam=0.5)
    torch.testing.assert_close(advantage, torch.tensor([[-21 / 64, 3 / 16, 1 / 4]]))


def test_tokens_that_the_policy_did_not_write_take_no_time():
    # The same three tokens with others (nan: nothing may read them) before, between and after.
    mask = torch.tensor([[False, True, False, True, True, False]])
    value, reward = torch.full((1, 6), float("nan")), torch.full((1, 6), float("nan"))
    value[mask], reward[mask] = VALUE[0], REWARD[0]
    advantage = generalised_advantage(reward, value, mask, gamma=0.5, lam=0.5)
    torch.testing.assert_close(advantage, torch.tensor([[0, -21 / 64, 0, 3 / 16, 1 / 4, 0]]))


@given(st.lists(st.tuples(st.floats(-2, 2), st.floats(-2, 2)), min_size=1, max_size=8), st.floats(0, 1))
def test_lambda_1_is_the_discounted_return_less_the_value(tokens, gamma):
    reward, value = torch.tensor(tokens, dtype=torch.float64).T[:, None]
    mask = torch.ones(1, len(tokens), dtype=torch.bool)
    returns = [sum(gamma ** (s - t) * tokens[s][0] for s in range(t, len(tokens))) for t in range(len(tokens))]
    advantage = generalised_advantage(reward, value, mask, gamma=gamma, lam=1.0)
    torch.testing.assert_close(advantage + value, torch.tensor([returns], dtype=torch.float64))


def test_value_target_is_the_advantage_before_whitening_plus_the_value(forest_of):
    forest = forest_of([(1.0, 3)]).with_columns(old_value=torch.tensor([99.0, 0.5, 0.25, 0.75]))
    credited = GAE(lam=0.5).build()(forest)
    # 1/16 + 1/2, 5/8 + 1/4, 1/4 + 3/4, and nothing for the prompt
    torch.testing.assert_close(credited.value_target, torch.tensor([[0, 9 / 16, 7 / 8, 1]]))
    written = credited.advantage[:, 1:]
    torch.testing.assert_close(written.mean(), torch.tensor(0.0))
    torch.testing.assert_close(written.std(correction=0), torch.tensor(1.0))
    raw = GAE(lam=0.5, whiten=False).build()(forest).advantage
    torch.testing.assert_close(raw, torch.tensor([[0, 1 / 16, 5 / 8, 1 / 4]]))


def test_process_rewards_fall_on_the_last_written_token_of_their_segment(forest_with_tool):
    # Judged: the first written token (1/4), the second (1/2), and what is written after the tool's answer (-1/2).
    reward = process_reward(forest_with_tool, forest_with_tool.rows())
    torch.testing.assert_close(reward, torch.tensor([[0, 0.25, 0.5, 0, 0, 0, -0.5]]))


def test_process_and_outcome_rewards_add_up(forest_with_tool):
    forest = forest_with_tool.with_columns(old_value=torch.zeros(7))
    # values 0, lambda 1: each token's advantage is what is still to come: 1/4 + 1/2 + (1 - 1/2), 1/2 + 1/2, then 1/2
    target = GAE(lam=1.0, whiten=False, process_coefficient=1.0).build()(forest).advantage
    torch.testing.assert_close(target, torch.tensor([[0, 1.25, 1, 0, 0, 0.5, 0.5]]))
    # Unasked, steps that a task happens to judge change nothing: PPO and GRPO are paid for the same.
    without = GAE(lam=1.0, whiten=False).build()(forest).advantage
    torch.testing.assert_close(without, torch.tensor([[0.0, 1, 1, 0, 0, 1, 1]]))


def test_a_value_head_is_trained_if_and_only_if_the_credit_reads_it():
    stage = Composition(credit=GAE())
    assert GAE().build().needs == {"old_value"}
    assert PPOClip(value_coefficient=0.5).conflicts(stage) == []
    assert PPOClip().conflicts(stage) == [
        "objective.value_coefficient: got 0, but credit.kind 'gae' reads a value head that nothing else trains; "
        "allowed: more than 0"
    ]
    stage = Composition(credit=GroupRelative())
    assert PPOClip().conflicts(stage) == []
    assert PPOClip(value_coefficient=0.5).conflicts(stage) == [
        "objective.value_coefficient: got 0.5, but credit.kind 'group' gives a value head no target; "
        "allowed: 0, or credit.kind 'gae' or 'egae'"
    ]

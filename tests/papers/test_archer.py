"""ArCHer: temporal differences of turns against a target copy, and each turn's advantage on its tokens."""

import copy

import pytest
import torch
from tiny_models import plain_model, policy_like

from lyceum.core.forest import build_forest
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Grade, MarkedPath, Origin, Task
from lyceum.papers.archer.credit_turn_advantage import TurnAdvantage, on_turns
from lyceum.papers.archer.value_turn_critic import TurnCritic, at_the_end, temporal_targets
from lyceum.reward.model import turn_spans
from lyceum.utils.errors import RecipeError

GOOD, BAD = 40, 41


def tree_of(*outcomes):
    """Two turns each, answered by two tokens between; the second turn decides, and begins in the same state."""
    root = Node.prompt([5, 6])
    leaves = []
    for outcome in outcomes:
        seen = root.add([7, 1], Origin.POLICY, "a").add([8, 9], Origin.TOOL, "b")
        leaves.append(seen.add([GOOD if outcome else BAD, 1], Origin.POLICY, "c"))
        leaves[-1].grade = Grade(outcome)
    tree = Tree(Task("t", ()), [root])
    tree.chosen = leaves
    return tree


def advantages(critic, tree):
    """Of both turns of each trajectory."""
    spans = [turn_spans(leaf) for leaf in tree.chosen]
    paths = [
        MarkedPath(leaf.path_tokens(), 2, [end for *_, end in own], [start for _, start, _ in own])
        for leaf, own in zip(tree.chosen, spans, strict=True)
    ]
    return [list(judged.steps) for judged in critic.judge(paths)]


def test_q_learns_from_the_next_states_value_and_v_from_q():
    # Two trajectories, of two turns and of one. Q'1, Q'2, V'1, V'2 of the three turns:
    ahead = torch.tensor([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6], [10.0, 0.6, 10.0], [10.0, 0.8, 10.0]])
    reward, last = at_the_end([2, 1], [1.0, 0.5])
    assert reward.tolist() == [0, 1, 0.5]
    assert last.tolist() == [False, True, True]
    q1, q2, v1, v2 = temporal_targets(ahead, reward, last, gamma=0.5)
    # The first turn earns nothing and leads to a state worth 0.6 (0.8): half of it. The last turns lead nowhere.
    torch.testing.assert_close(q1, torch.tensor([0.3, 1.0, 0.5]))
    torch.testing.assert_close(q2, torch.tensor([0.4, 1.0, 0.5]))
    assert torch.equal(v1, ahead[0])
    assert torch.equal(v2, ahead[1])


def test_a_turns_reward_is_on_all_of_its_tokens_and_on_no_others():
    mask = torch.tensor([[0, 1, 1, 0, 1], [0, 1, 0, 0, 0]]).bool()
    advantage, number = on_turns(torch.tensor([0.5, -1.0, 2.0]), torch.tensor([0, 0, 1]), torch.tensor([2, 4, 1]), mask)
    assert advantage.tolist() == [[0, 0.5, 0.5, 0, -1], [0, 2, 0, 0, 0]]
    assert number.tolist() == [[0, 1, 1, 0, 2], [0, 3, 0, 0, 0]]


def test_the_outcome_itself_is_no_advantage(forest_with_tool):
    # The outcome is 1; what was judged of the first turn adds up to 3/4, the second turn's is -1/2.
    credited = TurnAdvantage().build()(forest_with_tool)
    assert credited.advantage.tolist() == [[0, 0.75, 0.75, 0, 0, -0.5, -0.5]]
    assert credited.metrics == {"turns": 2, "turns_judged": 2, "advantage/mean_abs": pytest.approx(1.25 / 3)}


def test_turns_that_nothing_judged_are_refused():
    with pytest.raises(RecipeError, match="no turn has a reward of its own; allowed: with reward"):
        TurnAdvantage().build()(build_forest([tree_of(1.0, 0.0)], decode=lambda tokens: "x" * len(tokens)))


@pytest.fixture(scope="module")
def policy():
    return policy_like(plain_model(spread=0.1))


def test_it_learns_which_turn_was_better_than_its_state_from_outcomes_alone(policy):
    tree = tree_of(1.0, 0.0, 1.0, 0.0)
    critic = TurnCritic(lr=3e-3, updates=40, gamma=0.9).build(policy, seed=0)
    critic.observe([tree])
    (first, good), (_, bad), *_ = advantages(critic, tree)
    # The first turn is the same in all, so that it is worth what its state is; the second decides.
    assert good > 0.2
    assert bad < -0.2
    assert abs(first) < 0.2
    metrics = critic.metrics()
    assert metrics["loss/last"] < metrics["loss/first"]
    assert (metrics["trajectories"], metrics["turns"], metrics["updates"]) == (4, 8, 40)


def test_the_target_copy_follows_slowly(policy):
    def behind(tau):
        critic = TurnCritic(lr=1e-3, updates=3, tau=tau).build(policy, seed=0)
        critic.observe([tree_of(1.0, 0.0)])
        return critic.metrics()["target/behind"]

    assert behind(1.0) == 0 < behind(0.5) < behind(0.1)


def test_its_state_goes_on_alike(policy):
    settings = TurnCritic(lr=1e-3, updates=2, batch=2, capacity=3)
    whole, other = (settings.build(policy, seed=seed) for seed in (0, 0))
    whole.observe([tree_of(1.0, 0.0)])
    other.load_state_dict(copy.deepcopy(whole.state_dict()))  # a checkpoint is written, and shares nothing
    later = tree_of(0.0, 1.0)
    for critic in (whole, other):
        critic.observe([later])
    assert advantages(whole, later) == advantages(other, later)
    assert [played.outcome for played in whole.buffer] == [0.0, 0.0, 1.0], "the latest three"


def test_while_it_warms_up_no_turn_has_an_advantage(policy):
    critic = TurnCritic(lr=1e-2, updates=1, warm_up_steps=1).build(policy, seed=0)
    tree = tree_of(1.0, 0.0)
    assert advantages(critic, tree) == [[0, 0], [0, 0]]
    critic.observe([tree])
    assert any(any(own) for own in advantages(critic, tree))
    with pytest.raises(RecipeError, match=r"reward.cut: .* allowed: 'turns'"):
        critic.judge([MarkedPath([5, 6, 7], 2, [3])])

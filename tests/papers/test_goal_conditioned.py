"""A reward model of pairs whose hidden states are contrasted."""

import math

import pytest
import torch
from tiny_models import plain_model, policy_like

from lyceum.core.settings import Composition
from lyceum.core.tree import Node
from lyceum.core.types import Example, MarkedPath, Origin
from lyceum.papers.goal_conditioned.value_goal_conditioned import GOAL, GoalConditioned, contrastive_loss
from lyceum.utils.errors import RecipeError

PAIRS = [Example([5, 6, *better], 0.0, 2) for pair in (([8, 9], [10]), ([8, 11, 9], [12, 13])) for better in pair]
"""Prompt 5 6: a better and a worse completion, twice."""


@pytest.fixture
def policy():
    return policy_like(plain_model())


def test_the_loss_is_that_of_mean_sigmoids():
    # sigmoid(ln 3) = 3/4, sigmoid(0) = 1/2; near (3/4 + 1/2) / 2 = 5/8, far 1/2: -ln 5/8 - ln 1/2. The mean of the
    # logarithms would be -ln sqrt(3/8).
    near, far = torch.tensor([[[math.log(3), 0.0]]]), torch.zeros(1, 1, 2)
    assert float(contrastive_loss(near, far)) == pytest.approx(-math.log(5 / 8) - math.log(1 / 2))
    assert float(contrastive_loss(far, near)) == pytest.approx(-math.log(1 / 2) - math.log(3 / 8))


def test_states_ahead_are_drawn_nearer_than_those_of_worse_paths(policy):
    model = GoalConditioned(lr=1e-2, epochs=20, contrast=2.0).build(policy, seed=0)
    before = model.fit(PAIRS[:2])["cosine/dispreferred"]
    after = model.fit(PAIRS)
    assert after["cosine/ahead"] > 0.5 > 0 > after["cosine/dispreferred"] < before
    good, bad = (MarkedPath([5, 6, *below], 2, (3,)) for below in ([8, 9], [10]))
    first, second = model.judge([good, bad])
    assert first.outcome > second.outcome
    # The Q-value of a whole path is 1 only at the goal itself; the worse path's is below the threshold of votes.
    q_better, q_worse = (float(value) for value in model([node_of(good), node_of(bad)]))
    assert q_better > 0.5 > q_worse
    assert first.steps[0] > second.steps[0]


def node_of(path):
    return Node(None, list(path.tokens[:2]), Origin.PROMPT).add(list(path.tokens[2:]), Origin.POLICY)


def test_the_gradient_does_not_depend_on_the_micro_batch(policy):
    gradients = []
    for tokens in (1, 1000):
        model = GoalConditioned(micro_batch_tokens=tokens, states=3).build(policy, seed=0)
        torch.nn.init.normal_(model.head.weight, generator=torch.Generator().manual_seed(0))
        model.optimizer.step = lambda: None
        loss = model._update(PAIRS)
        gradients.append([torch.tensor(loss), *(p.grad for p in model.parameters)])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_places_are_in_the_completion_and_goals_not_before_their_sources(policy):
    model = GoalConditioned(states=8).build(policy, seed=0)
    # The worse path comes first, as in a sorted batch: its end and 8 goals; of the better one its end and 3 x 8.
    worse, better = model._places([MarkedPath([5, 6, 7], 2), MarkedPath([5, 6, 8, 9, 10, 11], 2)], [1, 0])
    assert worse == [2] * 9
    end, *drawn = better
    assert end == 5
    assert set(drawn) == {2, 3, 4, 5}
    assert all(source <= goal for source, goal in zip(drawn[:8], drawn[8:16], strict=True))


def test_it_is_saved_with_its_goal_and_refused_without(policy, tmp_path):
    model = GoalConditioned(lr=1e-2).build(policy, seed=0)
    paths = [node_of(example) for example in PAIRS]
    assert model(paths) == [0.5] * 4  # no goal yet
    model.fit(PAIRS)
    model.save(tmp_path)
    read = GoalConditioned(path=str(tmp_path))
    assert read.conflicts(Composition()) == []
    assert read.build(policy, seed=1)(paths) == pytest.approx(model(paths), abs=1e-6)
    assert model(paths) != [0.5] * 4
    (tmp_path / GOAL).write_bytes(b"{}")
    with pytest.raises(RecipeError, match="cannot be read"):
        read.build(policy, seed=1)
    (tmp_path / GOAL).unlink()
    assert "has no goal.safetensors" in read.conflicts(Composition())[0]

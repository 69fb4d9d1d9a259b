"""Two models behind one learner: each must learn what it would learn alone from what it wrote."""

import copy

import pytest
import torch
from tiny_models import plain_model, policy_like

from lyceum.core.forest import build_forest
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Continuation, Credited, Grade, Task
from lyceum.learner.by_model import LearnerByModel, of_rows
from lyceum.learner.local import LocalConfig, LocalLearner
from lyceum.models.policy import Policy
from lyceum.objective.ppo_clip import PPOClip


def tree(writes):
    """One tree; each entry is (tokens, model)."""
    made = Tree(Task("t", ()), [Node.prompt([5, 6])])
    for tokens, model in writes:
        logprob = [-3.0] * len(tokens)
        leaf = made.root.add_drawn(Continuation(tokens, logprob, logprob, [0] * len(tokens), "stop"), model=model)
        leaf.grade = Grade(1.0)
    return made


BOTH = [([7, 8, 9, 10], 0), ([7, 8], 1), ([11], 0), ([12, 13, 14], 1)]
ADVANTAGE = torch.tensor([1.0, -2.0, -1.0, 2.0])
NEEDS = frozenset({"old_logprob", "reference_logprob"})


def credited(forest, rows):
    return Credited(ADVANTAGE[rows][:, None] * forest.trainable(forest.rows()))


@pytest.fixture
def pair():
    """Two different models, and copies of them."""
    torch.manual_seed(3)
    models = [plain_model(), plain_model()]
    with torch.no_grad():
        for parameter in models[1].parameters():
            parameter.add_(0.01 * torch.randn(parameter.shape))
    return [policy_like(model) for model in models], [policy_like(copy.deepcopy(model)) for model in models]


def learner(policy: Policy):
    return LocalLearner(policy, LocalConfig(lr=1e-2), total_steps=4, needs=NEEDS)


def weights(policy):
    return {name: tensor.clone() for name, tensor in policy.module.state_dict().items()}


def test_each_model_learns_its_own_rows_as_if_it_were_alone(pair):
    together, alone = pair
    both = LearnerByModel({"left": learner(together[0]), "right": learner(together[1])})
    forest = build_forest([tree(BOTH)])
    objective = PPOClip().build()
    metrics = both.step(forest, credited(forest, [0, 1, 2, 3]), objective)
    losses = []
    for number, rows in enumerate(([0, 2], [1, 3])):
        own = build_forest([tree([(BOTH[row][0], 0) for row in rows])])
        losses.append(learner(alone[number]).step(own, credited(own, rows), objective))
        before, after = weights(alone[number]), weights(together[number])
        for name in before:
            torch.testing.assert_close(after[name], before[name], rtol=0, atol=0)
    assert metrics["model/left/loss"] == losses[0]["loss"]
    assert metrics["loss"] == pytest.approx((losses[0]["loss"] + losses[1]["loss"]) / 2)
    assert metrics["tokens_trained"] == losses[0]["tokens_trained"] + losses[1]["tokens_trained"]


def test_columns_are_those_of_the_model_that_wrote_the_token(pair):
    together, _ = pair
    both = LearnerByModel({"left": learner(together[0]), "right": learner(together[1])})
    forest = build_forest([tree(BOTH)])
    found = both.annotate(forest, NEEDS).columns
    for number, policy in enumerate(together):
        part = forest.written_by(number)
        own = learner(policy).annotate(part.forest, NEEDS).columns["old_logprob"]
        wrote = part.forest.origin == 1
        torch.testing.assert_close(found["old_logprob"][part.tokens][wrote], own[wrote], rtol=0, atol=0)
    # The reference is each one's own copy: nothing has moved yet.
    torch.testing.assert_close(found["reference_logprob"], found["old_logprob"])
    assert found["old_logprob"][:2].tolist() == [0.0, 0.0]  # the prompt


def test_gradients_cover_the_rows_of_both_models(pair):
    together, _ = pair
    both = LearnerByModel({"left": learner(together[0]), "right": learner(together[1])})
    forest = build_forest([tree(BOTH)])
    found = both.gradients(forest, credited(forest, [0, 1, 2, 3]), PPOClip().build())
    assert (found.coefficient != 0).tolist() == forest.trainable(forest.rows()).tolist()
    assert len(found.weights) == 2 * len(list(together[0].module.parameters()))


def test_a_model_that_wrote_nothing_keeps_its_weights(pair):
    together, _ = pair
    both = LearnerByModel({"left": learner(together[0]), "right": learner(together[1])})
    forest = build_forest([tree([BOTH[0], BOTH[2]])])
    before = weights(together[1])
    both.step(forest, credited(forest, [0, 2]), PPOClip().build())
    assert all(torch.equal(before[name], tensor) for name, tensor in weights(together[1]).items())


def test_state_goes_back_to_the_model_it_is_of(pair):
    together, others = pair
    both = LearnerByModel({"left": learner(together[0]), "right": learner(together[1])})
    forest = build_forest([tree(BOTH)])
    both.step(forest, credited(forest, [0, 1, 2, 3]), PPOClip().build())
    again = LearnerByModel({"left": learner(others[0]), "right": learner(others[1])})
    again.load_state_dict(copy.deepcopy(both.state_dict()))
    for policy, other in zip(together, others, strict=True):
        both_weights, loaded = weights(policy), weights(other)
        assert all(torch.equal(both_weights[name], loaded[name]) for name in both_weights)
    with pytest.raises(ValueError, match="learner"):
        again.load_state_dict({"left": {}})


def test_credit_is_cut_to_the_parts_width():
    forest = build_forest([tree(BOTH)])
    part = forest.written_by(1)
    cut = of_rows(Credited(torch.arange(24.0).reshape(4, 6)), part)
    # Rows 1 and 3; the longest of them has 2 + 3 tokens.
    assert cut.advantage.tolist() == [[6.0, 7, 8, 9, 10], [18.0, 19, 20, 21, 22]]

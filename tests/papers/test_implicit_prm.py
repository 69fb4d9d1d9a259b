"""The implicit reward model against transformers' own log-probabilities, and the losses that all value models share."""

import copy
import math
from itertools import pairwise

import pytest
import torch
from tiny_models import plain_model, policy_like

from lyceum.core.tree import Node, Tree
from lyceum.core.types import Example, Grade, MarkedPath, Origin, Task
from lyceum.models.load import save_policy
from lyceum.papers.implicit_prm.value_implicit import Implicit, unusable
from lyceum.run import checkpoint
from lyceum.utils.errors import RecipeError
from lyceum.value.measures import auc, best_threshold, detected
from lyceum.value.model import PathModel
from lyceum.value.training import path_loss

PATHS = [MarkedPath([5, 6, 7, 8, 9], 2, [3, 5]), MarkedPath([5, 6, 7, 10], 2, [3, 4]), MarkedPath([11, 12], 1)]


@pytest.fixture
def policy():
    return policy_like(plain_model())


def moved(model):
    """The trained model elsewhere than its reference."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters:
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    return model


def logprobs(policy, tokens):
    """Of each token but the first, by transformers alone: the oracle."""
    own = plain_model()
    own.load_state_dict(policy.module.state_dict())
    with torch.no_grad():
        found = own(torch.tensor([tokens])).logits[0].log_softmax(-1)
    return [float(found[i, token]) for i, token in enumerate(tokens[1:])]


@pytest.mark.parametrize("tokens", [1, 1000])
def test_a_step_earns_the_log_ratio_of_its_tokens(policy, tokens):
    model = moved(Implicit(beta=0.5, micro_batch_tokens=tokens).build(policy, seed=0))
    for path, judged in zip(PATHS, model.judge(PATHS), strict=True):
        new, old = logprobs(model.model, path.tokens), logprobs(policy, path.tokens)
        ratio = [0.5 * (a - b) for a, b in zip(new, old, strict=True)]  # of tokens 1, 2, ...
        edges = [path.prompt, *path.ends]
        steps = [sum(ratio[a - 1 : b - 1]) for a, b in pairwise(edges)]
        assert judged.steps == pytest.approx(steps, abs=1e-5)
        assert judged.outcome == pytest.approx(sum(ratio[path.prompt - 1 :]), abs=1e-5)
        assert abs(judged.outcome) > 1e-3


def test_a_new_one_rewards_nothing_and_learns_verdicts_while_policy_and_reference_stay(policy):
    model = Implicit(lr=1e-3, epochs=30, beta=1.0).build(policy, seed=0)
    before = copy.deepcopy(policy.module.state_dict())
    assert [judged.outcome for judged in model.judge(PATHS)] == [0, 0, 0]
    examples = [Example(path.tokens, value, path.prompt) for path, value in zip(PATHS, (1, 0, 1), strict=True)]
    assert model.losses(examples) == pytest.approx([math.log(2)] * 3)
    metrics = model.fit(examples)
    assert metrics["loss/first"] == pytest.approx(math.log(2))
    assert metrics["loss/last"] < 0.3
    said = [judged.outcome for judged in model.judge(PATHS)]
    assert said[0] > 0 > said[1]
    for other in (policy, model.reference):
        assert all(torch.equal(p, before[name]) for name, p in other.module.state_dict().items())


def tree(*verdicts):
    root = Node(None, [5, 6], Origin.PROMPT)
    for number, right in enumerate(verdicts):
        root.add([7 + number], Origin.POLICY).grade = Grade(float(right), right)
    return Tree(Task("t", ()), [root], chosen=list(root.children))


def test_it_says_what_it_foresaw_of_a_step_before_it_learns_from_it(policy):
    model = Implicit(online=True, lr=1e-2, beta=1.0).build(policy, seed=0)
    trees = [tree(True, False, True), tree(False, True)]
    model.observe(trees)
    # All scores are 0: none is above it, so that the two of five that are wrong are as foreseen; pairs are all ties.
    assert model.metrics()["accuracy"] == pytest.approx(2 / 5)
    assert model.metrics()["pairs/accuracy"] == 0.5
    assert model.metrics()["updates"] == 1
    model.observe([tree()])
    assert model.metrics() == {"paths": 0}
    assert model.updates == 1


def test_its_state_has_the_reference_and_a_saved_one_is_read_with_it(policy, tmp_path):
    model = moved(Implicit(lr=1e-2).build(policy, seed=0))
    examples = [Example(path.tokens, value, path.prompt) for path, value in zip(PATHS, (1, 0, 1), strict=True)]
    model.fit(examples)
    checkpoint.save(tmp_path / "states", 1, model.state_dict())
    elsewhere = Implicit(lr=1e-2).build(policy_like(plain_model(seed=5)), seed=0)  # whose policy has moved on
    elsewhere.load_state_dict(checkpoint.load(tmp_path / "states/step-000001"))
    model.save(tmp_path / "value")
    saved = Implicit(lr=1e-2, path=str(tmp_path / "value")).build(policy_like(plain_model(seed=5)), seed=0)
    said = model.judge(PATHS)
    assert elsewhere.judge(PATHS) == said
    assert saved.judge(PATHS) == said
    assert saved.state_dict()["reference"] is None
    for other in (model, elsewhere):
        other.fit(examples)
    assert elsewhere.judge(PATHS) == model.judge(PATHS)


def test_what_cannot_be_read_is_refused(policy, tmp_path):
    (line,) = unusable(str(tmp_path / "nothing"))
    assert line.startswith("value.path: got ")
    save_policy(policy, tmp_path / "other")
    assert unusable(str(tmp_path / "other")) == []
    (tmp_path / "other/config.json").write_text("[]")
    assert unusable(str(tmp_path / "other"))
    other = policy_like(plain_model())
    other.tokenizer.add_tokens(["<other>"])
    other.module.resize_token_embeddings(len(other.tokenizer))
    save_policy(other, tmp_path / "third")
    with pytest.raises(RecipeError, match=r"value.path: the tokenizer of .* is not the policy's"):
        Implicit(path=str(tmp_path / "third")).build(policy, seed=0)


@pytest.mark.parametrize("kind", [PathModel, Implicit])
def test_the_gradient_of_pairs_does_not_depend_on_the_micro_batch(policy, kind):
    pairs = [Example(path.tokens, 0.0, path.prompt) for path in (*PATHS, PATHS[0])]
    gradients = []
    for tokens in (1, 1000):
        model = moved(kind(loss="pairwise", lr=1e-3, epochs=1, micro_batch_tokens=tokens).build(policy, seed=0))
        logits = model.logits_of(pairs)
        expected = -(torch.sigmoid(logits[::2] - logits[1::2]).log())
        assert model.losses(pairs) == pytest.approx(expected.tolist(), abs=1e-6)
        direct = torch.autograd.grad(expected.mean(), model.parameters, allow_unused=True)
        model.optimizer.step = lambda: None
        model.settings = model.settings.model_copy(update={"max_grad_norm": 1e9})
        assert model._update(pairs) == pytest.approx(float(expected.mean().detach()), abs=1e-6)
        gradients.append([p.grad for p in model.parameters])
        for one, other in zip(gradients[-1], direct, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_pairs_are_learnt_and_contributions_add_up_to_the_outcome(policy):
    ranked = PathModel(loss="pairwise", lr=1e-2, epochs=20).build(policy, seed=0)
    ranked.fit([Example([5, 6, 7], 0), Example([5, 6, 8], 0)])
    better, worse = ranked.judge([MarkedPath([5, 6, 7]), MarkedPath([5, 6, 8])])
    assert better.outcome > worse.outcome + 1
    summed = PathModel(loss="sum", lr=1e-2, epochs=60).build(policy, seed=0)
    paths = [Example([5, 6, 7, 8], 1.0, 1, (2, 4)), Example([5, 9, 7], 0.0, 1, (2, 3))]
    assert summed.fit(paths)["loss/last"] < 0.01
    for judged, wanted in zip(
        summed.judge([MarkedPath(p.tokens, p.prompt, p.ends) for p in paths]), (1, 0), strict=True
    ):
        assert judged.outcome == pytest.approx(sum(judged.steps), abs=1e-6)
        assert judged.outcome == pytest.approx(wanted, abs=0.15)
    torch.testing.assert_close(path_loss(torch.tensor([2.0]), torch.tensor([0.5]), "sum"), torch.tensor([2.25]))
    with pytest.raises(ValueError, match="got 1 paths for the loss 'pairwise'; allowed: an even number"):
        ranked.fit([Example([5], 0)])


def test_figures_of_found_errors():
    right = [True, False, True, False, False]
    score = [0.9, 0.2, 0.4, 0.4, 0.8]
    # Below 0.5 are three, two of them wrong: precision 2/3, recall 2/3.
    found = detected(score, right, 0.5)
    assert (found.precision, found.recall, found.f1) == pytest.approx((2 / 3, 2 / 3, 2 / 3))
    # Below 0.9 are four, three of them wrong: 2 * 3 / (4 + 3), more than at any other score.
    assert best_threshold(score, right) == 0.9
    assert detected([0.1], [True], 1.0) is None
    # (right, wrong) pairs: 0.9 above all three, 0.4 above 0.2, even with 0.4, below 0.8: (3 + 1.5) / 6.
    assert auc(score, right) == pytest.approx(0.75)
    assert auc([0.5], [True]) is None
    assert auc([0.5, math.nan], [True, False]) is None

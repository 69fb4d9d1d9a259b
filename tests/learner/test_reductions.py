"""Reductions: small columns of whole distributions, made in pieces, with a gradient through the policy alone."""

from dataclasses import dataclass, replace

import pytest
import torch
from random_trees import letters, random_trees
from tiny_models import plain_model, policy_like
from torch.utils._python_dispatch import TorchDispatchMode

from lyceum.core.forest import build_forest
from lyceum.core.types import Credited
from lyceum.learner._forward import row_outputs
from lyceum.learner.local import LocalConfig, LocalLearner
from lyceum.models import policy as policy_module
from lyceum.models.frozen import FrozenAdapters, FrozenCopy, FrozenSettings, TeacherSettings
from lyceum.models.load import LoraSettings, ModelSettings, _with_adapters
from lyceum.models.policy import Policy
from lyceum.objective.base import PolicyObjective
from lyceum.objective.reinforce import ReinforceLoss

V = 99


def forest(temperature=1.0):
    return build_forest(
        [tree for seed in (13, 19) for tree in random_trees(seed)], decode=letters, temperature=temperature
    )


@dataclass(frozen=True)
class KL:
    """sum_v p (log p - log q), q a frozen model's, and both of its terms as a column of two."""

    model: str = "reference"
    old: bool = False
    name: str = "kl"
    seen: tuple = ()
    once: frozenset = frozenset()

    @property
    def models(self):
        return frozenset({self.model})

    def __call__(self, logits, token, frozen):
        p, q = logits.log_softmax(-1), frozen[self.model].log_softmax(-1)
        assert not q.requires_grad
        terms = torch.stack([(p.exp() * p).sum(-1), (p.exp() * q).sum(-1)], -1)
        return {self.name: terms[:, 0] - terms[:, 1], f"{self.name}_terms": terms}


@dataclass(frozen=True)
class Mean:
    """The mean log-probability of the vocabulary; notes how many tokens a piece had."""

    pieces: list
    old: bool = True
    models = once = frozenset()

    def __call__(self, logits, token, frozen):
        self.pieces.append(len(token))
        return {"mean": logits.log_softmax(-1).mean(-1)}


def plain_logprobs(model, of):
    """(R, L, V) by transformers itself, over padded rows."""
    rows = of.rows()
    logits = model(rows.gather(of.token), attention_mask=rows.present.long(), use_cache=False).logits
    whole = (logits / of.temperature).log_softmax(-1)
    return torch.cat([torch.zeros_like(whole[:, :1]), whole[:, :-1]], 1)


@pytest.mark.parametrize("layout", ["tree", "rows"])
@pytest.mark.parametrize("elements", [1 << 24, 8 * 3 * V])  # in one piece; of 3 tokens each
def test_values_and_gradients_are_those_of_whole_logits(layout, elements, monkeypatch):
    monkeypatch.setattr(policy_module, "_LOGIT_ELEMENTS", elements)
    of, model, other = forest(temperature=0.7), plain_model(), plain_model(seed=1)
    mask = of.trainable(of.rows())
    noise = torch.randn(mask.shape, generator=torch.Generator().manual_seed(0)) * mask
    p, q = plain_logprobs(model, of), plain_logprobs(other, of).detach()
    expected = (p.exp() * (p - q)).sum(-1)
    expected_gradient = torch.autograd.grad((expected * noise).sum(), list(model.parameters()))

    policy, frozen = policy_like(model), FrozenCopy(policy_like(other), saved=False)
    out = row_outputs(policy, of, mask, layout=layout, reductions=(KL(),), frozen={"reference": frozen})
    torch.testing.assert_close(out.columns["kl"][mask], expected[mask], rtol=1e-4, atol=1e-5)
    assert (out.columns["kl"][~mask] == 0).all()
    assert out.columns["kl_terms"].shape == (*mask.shape, 2)
    (out.columns["kl"] * noise).sum().backward()
    assert all(x.grad is None for x in frozen.policy.module.parameters())
    largest = max(float(g.abs().max()) for g in expected_gradient)
    for got, gradient in zip(policy.module.parameters(), expected_gradient, strict=True):
        torch.testing.assert_close(got.grad, gradient, rtol=1e-4, atol=1e-5 * largest)


def objective(*reductions, loss):
    def surrogate(batch):
        return loss(batch), {}

    return PolicyObjective(ReinforceLoss(), surrogate, reductions=reductions)


def no_credit(of):
    return Credited(torch.zeros(of.rows().index.shape))


class Largest(TorchDispatchMode):
    """The most elements of any tensor with a vocabulary axis."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(x, torch.Tensor) and x.dim() and x.shape[-1] == V and "embed" not in str(func):
                self.elements = max(self.elements, x.numel())
        return out


def test_no_tensor_holds_the_logits_of_a_whole_micro_batch(monkeypatch):
    # Pieces of 4 tokens, forwarded once and again in the backward pass; the largest tensor with a vocabulary axis is
    # then the output layer's gradient's or a piece's. In one piece there are as many as tokens.
    of, pieces = forest(), []
    trainable = len(of.rows().index[of.trainable(of.rows())].unique())
    loss = objective(KL(), Mean(pieces, old=False), loss=lambda batch: batch.columns["kl"] + batch.columns["mean"])
    sizes = {}
    for size in (4, 10_000):
        monkeypatch.setattr(policy_module, "_LOGIT_ELEMENTS", 8 * size * V)
        pieces.clear()
        trained = LocalLearner(
            policy_like(plain_model()), LocalConfig(layout="tree"), total_steps=1, needs=frozenset({"reference"})
        )
        with Largest() as seen:
            trained.step(of, no_credit(of), loss)
        sizes[size] = (max(pieces), sum(pieces), seen.elements)
    assert trainable > 40
    assert sizes[4][:2] == (4, 2 * trainable)
    assert sizes[10_000][:2] == (trainable, trainable)
    weights = 32 * V  # the output layer's own tensors, in transposed form
    assert sizes[4][2] <= max(weights, 4 * V)
    assert sizes[10_000][2] >= trainable * V


def test_old_columns_are_those_of_the_steps_initial_weights():
    seen = []

    def loss(batch):
        seen.append({name: x.detach().clone() for name, x in batch.columns.items()})
        assert not batch.columns["old_mean"].requires_grad
        return batch.columns["mean"]

    of = forest()
    for updates in (1, 2):
        seen.clear()
        trained = LocalLearner(
            policy_like(plain_model()), LocalConfig(lr=0.1, epochs=updates), total_steps=1, needs=frozenset()
        )
        trained.step(of, no_credit(of), objective(Mean([]), loss=loss))
        first, last = seen[0], seen[-1]
        torch.testing.assert_close(first["mean"], first["old_mean"], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(last["old_mean"], first["old_mean"], rtol=1e-4, atol=1e-5)
        assert torch.allclose(last["mean"], last["old_mean"], atol=1e-4) == (updates == 1)


def test_columns_name_the_model_that_they_are_of():
    of, needs = forest(), frozenset({"old_entropy", "reference_logprob", "teacher_logprob", "teacher_entropy"})
    trained = LocalLearner(
        policy_like(plain_model()),
        LocalConfig(micro_batch_tokens=20),
        total_steps=1,
        needs=needs,
        frozen=FrozenSettings(TeacherSettings(path="scratch")),
    )
    with torch.no_grad():
        for parameter in trained.policy.module.parameters():
            parameter.mul_(0.5)
    columns = trained.annotate(of, needs).columns
    assert needs <= columns.keys()
    mask = of.trainable(of.rows())
    ids = of.rows().gather(of.token)
    whole = plain_logprobs(plain_model(), of)
    reference = whole.gather(2, ids[:, :, None]).squeeze(2)
    got = of.rows().gather(columns["reference_logprob"])
    torch.testing.assert_close(got[mask], reference[mask], rtol=1e-4, atol=1e-4)
    halved = plain_model()
    with torch.no_grad():
        for parameter in halved.parameters():
            parameter.mul_(0.5)
    now = plain_logprobs(halved, of)
    entropy = -(now.exp() * now).sum(-1)
    torch.testing.assert_close(of.rows().gather(columns["old_entropy"])[mask], entropy[mask], rtol=1e-4, atol=1e-4)
    teacher = trained.frozen["teacher"].policy
    assert teacher.tokenizer is trained.policy.tokenizer
    assert not any(p.requires_grad for p in teacher.module.parameters())
    assert (columns["teacher_entropy"][of.rows().index[mask]] > 0).all()


def test_the_teacher_is_not_trained_and_not_saved():
    trained = LocalLearner(
        policy_like(plain_model()),
        LocalConfig(lr=0.1),
        total_steps=1,
        needs=frozenset({"teacher"}),
        frozen=FrozenSettings(TeacherSettings(path="scratch")),
    )
    before = [p.clone() for p in trained.frozen["teacher"].policy.module.parameters()]
    of = forest()
    trained.step(of, no_credit(of), objective(KL("teacher"), loss=lambda batch: batch.columns["kl"]))
    assert all(map(torch.equal, before, trained.frozen["teacher"].policy.module.parameters()))
    assert trained.state_dict()["reference"] is None
    assert (
        trained.state_dict().keys()
        == LocalLearner(policy_like(plain_model()), LocalConfig(), total_steps=1, needs=frozenset()).state_dict().keys()
    )


@pytest.mark.parametrize("targets", ["all-linear", ("q_proj", "lm_head")])
def test_adapters_are_exchanged_for_the_references_and_back(targets, monkeypatch):
    # With adapters on the output layer too: logits are computed again in the backward pass, when the policy's own
    # adapters are back.
    monkeypatch.setattr(policy_module, "_LOGIT_ELEMENTS", 8 * 4 * V)
    module = policy_like(plain_model()).module
    lora = LoraSettings(rank=2, alpha=4, target_modules=targets)
    policy = Policy(
        _with_adapters(module, ModelSettings(path="scratch", lora=lora)), policy_like(plain_model()).tokenizer
    )
    reference = FrozenAdapters(policy)
    with torch.no_grad():
        for p in policy.module.parameters():
            if p.requires_grad:
                p.add_(0.3)
    of = forest()
    mask = of.trainable(of.rows())
    trained = [p for p in policy.module.parameters() if p.requires_grad]
    # New adapters change nothing: the reference is the plain model.
    results = []
    for frozen in (reference, FrozenCopy(policy_like(plain_model()), saved=False)):
        out = row_outputs(policy, of, mask, layout="tree", reductions=(KL(),), frozen={"reference": frozen})
        results.append([out.columns["kl"], out.logprob, *torch.autograd.grad(out.columns["kl"].sum(), trained)])
    assert results[0][0][mask].mean() > 0.1
    for got, expected in zip(*results, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-4)


def test_output_layers_padded_to_another_size_are_cut_to_the_vocabulary_of_both():
    of = forest()
    mask = of.trainable(of.rows())
    wide = FrozenCopy(policy_like(plain_model(vocab_size=104)), saved=False)
    out = row_outputs(
        policy_like(plain_model()), of, mask, layout="tree", reductions=(KL(),), frozen={"reference": wide}
    )
    assert (out.columns["kl"][mask] > 0).all()


def test_two_reductions_of_one_name_are_refused():
    of = forest()
    with pytest.raises(ValueError, match=r"two reductions give \['mean'\]"):
        row_outputs(
            policy_like(plain_model()), of, of.trainable(of.rows()), layout="tree", reductions=(Mean([]), Mean([]))
        )


def test_a_column_of_several_numbers_per_token_is_laid_out_as_rows():
    of = forest()
    wide = torch.arange(2.0 * of.n_tokens).view(-1, 2)
    part = replace(of, columns={"wide": wide}).select(torch.tensor([1]))
    laid = part.rows().gather(part.columns["wide"])
    path = of.rows().index[1][of.rows().present[1]]
    assert torch.equal(laid[0, : len(path)], wide[path])

"""Both layouts against transformers' own attention over padded rows, which knows nothing of trees."""

from dataclasses import replace

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from random_trees import letters, random_trees
from tiny_models import CONFIGS, plain_model, policy_like
from torch import nn

from lyceum.core.forest import Forest, build_forest
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Grade, Origin, Task
from lyceum.learner._forward import choose_layout, micro_batches, row_outputs
from lyceum.models import policy as policy_module
from lyceum.models.policy import token_outputs

MODELS = {name: plain_model(name) for name in CONFIGS}
POLICIES = {name: policy_like(model) for name, model in MODELS.items()}
seeds = st.integers(0, 2**32)


def oracle(model, forest, value_head=None):
    """(R, L) log-probability, entropy and value of each token, and (R, L, V) logits: padded rows, plain sdpa."""
    model.set_attn_implementation("sdpa" if model._supports_sdpa else "eager")
    rows = forest.rows()
    ids = rows.gather(forest.token)
    output = model(input_ids=ids, attention_mask=rows.present.long(), output_hidden_states=True, use_cache=False)
    z = output.logits.float() / forest.temperature
    logp = z.log_softmax(-1)
    before = logp[:, :-1]
    entropy = -(before.exp() * before).sum(-1)
    logprob = before.gather(2, ids[:, 1:, None]).squeeze(2)
    values = None if value_head is None else value_head(output.hidden_states[-1][:, :-1]).squeeze(-1)

    def shifted(x):
        return None if x is None else torch.cat([torch.zeros_like(x[:, :1]), x], 1)

    return shifted(logprob), shifted(entropy), shifted(values), shifted(z[:, :-1])


def a_loss(logprob, entropy, value, mask, seed):
    """Any row-wise function will do: a clipped ratio, entropy, a value; each row weighs its tokens differently."""
    noise = torch.randn(3, *mask.shape, generator=torch.Generator().manual_seed(seed))
    ratio = (logprob - (logprob.detach() + 0.2 * noise[0])).exp()
    token = -torch.minimum(ratio * noise[1], ratio.clamp(0.8, 1.2) * noise[1]) - 0.1 * entropy
    token = token + 0.5 * (value - noise[2]).square()
    return (token * mask).sum() / mask.sum().clamp(min=1)


def gradients(loss, parameters):
    found = torch.autograd.grad(loss, parameters, allow_unused=True)
    return [torch.zeros_like(p) if g is None else g for g, p in zip(found, parameters, strict=True)]


def assert_same(got, expected):
    """To 1e-5 of each tensor's greatest entry; where terms cancel in a tensor, to 5e-6 of the greatest of all."""
    greatest = max(float(e.abs().max()) for e in expected)
    for g, e in zip(got, expected, strict=True):
        assert float((g - e).abs().max()) <= max(1e-5 * float(e.abs().max()), 5e-6 * greatest)


class Whole:
    """A reduction that reduces nothing: the logits themselves."""

    models, old = frozenset(), False

    def __call__(self, logits, token, frozen):
        return {"logits": logits}


def head(width):
    layer = nn.Linear(width, 1)
    nn.init.normal_(layer.weight, std=0.3, generator=torch.Generator().manual_seed(5))
    nn.init.constant_(layer.bias, 0.1)
    return layer


@pytest.mark.parametrize("name", CONFIGS)
@settings(max_examples=12)
@given(seeds, st.sampled_from([1.0, 0.7]), st.integers(1, 60), st.data())
def test_loss_and_gradients_equal_padded_rows_in_plain_transformers(name, seed, temperature, budget, data):
    forest = build_forest(random_trees(seed, most=2, longest=3), decode=letters, temperature=temperature)
    chosen = data.draw(st.permutations(range(forest.n_rows)))
    chosen = chosen[: data.draw(st.integers(1, max(1, len(chosen))))]
    forest = forest.select(torch.tensor(chosen, dtype=torch.long))
    mask = forest.trainable(forest.rows())
    assume(bool(mask.any()))
    model, policy, value_head = MODELS[name], POLICIES[name], head(32)
    logprob, entropy, value, _ = oracle(model, forest, value_head)
    assert value is not None
    expected_loss = a_loss(logprob, entropy, value, mask, seed)
    expected = gradients(expected_loss, [*model.parameters(), *value_head.parameters()])

    parameters = [*policy.module.parameters(), *value_head.parameters()]
    needs = frozenset({"entropy", "value"})
    for layout in ("tree", "rows"):
        out = row_outputs(policy, forest, mask, layout=layout, needs=needs, value_head=value_head)
        assert not out.columns
        loss = a_loss(out.logprob, out.entropy, out.value, mask, seed)
        torch.testing.assert_close(loss, expected_loss, rtol=1e-5, atol=1e-6)
        assert_same(gradients(loss, parameters), expected)
        assert (out.logprob[~mask] == 0).all()

    # Split into micro-batches, each its own forest: the parts' losses and gradients add up to the whole's.
    noise_rows = torch.arange(forest.n_rows)
    total, added = torch.zeros(()), [torch.zeros_like(p) for p in parameters]
    for rows in micro_batches(forest, noise_rows, budget):
        part = forest.select(rows)
        width = part.rows().index.shape[1]
        wanted = part.trainable(part.rows())
        assert torch.equal(wanted, mask[rows][:, :width])
        out = row_outputs(policy, part, wanted, layout=choose_layout(part), needs=needs, value_head=value_head)

        def laid(x, rows=rows, width=width):
            return torch.zeros(mask.shape).index_put((rows,), nn.functional.pad(x, (0, mask.shape[1] - width)))

        within = torch.zeros_like(mask)
        within[rows] = mask[rows]
        share = within.sum() / mask.sum()
        if share == 0:
            continue
        loss = a_loss(laid(out.logprob), laid(out.entropy), laid(out.value), within, seed) * share
        total += loss.detach()
        added = [a + g for a, g in zip(added, gradients(loss, parameters), strict=True)]
    torch.testing.assert_close(total, expected_loss.detach(), rtol=1e-5, atol=1e-6)
    assert_same(added, expected)


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_of_the_whole_vocabulary_equal_plain_transformers(name):
    # Where a model changes its logits behind the output layer (caps, multiplies, divides), so do we.
    forest = build_forest(random_trees(13, most=2), decode=letters, temperature=0.5)
    mask = forest.trainable(forest.rows())
    assert mask.sum() > 30
    policy = POLICIES[name]
    logits = oracle(MODELS[name], forest)[3]
    for layout in ("tree", "rows"):
        out = row_outputs(policy, forest, mask, layout=layout, reductions=(Whole(),))
        torch.testing.assert_close(out.columns["logits"][mask], logits[mask], rtol=1e-4, atol=1e-5)
        assert (out.columns["logits"][~mask] == 0).all()


@given(seeds, st.integers(1, 60))
def test_micro_batches_deal_every_row_out_once_within_the_budget(seed, budget):
    forest = build_forest(random_trees(seed), decode=letters)
    order = torch.randperm(forest.n_rows, generator=torch.Generator().manual_seed(seed))
    parts = list(micro_batches(forest, order, budget))
    assert torch.cat([*parts, order[:0]]).tolist() == order.tolist()
    for part in parts:
        tokens = forest.select(part).n_tokens
        assert tokens <= budget or len(part) == 1, "unique tokens, unless one row alone is longer"


def test_token_outputs_in_pieces_equal_the_whole(monkeypatch):
    policy, generator = POLICIES["llama-gqa"], torch.Generator().manual_seed(0)
    before = torch.randn(11, 32, generator=generator).requires_grad_()
    token = torch.randint(99, (11,), generator=generator)
    noise = torch.randn(2, 11, generator=generator)

    def outputs():
        out = token_outputs(policy, before, token, temperature=0.7, entropy=True)
        assert out.entropy is not None
        loss = (out.logprob * noise[0] + out.entropy * noise[1]).sum()
        return [out.logprob.detach(), out.entropy.detach(), *torch.autograd.grad(loss, [before, policy.output.weight])]

    whole = outputs()
    monkeypatch.setattr(policy_module, "_LOGIT_ELEMENTS", 4 * 99)  # three pieces, the last one shorter
    for x, y in zip(outputs(), whole, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-6)


def test_entropy_of_even_odds_by_hand():
    # Two tokens share all probability evenly: log-probability -ln 2, entropy ln 2.
    policy = policy_like(MODELS["llama"])
    with torch.no_grad():
        policy.output.weight.fill_(-1e3)
        policy.output.weight[[3, 7]] = 1.0
    out = token_outputs(policy, torch.ones(1, 32), torch.tensor([7]), entropy=True)
    assert out.entropy is not None
    assert out.logprob.item() == pytest.approx(-0.6931472, abs=1e-5)
    assert out.entropy.item() == pytest.approx(0.6931472, abs=1e-5)


def test_a_row_without_trained_tokens_adds_nothing():
    root = Node(None, [3, 4], Origin.PROMPT)
    told = root.add([5, 6], Origin.TOOL)
    told.grade = Grade(1.0)
    forest = build_forest([Tree(Task("t", ()), [root], chosen=[told])])
    mask = forest.trainable(forest.rows())
    for layout in ("tree", "rows"):
        out = row_outputs(POLICIES["llama"], forest, mask, layout=layout)
        assert out.logprob.tolist() == [[0.0] * 4]
        out.logprob.sum().backward()


def test_the_cheaper_layout_is_chosen():
    def group(tokens_apart: int) -> Forest:
        root = Node(None, list(range(50)), Origin.PROMPT)
        for r in range(4):
            root.add([r + 1] * tokens_apart, Origin.TEACHER).grade = Grade(1.0)
        return build_forest([Tree(Task("t", ()), [root], chosen=list(root.children))])

    assert choose_layout(group(10)) == "tree"  # 90 tokens against 240
    alone = group(10).select(torch.tensor([0]))
    assert choose_layout(alone) == "rows"  # nothing is shared, and rows cost less a token


def test_values_without_a_value_head_are_refused():
    forest = build_forest(random_trees(3), decode=letters)
    with pytest.raises(ValueError, match="no value head"):
        row_outputs(
            POLICIES["llama"],
            forest,
            forest.trainable(forest.rows()),
            layout="tree",
            needs=frozenset({"value"}),
        )


def test_log_probabilities_are_at_the_forests_temperature():
    forest = build_forest(random_trees(13), decode=letters)
    mask = forest.trainable(forest.rows())
    policy = POLICIES["llama"]
    hot, plain = (
        row_outputs(policy, replace(forest, temperature=t), mask, layout="tree", reductions=(Whole(),))
        for t in (2.0, 1.0)
    )
    torch.testing.assert_close(hot.columns["logits"], plain.columns["logits"] / 2)

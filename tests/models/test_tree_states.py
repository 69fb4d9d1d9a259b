"""States that branch: over token trees, recurrent layers give each row what they give it alone."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import HYBRIDS, tiny
from torch import nn
from transformers import GradientCheckpointingLayer, RecurrentGemmaConfig

from lyceum.core.types import Scored
from lyceum.learner.local import LocalConfig
from lyceum.models import tree_states
from lyceum.models.packed_paths import packed, trie_logprobs
from lyceum.models.policy import Policy
from lyceum.models.scratch import character_tokenizer
from lyceum.models.selective_scan import scan_from
from lyceum.models.tree_states import SHORT, StateRuns, branch_states, recomputed, unbranch_states
from lyceum.models.trial import logits_alone, policy_of
from lyceum.utils.errors import RecipeError

TOKENIZER = character_tokenizer(context=512)
PLAIN = {what: make() for what, make in HYBRIDS.items()}
EACH = pytest.mark.parametrize("what", HYBRIDS)


def over_trees(what):
    model = copy.deepcopy(PLAIN[what])
    policy = policy_of(model, TOKENIZER, logits_alone(model))
    assert policy.trains_over_trees
    return policy


def some(count, *, seed):
    return torch.randint(3, 99, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def rows_that_branch():
    """Eight samples of one prompt, some of which leave each other in the middle, with second turns; another prompt."""
    prompt, middle = some(70, seed=0), some(30, seed=1)
    first = [prompt + some(5 + 7 * n, seed=10 + n) for n in range(5)]
    turns = [first[3] + some(20, seed=20), first[3] + some(3, seed=21), first[3][:-4] + some(6, seed=22)]
    split = [prompt + middle + some(n, seed=30 + n) for n in (1, 2, 25)] + [prompt + middle[:17] + some(9, seed=40)]
    other = some(6, seed=50)
    rows = [*first, *turns, *split, other + some(12, seed=51), other + some(40, seed=52), other[:1] + some(3, seed=53)]
    return [(row, len(prompt) if row[:70] == prompt else 1) for row in rows]


@EACH
def test_log_probabilities_and_gradients_are_those_of_each_row_alone(what):
    policy, plain, rows = over_trees(what), PLAIN[what], rows_that_branch()
    (trie,) = packed([row for row, _ in rows], 10_000)
    assert len(trie.token) < 0.5 * sum(len(row) for row, _ in rows)
    got = trie_logprobs(policy, trie, [Scored(row, start, len(row)) for row, start in rows])
    weight = torch.randn(len(got), generator=torch.Generator().manual_seed(0))
    (got * weight).sum().backward()
    plain.zero_grad()
    expected = []
    for row, start in rows:
        tokens = torch.tensor(row)
        nats = plain(tokens[None], use_cache=False).logits[0].float().log_softmax(-1)
        expected.append(nats[start - 1 : -1].gather(1, tokens[start:, None]).squeeze(1))
    (torch.cat(expected) * weight).sum().backward()
    torch.testing.assert_close(got, torch.cat(expected), rtol=0, atol=3e-5)
    alone = {name: p.grad for name, p in plain.named_parameters() if p.grad is not None}
    largest = max(float(g.abs().max()) for g in alone.values())
    for name, p in policy.causal.named_parameters():
        if name in alone:
            assert float((p.grad - alone[name]).abs().max()) <= 1e-4 * largest, name


@pytest.mark.parametrize("what", ["gated delta net", "mamba"])
def test_activations_that_are_computed_again_are_of_the_same_runs(what):
    # In Mamba's blocks the plan is not among the arguments that checkpointing keeps.
    policy, rows = over_trees(what), rows_that_branch()

    def gradients():
        policy.module.zero_grad()
        (trie,) = packed([row for row, _ in rows], 10_000)
        trie_logprobs(policy, trie, [Scored(row, start, len(row)) for row, start in rows]).sum().backward()
        return {name: p.grad.clone() for name, p in policy.causal.named_parameters() if p.grad is not None}

    expected = gradients()
    policy.causal.activation_checkpointing_enable({"use_reentrant": False, "context_fn": recomputed})
    layers = [x for x in policy.causal.modules() if isinstance(x, GradientCheckpointingLayer)]
    for layer in layers:
        layer.training = True
    calls = []
    handle = next(layers[0].children()).register_forward_pre_hook(lambda *_: calls.append(0))
    got = gradients()
    handle.remove()
    assert len(calls) == 2
    for name, gradient in expected.items():
        torch.testing.assert_close(got[name], gradient, rtol=0, atol=1e-6 * float(gradient.abs().max()))


class Running(nn.Module):
    """h_t = 0.9 h_{t-1} + x_t + 0.5 x_{t-1}, by the interface that transformers' layers have."""

    layer_idx = 0

    def forward(self, hidden_states, cache_params=None, attention_mask=None):
        x = hidden_states.transpose(1, 2)
        begun = None
        if cache_params is not None:
            begun = cache_params.get_recurrent_state(0)
            x = cache_params.update_conv_state(x, 0, conv_kernel_size=2)
        before = nn.functional.pad(x, (1, 0))[..., :-1]
        x = (x + 0.5 * before)[..., -hidden_states.shape[1] :].transpose(1, 2)
        state, out = torch.zeros_like(x[:, 0]) if begun is None else begun, []
        for t in range(x.shape[1]):
            state = 0.9 * state + x[:, t]
            out.append(state)
        if cache_params is not None:
            cache_params.update_recurrent_state(state, 0)
        return torch.stack(out, 1)


@settings(max_examples=15)
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 40)), min_size=1, max_size=9), st.integers(0, 99))
def test_every_tree_gives_what_its_paths_give(branches, seed):
    rows = [some(30, seed=seed)]
    for n, (length, more) in enumerate(branches):
        rows.append(rows[n // 2][:length] + some(more, seed=seed + n + 1))
    (trie,) = packed(rows, 10_000)
    hidden = torch.randn(1, len(trie.token), 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    layer = Running()
    runs = StateRuns([torch.tensor(row) for row in trie.rows], trie.shared, torch.device("cpu"))
    got = runs.forward(0, layer.forward, hidden, "cache_params")
    for row in trie.rows:
        torch.testing.assert_close(got[:, row], layer(hidden[:, row]))
    kept = [batch.index.shape[1] for level in runs.levels for batch in level if batch.kept]
    assert all(length >= SHORT for length in kept)


@EACH
def test_copies_branch_too(what):
    policy = over_trees(what)
    copied = Policy(copy.deepcopy(policy.module), TOKENIZER)
    assert copied.by_rows == policy.by_rows
    rows = rows_that_branch()
    (trie,) = packed([row for row, _ in rows], 10_000)
    hidden = trie.hidden(policy.backbone, policy.device)
    torch.testing.assert_close(trie.hidden(copied.backbone, copied.device), hidden, rtol=0, atol=0)


def test_what_is_not_exact_stays_on_rows(monkeypatch):
    model = copy.deepcopy(PLAIN["gated delta net"])
    classes = [type(module) for module in model.modules()]
    ends = tree_states._States.update_recurrent_state
    monkeypatch.setattr(
        tree_states._States, "update_recurrent_state", lambda states, x, *a, **k: ends(states, 1.01 * x, *a, **k)
    )
    policy = policy_of(model, TOKENIZER, logits_alone(model))
    assert policy.by_rows is not None
    assert policy.by_rows.attention is None
    assert not policy.trains_over_trees
    assert [type(module) for module in model.modules()] == classes
    assert model.config._attn_implementation == "sdpa"


def test_branching_can_be_taken_back():
    model = copy.deepcopy(PLAIN["gated delta net"])
    classes = [type(module) for module in model.modules()]
    assert branch_states(model) == ["Qwen3_5GatedDeltaNet"]
    assert branch_states(model) == []
    assert [type(module).__name__ for module in model.modules()] == [kind.__name__ for kind in classes]
    unbranch_states(model)
    assert branch_states(model) == ["Qwen3_5GatedDeltaNet"]
    unbranch_states(model)
    assert [type(module) for module in model.modules()] == classes


def test_the_layout_of_trees_is_refused_where_states_do_not_branch():
    model = tiny(
        RecurrentGemmaConfig(
            vocab_size=99, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
            lru_width=32, attention_window_size=8, head_dim=8,
        )
    )  # fmt: skip
    policy = policy_of(model, TOKENIZER, logits_alone(model))
    with pytest.raises(RecipeError, match=r"learner.layout: got 'tree', but .*RecurrentGemma.* allowed: auto, rows"):
        LocalConfig(layout="tree").build(policy, total_steps=1, needs=frozenset())


def test_a_scan_from_a_state_is_the_recurrence():
    # One channel, one state, A = -1, dt = 1 (softplus of log(e - 1)): h_t = h_{t-1} / e + B_t x_t; y_t = 2 h_t.
    def scan(x, dt, A, B, C, D=None, delta_bias=None, delta_softplus=False, return_last_state=False):
        assert delta_softplus
        steps = nn.functional.softplus(dt)
        state, out = torch.zeros(1, 1, 1), []
        for t in range(2):
            state = (
                torch.exp(A * steps[:, :, t, None]) * state + steps[:, :, t, None] * B[:, None, :, t] * x[:, :, t, None]
            )
            out.append((state * C[:, None, :, t]).sum(-1))
        return torch.stack(out, -1), state

    one = torch.ones(1, 1, 2)
    dt = torch.log(torch.e * one - 1)
    out, last = scan_from(
        scan, torch.full((1, 1, 1), 3.0), one, dt, -torch.ones(1, 1), one, 2 * one, delta_softplus=True,
        return_last_state=True,
    )  # fmt: skip
    first = 3 / torch.e + 1
    second = first / torch.e + 1
    torch.testing.assert_close(out, torch.tensor([[[2 * first, 2 * second]]]))
    torch.testing.assert_close(last, torch.tensor([[[second]]]))

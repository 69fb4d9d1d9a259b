"""Sinks, capped scores, chunks, latents, layers of several widths: over trees, each row has what it has alone."""

import asyncio
import copy

import pytest
import torch
from tiny_models import MORE_ATTENTION, plain_model
from tiny_runs import metrics, mismatch, ran, weights

from lyceum.core.types import Request, Sampling, Scored
from lyceum.engine.embedded import EmbeddedConfig
from lyceum.learner.local import LocalConfig
from lyceum.models import tree_attention
from lyceum.models.packed_paths import packed, trie_logprobs
from lyceum.models.policy import Policy
from lyceum.models.scratch import character_tokenizer
from lyceum.models.trial import logits_alone, policy_of
from lyceum.utils.aio import run_async
from lyceum.utils.errors import Interrupted

TOKENIZER = character_tokenizer(context=256)
PLAIN = {name: plain_model(name, spread=0.2) for name in MORE_ATTENTION}
EACH = pytest.mark.parametrize("name", MORE_ATTENTION)


def over_trees(name):
    model = copy.deepcopy(PLAIN[name])
    policy = policy_of(model, TOKENIZER, logits_alone(model))
    assert policy.by_rows is None
    return policy


def alone(model, path, start):
    """(token,) log-probabilities from ``start`` on, by one forward of this row."""
    logp = model(torch.tensor([path]), use_cache=False).logits[0, start - 1 : -1].float().log_softmax(-1)
    return logp.gather(1, torch.tensor(path[start:])[:, None]).squeeze(1)


def paths_of_a_tree():
    """Long beside their windows and chunks, and branching within them."""
    draw = torch.Generator().manual_seed(0)

    def some(count):
        return torch.randint(3, 99, (count,), generator=draw).tolist()

    prompt, middle = some(12), some(10)
    return [prompt + some(40), prompt + some(9), prompt + middle + some(18), prompt + middle + some(3), some(7)]


@EACH
@pytest.mark.parametrize("in_blocks", [False, True], ids=["whole", "in blocks"])
@pytest.mark.parametrize("recomputed", [False, True], ids=["kept", "recomputed"])
def test_values_and_gradients_are_those_of_each_row_alone(name, recomputed, in_blocks, monkeypatch):
    if in_blocks:
        monkeypatch.setattr(tree_attention, "MASK_ELEMENTS", 0)
        monkeypatch.setattr(tree_attention, "BLOCK_ELEMENTS", 0)  # of 16 queries, the fewest
    policy, plain, paths = over_trees(name), PLAIN[name], paths_of_a_tree()
    if recomputed:
        learner = LocalConfig(gradient_checkpointing=True).build(policy, total_steps=1, needs=frozenset())
        learner._train_mode(True)
    (trie,) = packed(paths, 10_000)
    got = trie_logprobs(policy, trie, [Scored(path, 1, len(path)) for path in paths])
    expected = torch.cat([alone(plain, path, 1) for path in paths])
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-5)
    weight = torch.randn(len(got), generator=torch.Generator().manual_seed(1))
    plain.zero_grad()
    (got * weight).sum().backward()
    (expected * weight).sum().backward()
    of_rows = {n: p.grad for n, p in plain.named_parameters() if p.grad is not None}
    largest = max(float(g.abs().max()) for g in of_rows.values())
    for n, g in of_rows.items():
        assert float((policy.causal.get_parameter(n).grad - g).abs().max()) <= 1e-5 * largest, n
    if name == "gpt-oss-sinks":
        assert all(of_rows[f"model.layers.{n}.self_attn.sinks"].abs().max() > 1e-3 * largest for n in (0, 1))


@EACH
@pytest.mark.parametrize("keep_tokens", [0, 40, 1 << 17])
def test_samples_have_the_log_probabilities_of_their_row_alone(name, keep_tokens):
    # Several lengths at once, some beyond windows and chunks; samples that branch, then a second and a third turn, with
    # what was kept, with a part of it, and with nothing.
    engine = EmbeddedConfig(keep_tokens=keep_tokens).build(over_trees(name))
    sampling, apart = Sampling(max_completion_tokens=14), 0.0

    async def turn(prefixes):
        return await asyncio.gather(*(engine.extend(Request(p, (1, 2, 3), sampling, keep=True)) for p in prefixes))

    prefixes = [[5], [5, 6, 7], list(range(3, 40)), [5, 6, 7]]
    for _ in range(3):
        drawn = run_async(turn(prefixes))
        assert [c.tokens for c in drawn[1]] == [c.tokens for c in drawn[3]]
        for prefix, samples in zip(prefixes, drawn, strict=True):
            for c in samples:
                with torch.no_grad():
                    nats = alone(PLAIN[name], [*prefix, *c.tokens], len(prefix))
                apart = max(apart, float((torch.tensor(c.model_logprob) - nats).abs().max()))
        prefixes = [[*prefix, *samples[0].tokens, 9, 10] for prefix, samples in zip(prefixes, drawn, strict=True)]
    assert apart < 1e-5
    assert engine.tokens_computed < engine.occupancy.drawn + 3 * sum(map(len, prefixes))


def test_a_prompt_that_a_group_shares_is_stored_once_under_sinks_and_capped_scores():
    # As these layers have it where none has a window: one softmax over the prompt, the own tokens and the sink.
    policy = over_trees("gpt-oss-sinks")
    softcap = 0.7
    for module in policy.causal.modules():
        if hasattr(module, "sinks"):
            module.sliding_window = None
    policy.causal.config.sliding_window = None
    plan = policy.hidden
    prompt, sampling = list(range(3, 80)), Sampling(max_completion_tokens=9)

    def capped(tokens, position, attention, **seen):
        attend = attention.attend
        attention.attend = lambda *packed, **how: attend(*packed, **how | {"softcap": softcap})
        try:
            return plan(tokens, position, attention, **seen)
        finally:
            attention.attend = attend

    policy.hidden = capped
    once = EmbeddedConfig(share_prompt_tokens=1).build(policy)
    copied = EmbeddedConfig(share_prompt_tokens=10_000).build(policy)
    request = Request(prompt, tuple(range(6)), sampling)
    got, expected = run_async(once.extend(request)), run_async(copied.extend(request))
    assert [c.tokens for c in got] == [c.tokens for c in expected]
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(torch.tensor(a.model_logprob), torch.tensor(b.model_logprob), rtol=0, atol=1e-5)
    assert once._prompts._store.kv.shape[4] >= len(prompt) - 1
    assert copied._prompts._store.kv.shape[4] == 0


def test_so_are_latents():
    policy, plain = over_trees("deepseek3-latents"), PLAIN["deepseek3-latents"]
    engine = EmbeddedConfig(share_prompt_tokens=1).build(policy)
    prompts = [list(range(3, 60)), list(range(20, 41)), [7]]  # two that are stored, and one that has none

    async def go():
        some = (Request(p, tuple(range(6)), Sampling(max_completion_tokens=9)) for p in prompts)
        return await asyncio.gather(*map(engine.extend, some))

    for prompt, samples in zip(prompts, run_async(go()), strict=True):
        for c in samples:
            with torch.no_grad():
                nats = alone(plain, [*prompt, *c.tokens], len(prompt))
            torch.testing.assert_close(torch.tensor(c.model_logprob), nats, rtol=0, atol=1e-5)
    assert engine._prompts._store.kv.shape[4] >= 56
    assert engine._store.kv.shape[4] < 56


def test_latents_are_cached_and_not_the_keys_that_are_made_of_them():
    policy = over_trees("deepseek3-latents")
    assert policy.cache_shape == (2, 1, 9)  # 10 of the latent and 8 of the rotated key, against 4 heads of 16 + 8
    copied = Policy(copy.deepcopy(policy.module), TOKENIZER)  # references, roles, averages
    assert copied.model_cache == policy.model_cache


GRPO = {
    "kind": "online",
    "steps": 3,
    "tasks_per_step": 2,
    "rollout": {"kind": "flat", "samples": 3, "sampling": {"max_completion_tokens": 12}},
    "credit": "group",
    "objective": {"kind": "ppo-clip", "kl": {"coefficient": 0.1}},
    "learner": {"lr": 1e-3, "micro_batch_tokens": 128, "layout": "tree"},
}
SEARCH = GRPO | {
    "steps": 2,
    "rollout": {
        "kind": "beam", "beams": 2, "width": 2, "step": {"tokens": 3}, "sampling": {"max_completion_tokens": 9},
    },
    "value": {"kind": "likelihood"},
}  # fmt: skip


@EACH
def test_a_run_trains_what_it_sampled_resumes_to_the_bit_and_leaves_a_model(name, tmp_path):
    whole = ran(tmp_path, lambda: over_trees(name), GRPO, "whole")
    assert mismatch(whole) < 3e-5
    assert any(step["grad_norm"] > 0 for step in metrics(whole))
    with pytest.raises(Interrupted):
        ran(tmp_path, lambda: over_trees(name), GRPO, "stopped", interrupted=iter([False, True]).__next__)
    resumed = ran(tmp_path, lambda: over_trees(name), GRPO, "stopped", resume=True)
    before, after, again = weights(tmp_path), weights(whole), weights(resumed)
    assert all(torch.equal(value, again[key]) for key, value in after.items())
    assert any(not torch.equal(value, before[key]) for key, value in after.items())


@EACH
def test_a_search_continues_what_it_kept(name, tmp_path):
    run = ran(tmp_path, lambda: over_trees(name), SEARCH, "run")
    assert mismatch(run) < 3e-5
    assert any(step["grad_norm"] > 0 for step in metrics(run))

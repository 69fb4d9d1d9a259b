"""Models over rows, or with states: what is trained and sampled is what transformers computes for each row alone."""

import asyncio
import copy

import pytest
import torch
from random_trees import letters, random_trees
from tiny_models import UNFIT
from tiny_runs import metrics, mismatch, ran, weights
from transformers import AutoModelForCausalLM

from lyceum.core.forest import build_forest
from lyceum.core.types import Request, Sampling
from lyceum.engine.embedded import EmbeddedConfig
from lyceum.learner._forward import micro_batches, row_outputs
from lyceum.models.policy import Policy
from lyceum.models.rows import ByRows
from lyceum.models.scratch import character_tokenizer
from lyceum.models.trial import logits_alone, policy_of
from lyceum.utils.aio import run_async
from lyceum.utils.errors import Interrupted

TOKENIZER = character_tokenizer(context=256)
PLAIN = {what: make() for what, make in UNFIT.items()}
EACH = pytest.mark.parametrize("what", UNFIT)
# One per kind of cache: runs are longer than single forwards.
RUNS = pytest.mark.parametrize("what", ["linear attention", "attention of its own", "states alone"])


def as_loaded(what):
    """Over rows; with states, over trees."""
    model = copy.deepcopy(PLAIN[what])
    return policy_of(model, TOKENIZER, logits_alone(model))


def alone(what, path):
    """(token, V) log-probabilities after each token, by one forward of this row."""
    return PLAIN[what](torch.tensor([path]), use_cache=False).logits[0].float().log_softmax(-1)


@EACH
def test_log_probabilities_and_gradients_of_a_forest_are_those_of_each_row_alone(what):
    policy, forest = as_loaded(what), build_forest(random_trees(13), decode=letters)
    rows = forest.rows()
    wanted = rows.present.clone()
    wanted[:, 0] = False
    weight = torch.randn(wanted.shape, generator=torch.Generator().manual_seed(0))
    expected = torch.zeros(wanted.shape)
    for row, length in enumerate(forest.row_length.tolist()):
        path = forest.token[rows.index[row, :length]]
        nats = alone(what, path.tolist())[:-1].gather(1, path[1:, None]).squeeze(1)
        expected = expected.index_put((torch.tensor(row), torch.arange(1, length)), nats)
    named = {name: p for name, p in PLAIN[what].named_parameters() if p.requires_grad}
    loss = (expected * weight).sum()
    gradients = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
    largest = max(float(g.abs().max()) for g in gradients if g is not None)
    for layout in ("rows", "tree"):  # both are made of rows here; what reads paths asks for the tree's
        got = row_outputs(policy, forest, wanted, layout=layout).logprob
        torch.testing.assert_close(got, expected, rtol=0, atol=3e-5)
        policy.module.zero_grad()
        (got * weight).sum().backward()
        for (name, p), g in zip(named.items(), gradients, strict=True):
            mine = policy.module.get_parameter(name).grad
            both = [torch.zeros_like(p) if x is None else x for x in (mine, g)]
            assert float((both[0] - both[1]).abs().max()) <= 1e-4 * largest, name


@EACH
def test_samples_have_the_log_probabilities_of_their_row_alone(what):
    # Prompts of several lengths at once, three samples of each, some of which end early; then a second turn.
    engine, sampling = EmbeddedConfig().build(as_loaded(what)), Sampling(max_completion_tokens=14)

    async def turn(prefixes):
        return await asyncio.gather(*(engine.extend(Request(p, (1, 2, 3), sampling, keep=True)) for p in prefixes))

    prefixes = [[5], [5, 6, 7], list(range(3, 20)), [5, 6, 7]]
    for _ in range(2):
        drawn = run_async(turn(prefixes))
        assert [c.tokens for c in drawn[1]] == [c.tokens for c in drawn[3]]
        for prefix, samples in zip(prefixes, drawn, strict=True):
            for c in samples:
                with torch.no_grad():
                    logp = alone(what, [*prefix, *c.tokens])[len(prefix) - 1 : -1]
                nats = logp.gather(1, torch.tensor(c.tokens)[:, None]).squeeze(1)
                torch.testing.assert_close(torch.tensor(c.model_logprob), nats, rtol=0, atol=3e-5)
        prefixes = [[*prefix, *samples[0].tokens, 9, 10] for prefix, samples in zip(prefixes, drawn, strict=True)]


@RUNS
@pytest.mark.parametrize("how", ["alone", "few places", "no cache", "no padding"])
def test_samples_depend_on_their_seed_alone(what, how):
    policy, sampling = as_loaded(what), Sampling(max_completion_tokens=10, temperature=1.2)
    requests = [Request(list(range(3, 3 + n)), tuple(range(n, n + 4)), sampling) for n in (2, 9, 5)]

    def drawn(engine, some):
        async def go():
            return await asyncio.gather(*map(engine.extend, some))

        return [[c.tokens for c in samples] for samples in run_async(go())]

    expected = drawn(EmbeddedConfig().build(policy), requests)
    if how == "alone":
        got = [drawn(EmbeddedConfig().build(policy), [request])[0] for request in requests]
    elif how == "few places":
        got = drawn(EmbeddedConfig(max_sequences=3).build(policy), requests)
    else:
        own = "sdpa" if policy.by_rows is None else None
        by_rows = ByRows("it is compared with", caches=how != "no cache", attention=own)
        other = Policy(copy.deepcopy(policy.module), TOKENIZER, by_rows=by_rows)
        got = drawn(EmbeddedConfig().build(other), requests)
    assert got == expected


def test_the_tokens_of_each_row_count_towards_a_micro_batch():
    forest = build_forest(random_trees(13), decode=letters)
    assert forest.row_length.tolist() == [8, 8, 15, 16, 14, 9, 7]
    rows = torch.arange(forest.n_rows)
    assert [part.tolist() for part in micro_batches(forest, rows, 32)] == [[0, 1, 2, 3], [4, 5, 6]]
    # 8 + 8 + 15, 16 + 14, 9 + 7: each row whole.
    whole = micro_batches(forest, rows, 32, shared=False)
    assert [part.tolist() for part in whole] == [[0, 1, 2], [3, 4], [5, 6]]


GRPO = {
    "kind": "online",
    "steps": 3,
    "tasks_per_step": 2,
    "rollout": {"kind": "flat", "samples": 3, "sampling": {"max_completion_tokens": 5}},
    "credit": "group",
    "objective": {"kind": "ppo-clip", "kl": {"coefficient": 0.1}},
    "learner": {"lr": 1e-3, "micro_batch_tokens": 64},
}
TURNS = GRPO | {
    "steps": 2,
    "rollout": {
        "kind": "turns",
        "samples": 2,
        "environment": {"kind": "calculator", "notation": {"end": "1"}},
        "sampling": {"max_completion_tokens": 24},
    },
}
SEARCH = GRPO | {
    "steps": 2,
    "rollout": {
        "kind": "beam", "beams": 2, "width": 2, "step": {"tokens": 2}, "sampling": {"max_completion_tokens": 5},
    },
    "value": {"kind": "likelihood"},
}  # fmt: skip


@RUNS
def test_a_run_trains_what_it_sampled_and_resumes_to_the_bit(what, tmp_path):
    layout = "tree" if as_loaded(what).trains_over_trees else "rows"  # by itself it is the cheaper one
    stage = GRPO | {"learner": GRPO["learner"] | {"layout": layout}}
    whole = ran(tmp_path, lambda: as_loaded(what), stage, "whole")
    assert mismatch(whole) < 3e-5
    assert any(step["grad_norm"] > 0 for step in metrics(whole))
    with pytest.raises(Interrupted):
        ran(tmp_path, lambda: as_loaded(what), stage, "stopped", interrupted=iter([False, True]).__next__)
    resumed = ran(tmp_path, lambda: as_loaded(what), stage, "stopped", resume=True)
    before = AutoModelForCausalLM.from_pretrained(tmp_path / "model").state_dict()
    after = weights(whole)
    assert all(torch.equal(value, weights(resumed)[name]) for name, value in after.items())
    assert any(not torch.equal(value, before[name]) for name, value in after.items())


def test_adapters_are_trained_and_saved_merged(tmp_path):
    run = ran(tmp_path, lambda: as_loaded("linear attention"), GRPO, "run", settings={"lora": {"rank": 4}})
    assert mismatch(run) < 3e-5
    assert (run / "model" / "adapter" / "adapter_config.json").is_file()
    before = AutoModelForCausalLM.from_pretrained(tmp_path / "model").state_dict()
    assert any(not torch.equal(value, before[name]) for name, value in weights(run).items())


@pytest.mark.parametrize("what", ["attention of its own", "linear attention"])
@pytest.mark.parametrize("stage", [TURNS, SEARCH], ids=["turns", "search"])
def test_turns_and_searches_train_what_they_sampled(what, stage, tmp_path):
    run = ran(tmp_path, lambda: as_loaded(what), stage, "run")
    assert mismatch(run) < 3e-5


@RUNS
def test_new_weights_under_way_are_those_of_the_tokens_that_name_them(what):
    policy = as_loaded(what)
    engine, sampling = EmbeddedConfig().build(policy), Sampling(max_completion_tokens=10)
    newer = copy.deepcopy(PLAIN[what])
    with torch.no_grad():
        for weight in newer.parameters():
            weight *= 1.3
    requests = [Request(prefix, (1, 2, 3), sampling) for prefix in ([5], [5, 6, 7], [5, 6, 9])]

    async def swapped():
        asked = [asyncio.ensure_future(engine.extend(request)) for request in requests]
        while engine.occupancy.steps < 4:
            await asyncio.sleep(0)
        await engine.load(newer.state_dict(), 1, under_way="recompute")
        return await asyncio.gather(*asked)

    spans = 0
    for request, drawn in zip(requests, asyncio.run(swapped()), strict=True):
        for one in drawn:
            path, at = torch.tensor([[*request.prefix, *one.tokens]]), len(request.prefix) - 1
            with torch.no_grad():
                logits = [model(path, use_cache=False).logits[0, at:-1] for model in (PLAIN[what], newer)]
            nats = torch.stack(logits).float().log_softmax(-1)
            expected = nats[torch.tensor(one.version), torch.arange(len(one.tokens)), torch.tensor(one.tokens)]
            torch.testing.assert_close(torch.tensor(one.behaviour_logprob), expected, rtol=0, atol=3e-5)
            spans += len({*one.version}) == 2
    assert spans

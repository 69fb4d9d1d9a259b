"""New weights while samples are under way: each token is one of the version that it names."""

import asyncio
from copy import deepcopy

import pytest
import torch
from tiny_models import plain_model, policy_like

from lyceum.core.types import Request, Sampling
from lyceum.engine.embedded import EmbeddedConfig, EmbeddedEngine

LONG = [3 + (7 * i) % 90 for i in range(70)]  # beyond share_prompt_tokens
SHORT = [5, 6, 7, 8]
STEPS = 12


def versions_of(name):
    """A model, and one some updates later."""
    old = plain_model(name).double()
    new = deepcopy(old)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in new.parameters():
            weight += 0.3 * weight.std() * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
    return old, new


def drawn(name, requests, *, under_way, after=4, build=None, **config):
    """What an engine draws that gets new weights after so many steps; and logits of either version."""
    old, new = versions_of(name)
    served_model = deepcopy(old)
    policy = policy_like(served_model)
    served = (build or EmbeddedEngine)(policy, EmbeddedConfig(**config))

    async def go():
        asked = [asyncio.ensure_future(served.extend(request)) for request in requests]
        while served.occupancy.steps < after:
            await asyncio.sleep(0)
        await served.load(new.state_dict(), 1, under_way=under_way)
        return await asyncio.gather(*asked)

    return asyncio.run(go()), (old, new), served


def off_by(models, request, continuation):
    """(n,) how far each token's log-probability is from that of the model whose version it names, in nats."""
    whole = torch.tensor([[*request.prefix, *continuation.tokens]])
    at = torch.tensor(continuation.tokens)[:, None]
    with torch.no_grad():
        logits = [model(whole, use_cache=False).logits[0, len(request.prefix) - 1 : -1] for model in models]
    by_version = torch.stack([z.float().log_softmax(-1).gather(1, at).squeeze(1) for z in logits])
    expected = by_version[torch.tensor(continuation.version), torch.arange(len(at))]
    return (torch.tensor(continuation.behaviour_logprob) - expected).abs(), (by_version[0] - by_version[1]).abs()


SAMPLING = Sampling(max_completion_tokens=STEPS)
CASES = {
    "branching": ([Request(SHORT, list(range(8)), SAMPLING), Request(LONG[:9], list(range(6)), SAMPLING)], {}),
    "shared-prompts": ([Request(LONG, list(range(8)), SAMPLING), Request(SHORT, [1], SAMPLING)], {}),
    "waiting": ([Request(LONG[:20], list(range(9)), SAMPLING), Request(SHORT, [3, 4], SAMPLING)], {"max_sequences": 3}),
    "one-token": ([Request([5], list(range(5)), SAMPLING)], {}),
    "together": ([Request(SHORT, [3] * 4 + [9] * 4, SAMPLING)], {}),
    "reported": ([Request(SHORT, list(range(4)), SAMPLING, top=3, entropy=True)], {}),
    "kept": ([Request(LONG, list(range(8)), SAMPLING, keep=True)], {}),
}


@pytest.mark.parametrize("name", ["llama-gqa", "qwen3", "mistral-window"])
@pytest.mark.parametrize("case", CASES)
def test_each_token_has_the_log_probability_of_the_version_that_it_names(name, case):
    requests, config = CASES[case]
    found, models, served = drawn(name, requests, under_way="recompute", **config)
    spans = 0
    for request, continuations in zip(requests, found, strict=True):
        for continuation in continuations:
            assert continuation.version == sorted(continuation.version), "versions rise"
            off, apart = off_by(models, request, continuation)
            assert off.max() < 1e-5
            assert apart.max() > 1e-2, "else the test could not tell the versions"
            spans += len({*continuation.version}) == 2
    assert spans, "some sample has tokens of both"
    assert served.occupancy.recomputed > 0
    assert served.tokens_computed == sum(
        getattr(served.occupancy, part) for part in ("computed", "prefilled", "recomputed")
    )


def test_slots_of_one_request_are_computed_once_where_they_agree():
    # One prompt of 69 tokens that is fed before the first, 4 steps: 8 slots of at most 4 own tokens each.
    _, _, served = drawn("llama-gqa", [Request(LONG, list(range(8)), SAMPLING)], under_way="recompute")
    assert 69 + 4 <= served.occupancy.recomputed <= 69 + 8 * 4


def test_requests_are_computed_together_as_far_as_the_limit_allows():
    requests = [Request([7 * i, *SHORT], [1, 2], SAMPLING) for i in range(1, 7)]

    def passes(limit):
        found = []

        class Counted(EmbeddedEngine):
            def _prefilled(self, paths):
                found.append(sum(map(len, paths)))
                return super()._prefilled(paths)

        drawn("llama-gqa", requests, under_way="recompute", build=Counted, prefill_tokens=limit)
        return found

    assert len(passes(1000)) == 2, "one to begin, one again"
    again = passes(30)[1:]
    assert len(again) > 1
    assert max(again) <= 30


def test_kept_caches_are_of_neither_version():
    request = Request(LONG, list(range(8)), SAMPLING)
    (found,), models, served = drawn("llama-gqa", [request], under_way="keep")
    off, apart = map(torch.cat, zip(*(off_by(models, request, each) for each in found), strict=True))
    new = torch.tensor([version for each in found for version in each.version]) == 1
    assert served.occupancy.recomputed == 0
    assert off[~new].max() < 1e-5
    assert off[new].mean() > 0.05 * apart[new].mean()


def test_what_a_node_kept_is_computed_again_before_it_is_continued():
    old, new = versions_of("llama-gqa")
    served = EmbeddedEngine(policy_like(deepcopy(old)), EmbeddedConfig())

    async def go():
        (before,) = await served.extend(
            Request(SHORT, [1], SAMPLING.model_copy(update={"temperature": 2.0}), keep=True)
        )
        other = asyncio.ensure_future(served.extend(Request(LONG, [1, 2], SAMPLING)))
        steps = served.occupancy.steps
        while served.occupancy.steps < steps + 2:
            await asyncio.sleep(0)
        await served.load(new.state_dict(), 1, under_way="recompute")
        further = Request([*SHORT, *before.tokens[:5]], [7], SAMPLING)
        (after,) = await served.extend(further)
        await other
        return further, after

    further, after = asyncio.run(go())
    assert {*after.version} == {1}
    assert off_by((old, new), further, after)[0].max() < 1e-5


def test_new_weights_under_requests_are_refused_unless_it_is_said_what_becomes_of_them():
    with pytest.raises(RuntimeError, match="while requests are in progress"):
        drawn("llama-gqa", [Request(SHORT, [1], SAMPLING)], under_way="refuse")

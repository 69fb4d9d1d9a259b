"""Requests with a constraint, and with reports of each token's distribution, beside requests without."""

import asyncio
import itertools
import json
import math
from dataclasses import replace

import pytest
import torch
from tiny_models import plain_model, policy_like

from lyceum.core.types import Request, Sampling
from lyceum.engine._draw import draw, entropies, likeliest
from lyceum.engine.constraint.json_schema import JsonSchemaConstraint
from lyceum.engine.embedded import EmbeddedConfig
from lyceum.engine.vllm import VllmConfig
from lyceum.papers.hapo._entropy import EntropyRange
from lyceum.papers.hapo.guidance_entropy_temperature import TemperatureByEntropy
from lyceum.utils.aio import run_async
from lyceum.utils.errors import RecipeError

SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 40}, "ok": {"type": "boolean"}},
    "required": ["n", "ok"],
    "additionalProperties": False,
}
JSON = JsonSchemaConstraint(json_schema=SCHEMA)
PROMPT = [7, 8, 9, 10]


def engine_of(**settings):
    policy = policy_like(plain_model("llama-gqa"))
    return policy, EmbeddedConfig(**settings).build(policy)


def extend(engine, *requests):
    async def ask():
        return await asyncio.gather(*(engine.extend(request) for request in requests))

    return run_async(ask())


def bare(continuations):
    return [(c.tokens, c.behaviour_logprob, c.model_logprob, c.finish, c.top, c.entropy) for c in continuations]


def by_hand(policy, path, allowed, temperature):
    """(V,) log-probabilities of transformers' own logits after a path, over the allowed tokens."""
    with torch.no_grad():
        logits = plain_model("llama-gqa")(torch.tensor([path])).logits[0, -1].double() / temperature
    mask = torch.full_like(logits, -math.inf)
    mask[allowed] = 0
    return (logits + mask).log_softmax(-1)


def allowed_after(policy, tokens):
    state = JSON.build(policy).begin()
    assert state.advance(tokens)
    bits = torch.from_numpy(state.allowed().copy())
    return [t for t in range(99) if bits[t // 32] >> (t % 32) & 1]


def test_masked_draws_by_hand():
    # Logits 0, ln 2, ln 3, ln 4; the third is not allowed: 1/7, 2/7, -, 4/7. A draw at 0.4 falls into the second (1/7
    # to 3/7), where it would be the third of all four (0.3 to 0.6).
    logits = torch.tensor([[1.0, 2, 3, 4]]).log()
    allowed = torch.tensor([[True, True, False, True]])
    half = torch.tensor([0.4], dtype=torch.float64)
    drawn = draw(logits, None, half, Sampling(), allowed)
    assert drawn.token.tolist() == [1]
    assert drawn.behaviour_logprob.item() == pytest.approx(math.log(2 / 7))
    assert drawn.model_logprob.item() == pytest.approx(math.log(0.2)), "the model's own stays what it is"
    assert draw(logits, None, half, Sampling()).token.tolist() == [2]
    assert draw(logits, None, half, Sampling(temperature=0), ~allowed).token.tolist() == [2]
    # Truncation is of what is allowed: of the two most likely, 2/6 and 4/6.
    two = draw(logits, None, half, Sampling(top_k=2), allowed)
    assert (two.token.item(), two.behaviour_logprob.item()) == (3, pytest.approx(math.log(4 / 6)))

    token, nats = likeliest(logits, 2, allowed)
    assert token.tolist() == [[3, 1]]
    assert nats.exp().tolist() == [pytest.approx([4 / 7, 2 / 7])]
    expected = -sum(p * math.log(p) for p in (1 / 7, 2 / 7, 4 / 7))
    assert entropies(logits, allowed).item() == pytest.approx(expected)


@pytest.mark.parametrize("temperature", [1.0, 0.7, 3.0])
def test_every_completion_is_json_and_its_log_probabilities_are_of_the_masked_distribution(temperature):
    policy, engine = engine_of()
    sampling = Sampling(temperature=temperature, constraint=JSON, max_completion_tokens=40)
    (found,) = extend(engine, Request(PROMPT, range(24), sampling))
    assert len({tuple(c.tokens) for c in found}) > 2, "samples that share slots, and diverge"
    for continuation in found:
        assert continuation.finish == "stop"
        value = json.loads(policy.decode(continuation.tokens))
        assert list(value) == ["n", "ok"]
        assert 0 <= value["n"] <= 40
    for place, token in enumerate(found[0].tokens):
        before = found[0].tokens[:place]
        nats = by_hand(policy, [*PROMPT, *before], allowed_after(policy, before), temperature)
        assert found[0].behaviour_logprob[place] == pytest.approx(nats[token].item(), abs=1e-4)
    unmasked = by_hand(policy, PROMPT, list(range(99)), 1.0)
    assert found[0].model_logprob[0] == pytest.approx(unmasked[found[0].tokens[0]].item(), abs=1e-4)


def test_a_sample_depends_neither_on_the_batch_nor_on_where_it_was_continued():
    policy, engine = engine_of(max_sequences=3)
    sampling = Sampling(constraint=JSON, max_completion_tokens=40)
    (alone,) = extend(engine, Request(PROMPT, [5], sampling))
    plain = Request(PROMPT, range(6), Sampling(max_completion_tokens=9))
    (free,) = extend(engine, plain)
    beside = extend(engine, plain, Request(PROMPT, [3, 5, 4], sampling), Request(PROMPT, [5], sampling, top=3))
    assert [c.tokens for c in beside[0]] == [c.tokens for c in free], "requests without are as they were"
    assert beside[1][1].tokens == beside[2][0].tokens == alone[0].tokens
    # From the middle: any continuation of what stands completes it.
    for cut in range(1, len(alone[0].tokens)):
        begun = alone[0].tokens[:cut]
        (more,) = extend(engine, Request([*PROMPT, *begun], range(4), sampling, keep=True, written=cut))
        for continuation in more:
            json.loads(policy.decode([*begun, *continuation.tokens]))


def test_a_completion_that_the_constraint_does_not_allow_is_refused():
    _, engine = engine_of()
    with pytest.raises(RecipeError, match="does not allow"):
        extend(engine, Request(PROMPT, [0], Sampling(constraint=JSON), written=1))


def test_truncated_json_ends_by_length_and_a_stop_string_inside_it_by_stop():
    policy, engine = engine_of()
    (short,) = extend(engine, Request(PROMPT, range(4), Sampling(constraint=JSON, max_completion_tokens=4)))
    assert {c.finish for c in short} == {"length"}
    (stopped,) = extend(
        engine, Request(PROMPT, range(4), Sampling(constraint=JSON, stop=('"n"',), max_completion_tokens=40))
    )
    assert {policy.decode(c.tokens) for c in stopped} == {'{"n"'}


@pytest.mark.parametrize("constraint", [None, JSON], ids=["free", "constrained"])
def test_reports_are_of_the_distribution_that_a_token_was_drawn_from(constraint):
    policy, engine = engine_of()
    sampling = Sampling(constraint=constraint, max_completion_tokens=8)
    plain, (asked,) = (
        extend(engine, Request(PROMPT, range(12), sampling)),
        extend(engine, Request(PROMPT, range(12), sampling, top=3, entropy=True)),
    )
    assert [c.tokens for c in plain[0]] == [c.tokens for c in asked], "reports change no sample"
    assert all(c.top == [] and c.entropy == [] for c in plain[0])
    for continuation in asked[:4]:
        assert len(continuation.top) == len(continuation.entropy) == len(continuation.tokens)
        for place in range(len(continuation.tokens)):
            before = continuation.tokens[:place]
            allowed = list(range(99)) if constraint is None else allowed_after(policy, before)
            nats = by_hand(policy, [*PROMPT, *before], allowed, 1.0)
            entropy = -(nats.exp() * nats.clamp(min=-1e9)).sum().item()
            assert continuation.entropy[place] == pytest.approx(entropy, abs=1e-4)
            (likely, order) = nats.sort(descending=True)
            several = min(3, len(allowed))
            assert [token for token, _ in continuation.top[place][:several]] == order[:several].tolist()
            got = [nats for _, nats in continuation.top[place][:several]]
            assert got == pytest.approx(likely[:several].tolist(), abs=1e-4)


def test_reports_follow_a_sample_through_every_split_of_its_slot():
    _, engine = engine_of()
    sampling = Sampling(temperature=2.0, max_completion_tokens=12)
    (together,) = extend(engine, Request(PROMPT, range(16), sampling, top=2, entropy=True))
    apart = list(itertools.chain(*extend(engine, *(Request(PROMPT, [i], sampling, top=2) for i in range(16)))))
    for one, other in zip(together, apart, strict=True):
        assert one.tokens == other.tokens
        assert [[t for t, _ in top] for top in one.top] == [[t for t, _ in top] for top in other.top]
        assert other.entropy == []


def test_an_engine_that_repeats_no_constraint_says_so():
    assert {"constraint", "entropy", "top_logprobs"} <= EmbeddedConfig().offers
    assert VllmConfig().offers & {"constraint", "entropy", "top_logprobs"} == {"top_logprobs"}


@pytest.mark.parametrize("constraint", [None, JSON], ids=["free", "constrained"])
def test_a_temperature_follows_each_tokens_entropy(constraint):
    policy, engine = engine_of()
    sampling = Sampling(temperature=1.5, constraint=constraint, max_completion_tokens=8)
    by = TemperatureByEntropy(1.5, 0.5, EntropyRange(-1.0, 1.0, 1.6))
    tempered, unchanged = (sampling.model_copy(update={"temperature": replace(by, change=c)}) for c in (0.5, 0.0))
    one, same, other = extend(
        engine,
        Request(PROMPT, range(12), tempered, entropy=True),
        Request(PROMPT, range(12), unchanged),
        Request(PROMPT, range(12), sampling),
    )
    assert [c.tokens for c in same] == [c.tokens for c in other] != [c.tokens for c in one]
    factors = set()
    for continuation in one:
        for place, token in enumerate(continuation.tokens):
            before = continuation.tokens[:place]
            allowed = list(range(99)) if constraint is None else allowed_after(policy, before)
            h = by.of.relative(torch.tensor(continuation.entropy[place])).item()
            nats = by_hand(policy, [*PROMPT, *before], allowed, 1.5 * (1 + 0.5 * h))
            assert continuation.behaviour_logprob[place] == pytest.approx(nats[token].item(), abs=1e-4)
            factors.add(round(1 + 0.5 * h, 3))
    assert len(factors) > 2

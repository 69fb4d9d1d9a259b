"""The engine against transformers' own generation, forward passes and warpers, which know nothing of slots or trees."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import plain_model, policy_like
from transformers import MinPLogitsWarper, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from lyceum.core.types import Request, Sampling
from lyceum.engine.embedded import EmbeddedConfig, EmbeddedEngine
from lyceum.models.scratch import character_tokenizer
from lyceum.utils.errors import Diverged

# In float64, whose log-probabilities are then rounded to float32: which other requests are computed along changes the
# last bits of a sum, and here none of them can move a draw to another token.
PLAIN = {name: plain_model(name).double() for name in ("llama", "llama-gqa", "qwen3", "mistral-window")}
POLICY = {name: policy_like(model) for name, model in PLAIN.items()}
NAMES = pytest.mark.parametrize("name", PLAIN)
LONG = [3 + (7 * i) % 90 for i in range(70)]  # beyond share_prompt_tokens
GREEDY = Sampling(temperature=0.0)
TOKENIZER = character_tokenizer(context=256)


def engine(name="llama-gqa", **config):
    return EmbeddedEngine(POLICY[name], EmbeddedConfig(**config))


def extend(served, *requests):
    async def all_of_them():
        return await asyncio.gather(*(served.extend(request) for request in requests))

    return asyncio.run(all_of_them())


def one(served, prefix, n=1, sampling=None, *, first_seed=0, **more):
    seeds = range(first_seed, first_seed + n)
    return extend(served, Request(prefix, list(seeds), sampling or Sampling(max_completion_tokens=12), **more))[0]


def tokens(continuations):
    return [c.tokens for c in continuations]


def assert_same(got, expected):
    assert tokens(got) == tokens(expected)
    for g, e in zip(got, expected, strict=True):
        assert g.finish == e.finish
        torch.testing.assert_close(torch.tensor(g.behaviour_logprob), torch.tensor(e.behaviour_logprob))
        torch.testing.assert_close(torch.tensor(g.model_logprob), torch.tensor(e.model_logprob))


def assert_empty(served):
    assert not served._waiting
    assert len(served._slots) == len(served._prompts) == 0


def logits_of(name, prefix, drawn):
    """(tokens, V) logits that each drawn token was drawn from, by one plain forward of the whole."""
    with torch.no_grad():
        logits = PLAIN[name](torch.tensor([[*prefix, *drawn]]), use_cache=False).logits[0].float()
    return logits[len(prefix) - 1 : -1]


@NAMES
@pytest.mark.parametrize("prefix", [[5], [5, 6, 7, 8, 9, 10], LONG], ids=["one", "short", "long"])
def test_greedy_equals_transformers_generate(name, prefix):
    got = one(engine(name), prefix, 2, GREEDY.model_copy(update={"max_completion_tokens": 20}))
    expected = (
        PLAIN[name]
        .generate(torch.tensor([prefix]), do_sample=False, max_new_tokens=20, eos_token_id=1, pad_token_id=0)[
            0, len(prefix) :
        ]
        .tolist()
    )
    assert tokens(got) == [expected, expected]
    assert got[0].finish == ("stop" if expected[-1] == 1 else "length")


@NAMES
@pytest.mark.parametrize(
    "sampling",
    [
        {},
        {"temperature": 0.6},
        {"temperature": 1.3, "top_p": 0.8},
        {"top_k": 5},
        {"min_p": 0.2, "temperature": 1.5},
        {"temperature": 1.4, "top_k": 20, "top_p": 0.9, "min_p": 0.02},
    ],
    ids=str,
)
def test_log_probabilities_equal_a_plain_forwards(name, sampling):
    # behaviour: of what is left after transformers' own warpers; model: of the bare logits.
    settings = Sampling(**sampling, max_completion_tokens=10)
    warpers = [TemperatureLogitsWarper(float(settings.temperature))]
    warpers += [TopKLogitsWarper(settings.top_k)] if settings.top_k else []
    warpers += [TopPLogitsWarper(settings.top_p)] if settings.top_p < 1 else []
    warpers += [MinPLogitsWarper(settings.min_p)] if settings.min_p else []
    for prefix in ([4, 9, 30], LONG):
        for drawn in one(engine(name), prefix, 6, settings):
            logits = logits_of(name, prefix, drawn.tokens)
            warped = logits
            for warper in warpers:
                warped = warper(torch.tensor([prefix]), warped)
            at = torch.tensor(drawn.tokens)[:, None]
            for got, z in ((drawn.behaviour_logprob, warped), (drawn.model_logprob, logits)):
                expected = z.log_softmax(-1).gather(1, at).squeeze(1)
                torch.testing.assert_close(torch.tensor(got), expected, rtol=1e-4, atol=1e-5)


def test_samples_follow_the_models_distribution():
    # Sequences of two tokens of a vocabulary of eight, against the product of the model's own probabilities.
    model = plain_model("llama-gqa", vocab_size=8, spread=0.15)
    served = EmbeddedEngine(policy_like(model), EmbeddedConfig(max_sequences=10**6))
    prefix, n = [3, 4, 5], 20_000
    drawn = one(served, prefix, n, Sampling(max_completion_tokens=2))
    ids = torch.cartesian_prod(torch.arange(8), torch.arange(8))
    with torch.no_grad():
        logp = model(torch.cat([torch.tensor(prefix).expand(64, 3), ids], 1)).logits.log_softmax(-1)
    first, second = (logp[:, at].gather(1, ids[:, at - 2, None]).squeeze(1).exp() for at in (2, 3))
    stops = ids[:, 0] == 1  # an end of sequence has no second token
    probability = torch.where(stops, first / 8, first * second)
    count = torch.zeros(64)
    for c in drawn:
        if c.tokens == [1]:
            count[8:16] += 1 / 8
        else:
            count[c.tokens[0] * 8 + c.tokens[1]] += 1
    expected = n * probability
    chi_square = float(((count - expected).square() / expected)[~stops].sum())
    assert chi_square < 56 + 5 * np.sqrt(2 * 56)


@NAMES
def test_a_sample_does_not_depend_on_the_batch_nor_on_the_order_of_arrival_nor_on_how_many_fit(name):
    # Ragged prompts, short and shared; different limits and distributions; kept and not.
    samplings = [
        Sampling(max_completion_tokens=9),
        Sampling(temperature=0.7, max_completion_tokens=15),
        Sampling(temperature=1.2, top_p=0.9, max_completion_tokens=4),
        GREEDY.model_copy(update={"max_completion_tokens": 7}),
    ]
    prefixes = [[5], [6, 7, 8], LONG, [9, 10], LONG[:55], [*LONG[:60], 4], [6, 7, 20]]
    requests = [
        Request(p, [100 * i + s for s in range(1 + i % 4)], samplings[i % 4], keep=i % 3 == 0, order=(i,))
        for i, p in enumerate(prefixes)
    ]
    alone = [extend(engine(name), request)[0] for request in requests]
    for config in ({}, {"max_sequences": 3}, {"max_sequences": 1}, {"prefill_tokens": 50}, {"share_prompt_tokens": 4}):
        together = extend(engine(name, **config), *requests)
        for got, expected in zip(together, alone, strict=True):
            assert_same(got, expected)
    shuffled = [requests[i] for i in (3, 6, 0, 5, 1, 4, 2)]
    for got, i in zip(extend(engine(name), *shuffled), (3, 6, 0, 5, 1, 4, 2), strict=True):
        assert_same(got, alone[i])
    # One sample drawn without its siblings is the same sample.
    for request, expected in zip(requests, alone, strict=True):
        last = replace(request, seeds=request.seeds[-1:])
        assert_same(extend(engine(name), last)[0], expected[-1:])


@settings(deadline=None, max_examples=25)
@given(
    st.sampled_from(("llama-gqa", "mistral-window")),
    st.lists(
        st.tuples(st.sampled_from(([5], [6, 7, 8], LONG, LONG[:55])), st.integers(1, 9), st.booleans()),
        min_size=1,
        max_size=4,
    ),
    st.integers(1, 7),
    st.sampled_from(({}, {"share_prompt_tokens": 1}, {"prefill_tokens": 60}, {"keep_tokens": 0})),
)
def test_a_group_starts_as_places_become_free_and_draws_what_it_draws_all_at_once(name, groups, places, config):
    requests = [
        Request(p, [100 * i + s for s in range(n)], Sampling(max_completion_tokens=4 + 5 * i), keep=keep, order=(i,))
        for i, (p, n, keep) in enumerate(groups)
    ]
    served = engine(name, max_sequences=places, **config)
    step = served._step

    def checked():
        waits = any(job.waits for job in served._waiting)
        assert served._slots.members == places if waits else served._slots.members <= places
        step()

    served._step = checked
    for got, expected in zip(extend(served, *requests), extend(engine(name), *requests), strict=True):
        assert_same(got, expected)
    assert_empty(served)
    # No prompt is computed twice.
    assert served.occupancy.prefilled <= sum(len(request.prefix) - 1 for request in requests)


@NAMES
@pytest.mark.parametrize("prefix", [[5, 6, 7], LONG], ids=["short", "long"])
@pytest.mark.parametrize("places", [1, 3])
def test_samples_that_wait_find_their_prompt_computed(name, prefix, places):
    served, stored = engine(name, max_sequences=places, keep_tokens=0), []
    step = served._step
    served._step = lambda: (stored.append(len(served._prompts)), step())
    one(served, prefix, 8)
    assert served.occupancy.prefilled == len(prefix) - 1
    assert max(stored) == 1


def test_a_request_that_has_started_is_not_overtaken():
    # A later one of a lower order would otherwise leave two prompts stored for samples that wait, then three, ...
    served, sampling, starts = engine(max_sequences=2), Sampling(max_completion_tokens=6), []
    join = served._join
    served._join = lambda places: (starts.append([job.request.order for job in places]), join(places))

    async def both():
        first = asyncio.ensure_future(served.extend(Request(LONG, range(5), sampling, order=(1,))))
        while not starts:
            await asyncio.sleep(0)
        await asyncio.gather(first, served.extend(Request([5, 6], [7], sampling, order=(0,))))

    asyncio.run(both())
    order = [one for together in starts for one in together]
    assert order == sorted(order, reverse=True)
    assert order.count((1,)) > 1


def test_a_prompt_of_one_token_has_nothing_to_share():
    # That token is fed by the first step, and no other is before it.
    assert_same(one(engine(share_prompt_tokens=1), [5], 9), one(engine(), [5], 9))


def test_slots_hold_no_room_for_a_prompt_that_they_share():
    # 16 samples of a prompt of 70 tokens draw 12 each: the cache would be three times as wide with the prompt in it.
    served = engine()
    one(served, LONG, 16)
    assert served._store.kv.shape[4] == 32  # places grow by 32


@NAMES
def test_requests_that_arrive_while_others_are_under_way_join_and_change_nothing(name):
    served = engine(name)
    sampling = Sampling(max_completion_tokens=12)

    async def staggered(start, prefix, seed):
        for _ in range(start):
            await asyncio.sleep(0)
        return await served.extend(Request(prefix, [seed, seed + 1], sampling, order=(seed,)))

    async def all_of_them():
        starts = [(0, [5]), (9, LONG), (20, [5, 6]), (21, LONG), (40, [8])]
        return await asyncio.gather(*(staggered(s, p, 10 * i) for i, (s, p) in enumerate(starts)))

    for i, (got, prefix) in enumerate(zip(asyncio.run(all_of_them()), ([5], LONG, [5, 6], LONG, [8]), strict=True)):
        assert_same(got, one(engine(name), prefix, 2, sampling, first_seed=10 * i))


@NAMES
@pytest.mark.parametrize("root", [[5, 6, 7], LONG], ids=["short", "long"])
def test_continuing_from_a_kept_node_equals_computing_it_anew(name, root):
    def grow(keep):
        """Three levels below a prompt, from inner nodes and from cut-off ones."""
        served, sampling, found = engine(name), Sampling(max_completion_tokens=5), []
        paths = [root]
        for level in range(3):
            nodes = extend(
                served, *(Request(p, [9 * level + 1, 9 * level + 2], sampling, keep, (i,)) for i, p in enumerate(paths))
            )
            found += [c for group in nodes for c in group]
            paths = [[*p, *c.tokens] for p, group in zip(paths, nodes, strict=True) for c in group][:5]
            paths.append([*paths[0][:-2], 40])  # leaves a kept run in its middle
        return found, served.occupancy.prefilled

    kept, prefilled = grow(keep=True)
    anew, prefilled_anew = grow(keep=False)
    assert_same(kept, anew)
    assert prefilled < prefilled_anew


def test_kept_nodes_are_not_prefilled_again():
    served = engine()
    parent = one(served, LONG, 1, Sampling(max_completion_tokens=6), keep=True)[0]
    assert parent.finish == "length"
    before = served.occupancy.prefilled
    assert before == len(LONG) - 1
    one(served, [*LONG, *parent.tokens], 3, keep=True)
    # All drawn tokens but the last were kept, and the last one is what the first step feeds.
    assert served.occupancy.prefilled == before


def test_an_evicted_run_leaves_no_run_that_pretends_to_begin_a_sequence():
    # Two requests prefilled together; keeping the first one's prompt evicts the run that the second continues from.
    # What the second draws may then not be kept: found at the root, it would be taken for the beginning of a prompt.
    served, sampling = engine(keep_tokens=30), Sampling(max_completion_tokens=4)
    parent = one(served, [5, 6, 7], 1, sampling, keep=True)[0]
    path = [5, 6, 7, *parent.tokens]
    crowd = Request(list(range(20, 60)), [0], sampling, keep=True, order=(0,))
    after = extend(served, crowd, Request(path, [0], sampling, keep=True, order=(1,)))[1][0]
    as_a_prompt = [path[-1], *after.tokens]
    assert_same(one(served, as_a_prompt, 2), one(engine(), as_a_prompt, 2))


@pytest.mark.parametrize("capacity", [0, 8, 40])
def test_eviction_changes_no_sample_and_bounds_what_is_kept(capacity):
    served, sampling = engine(keep_tokens=capacity), Sampling(max_completion_tokens=4)
    paths = [[5, 6, 7], [8, 9]]
    for level in range(4):
        requests = [Request(p, [level, level + 50], sampling, keep=True, order=(i,)) for i, p in enumerate(paths)]
        grown = extend(served, *requests)
        for request, got in zip(requests, grown, strict=True):
            assert_same(got, extend(engine(), request)[0])
        paths = [[*r.prefix, *c.tokens] for r, group in zip(requests, grown, strict=True) for c in group][:4]
    keeper = served._keeper
    assert keeper.tokens == sum(len(run.tokens) for _, run in keeper.runs()) <= capacity


def test_new_weights_forget_what_was_kept():
    model = plain_model("llama-gqa").double()
    served = EmbeddedEngine(policy_like(model))
    sampling = Sampling(max_completion_tokens=6)
    first = one(served, LONG, 1, sampling, keep=True)[0]
    with torch.no_grad():
        for policy_parameter in served.policy.module.parameters():
            policy_parameter.mul_(1.05)
    asyncio.run(served.load(served.policy.module, version=7))
    fresh = EmbeddedEngine(served.policy)
    fresh.version = 7
    path = [*LONG, *first.tokens]
    got = one(served, path, 2, sampling)
    assert_same(got, one(fresh, path, 2, sampling))
    assert first.version == [0] * 6
    assert got[0].version == [7] * len(got[0].tokens)


def test_weights_as_a_state_dict_are_copied_in():
    served, other = EmbeddedEngine(policy_like(plain_model())), plain_model(seed=5)
    asyncio.run(served.load(other.state_dict(), version=1))
    assert_same(one(served, [5, 6]), one(EmbeddedEngine(policy_like(other)), [5, 6]))


# What ends a continuation ------------------------------------------------------------------------------------------


def sampled(seed=0, length=40):
    """A long sample that no end of sequence cut short, and the request it came from."""
    for s in range(seed, seed + 50):
        sampling = Sampling(max_completion_tokens=length)
        c = one(engine(), [5, 6, 7], 1, sampling, first_seed=s)[0]
        if c.finish == "length":
            return s, c.tokens
    raise AssertionError("every sample ended early")


def test_a_stop_string_ends_a_continuation_with_the_token_that_completes_it():
    seed, drawn = sampled()
    text = TOKENIZER.decode(drawn)
    assert len(text) == 40, "one character a token"
    stop = text[10:13]
    end = text.index(stop) + 3
    c = one(engine(), [5, 6, 7], 1, Sampling(max_completion_tokens=40, stop=("nowhere", stop)), first_seed=seed)[0]
    assert (c.tokens, c.finish) == (drawn[:end], "stop")


def test_a_stop_string_that_the_prompt_began_does_not_count():
    # Only what is drawn counts: otherwise a prompt that ends in a newline would stop at once.
    seed, drawn = sampled()
    prompt_ends_with = TOKENIZER.decode([7])
    stop = prompt_ends_with + TOKENIZER.decode(drawn[:1])
    if stop in TOKENIZER.decode(drawn):
        pytest.skip("the sample holds it anyway")
    c = one(engine(), [5, 6, 7], 1, Sampling(max_completion_tokens=40, stop=(stop,)), first_seed=seed)[0]
    assert c.finish == "length"


@pytest.mark.parametrize("cut", range(1, 8))
def test_a_stop_string_may_begin_in_what_was_written_before_but_not_lie_in_it(cut):
    # "ab=cd=ef" letter by letter, in two draws. The stop "b=c" ends with the fourth letter, wherever the limit of the
    # first draw stood; what it ended in the first draw is no reason to stop the second one.
    policy = policy_like(plain_model(vocab_size=256))
    policy.decode = lambda drawn: bytes(drawn).decode("utf-8", errors="replace")
    policy.stop_ids = frozenset()
    text = iter(b"ab=cd=ef")

    def scripted(hidden, output):
        forced = torch.full((len(hidden), 256), -50.0)
        forced[:, next(text)] = 50.0
        return forced

    policy.head = scripted
    served, stops = EmbeddedEngine(policy), ("b=c",)
    first = one(served, [5], 1, Sampling(max_completion_tokens=cut, stop=stops))[0]
    assert bytes(first.tokens) == b"ab=c"[:cut]
    assert first.finish == ("stop" if cut >= 4 else "length")
    left = Sampling(max_completion_tokens=8 - len(first.tokens), stop=stops)
    second = one(served, [5, *first.tokens], 1, left, written=len(first.tokens))[0]
    assert bytes(second.tokens) == (b"ab=c"[cut:] if cut < 4 else b"d=ef")
    assert second.finish == ("stop" if cut < 4 else "length")


def test_a_stop_string_of_several_bytes_a_character_is_found():
    # Six characters of three bytes each are eighteen tokens: more than the string's length in characters and a few.
    policy = policy_like(plain_model(vocab_size=256))
    stop = "解答结束完毕"
    script = iter([*b"abc", *stop.encode(), *b"xyz"])

    def scripted(hidden, output):
        forced = torch.full((len(hidden), 256), -50.0)
        forced[:, next(script)] = 50.0
        return forced

    policy.head, policy.stop_ids = scripted, frozenset()
    policy.decode = lambda drawn: bytes(drawn).decode("utf-8", errors="replace")  # as byte-level tokenizers do
    c = one(EmbeddedEngine(policy), [5], 1, Sampling(max_completion_tokens=24, stop=(stop,)))[0]
    assert bytes(c.tokens).decode() == "abc" + stop
    assert c.finish == "stop"


def test_stop_ids_and_the_end_of_sequence_end_a_continuation():
    seed, drawn = sampled()
    assert 1 not in drawn
    end = drawn.index(drawn[7]) + 1
    c = one(engine(), [5, 6, 7], 1, Sampling(max_completion_tokens=40, stop_token_ids=(drawn[7],)), first_seed=seed)[0]
    assert (c.tokens, c.finish) == (drawn[:end], "stop")
    # The model's own end of sequence, which generation settings may give as a list.
    model = plain_model("llama-gqa").double()
    model.generation_config.eos_token_id = [1, drawn[3]]
    served = EmbeddedEngine(policy_like(model))
    c = one(served, [5, 6, 7], 1, Sampling(max_completion_tokens=40), first_seed=seed)[0]
    assert (c.tokens, c.finish) == (drawn[: drawn.index(drawn[3]) + 1], "stop")


def test_lengths_and_the_models_context_are_limits():
    assert {len(c.tokens) for c in one(engine(), [5], 4, Sampling(max_completion_tokens=1))} == {1}
    served = EmbeddedEngine(policy_like(plain_model("llama-gqa", max_position_embeddings=16)))
    served.policy.stop_ids = frozenset()
    greedy = GREEDY.model_copy(update={"max_completion_tokens": 64})
    drawn = one(served, [5, 6, 7, 8], 1, greedy)[0]
    assert (4 + len(drawn.tokens), drawn.finish) == (16, "length")
    assert len(one(served, [5] * 15, 1, greedy)[0].tokens) == 1
    with pytest.raises(ValueError, match="16 tokens leaves no room in the model's context of 16"):
        one(served, [5] * 16)
    with pytest.raises(ValueError, match="empty prefix"):
        one(served, [])


def test_no_samples_are_an_empty_answer():
    assert extend(engine(), Request([5], [], Sampling()), Request([6], [1], Sampling()))[0] == []


# Scores ------------------------------------------------------------------------------------------------------------


@NAMES
def test_scores_are_a_plain_forwards(name):
    served, paths = engine(name), [[5, 6, 7], LONG, [9], [5, 6, 8, 30]]

    async def all_of_them():
        return await asyncio.gather(*(served.score(path) for path in paths))

    for path, got in zip(paths, asyncio.run(all_of_them()), strict=True):
        logits = logits_of(name, path[:1], path[1:])
        expected = logits.log_softmax(-1).gather(1, torch.tensor(path[1:])[:, None]).squeeze(1) if path[1:] else []
        assert got[0] == 0.0
        torch.testing.assert_close(torch.tensor(got[1:]), torch.as_tensor(expected), rtol=1e-4, atol=1e-5)


def test_what_is_scored_at_once_has_a_limit_as_prompts_have():
    # 3 + 2 fit into 6, the next 4 do not; 9 are one request; 4 + 2 again fit. All at once would be 24.
    policy = policy_like(plain_model())
    served, hidden, sizes = EmbeddedEngine(policy, EmbeddedConfig(prefill_tokens=6)), policy.hidden, []

    def noted(token, *rest):
        sizes.append(len(token))
        return hidden(token, *rest)

    policy.hidden = noted
    paths = [[5, 6, 7], [8, 9], [5, 6, 7, 8], [9] * 9, [4, 5, 6, 7], [8, 9]]

    async def all_of_them():
        return await asyncio.gather(*(served.score(path) for path in paths))

    assert [len(scores) for scores in asyncio.run(all_of_them())] == [3, 2, 4, 9, 4, 2]
    assert sizes == [5, 4, 9, 6]


def test_nothing_to_score_or_too_much_is_refused():
    for path, said in (([], "nothing to score"), ([5] * 257, "257 tokens to score exceed the model's context of 256")):
        with pytest.raises(ValueError, match=said):
            asyncio.run(engine().score(path))


# Cost --------------------------------------------------------------------------------------------------------------


def test_identical_greedy_samples_cost_one_slot():
    served = engine()
    drawn = one(served, [5, 6, 7], 8, GREEDY.model_copy(update={"max_completion_tokens": 10}))
    n = len(drawn[0].tokens)
    assert len({tuple(c.tokens) for c in drawn}) == 1
    assert (served.occupancy.steps, served.occupancy.computed, served.occupancy.drawn) == (n, n, 8 * n)


def test_statistics_count_each_token_once():
    served = engine()
    prefixes = [[5, 6, 7], [5, 6, 9, 10], LONG]
    requests = [
        Request(p, list(range(6)), Sampling(max_completion_tokens=8), order=(i,)) for i, p in enumerate(prefixes)
    ]
    answers = extend(served, *requests)
    # Each prefix but for its last token, what they begin alike with once: 5 6, then 9, then the long one.
    assert served.occupancy.prefilled == 2 + 1 + len(LONG) - 1
    assert served.occupancy.drawn == sum(len(c.tokens) for group in answers for c in group)
    # A step feeds a prefix's last token, and each run of drawn tokens that some sample went on from.
    fed = {(i, tuple(c.tokens[:k])) for i, group in enumerate(answers) for c in group for k in range(len(c.tokens))}
    assert served.occupancy.computed == len(fed)
    assert served.occupancy.steps == max(len(c.tokens) for group in answers for c in group)
    assert len(served._slots) == 0
    assert len(served._prompts) == 0, "shared prompts are let go with their last sample"


def test_no_more_samples_are_drawn_at_once_than_allowed():
    served, live = engine(max_sequences=5), []
    step = served._step
    served._step = lambda: (live.append(served._slots.members), step())[1]
    extend(
        served, *(Request([5 + i], [2 * i, 2 * i + 1], Sampling(max_completion_tokens=4), order=(i,)) for i in range(6))
    )
    assert max(live) <= 5
    # A request of more samples than that is not refused: they take turns.
    live.clear()
    assert len(one(served, [5], 8)) == 8
    assert max(live) == 5


# When things go wrong ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", [[5, 6], LONG], ids=["short", "shared"])
def test_a_cancelled_request_leaves_and_the_others_go_on(prefix):
    served, sampling = engine(), Sampling(max_completion_tokens=30)

    async def cancel_one():
        kept = asyncio.ensure_future(served.extend(Request([8, 9], [1, 2], sampling, order=(0,))))
        gone = asyncio.ensure_future(served.extend(Request(prefix, [3, 4, 5], sampling, order=(1,))))
        waiting = asyncio.ensure_future(served.extend(Request(prefix, [6], sampling, order=(2,))))
        waiting.cancel()
        for _ in range(30):
            await asyncio.sleep(0)
        assert len(served._slots)
        gone.cancel()
        answer = await kept
        with pytest.raises(asyncio.CancelledError):
            await gone
        return answer

    assert_same(asyncio.run(cancel_one()), one(engine(), [8, 9], 2, sampling, first_seed=1))
    assert_empty(served)


@pytest.mark.parametrize("name", ["llama-gqa", "mistral-window"])
@pytest.mark.parametrize("prefix", [[5, 6], LONG], ids=["short", "long"])
@pytest.mark.parametrize("after", [1, 8, 9, 20])
def test_a_cancelled_request_frees_all_it_had_while_some_of_its_samples_wait(name, prefix, after):
    # Eight samples of eight tokens take turns in two places, in 32 steps. After eight steps the first two have finished
    # and the next ones have not started: nothing but the stored prompt is left to be freed.
    served, sampling, steps = engine(name, max_sequences=2), Sampling(max_completion_tokens=8), []
    step = served._step

    async def cancel_one(*behind):
        gone = asyncio.ensure_future(served.extend(Request(prefix, range(8), sampling, order=(0,))))

        def cancelling():
            step()
            steps.append(1)
            if len(steps) == after:
                job = served._waiting[0]
                assert job.started > 1
                assert job.waits
                assert len(served._slots) or after == 8
                assert any(job.results) == (after >= 8)
                gone.cancel()

        served._step = cancelling
        answers = await asyncio.gather(gone, *(served.extend(request) for request in behind), return_exceptions=True)
        await served._pump
        assert_empty(served)
        assert isinstance(answers[0], asyncio.CancelledError)
        return answers[1:]

    asyncio.run(cancel_one())
    assert len(steps) == after
    steps.clear()
    another = Request([8, 9], [11, 12, 13], sampling, order=(1,))
    assert_same(asyncio.run(cancel_one(another))[0], extend(engine(name), another)[0])


@pytest.mark.parametrize("fails_at", [1, 2, 4], ids=["prefill", "first step", "later"])
def test_an_error_reaches_every_caller_and_the_engine_can_be_used_again(fails_at):
    # Of four places the last one is for the second request, whose other samples wait, as the third one does.
    served, calls = EmbeddedEngine(policy_like(plain_model()), EmbeddedConfig(max_sequences=4)), []
    hidden = served._hidden

    def failing(*args, **more):
        calls.append(1)
        if len(calls) == fails_at:
            raise MemoryError("no memory for 3 GB")
        return hidden(*args, **more)

    served._hidden = failing

    async def all_of_them():
        callers = [served.extend(Request([5, 6, i], range(3), Sampling(), order=(i,))) for i in (10, 11, 12)]
        return await asyncio.wait_for(asyncio.gather(*callers, return_exceptions=True), timeout=20)

    assert [type(e) for e in asyncio.run(all_of_them())] == [MemoryError] * 3
    assert_empty(served)
    assert len(one(served, [5, 6], 2)) == 2


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(), Sampling(temperature=0.5, top_k=5), Sampling(min_p=0.1)])
def test_weights_that_have_diverged_are_told_with_their_step(sampling):
    model = plain_model()
    with torch.no_grad():
        next(iter(model.parameters())).fill_(float("nan"))
    served = EmbeddedEngine(policy_like(model))
    with pytest.raises(Diverged, match="logits are not finite, so that training has diverged, or"):
        one(served, [3, 4, 5], 2, sampling)
    served.version = 7
    with pytest.raises(Diverged, match=r"under the weights of step 7, which have diverged; lower learner\.lr"):
        one(served, [3, 4, 5], 2, sampling)
    with pytest.raises(Diverged, match="under the weights of step 7"):
        asyncio.run(served.score([3, 4, 5]))


def test_an_error_in_scoring_reaches_its_callers():
    policy = policy_like(plain_model())
    served = EmbeddedEngine(policy)

    def failing(*args):
        raise MemoryError("no memory")

    policy.hidden = failing

    async def all_of_them():
        callers = (served.score([5, 6]), served.score([7, 8]))
        return await asyncio.wait_for(asyncio.gather(*callers, return_exceptions=True), timeout=20)

    assert [type(e) for e in asyncio.run(all_of_them())] == [MemoryError] * 2


@pytest.mark.parametrize("ask", ["extend", "score"])
def test_weights_are_not_loaded_under_a_request(ask):
    served = engine()

    async def load_meanwhile():
        work = served.extend(Request([5], [1], Sampling())) if ask == "extend" else served.score([5, 6])
        under_way = asyncio.ensure_future(work)
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="in progress"):
            await served.load(served.policy.module, version=1)
        await under_way

    asyncio.run(load_meanwhile())

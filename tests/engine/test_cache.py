"""What is kept, as a radix tree over single tokens: found to the token, stored once, let go from its ends."""

import asyncio

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import plain_model, policy_like

from lyceum.core.types import Request, Sampling
from lyceum.engine._cache import Keeper, Store, TokenPool, common
from lyceum.engine._plan import PrefillPlan
from lyceum.engine.embedded import EmbeddedConfig, EmbeddedEngine

SHAPE = (2, 3, 4)
POLICY = policy_like(plain_model("llama-gqa").double())
# Few letters and short words, so that beginnings coincide, one is another's beginning, and runs are cut anywhere.
WORDS = st.lists(st.lists(st.integers(3, 5), min_size=1, max_size=7).map(tuple), min_size=1, max_size=12)


def keeper(capacity=10**6):
    return Keeper(capacity, TokenPool(SHAPE, torch.float64, torch.device("cpu")))


def marked(words):
    """Keys and values that say which beginning of which word they are of: a token is not the same below another one."""
    ends = [hash(words[: at + 1]) % 10**9 for at in range(len(words))]
    return torch.tensor(ends, dtype=torch.float64)[None, None, :, None, None].expand(2, 2, -1, 3, 4)


def keep(kept, word):
    at, places = kept.add(word)
    kept.pool.write(places, marked(word)[:, :, at:])
    kept.trim()


def alike(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


@given(st.lists(st.integers(0, 1)), st.lists(st.integers(0, 1)))
def test_common_beginnings(a, b):
    assert common(a, tuple(b)) == alike(a, b)


@given(WORDS, WORDS)
def test_the_longest_beginning_is_found_to_the_token_and_each_token_is_stored_once(words, asked):
    kept = keeper()
    for word in words:
        keep(kept, word)
    for word in [*asked, *words]:
        places = kept.longest(word)
        assert len(places) == max(alike(word, other) for other in words)
        torch.testing.assert_close(kept.pool.read(places), marked(word)[:, :, : len(places)])
    # A trie by hand: as many tokens as there are different beginnings.
    assert kept.tokens == len(kept.pool) == len({word[:end] for word in words for end in range(1, len(word) + 1)})
    assert kept.tokens == sum(len(run.tokens) for _, run in kept.runs())


@given(WORDS, st.integers(0, 12))
def test_what_goes_for_want_of_room_is_ends_and_what_stays_is_found(words, capacity):
    kept = keeper(capacity)
    for word in words:
        keep(kept, word)
        assert kept.tokens == len(kept.pool) <= capacity
        left = {tuple(run_tokens(run)) for _, run in kept.runs()}
        for other in words:
            places = kept.longest(other)
            assert len(places) == max((alike(other, tokens) for tokens in left), default=0)
            torch.testing.assert_close(kept.pool.read(places), marked(other)[:, :, : len(places)])


def run_tokens(run):
    return [*([] if run.above is None else run_tokens(run.above)), *run.tokens]


def test_what_was_not_looked_up_for_longest_goes_first():
    # 12 tokens of three words, room for 12. The first is looked up, then four more come: the second goes, the oldest
    # that nobody asked for; then 12 are left, of which an eighth is to be free: 10 are reached with the third.
    kept = keeper(12)
    for first in (1, 2, 3):
        keep(kept, (first, 7, 7, 7))
    kept.longest((1, 7, 7, 7))
    keep(kept, (4, 7, 7, 7))
    assert [len(kept.longest((first, 7, 7, 7))) for first in (1, 2, 3, 4)] == [4, 0, 0, 4]


def test_a_run_that_is_cut_keeps_its_places():
    kept = keeper()
    keep(kept, (1, 2, 3, 4))
    before = kept.longest((1, 2, 3, 4))
    keep(kept, (1, 2, 9))
    assert kept.longest((1, 2, 3, 4)).tolist() == before.tolist()
    assert kept.longest((1, 2, 9)).tolist()[:2] == before.tolist()[:2]


def test_nothing_is_kept_below_what_is_not():
    # Somebody has keys from the third token on. Kept without the first two they would be found as a beginning.
    kept = keeper()
    keep(kept, (1,))
    assert kept.add((1, 2, 3, 4), least=2)[0] == 1
    assert len(kept.longest((1, 2, 3, 4))) == 1
    assert kept.add((1, 2, 3, 4), least=1)[0] == 1
    assert len(kept.longest((1, 2, 3, 4))) == 4


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 40)), max_size=30))
def test_a_place_in_the_pool_has_one_holder(steps):
    pool = TokenPool(SHAPE, torch.float32, torch.device("cpu"))
    held: list[np.ndarray] = []
    for number, (takes, n) in enumerate(steps):
        if takes or not held:
            places = pool.take(n)
            pool.write(places, torch.full((2, 2, n, 3, 4), float(number)))
            held.append(places)
            assert (pool.read(places) == number).all()
        else:
            pool.release(held.pop(n % len(held)))
        together = np.concatenate([*held, np.zeros(0, np.int64)])
        assert len(set(together.tolist())) == len(together) == len(pool)


def test_a_store_reads_and_writes_single_tokens():
    store = Store(SHAPE, torch.float32, torch.device("cpu"))
    store.reserve(3, 5)
    store.kv.normal_()
    whole = store.kv.clone()
    entry, place = np.array([2, 0, 2]), np.array([4, 1, 0])
    got = store.read(entry, place)
    for i, (e, p) in enumerate(zip(entry, place, strict=True)):
        torch.testing.assert_close(got[:, :, i], whole[:, :, e, :, p])
    store.write(entry[::-1].copy(), place[::-1].copy(), got + 1)
    # (2, 0) gets what (2, 4) had, and the other way round; the middle one its own.
    torch.testing.assert_close(store.kv[:, :, 2, :, 0], whole[:, :, 2, :, 4] + 1)
    torch.testing.assert_close(store.kv[:, :, 0, :, 1], whole[:, :, 0, :, 1] + 1)
    torch.testing.assert_close(store.kv[:, :, 1], whole[:, :, 1])


def drawn(served, requests):
    async def all_of_them():
        return await asyncio.gather(*(served.extend(request) for request in requests))

    return asyncio.run(all_of_them())


@settings(max_examples=25)
@given(st.lists(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 9), st.integers(1, 3)), min_size=1, max_size=3),
                min_size=1, max_size=4),
       st.sampled_from([10**6, 30]), st.sampled_from([2, 48]))  # fmt: skip
def test_continuing_anywhere_in_what_was_drawn_equals_a_fresh_engine(rounds, capacity, share):
    # Each request begins with some part of some path drawn before, and parts from it there.
    served = EmbeddedEngine(POLICY, EmbeddedConfig(keep_tokens=capacity, share_prompt_tokens=share))
    sampling = Sampling(max_completion_tokens=5)
    paths, seed = [[5, 6, 7, 8]], 0
    for asked in rounds:
        requests = []
        for number, (which, cut, n) in enumerate(asked):
            path = paths[which % len(paths)]
            prefix = [*path[: max(1, len(path) - cut)], *([40] if cut % 2 else [])]
            seed += n
            requests.append(Request(prefix, list(range(seed, seed + n)), sampling, keep=True, order=(number,)))
        before = [len(served._keeper.longest(request.prefix[:-1])) for request in requests]
        prefilled = served.occupancy.prefilled
        for request, got in zip(requests, drawn(served, requests), strict=True):
            anew = drawn(EmbeddedEngine(POLICY), [request])[0]
            assert [c.tokens for c in got] == [c.tokens for c in anew]
            for c, expected in zip(got, anew, strict=True):
                torch.testing.assert_close(torch.tensor(c.model_logprob), torch.tensor(expected.model_logprob))
                torch.testing.assert_close(torch.tensor(c.behaviour_logprob), torch.tensor(expected.behaviour_logprob))
            paths += [[*request.prefix, *c.tokens] for c in got]
        missing = sum(len(r.prefix) - 1 - at for r, at in zip(requests, before, strict=True))
        assert served.occupancy.prefilled - prefilled <= missing, "what was kept is not computed again"
        if capacity > 30:
            assert all(len(served._keeper.longest(path[:-1])) == len(path) - 1 for path in paths[1:])


@pytest.mark.parametrize("cut", range(1, 8))
def test_a_branch_inside_a_kept_run_costs_no_prefill(cut):
    # A step of 8 tokens below a prompt of 4, and a branch before each of its tokens.
    served = EmbeddedEngine(policy_like(plain_model("llama-gqa").double()))
    prompt = [5, 6, 7, 9]
    served.policy.stop_ids = frozenset()
    step = drawn(served, [Request(prompt, [1], Sampling(max_completion_tokens=8), keep=True)])[0][0]
    assert served.occupancy.prefilled == 3
    drawn(served, [Request([*prompt, *step.tokens[:cut]], [2, 3], Sampling(max_completion_tokens=2), keep=True)])
    assert served.occupancy.prefilled == 3


def test_a_path_that_is_gone_on_with_at_once_stays_where_it_is(monkeypatch):
    # Four nodes end together and are continued, in another order and one of them twice over; a fifth request is new.
    served, filled = EmbeddedEngine(policy_like(plain_model("llama-gqa").double())), []
    served.policy.stop_ids = frozenset()
    fill = PrefillPlan.fill
    monkeypatch.setattr(
        PrefillPlan, "fill", lambda plan, store, into: (filled.append(len(into)), fill(plan, store, into))
    )
    sampling = Sampling(max_completion_tokens=3)
    nodes = drawn(served, [Request([5, 6], [1, 2], sampling, True, (0,)), Request([7], [3, 4], sampling, True, (1,))])
    paths = [[*prefix, *c.tokens] for prefix, group in zip(([5, 6], [7]), nodes, strict=True) for c in group]
    assert len({tuple(path[:-1]) for path in paths}) == 4, "else they share a slot"
    asked = [Request(paths[i], [10 * n, 10 * n + 1], sampling, True, (n,)) for n, i in enumerate((2, 0, 3, 1, 0))]
    asked.append(Request([8, 9], [99], sampling, True, (9,)))
    for got, request in zip(drawn(served, asked), asked, strict=True):
        assert [c.tokens for c in got] == [c.tokens for c in drawn(EmbeddedEngine(served.policy), [request])[0]]
    assert filled[:2] == [2, 2], "two prompts, then the new request and the second one of the same path"


def test_new_weights_forget_what_stood_in_the_slots():
    model = plain_model("llama-gqa").double()
    served = EmbeddedEngine(policy_like(model))
    served.policy.stop_ids = frozenset()
    first = drawn(served, [Request([5, 6], [1], Sampling(max_completion_tokens=4), keep=True)])[0][0]
    with torch.no_grad():
        for parameter in served.policy.module.parameters():
            parameter.mul_(1.05)
    asyncio.run(served.load(served.policy.module, version=1))
    again = Request([5, 6, *first.tokens], [2, 3], Sampling(max_completion_tokens=4))
    for got, anew in zip(drawn(served, [again])[0], drawn(EmbeddedEngine(served.policy), [again])[0], strict=True):
        assert got.tokens == anew.tokens
        torch.testing.assert_close(torch.tensor(got.model_logprob), torch.tensor(anew.model_logprob))


@pytest.mark.parametrize("capacity", [30, 1000])
def test_below_a_shared_prompt_nothing_is_kept_that_lacks_its_beginning(capacity):
    # The prompt is stored beside the slots, which hold only what was drawn below it. With room for 30 tokens, 24 of a
    # second request drive the first one's 11 out at once: its slots are then no beginning of anything.
    served = EmbeddedEngine(POLICY, EmbeddedConfig(share_prompt_tokens=1, keep_tokens=capacity))
    prompt, sampling = list(range(5, 17)), Sampling(max_completion_tokens=4)
    crowd = Request(list(range(30, 55)), [9], Sampling(max_completion_tokens=1), keep=True, order=(1,))
    nodes = drawn(served, [Request(prompt, [1, 2, 3], sampling, keep=True, order=(0,)), crowd])[0]
    assert served._keeper.tokens <= capacity
    # One sample each: their slots are to hold the prompt too.
    below = [Request([*prompt, *c.tokens], [7], sampling, keep=True, order=(i,)) for i, c in enumerate(nodes)]
    for got, request in zip(drawn(served, below), below, strict=True):
        anew = drawn(EmbeddedEngine(POLICY), [request])[0]
        assert [c.tokens for c in got] == [c.tokens for c in anew]
        for c, expected in zip(got, anew, strict=True):
            torch.testing.assert_close(torch.tensor(c.model_logprob), torch.tensor(expected.model_logprob))


def test_what_two_new_prompts_have_in_common_below_a_kept_beginning_is_computed_once():
    served, sampling = EmbeddedEngine(POLICY), Sampling(max_completion_tokens=3)
    drawn(served, [Request([5, 6, 7, 8], [1], sampling, keep=True)])
    before = served.occupancy.prefilled
    asked = [Request([5, 6, 7, 40, 41, 42, last, 9], [3, 4], sampling, order=(last,)) for last in (50, 51)]
    got = drawn(served, asked)
    # Kept: 5 6 7. Once: 40 41 42. Of each: its own seventh token; the eighth is fed by the first step.
    assert served.occupancy.prefilled - before == 5
    for of, request in zip(got, asked, strict=True):
        for c, expected in zip(of, drawn(EmbeddedEngine(POLICY), [request])[0], strict=True):
            assert c.tokens == expected.tokens
            torch.testing.assert_close(torch.tensor(c.model_logprob), torch.tensor(expected.model_logprob))

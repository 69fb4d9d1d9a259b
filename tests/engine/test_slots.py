"""The columns of live slots against a plain list for each sample."""

import asyncio

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lyceum.core.types import Request, Sampling
from lyceum.engine._slots import Job, Joining, Slots


def joining(prefix, seeds, loop):
    """The first half of a request's samples, and the others after them: each is a slot."""
    n = len(seeds)
    job = Job(Request(prefix, seeds, Sampling()), loop.create_future(), frozenset(), [None] * n, n)
    halves = (range(n // 2), range(n // 2, n))
    return [Joining(job, members, len(prefix) - 1, -1, 64, 0) for members in halves if members]


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 2**31), st.integers(1, 4), st.booleans()), min_size=1, max_size=12),
)
def test_every_sample_finds_what_it_drew_and_its_cache(sizes, steps):
    # A token of 0 ends its samples. The "cache" of a slot is a list that the moves must carry along.
    loop = asyncio.new_event_loop()
    slots, cache = Slots(), []
    drawn = {}

    def join(number, n):
        samples = joining([10 + number, 7], [100 * number + i for i in range(n)], loop)
        slots.join(samples)
        cache.extend([("prefix", number)] for _ in samples)
        drawn.update({100 * number + i: [] for i in range(n)})

    for number, n in enumerate(sizes):
        join(number, n)
    for i, (seed, vocabulary, another) in enumerate(steps):
        if another:
            join(50 + i, 3)
        if not len(slots):
            break
        token = np.random.default_rng(seed).integers(0, vocabulary + 1, slots.members)
        for row, t in zip(slots.fed.T.tolist(), cache, strict=True):
            t.append(row[0])  # what a step feeds is cached
        for s, t in zip(slots.seed.tolist(), token.tolist(), strict=True):
            drawn[s].append(t)
        before = slots.member_slot.copy()
        groups = slots.grouped(token)
        # Two samples are in one group just when they shared a slot and drew the same.
        together = groups.of[:, None] == groups.of
        assert (together == ((before[:, None] == before) & (token[:, None] == token))).all()
        t = token[groups.leader]
        logprob = t.astype(np.float32) / 8
        place, source, target = slots.regroup(groups, t > 0)
        assert not set(source.tolist()) & set(target.tolist()), "what is copied is not overwritten first"
        copies = {b: list(cache[a]) for a, b in zip(source.tolist(), target.tolist(), strict=True)}
        cache = [copies.get(a, cache[a] if a < len(cache) else None) for a in range(len(slots))]
        if len(place):
            slots.append(place, t[t > 0], -logprob[t > 0], logprob[t > 0])
        assert slots.member_slot.tolist() == sorted(slots.member_slot.tolist())
        assert slots.seed.tolist() != [] or not len(slots)
        assert {s for s in drawn if 0 not in drawn[s]} == set(slots.seed.tolist())
        for s, a in zip(slots.seed.tolist(), slots.member_slot.tolist(), strict=True):
            assert slots.drawn(a) == drawn[s]
            assert slots.logprobs(a) == ([-t / 8 for t in drawn[s]], [t / 8 for t in drawn[s]])
            assert cache[a] == [("prefix", s // 100), 7, *drawn[s][:-1]][: len(cache[a])]
            assert slots.token[a] == drawn[s][-1]
            assert slots.job[a].request.seeds[int(slots.member[slots.seed == s][0])] == s
    loop.close()

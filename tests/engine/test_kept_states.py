"""The embedded engine of models with states: samples are those of each row alone, and what is kept stays computed."""

import asyncio
import copy
import functools

import numpy as np
import pytest
import torch
from tiny_models import HYBRIDS

from lyceum.core.types import Request, Sampling
from lyceum.engine._cache import TokenPool
from lyceum.engine._states import StateKeeper, StatePool, StatesEngine
from lyceum.engine.embedded import EmbeddedConfig
from lyceum.models.model_cache import ModelStates
from lyceum.models.scratch import character_tokenizer
from lyceum.models.trial import logits_alone, policy_of
from lyceum.utils.aio import run_async

TOKENIZER = character_tokenizer(context=256)
PLAIN = {what: make() for what, make in HYBRIDS.items()}
NET = "gated delta net"
CPU = torch.device("cpu")


@functools.cache
def policy(what):
    model = copy.deepcopy(PLAIN[what])
    return policy_of(model, TOKENIZER, logits_alone(model))


def engine(what=NET, **config):
    served = EmbeddedConfig(**config).build(policy(what))
    assert isinstance(served, StatesEngine)
    return served


def extended(served, *requests):
    async def go():
        return await asyncio.gather(*map(served.extend, requests))

    return run_async(go())


def apart(models, request, drawn):
    """Largest difference of samples' log-probabilities from those of their rows alone.

    Args:
        models: by version of the weights.
    """
    worst = 0.0
    for one in drawn:
        path, at = torch.tensor([[*request.prefix, *one.tokens]]), len(request.prefix) - 1
        with torch.no_grad():
            nats = torch.stack([m(path, use_cache=False).logits[0, at:-1] for m in models]).float().log_softmax(-1)
        expected = nats[torch.tensor(one.version), torch.arange(len(one.tokens)), torch.tensor(one.tokens)]
        worst = max(worst, float((torch.tensor(one.model_logprob) - expected).abs().max()))
    return worst


def some(count, *, seed):
    return torch.randint(3, 99, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def next_turns(requests, drawn):
    """What continues each completion: whole, in its middle, and in that of its prompt."""
    for request, samples in zip(requests, drawn, strict=True):
        path = [*request.prefix, *samples[0].tokens]
        for cut in (len(path), len(path) - 3, len(request.prefix) // 2 + 1):
            yield [*path[:cut], 5, 6, 7]


EVICTING = {"all": {}, "few tokens": {"keep_tokens": 40, "max_sequences": 3}, "few states": {"keep_states": 2}}


@pytest.mark.parametrize(
    ("what", "config"), [*((what, "few tokens") for what in HYBRIDS), (NET, "all"), (NET, "few states")]
)
def test_samples_have_the_log_probabilities_of_their_row_alone(what, config):
    # Prompts of several lengths, one of a single token, two with a common beginning; then what continues them.
    served, sampling = engine(what, **EVICTING[config]), Sampling(max_completion_tokens=6)
    system = some(20, seed=0)
    prefixes = [[5], [*system, *some(7, seed=1)], [*system, *some(3, seed=2)], some(40, seed=3)]
    for _ in range(2):
        requests = [Request(prefix, (1, 2, 3, 4), sampling, keep=True) for prefix in prefixes]
        drawn = extended(served, *requests)
        for request, samples in zip(requests, drawn, strict=True):
            assert apart([PLAIN[what]], request, samples) < 3e-5
        prefixes = list(next_turns(requests, drawn))
    assert served._keeper.tokens <= served.config.keep_tokens
    assert len(served._keeper._place) <= served.config.keep_states


def test_a_prompt_is_computed_once_and_what_continues_a_completion_begins_at_its_end():
    served, sampling = engine(), Sampling(max_completion_tokens=6)
    prompt = some(30, seed=0)
    first = Request(prompt, tuple(range(8)), sampling, keep=True)
    (drawn,) = extended(served, first)
    assert served.occupancy.prefilled == 29  # all but the last, which the first step feeds
    path = [*prompt, *drawn[0].tokens]
    # Of the path all but the last token was fed when it ended; of the next prefix all but the last is to be there.
    extended(served, Request([*path, 5, 6], (1,), sampling))
    assert served.occupancy.prefilled == 29 + 2
    # What leaves it in its middle begins before the prompt's last token: that, two that were drawn, and 5.
    extended(served, Request([*path[:32], 5, 6], (1,), sampling))
    assert served.occupancy.prefilled == 29 + 2 + 4
    served._forget_cache()
    extended(served, Request([*path, 5, 6], (1,), sampling))
    assert served.occupancy.prefilled == 29 + 2 + 4 + len(path) + 1


def test_a_beginning_that_prompts_share_is_computed_once():
    # The 19 tokens of two at once; of a third, which comes later, the three of its own.
    served, sampling = engine(), Sampling(max_completion_tokens=2)
    prompts = [[*some(19, seed=0), 3 + n, 4, 5, 6] for n in range(3)]
    extended(served, *(Request(prompt, (1,), sampling, keep=True) for prompt in prompts[:2]))
    assert served.occupancy.prefilled == 19 + 2 * 3
    third = Request(prompts[2], (1,), sampling)
    (drawn,) = extended(served, third)
    assert served.occupancy.prefilled == 19 + 3 * 3
    assert apart([PLAIN[NET]], third, drawn) < 3e-5


def keeper(**limits):
    states = ModelStates({(0, "recurrent", 0): (torch.Size([2]), torch.float32)})
    pool = TokenPool(states.store_shape, torch.float32, CPU)
    return StateKeeper(limits.get("tokens", 100), limits.get("states", 100), pool, StatePool(states, CPU))


def test_tokens_are_found_up_to_the_last_state_on_their_path():
    kept = keeper()
    for path in ((1, 2, 3, 4), (1, 2)):
        kept.add(path)
        assert kept.add_state(path) is not None
    assert kept.add_state((1, 2)) is None  # there is one
    assert kept.add_state((1, 2, 9)) is None  # not kept
    assert len(kept.longest((1, 2, 3, 4, 5))) == 4
    assert len(kept.longest((1, 2, 3))) == 2  # none in the middle
    assert len(kept.longest((1,))) == 0
    assert kept.state((1, 2, 3)) == kept.state((1, 2)) != kept.state((1, 2, 3, 4))


def test_the_state_used_least_recently_goes_first_with_tokens_that_lead_to_no_other():
    kept = keeper(states=2)
    for path in ((1, 2), (1, 2, 3, 4), (1, 5, 6)):
        kept.add(path)
        kept.add_state(path)
    # (1, 2) was used least recently; its tokens lead to (1, 2, 3, 4).
    kept.trim()
    assert [len(kept.longest(path)) for path in ((1, 2), (1, 2, 3, 4), (1, 5, 6))] == [0, 4, 3]
    kept.longest((1, 2, 3, 4))
    kept.most = 1
    kept.trim()  # takes 5 and 6; 1 leads to the other
    assert (len(kept.longest((1, 2, 3, 4))), len(kept.longest((1, 5, 6))), kept.tokens, len(kept.pool)) == (4, 0, 4, 4)
    kept.capacity = 3
    kept.trim()
    assert (kept.tokens, len(kept.pool), len(kept.longest((1, 2, 3, 4)))) == (0, 0, 0)
    np.testing.assert_array_equal(sorted(kept.states._free), [0, 1, 2])


def test_new_weights_under_way_reach_states_of_slots_and_of_prompts_whose_samples_wait():
    served, sampling = engine(max_sequences=3), Sampling(max_completion_tokens=8)
    newer = copy.deepcopy(PLAIN[NET])
    with torch.no_grad():
        for weight in newer.parameters():
            weight *= 1.3
    requests = [Request(prefix, (1, 2, 3, 4), sampling) for prefix in (some(9, seed=0), [5], some(20, seed=1))]

    async def swapped():
        asked = [asyncio.ensure_future(served.extend(request)) for request in requests]
        while served.occupancy.steps < 4:
            await asyncio.sleep(0)
        await served.load(newer.state_dict(), 1, under_way="recompute")
        return await asyncio.gather(*asked)

    drawn = asyncio.run(swapped())
    policy(NET).causal.load_state_dict(PLAIN[NET].state_dict())
    assert served.occupancy.recomputed
    for request, samples in zip(requests, drawn, strict=True):
        assert apart([PLAIN[NET], newer], request, samples) < 3e-5
    assert len({len({*one.version}) for samples in drawn for one in samples}) == 2
    assert not served._of_prompt

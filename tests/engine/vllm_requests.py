"""What the tests of both vLLM engines ask of them."""

import asyncio
import copy

import torch


def extend(engine, *requests):
    async def all_of_them():
        return await asyncio.gather(*(engine.extend(request) for request in requests))

    return asyncio.run(all_of_them())


def tokens(continuations):
    return [c.tokens for c in continuations]


def close(got, expected, atol=1e-4):
    torch.testing.assert_close(torch.tensor(got), torch.tensor(expected), rtol=1e-4, atol=atol)


def jolted(policy, scale=0.05):
    """The same model with other weights."""
    other = copy.deepcopy(policy)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(1)
        for parameter in other.module.parameters():
            parameter.mul_(1 + scale * torch.randn_like(parameter))
    return other

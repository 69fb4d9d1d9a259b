"""Drawing tokens: pure functions from logits and uniform numbers to tokens and their log-probabilities.

Random numbers are counter-based: the uniform number of a draw is a function of the request's seed and the token's
position, so a sample depends neither on the rest of the batch nor on what was drawn before the run was interrupted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float64, Int
from numpy.typing import NDArray

from lyceum.core.types import Sampling
from lyceum.utils.lazy_imports import Tensor, torch

_BLOCK = 256


def uniform(seed: NDArray[np.uint64], place: NDArray[np.uint64]) -> NDArray[np.float64]:
    """A number in [0, 1) for each (seed, place), 53 bits of SplitMix64's output function.

    Source: Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators" (the mixing constants).
    """
    with np.errstate(over="ignore"):
        z = seed + (place + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53


@dataclass(frozen=True)
class Drawn:
    """(M,) each. ``behaviour_logprob``: of the distribution drawn from; ``model_logprob``: of the untempered model."""

    token: Int[Tensor, " M"]
    behaviour_logprob: Float[Tensor, " M"]
    model_logprob: Float[Tensor, " M"]


def draw(
    logits: Float[Tensor, "A V"],
    place: Int[Tensor, " M"] | None,
    uniforms: Float64[Tensor, " M"],
    sampling: Sampling,
    allowed: Bool[Tensor, "A V"] | None = None,
) -> Drawn:
    """One token per member (M), member m from the distribution in row ``place[m]`` of the logits.

    Several members may share a row: they are samples of one prefix that have drawn the same tokens so far.

    Args:
        logits: float32, of the model, untempered.
        place: row of each member, 0 .. A-1; None where member m's is row m.
        uniforms: one number in [0, 1) per member; the token is where it falls in the cumulative distribution.
        allowed: the tokens that may be drawn, of each row; None for all.
    Returns:
        Log-probabilities are finite wherever the logits are; where one of a row's logits is nan or infinite, so are its
        members' log-probabilities, and their tokens are meaningless.
    """
    model = logits.log_softmax(-1)
    if allowed is not None:
        logits = logits.masked_fill(~allowed, float("-inf"))
    temperature = sampling.temperature
    if temperature == 0:
        token = _rows(logits.argmax(-1), place)
        return Drawn(token, torch.zeros_like(uniforms, dtype=logits.dtype), _taken(model, place, token))
    if isinstance(temperature, int | float):
        z = logits if temperature == 1 else logits / temperature
    else:
        z = logits / temperature(logits)[:, None]
    z = truncate(z, sampling)
    same = z is logits and allowed is None
    behaviour = model if same else z.log_softmax(-1)
    token = _inverse_cdf(behaviour.exp(), place, uniforms)
    model_logprob = _taken(model, place, token)
    return Drawn(token, model_logprob if same else _taken(behaviour, place, token), model_logprob)


def likeliest(
    logits: Float[Tensor, "A V"], k: int, allowed: Bool[Tensor, "A V"] | None = None
) -> tuple[Int[Tensor, "A k"], Float[Tensor, "A k"]]:
    """The k most likely tokens of the model's own distribution over the allowed ones, likeliest first, and nats of
    each; -inf where fewer are allowed. Ties are in the order that ``topk`` gives them."""
    logits = logits if allowed is None else logits.masked_fill(~allowed, float("-inf"))
    found = logits.topk(min(k, logits.shape[1]), dim=-1)
    return found.indices, found.values - logits.logsumexp(-1, keepdim=True)


def entropies(logits: Float[Tensor, "A V"], allowed: Bool[Tensor, "A V"] | None = None) -> Float[Tensor, " A"]:
    """Entropy (nats) of the model's own distribution over the allowed tokens."""
    logits = logits if allowed is None else logits.masked_fill(~allowed, float("-inf"))
    return torch.special.entr(logits.softmax(-1)).sum(-1)


def _rows(x: Tensor, place: Tensor | None) -> Tensor:
    return x if place is None else x[place]


def _taken(x: Float[Tensor, "A V"], place: Tensor | None, token: Int[Tensor, " M"]) -> Float[Tensor, " M"]:
    return x.gather(1, token[:, None]).squeeze(1) if place is None else x[place, token]


def truncate(z: Float[Tensor, "A V"], sampling: Sampling) -> Float[Tensor, "A V"]:
    """Tempered logits, -inf where top-k, top-p and min-p truncate; the same tensor where nothing is truncated.

    Ties at the k-th most likely token are all kept. The most likely token is always kept.
    """
    if 0 < sampling.top_k < z.shape[-1]:
        least = z.topk(sampling.top_k, dim=-1).values[:, -1:]
        z = z.masked_fill(z < least, float("-inf"))
    if sampling.top_p < 1:
        ordered, index = z.sort(dim=-1, descending=True)
        p = ordered.softmax(dim=-1)
        # A token is kept while the more likely ones before it sum to less than top_p: the set's last token crosses it.
        cut = (p.cumsum(dim=-1) - p) >= sampling.top_p
        z = z.masked_fill(torch.zeros_like(cut).scatter(-1, index, cut), float("-inf"))
    if sampling.min_p > 0:
        z = z.masked_fill(z < z.amax(dim=-1, keepdim=True) + np.log(sampling.min_p), float("-inf"))
    return z


def _inverse_cdf(
    p: Float[Tensor, "A V"], place: Int[Tensor, " M"] | None, uniforms: Float64[Tensor, " M"]
) -> Int[Tensor, " M"]:
    """The token whose interval of the cumulative distribution contains each uniform number.

    In two steps (the block of tokens, then the token), so that a large vocabulary is summed once per row, not per
    member; in float64, since a float32 running sum over 50,000 tokens loses the rare ones.
    """
    vocabulary = p.shape[-1]
    if vocabulary <= 2 * _BLOCK:
        # Below the rounded total: the first running sum above the target belongs to a token of nonzero probability.
        running = _rows(p.cumsum(-1, dtype=torch.float64), place)
        found = torch.searchsorted(running, (uniforms * running[:, -1])[:, None], right=True).squeeze(1)
        return found.clamp(max=vocabulary - 1)  # for nan, the index is one past the last
    p = torch.nn.functional.pad(p, (0, -vocabulary % _BLOCK))
    blocks = p.view(len(p), -1, _BLOCK)
    cumulative = _rows(blocks.sum(-1, dtype=torch.float64).cumsum(-1), place)
    target = uniforms * cumulative[:, -1]
    block = torch.searchsorted(cumulative, target[:, None], right=True).clamp(max=blocks.shape[1] - 1)
    target -= torch.where(block > 0, cumulative.gather(1, block - 1 + (block == 0)), 0.0).squeeze(1)
    row = torch.arange(len(p), device=p.device) if place is None else place
    inside = blocks[row, block.squeeze(1)]
    token = torch.searchsorted(inside.double().cumsum(-1), target[:, None], right=True).squeeze(1)
    # Rounding can leave the target at or past the block's sum: take its last token that has any probability.
    last = inside.shape[-1] - 1 - (inside > 0).flip(-1).to(torch.uint8).argmax(-1)
    return (block.squeeze(1) * _BLOCK + torch.minimum(token, last)).clamp(max=vocabulary - 1)

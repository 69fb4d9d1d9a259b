"""Masks over a vocabulary as packed bits: 6 kB per token at 49,000 words, and not 197."""

from __future__ import annotations

from jaxtyping import Bool, Int

from lyceum.utils.lazy_imports import Tensor, torch

RULED_OUT = -1e9
"""Logit of a token that a constraint excludes: its probability is exactly 0, as by -inf, but no product is nan."""


def unpacked(bits: Int[Tensor, "k words"], width: int) -> Bool[Tensor, "k V"]:
    """One truth value for each bit of int32 words, lowest first.

    Args:
        width: V, at most 32 times the words.
    """
    place = torch.arange(32, dtype=torch.int32, device=bits.device)
    return ((bits[:, :, None] >> place) & 1).bool().flatten(1)[:, :width]

"""Where a token's entropy lies among those of a step (HAPO)."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float

from lyceum.utils.lazy_imports import Tensor, torch

LEAST = 1e-8
"""Nats: a lower entropy counts as this one, as in the authors' code. A logarithm of 0 is infinite."""


@dataclass(frozen=True)
class EntropyRange:
    """The lowest log-entropy (log of nats) of some tokens, a quantile of them, and the highest.

    Source: HAPO, arXiv:2509.16591; starriver030515/HAPO, ``compute_entropy_h``, whose factor below the pivot has the
    sign that makes h positive there too: the paper has h below 0 for low-entropy tokens, which is done here.
    """

    lowest: float
    pivot: float
    highest: float

    @classmethod
    def of(cls, entropy: Float[Tensor, " n"], quantile: float) -> EntropyRange:
        """Of at least one token.

        Args:
            entropy: nats.
            quantile: which one the pivot is (0 to 1): the nearest token's.
        """
        log = entropy.clamp(min=LEAST).log().sort().values
        return cls(float(log[0]), float(log[round(quantile * (len(log) - 1))]), float(log[-1]))

    def relative(self, entropy: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """-1 at the lowest, 0 at the pivot, 1 at the highest; what lies beyond them, -1 or 1.

            h = (log H - p) / (max log H - p) above the pivot p, (log H - p) / (p - min log H) below

        Args:
            entropy: H, nats.
        """
        above = entropy.clamp(min=LEAST).log() - self.pivot
        most, least = (width if width > 0 else 1.0 for width in (self.highest - self.pivot, self.pivot - self.lowest))
        return torch.where(above > 0, above / most, above / least).clamp(-1, 1)

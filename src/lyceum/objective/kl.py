"""Estimators of the Kullback-Leibler divergence from tokens that one of the two policies drew."""

from __future__ import annotations

from typing import ClassVar, Literal

from jaxtyping import Float
from pydantic import Field

from lyceum.core.component import Settings
from lyceum.core.needs import Need
from lyceum.utils.lazy_imports import Tensor, torch

Estimator = Literal["k1", "k2", "k3"]

LOG_RATIO_LIMIT = 20.0
"""Nats. Log-ratios are clipped here before ``exp``: past it (a factor of 5e8) float32 ratios overflow, and one infinity
times a zero gradient makes every weight nan. No healthy training run reaches it."""


class KLPenalty(Settings):
    """KL penalty against a reference policy."""

    requires: ClassVar = (Need("average", when=lambda own: own.coefficient and own.against == "average"),)

    coefficient: float = Field(default=0.0, ge=0)
    """KL coefficient, in reward units (or loss units) per nat; 0 turns the penalty and the reference model off."""
    estimator: Estimator = "k3"
    """Estimator of the divergence: k1 is unbiased but may be negative, k2 is half its square, k3 is unbiased and
    never negative. As a *loss*, k1's gradient is zero in expectation (no learning signal), k2's is that of the
    divergence itself, and k3's is that of the reverse one."""
    against: Literal["reference", "average"] = "reference"
    """Reference policy: the policy as the stage began, or the stage's slow average of it."""

    @property
    def column(self) -> str:
        """The forest's column with the reference policy's log-probabilities."""
        return f"{self.against}_logprob"


def kl_estimate(
    logprob: Float[Tensor, "*token"], reference_logprob: Float[Tensor, "*token"], estimator: Estimator
) -> Float[Tensor, "*token"]:
    """Each token's estimate of KL(policy || reference), for tokens that the policy drew.

        x = reference_logprob - logprob
        k1 = -x        k2 = x^2 / 2        k3 = exp(x) - 1 - x

    Args:
        logprob: nats, of the policy that drew the tokens.
        reference_logprob: nats, of the other policy.
        estimator: k1, k2 or k3.
    Returns:
        Nats per token; k2 and k3 are never negative. As in TRL the estimate is not cut, and its log-ratio only where
        ``exp`` would overflow; verl also cuts k3 at 10 nats.
    Source:
        J. Schulman, Approximating KL divergence (joschu.net/blog/kl-approx.html, 2020); k3 as a loss is
        DeepSeekMath, arXiv:2402.03300, equation 4.
    """
    log_ratio = reference_logprob - logprob
    match estimator:
        case "k1":
            return -log_ratio
        case "k2":
            return log_ratio.square() / 2
        case "k3":
            # expm1: exp(x) - 1 of a small x loses precision in float32, and can be negative. Both terms use the
            # clipped x, not the exponent alone: with -x unclipped, the gradient past the limit has the wrong sign.
            log_ratio = log_ratio.clamp(max=LOG_RATIO_LIMIT)
            return torch.expm1(log_ratio) - log_ratio

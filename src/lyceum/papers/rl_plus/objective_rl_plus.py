"""RL-PLUS: external demonstrations by multiple importance sampling, and an exploration-based advantage."""

from __future__ import annotations

from typing import Literal

from jaxtyping import Float
from pydantic import Field

from lyceum.core.types import Batch
from lyceum.objective.luffy import MixedTerms
from lyceum.utils.lazy_imports import Tensor, torch


class RLPlus(MixedTerms):
    """Trains demonstrations in the group (guidance ``demonstrations``) beside the policy's own rollouts."""

    kind: Literal["rl-plus"] = "rl-plus"
    exploration: float = Field(0.5, ge=0)
    """Exponent of the exploration weight (1 - probability); 0 weights every external token alike. The authors' code has
    0.5."""

    def external_weight(self, batch: Batch) -> Float[Tensor, "R L"]:
        ratio = multiple_importance_ratio(batch.logprob, batch.old_logprob)
        return ratio * exploration_weight(batch.logprob, self.exploration)


def multiple_importance_ratio(
    logprob: Float[Tensor, "*token"], old_logprob: Float[Tensor, "*token"]
) -> Float[Tensor, "*token"]:
    """Ratio of a demonstration's token: the policy against the mixture of its possible writers.

        r_t = 2 pi_theta / (pi_omega + pi_old)        pi_omega = (pi_old + 1) / 2

    The demonstrator's own probability pi_omega is unknown; its Bayes estimate is the mean of the old policy's and of an
    uninformative 1. The ratio is bounded: r is at most 4 pi_theta.

    Args:
        logprob: nats, of the current weights, with gradient.
        old_logprob: nats, of the weights at the start of the step.
    Returns:
        Without unit; 4p / (3p + 1) where the weights are still the old ones and the probability is p.
    Source:
        RL-PLUS, arXiv:2508.00222, section 3; pi_omega as in the authors' code (``rlplus_core_alg``).
    """
    old = old_logprob.exp()
    return 2 * logprob.exp() / (old + (old + 1) / 2)


def exploration_weight(logprob: Float[Tensor, "R L"], exponent: float) -> Float[Tensor, "R L"]:
    """Higher weight for tokens that the policy finds unlikely, 0 for those it is certain of.

        C_t = (1 - sg[pi_theta])^exponent        sg: without gradient

    Args:
        logprob: nats, of the current weights.
        exponent: gamma, no unit.
    Returns:
        Between 0 and 1, without gradient; multiplies the advantage.
    Source:
        RL-PLUS, arXiv:2508.00222, section 3 (exploration-based advantage).
    """
    return (-torch.expm1(logprob.detach())).clamp(min=0) ** exponent

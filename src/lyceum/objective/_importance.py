"""Importance correction for an engine whose sampling probabilities differ slightly from the learner's."""

from __future__ import annotations

from typing import Literal

from jaxtyping import Bool, Float
from pydantic import Field, model_validator

from lyceum.core.component import Settings
from lyceum.utils.lazy_imports import Tensor, torch


class ImportanceCorrection(Settings):
    """Weights each token's policy loss by old / behaviour probability: the learner's against the engine's.

    Token level truncated at the top is TIS (Yao et al. 2025, fengyao.notion.site/off-policy-rl); token level masked
    on both sides is IcePop (0.5 to 5, Ling team 2025); sequence level masked is Seq-MIS (Liu et al. 2025, When Speed
    Kills Stability).
    """

    mode: Literal["none", "truncate", "mask"] = "none"
    """``truncate`` keeps weights inside [low, high]; ``mask`` drops what is outside; ``none`` corrects nothing."""
    level: Literal["token", "sequence"] = "token"
    """Weight from each token's own ratio (less variance, biased), or from the product over the row's trained tokens."""
    low: float = Field(default=0.0, ge=0)
    """Minimum weight (no unit)."""
    high: float = Field(default=2.0, gt=0)
    """Maximum weight (no unit)."""

    @model_validator(mode="after")
    def _ordered(self) -> ImportanceCorrection:
        if self.low >= self.high:
            raise ValueError(f"low: got {self.low}; allowed: less than high, which is {self.high}")
        return self


def importance_weight(
    old_logprob: Float[Tensor, "R L"],
    behaviour_logprob: Float[Tensor, "R L"],
    mask: Bool[Tensor, "R L"],
    level: Literal["token", "sequence"],
    mode: Literal["truncate", "mask"],
    low: float,
    high: float,
) -> Float[Tensor, "R L"]:
    """Factor on each token's loss, so that it is the expectation under the learner's own policy.

        token:     rho_t = pi_old(t) / pi_behaviour(t)
        sequence:  rho_t = product over the row's tokens s of pi_old(s) / pi_behaviour(s)
        truncate:  min(max(rho, low), high)
        mask:      rho where low <= rho <= high, else 0

    Args:
        old_logprob: nats, the learner's, of the weights that the tokens were drawn under.
        behaviour_logprob: nats, the engine's, of the distribution drawn from.
        mask: tokens that are trained; entries elsewhere are not read.
        level, mode: as above.
        low, high: bounds on the weight, without unit.
    Returns:
        Weights without gradient; 1 outside the mask.
    Raises:
        ValueError: a trained token has no behaviour log-probability (nan): it was not drawn by the policy.
    Source:
        TIS: Yao et al. 2025, Your efficient RL framework secretly brings you off-policy RL training; IcePop: Ling team
        2025, Small leak can sink a great ship; sequence level and masks: Liu et al. 2025, When Speed Kills Stability.
    """
    log_ratio = torch.where(mask, old_logprob - behaviour_logprob, 0).detach()
    if bool(log_ratio.isnan().any()):
        raise ValueError(
            "behaviour_logprob is nan on a trained token; importance correction needs what the policy drew"
        )
    if level == "sequence":
        log_ratio = torch.where(mask, log_ratio.sum(1, keepdim=True), 0)
    rho = log_ratio.exp()  # may be infinite: both modes bound it, and it has no gradient
    kept = rho.clamp(low, high) if mode == "truncate" else torch.where((rho >= low) & (rho <= high), rho, 0)
    return torch.where(mask, kept, 1)

"""AEPO: group-relative advantages, larger at tokens that the policy is uncertain of."""

from __future__ import annotations

from typing import Literal

from jaxtyping import Bool, Float
from pydantic import Field

from lyceum.core.forest import Forest
from lyceum.core.types import Credited
from lyceum.credit.base import ForestCreditSettings, lay, row_reward, whiten
from lyceum.credit.group import Scale, group_relative
from lyceum.utils.lazy_imports import Tensor


class EntropyAware(ForestCreditSettings):
    """Each row's group-relative advantage, times a factor that grows with the entropy of each token."""

    kind: Literal["aepo"] = "aepo"
    entropy_weight: float = Field(default=0.2, ge=0, le=1e6)
    """What one standard deviation of entropy above the step's mean adds to the factor, which is 1 there; 0 is
    ``credit: group``."""
    scale: Scale = "std"
    """Divisor of a row's difference from its group's mean, as in ``credit: group``."""
    eps: float = Field(1e-6, gt=0)
    """Added to the standard deviation, in the reward's unit."""

    @property
    def needs(self) -> frozenset[str]:
        return super().needs | {"old_entropy"}

    def credited(self, forest: Forest) -> Credited:
        rows = forest.rows()
        mask = forest.trainable(rows)
        of_row = group_relative(
            row_reward(forest, rows, self.kl_in_reward), forest.group, scale=self.scale, eps=self.eps
        )
        factor = entropy_factor(rows.gather(forest.columns["old_entropy"]), mask, self.entropy_weight)
        raised = mask & (factor > 1) & (of_row != 0)[:, None]
        highest = float(factor[mask].max()) if bool(mask.any()) else 1.0
        metrics = {"tokens_raised": float(raised.sum()), "factor/highest": highest}
        return Credited(lay(of_row[:, None] * factor, forest, rows), metrics=metrics)


def entropy_factor(entropy: Float[Tensor, "R L"], mask: Bool[Tensor, "R L"], weight: float) -> Float[Tensor, "R L"]:
    """What each token's advantage is multiplied by.

        1 + weight (H_t - mean H) / std H        over the tokens of the mask

    Args:
        entropy: H, nats.
        mask: tokens that the policy wrote.
    Returns:
        Without unit; below 0 where the entropy is 1 / weight standard deviations below the mean, as in the source.
    Source:
        AEPO, arXiv:2510.14545 (entropy-aware advantages); ``compute_policy_loss_entropy_balanced_clipping`` of its
        code, which takes the mean over each micro-batch, and entropies under the current weights.
    """
    return 1 + weight * whiten(entropy, mask)

"""Group-relative advantage (GRPO), with the standard deviation, without it (Dr. GRPO), or with the whole batch's."""

from __future__ import annotations

from functools import partial
from typing import ClassVar, Literal

from jaxtyping import Float, Int
from pydantic import Field

from lyceum.core.types import Credit
from lyceum.credit.base import (
    CreditWithKL,
    OutcomeCredit,
    above_zero,
    by_group,
    group_centred,
)
from lyceum.utils.lazy_imports import Tensor

Scale = Literal["std", "none", "batch"]


class GroupRelative(CreditWithKL):
    """Each row against the other rows of its task."""

    reads_steps: ClassVar[bool] = False
    gives: ClassVar = ("episode-advantages",)
    requires: ClassVar = ("company",)

    kind: Literal["group"] = "group"
    scale: Scale = "std"
    """Divisor of the difference from the group's mean: the group's standard deviation (GRPO), nothing
    (Dr. GRPO), or the standard deviation of all rewards of the step."""
    ddof: Literal[0, 1] = 0
    """The standard deviation divides by n - ddof: 0 is the population's, 1 the sample's. The paper does not say; TRL
    and verl take 1 (torch's default), which makes advantages smaller by sqrt((n - 1) / n)."""
    eps: float = Field(1e-6, gt=0)
    """Added to the standard deviation, in the reward's unit; verl takes 1e-6, TRL 1e-4."""

    def build(self) -> Credit:
        advantage = partial(group_relative, scale=self.scale, ddof=self.ddof, eps=self.eps)
        return OutcomeCredit(self.needs, self.kl_in_reward, advantage)


def group_relative(
    reward: Float[Tensor, " R"], group: Int[Tensor, " R"], *, scale: Scale = "std", ddof: int = 0, eps: float = 1e-6
) -> Float[Tensor, " R"]:
    """Each row's reward against the other rows of its group.

        A_i = (r_i - mean_g) / (std + eps)        g: the group of row i

    Args:
        reward: outcome of each row, in the verifier's unit.
        group: group of each row, numbered from 0; numbers may be missing.
        scale: ``std``: the standard deviation of group g; ``batch``: of all rewards; ``none``: nothing is divided.
        ddof: standard deviations divide by n - ddof.
        eps: added to the standard deviation, in the unit of reward.
    Returns:
        Advantage of each row, without unit (in the unit of reward for ``none``). Exactly 0 where a group's rewards are
        equal, and so in a group of one (which remains if the others are ungraded): there is nothing to compare.
    Source:
        ``std``: DeepSeekMath, arXiv:2402.03300, section 4.1.2; ``none``: Dr. GRPO, arXiv:2503.20783, section 3.2;
        ``batch``: arXiv:2508.08221, section 4.
    """
    centred = group_centred(reward, group)
    match scale:
        case "none":
            return centred
        case "std":
            count = by_group(reward.new_ones(len(reward)), group, "sum")
            variance = by_group(centred.square(), group, "sum") / (count - ddof).clamp(min=1)
        case "batch":
            everyone = group_centred(reward, group.new_zeros(len(group)))
            variance = everyone.square().sum() / max(len(reward) - ddof, 1)
    return centred / above_zero(variance.sqrt() + eps)

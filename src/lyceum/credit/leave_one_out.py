"""Leave-one-out advantage (RLOO): each row against the mean of the others."""

from __future__ import annotations

from typing import ClassVar, Literal

from jaxtyping import Float, Int

from lyceum.core.types import Credit
from lyceum.credit.base import CreditWithKL, OutcomeCredit, by_group, group_centred
from lyceum.utils.lazy_imports import Tensor


class LeaveOneOut(CreditWithKL):
    """Each row against the mean of the other rows of its task: an unbiased baseline, without scaling."""

    reads_steps: ClassVar[bool] = False
    gives: ClassVar = ("episode-advantages",)
    requires: ClassVar = ("company",)

    kind: Literal["leave-one-out"] = "leave-one-out"

    def build(self) -> Credit:
        return OutcomeCredit(self.needs, self.kl_in_reward, leave_one_out)


def leave_one_out(reward: Float[Tensor, " R"], group: Int[Tensor, " R"]) -> Float[Tensor, " R"]:
    """Each row's reward minus the mean of the other rows of its group.

        A_i = r_i - sum_{j != i} r_j / (n - 1) = (r_i - mean_g) n / (n - 1)        n: rows of group g

    Args:
        reward: outcome of each row, in the verifier's unit.
        group: group of each row, numbered from 0; numbers may be missing.
    Returns:
        Advantage of each row, in the unit of reward. Exactly 0 where a group's rewards are equal, and in a group of
        one (which remains if the others are ungraded): it has no other rows.
    Source:
        Ahmadian et al., arXiv:2402.14740, section 2; Kool et al. 2019.
    """
    count = by_group(reward.new_ones(len(reward)), group, "sum")
    return group_centred(reward, group) * count / (count - 1).clamp(min=1)

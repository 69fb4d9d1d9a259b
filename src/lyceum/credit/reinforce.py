"""The plain outcome as advantage (REINFORCE), minus a baseline that needs no group."""

from __future__ import annotations

from functools import partial
from typing import ClassVar, Literal

from jaxtyping import Float, Int
from pydantic import model_validator

from lyceum.core.types import Credit
from lyceum.credit.base import CreditWithKL, OutcomeCredit, group_centred
from lyceum.utils.lazy_imports import Tensor, torch


class Reinforce(CreditWithKL):
    """Each row's outcome, minus a constant or the mean of the step. One sample per task is enough."""

    reads_steps: ClassVar[bool] = False
    gives: ClassVar = ("episode-advantages",)

    kind: Literal["reinforce"] = "reinforce"
    baseline: Literal["constant", "batch-mean"] = "constant"
    """Baseline subtracted from each outcome: ``constant``, or the mean outcome of the step."""
    constant: float = 0.0
    """Value of the baseline ``constant``, in the reward's unit."""

    @model_validator(mode="after")
    def _constant_where_used(self) -> Reinforce:
        if self.constant and self.baseline != "constant":
            raise ValueError(
                f"constant: got {self.constant} with baseline {self.baseline!r}, which does not read it; allowed: "
                "0, or baseline 'constant'"
            )
        return self

    def build(self) -> Credit:
        constant = self.constant if self.baseline == "constant" else None
        return OutcomeCredit(self.needs, self.kl_in_reward, partial(outcome_advantage, constant=constant))


def outcome_advantage(
    reward: Float[Tensor, " R"], group: Int[Tensor, " R"], *, constant: float | None = 0.0
) -> Float[Tensor, " R"]:
    """Each row's reward minus a common baseline.

        A_i = r_i - b        b: the constant, or the mean reward of all rows where it is None

    Args:
        reward: outcome of each row, in the verifier's unit.
        group: not read; here because every outcome credit takes it.
        constant: b in the reward's unit, or None.
    Returns:
        Advantage of each row, in the unit of reward; exactly 0 for b the mean of equal rewards.
    Source:
        Williams 1992, doi:10.1007/BF00992696.
    """
    return group_centred(reward, torch.zeros_like(group)) if constant is None else reward - constant

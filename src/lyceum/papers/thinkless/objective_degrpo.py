"""DeGRPO: the first token, which chooses how to answer, weighs apart from the answer's tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from jaxtyping import Bool, Float, Int
from pydantic import Field

from lyceum.core.forest import Forest
from lyceum.core.types import Credited, Objective, StepPlan
from lyceum.objective.base import Aggregate, PolicyObjective, aggregate_weights
from lyceum.objective.ppo_clip import PPOClip
from lyceum.utils.lazy_imports import Tensor, torch


class DeGRPO(PPOClip):
    """PPO's clipped surrogate in two sums, each with its own divisor: over control tokens, the first of each
    trajectory, and over all others."""

    kind: Literal["degrpo"] = "degrpo"  # pyright: ignore[reportIncompatibleVariableOverride]
    control_weight: float = Field(0.001, ge=0, le=1e6)
    """Weight of the control tokens' mean loss, beside 1 of the others' (no unit); 0 never trains the choice."""

    def build(self) -> Objective:
        return Decoupling(self)


class Decoupling(PolicyObjective):
    def __init__(self, settings: DeGRPO) -> None:
        super().__init__(settings, settings.surrogate, needs=frozenset({"old_logprob"}))
        self.settings = settings

    def plan(self, forest: Forest, credited: Credited, updates: Sequence[Int[Tensor, " r"]]) -> StepPlan:
        plan = super().plan(forest, credited, updates)
        first = first_tokens(forest.trainable(forest.rows(), self.origins), forest.episode)
        share = float(plan.weight[first].sum() / plan.weight.sum().clamp(min=torch.finfo(plan.weight.dtype).tiny))
        return replace(plan, counts={**plan.counts, "degrpo/control_share": share})

    def update_weights(
        self, mask: Bool[Tensor, "r L"], episode: Int[Tensor, " r"] | None = None
    ) -> Float[Tensor, "r L"]:
        return decoupled_weights(mask, self.settings.control_weight, self.aggregate, self.constant, episode)


def first_tokens(mask: Bool[Tensor, "R L"], episode: Int[Tensor, " R"] | None = None) -> Bool[Tensor, "R L"]:
    """The first trained token of each row, or of each episode's first row."""
    first = mask & (mask.cumsum(1) == 1)
    if episode is not None:
        first[1:] &= (episode.diff() != 0)[:, None]
    return first


def decoupled_weights(
    mask: Bool[Tensor, "R L"],
    control_weight: float,
    how: Aggregate,
    constant: int | None = None,
    episode: Int[Tensor, " R"] | None = None,
) -> Float[Tensor, "R L"]:
    """Each token's weight in the loss of a whole update.

        alpha / rows    on the first token of each row
        :func:`~lyceum.objective.base.aggregate_weights` of all others, which count apart from them

    Args:
        mask: trained tokens of every row of the update.
        control_weight: alpha.
        episode: as in :func:`~lyceum.objective.base.aggregate_weights`.
    Source:
        Thinkless, arXiv:2505.13379; authors' code VainF/Thinkless (``core_algos.py``, ``compute_policy_loss``).
    """
    first = first_tokens(mask, episode)
    others = aggregate_weights(mask & ~first, how, constant, episode)
    return control_weight * aggregate_weights(first, "token") + others

"""NFT: likelihood of correct answers under the policy, of wrong ones under the negative policy that it implies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from jaxtyping import Float, Int
from pydantic import Field

from lyceum.core.forest import Forest
from lyceum.core.types import Batch, Credited, Metrics, Objective, StepPlan
from lyceum.objective.base import (
    Aggregation,
    BaseObjective,
    clean,
    measured,
    ratio_metrics,
    require_verdicts,
    token_ratio,
)
from lyceum.utils.lazy_imports import Tensor, torch

RATES = (0.02, 0.98)
"""Bounds of a pass rate in the loss, as in the authors' code: at 1 a wrong token's loss would be infinite."""
CORRECT = 1.0
"""Label of a correct row; that of a wrong one is its group's pass rate, which is less."""


class NFT(Aggregation):
    """Maximum likelihood of a group's correct and wrong trajectories, by its pass rate; advantages are not read."""

    requires: ClassVar = ("company",)
    refuses: ClassVar = ("value-targets", "state-values")

    kind: Literal["nft"] = "nft"
    negative_weight: float = Field(1.0, ge=0, le=1e6)
    """Factor on the loss of wrong trajectories (no unit); 0 learns from correct ones alone (rejection fine-tuning)."""
    prompt_weight: Literal["linear", "root", "none"] = "linear"
    """Factor on the loss of a group with pass rate r: ``linear``: 1 - r, which is Dr. GRPO at the first update;
    ``root``: sqrt((1 - r) / r), which is GRPO there; ``none``: 1."""
    floor: float = Field(1.0, gt=0, le=1)
    """Lower bound of the implicit negative policy's ratio (no unit): below it a wrong token's gradient grows no
    further. 1 is the authors'."""

    def build(self) -> Objective:
        return NegativeAware(self)


class NegativeAware(BaseObjective):
    def __init__(self, settings: NFT) -> None:
        super().__init__(settings.aggregate, settings.constant, needs=frozenset({"old_logprob"}), skips=False)
        self.settings = settings

    def plan(self, forest: Forest, credited: Credited, updates: Sequence[Int[Tensor, " r"]]) -> StepPlan:
        require_verdicts("nft", forest)
        mask = forest.trainable(forest.rows(), self.origins)
        group, there = forest.group.unique(return_inverse=True)[1], mask.any(1)
        right = (forest.correct > 0) & there
        size, solved = (torch.bincount(group[of], minlength=len(group)) for of in (there, right))
        mixed = (solved > 0) & (solved < size)
        rate = (solved / size.clamp(min=1)).clamp(*RATES)[group]
        trained = there & mixed[group]
        if self.settings.negative_weight == 0:
            trained &= right
        weight = self.weights(mask, updates) * prompt_weight(rate, self.settings.prompt_weight)[:, None]
        counts = {"nft/groups": float(mixed.sum()), "nft/groups_of_one_verdict": float(((size > 0) & ~mixed).sum())}
        return StepPlan(weight * trained[:, None], trained, label=torch.where(right, CORRECT, rate), counts=counts)

    def __call__(self, batch: Batch) -> tuple[Tensor, Metrics]:
        batch = clean(batch)
        if batch.label is None:
            raise ValueError("objective.kind 'nft' needs verdicts and pass rates, which the batch does not have")
        right = (batch.label == CORRECT)[:, None]
        rate = torch.where(right, 0, batch.label[:, None]).to(batch.logprob)
        ratio = token_ratio(batch.logprob, batch.old_logprob)
        implicit = negative_ratio(ratio, rate)
        negative = self.settings.negative_weight * negative_loss(implicit, self.settings.floor)
        loss = torch.where(right, batch.old_logprob - batch.logprob, negative)
        wrong = batch.mask & ~right
        metrics = ratio_metrics(ratio, batch) | {
            "nft/correct_ratio": measured(ratio, batch.mask & right),
            "nft/negative_ratio": measured(implicit, wrong),
            "nft/floored": measured(implicit < self.settings.floor, wrong),
        }
        return (batch.weight * loss).sum(), metrics


def prompt_weight(rate: Float[Tensor, "*any"], how: Literal["linear", "root", "none"]) -> Float[Tensor, "*any"]:
    """Weight of a prompt by its pass rate r: 1 - r, sqrt((1 - r) / r) or 1."""
    match how:
        case "linear":
            return 1 - rate
        case "root":
            return ((1 - rate) / rate).sqrt()
        case "none":
            return torch.ones_like(rate)


def negative_ratio(ratio: Float[Tensor, "R L"], rate: Float[Tensor, "R 1"]) -> Float[Tensor, "R L"]:
    """pi_- / pi_old of each token, where pi_old mixes the policy, with share r, and the negative policy pi_-.

        pi_old = r pi + (1 - r) pi_-        pi_- / pi_old = (1 - r pi / pi_old) / (1 - r)

    Args:
        ratio: pi / pi_old, without unit.
        rate: r, the share of the prompt's samples that are correct; less than 1.
    Returns:
        Without unit; below 0 where the policy has moved so far that no such mixture exists.
    Source:
        NFT, arXiv:2505.18116; authors' code NVlabs/NFT (``dp_actor.py``).
    """
    return (1 - rate * ratio) / (1 - rate)


def negative_loss(implicit: Float[Tensor, "R L"], floor: float) -> Float[Tensor, "R L"]:
    """-log max(x, floor) in value, with the gradient of x alone: a floored token is still pushed down.

        gradient: -dx / max(x, floor)

    Args:
        implicit: x, the negative policy's ratio, with gradient.
    Source:
        As :func:`negative_ratio` (``clamp_preserve_grad``).
    """
    floored = implicit.detach().clamp(min=floor)
    return -floored.log() - (implicit - implicit.detach()) / floored

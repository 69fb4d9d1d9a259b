"""TRPA: every sample of a higher level against every one of a lower level, within a trust region."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from jaxtyping import Bool, Float, Int
from pydantic import Field

from lyceum.core.forest import Forest
from lyceum.core.settings import ObjectiveSettings
from lyceum.core.types import Batch, Credited, Metrics, Objective, StepPlan
from lyceum.objective.base import BaseObjective, clean, measured
from lyceum.objective.kl import kl_estimate
from lyceum.utils.lazy_imports import F, Tensor, torch


class TRPA(ObjectiveSettings):
    """All pairs of a group across its levels, which are its different outcomes; advantages are not read."""

    requires: ClassVar = ("company",)
    refuses: ClassVar = ("value-targets",)

    kind: Literal["trpa"] = "trpa"
    beta: float = Field(0.1, gt=0, le=1e6)
    """Factor on the difference of log-ratios per token (no unit)."""
    anisotropy: float = Field(2.5, gt=0, le=1e6)
    """Further factor in pairs whose better sample is correct (no unit)."""
    trust_region: float = Field(0.001, ge=0)
    """Coefficient of KL(policy || the step's first policy), in loss units per nat."""

    def build(self) -> Objective:
        return Levels(self)


class Levels(BaseObjective):
    def __init__(self, settings: TRPA) -> None:
        columns, needs = frozenset({"reference_logprob"}), frozenset({"old_logprob"})
        super().__init__("sequence", columns=columns, needs=needs, skips=True)
        self.settings = settings

    def plan(self, forest: Forest, credited: Credited, updates: Sequence[Int[Tensor, " r"]]) -> StepPlan:
        mask = forest.trainable(forest.rows(), self.origins)
        group = forest.group.unique(return_inverse=True)[1]
        level, trained, pairs = torch.zeros(forest.n_rows), mask.any(1), 0
        for number in range(int(group.max()) + 1 if len(group) else 0):
            rows = ((group == number) & trained).nonzero().squeeze(1)
            outcomes, rank = forest.reward[rows].unique(return_inverse=True)
            if len(outcomes) < 2:
                trained[rows] = False
                continue
            best_is_correct = bool((forest.correct[rows][rank == len(outcomes) - 1] == 1).all())
            level[rows] = (len(outcomes) - rank + (0 if best_is_correct else 1)).float()
            size = torch.bincount(rank)
            pairs += (int(size.sum()) ** 2 - int((size * size).sum())) // 2
        weight = self.weights(mask & trained[:, None], updates)
        counts = {"pairs": float(pairs), "trpa/levels": float(len(level[trained].unique()))}
        return StepPlan(weight, trained, group, level, counts=counts)

    def __call__(self, batch: Batch) -> tuple[Tensor, Metrics]:
        batch = clean(batch)
        if batch.couple is None or batch.label is None or batch.reference_logprob is None:
            raise ValueError("objective.kind 'trpa' needs whole groups, levels and reference_logprob of the batch")
        score = (batch.logprob - batch.reference_logprob).sum(1) / batch.mask.sum(1).clamp(min=1)
        better, worse = pairs_across(batch.label, batch.couple)
        scale = torch.where(batch.label[better] == 1, self.settings.anisotropy, 1.0) * self.settings.beta
        margin = scale * (score[better] - score[worse])
        group = batch.couple.unique(return_inverse=True)[1]
        share = batch.weight.sum(1).new_zeros(len(score)).index_add(0, group, batch.weight.sum(1))
        weight = (share / torch.bincount(group[better], minlength=len(score)).clamp(min=1))[group[better]]
        kl = kl_estimate(batch.logprob, batch.old_logprob, "k3")
        pairs = torch.tensor(float(len(margin)))
        metrics = {
            "trpa/margin": (margin.detach().sum(), pairs),
            "trpa/accuracy": ((margin > 0).sum().float(), pairs),
            "kl/old": measured(kl, batch.mask),
        }
        loss = -(weight.to(margin) * F.logsigmoid(margin)).sum()
        return loss + self.settings.trust_region * (batch.weight * kl).sum(), metrics


def pairs_across(level: Float[Tensor, " R"], group: Int[Tensor, " R"]) -> tuple[Int[Tensor, " P"], Int[Tensor, " P"]]:
    """(better, worse) rows: all pairs of a group whose levels differ.

    Args:
        level: of each row, 1 the best.
    """
    across: Bool[Tensor, "R R"] = (group[:, None] == group) & (level[:, None] < level)
    better, worse = across.nonzero(as_tuple=True)
    return better, worse

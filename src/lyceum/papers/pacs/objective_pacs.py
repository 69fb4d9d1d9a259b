"""PACS: the verifier's verdict as a label, the policy's own log-ratio as the logit, cross-entropy as the loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from jaxtyping import Bool, Float, Int
from pydantic import Field

from lyceum.core.forest import Forest
from lyceum.core.settings import ObjectiveSettings
from lyceum.core.types import Batch, Credited, Metrics, Objective, StepPlan
from lyceum.objective.base import BaseObjective, clean, require_verdicts
from lyceum.utils.lazy_imports import F, Tensor, torch


class PACS(ObjectiveSettings):
    """Classifies correct and incorrect trajectories by their log-ratios within the group; advantages are not read."""

    requires: ClassVar = ("company",)
    refuses: ClassVar = ("value-targets", "state-values")

    kind: Literal["pacs"] = "pacs"
    beta: float = Field(1.0, gt=0)
    """Factor on the log-ratio of a trajectory (no unit); the authors' scripts have 1 and 2."""
    balance: bool = True
    """Weigh correct and incorrect trajectories of a group alike, however many there are of each."""

    def build(self) -> Objective:
        return Classification(self)


class Classification(BaseObjective):
    def __init__(self, settings: PACS) -> None:
        super().__init__("sequence", needs=frozenset({"old_logprob"}), skips=False)
        self.settings = settings

    def plan(self, forest: Forest, credited: Credited, updates: Sequence[Int[Tensor, " r"]]) -> StepPlan:
        require_verdicts("pacs", forest)
        mask = forest.trainable(forest.rows(), self.origins)
        group = forest.group.unique(return_inverse=True)[1]
        trained = mask.any(1)
        trained &= torch.bincount(group[trained], minlength=len(group))[group] > 1  # one alone is compared with nothing
        weight = self.weights(mask & trained[:, None], updates)
        balance = balanced(forest.correct, group, trained)
        counts = {"groups_of_both": float(len(group[trained & (balance != 1)].unique()))}
        if self.settings.balance:
            weight = weight * balance[:, None]
        return StepPlan(weight, trained, group, forest.correct, counts=counts)

    def __call__(self, batch: Batch) -> tuple[Tensor, Metrics]:
        batch = clean(batch)
        if batch.couple is None or batch.label is None:
            raise ValueError("objective.kind 'pacs' needs whole groups and verdicts, which the batch does not have")
        group = batch.couple.unique(return_inverse=True)[1]
        logit = relative_score((batch.logprob - batch.old_logprob).sum(1), group, beta=self.settings.beta)
        label = batch.label.to(logit)
        loss = F.binary_cross_entropy_with_logits(logit, label, reduction="none")
        rows = torch.tensor(float(len(label)))
        metrics = {
            "pacs/cross_entropy": (loss.detach().sum(), rows),
            "pacs/score_gap": ((logit.detach() * (2 * label - 1)).sum(), rows),
        }
        return (batch.weight.sum(1) * loss).sum(), metrics


def relative_score(log_ratio: Float[Tensor, " R"], group: Int[Tensor, " R"], *, beta: float) -> Float[Tensor, " R"]:
    """Each row's score against the mean of the other rows of its group.

        r_i = beta log(pi(y_i | x) / pi_old(y_i | x))        psi_i = r_i - mean of r_j, j != i

    Args:
        log_ratio: of each row, summed over its tokens, nats, with gradient.
        group: group of each row, 0 .. G-1; two rows or more each.
    Source:
        PACS, arXiv:2509.02522; its code's compute_reward (method 1) and compute_rloo_outcome_advantage.
    """
    score = beta * log_ratio
    n_groups = int(group.max()) + 1 if len(group) else 0
    total = score.new_zeros(n_groups).index_add(0, group, score)[group]
    count = score.new_zeros(n_groups).index_add(0, group, torch.ones_like(score))[group]
    return score - (total - score) / (count - 1)


def balanced(correct: Float[Tensor, " R"], group: Int[Tensor, " R"], counts: Bool[Tensor, " R"]) -> Float[Tensor, " R"]:
    """Weight of each row so that both verdicts of a group weigh the same: n / (2 n_c); 1 where all are equal.

    Args:
        correct: 1 or 0.
        group: group of each row, 0 .. G-1.
        counts: rows that are counted.
    Source:
        PACS's code, compute_weight (mode question): scikit-learn's balanced class weights.
    """
    n_groups = int(group.max()) + 1 if len(group) else 0
    right, all_of = (torch.zeros(n_groups).index_add(0, group, of.float() * counts)[group] for of in (correct, counts))
    same = torch.where(correct > 0, right, all_of - right)
    return torch.where((right > 0) & (right < all_of), all_of / (2 * same.clamp(min=1)), 1.0)

"""Forward KL to the posterior that the reward makes of the reference: samples imitated by their weight in the group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from jaxtyping import Bool, Float, Int
from pydantic import Field

from lyceum.core.forest import Forest
from lyceum.core.settings import ObjectiveSettings
from lyceum.core.types import Batch, Credited, Metrics, Objective, StepPlan
from lyceum.objective.base import BaseObjective, clean, measured
from lyceum.utils.lazy_imports import Tensor, torch


class ForwardKL(ObjectiveSettings):
    """Fits the policy to reference * exp(reward / beta), whose KL divergence from the policy RL with a KL penalty
    minimises in the other direction; advantages are not read."""

    requires: ClassVar = ("company",)
    refuses: ClassVar = ("value-targets",)

    kind: Literal["forward-kl"] = "forward-kl"
    beta: float = Field(0.1, ge=1e-6, le=1e9)
    """Temperature of the posterior, in reward units per nat: the KL coefficient of the RL that has the same optimum."""
    prior: Literal["reference", "old"] = "reference"
    """What the reward updates: the policy as the stage began, or as the step began, so that the target moves along."""

    def build(self) -> Objective:
        return Reweighted(self)


class Reweighted(BaseObjective):
    def __init__(self, settings: ForwardKL) -> None:
        columns = {"reference_logprob", "old_logprob"} if settings.prior == "reference" else frozenset[str]()
        super().__init__("sequence", columns=frozenset(columns), skips=False)
        self.settings = settings

    def plan(self, forest: Forest, credited: Credited, updates: Sequence[Int[Tensor, " r"]]) -> StepPlan:
        rows = forest.rows()
        mask = forest.trainable(rows, self.origins)
        group = forest.group.unique(return_inverse=True)[1]
        trained = mask.any(1) & ~forest.reward.isnan()
        evidence = forest.reward.double() / self.settings.beta
        if self.settings.prior == "reference":
            drift = forest.columns["reference_logprob"] - forest.columns["old_logprob"]
            evidence += torch.where(mask, rows.gather(drift), 0).double().sum(1)
        share = posterior_share(evidence, group, trained)
        weight = torch.zeros(mask.shape)
        for update in updates:
            groups = len(group[update][trained[update]].unique())
            weight[update] = mask[update] * (share[update] / max(1, groups))[:, None]
        n_groups = max(1, len(group[trained].unique()))
        effective = 1 / torch.zeros(len(group)).index_add(0, group, share.square())[group[trained].unique()]
        even = 1 / torch.bincount(group[trained], minlength=len(group)).clamp(min=1)[group]
        counts = {
            "forward_kl/effective_samples": float(effective.sum()) / n_groups,
            "forward_kl/moved": float((share - even * trained).clamp(min=0).sum()) / n_groups,
        }
        return StepPlan(weight, trained, counts=counts)

    def __call__(self, batch: Batch) -> tuple[Tensor, Metrics]:
        batch = clean(batch)
        metrics = {"nll": measured(-batch.logprob, batch.mask)}
        return -(batch.weight * batch.logprob).sum(), metrics


def posterior_share(
    evidence: Float[Tensor, " R"], group: Int[Tensor, " R"], among: Bool[Tensor, " R"]
) -> Float[Tensor, " R"]:
    """Share of each sample in the posterior of its group; 0 for those not ``among`` them.

        w_i = exp(e_i) / sum_j exp(e_j)        e_i = r_i / beta + log pi_ref(y_i) - log pi_old(y_i)

    These are importance weights of samples of pi_old towards pi_ref exp(r / beta), normalised within the group, where
    the partition function cancels; -sum_i w_i log pi(y_i) is then the cross-entropy to it.

    Args:
        evidence: e, nats, float64.
        group: of each row, 0 .. G-1.
    Source:
        Korbak et al., arXiv:2205.11275 (the posterior; the forward divergence instead of RL's).
    """
    evidence = evidence.masked_fill(~among, -torch.inf)
    n_groups = len(group)
    top = evidence.new_full((n_groups,), -torch.inf).scatter_reduce(0, group, evidence, "amax")
    tilted = torch.where(among, (evidence - top[group]).exp(), 0)
    total = evidence.new_zeros(n_groups).index_add(0, group, tilted)
    return (tilted / total.clamp(min=1)[group]).float()

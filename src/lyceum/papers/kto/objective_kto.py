"""KTO: single trajectories, each desirable or not, against how far the policy is from the reference on average."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from jaxtyping import Bool, Float, Int
from pydantic import Field

from lyceum.core.forest import Forest
from lyceum.core.settings import ObjectiveSettings
from lyceum.core.types import Batch, Credited, Metrics, Objective, StepPlan
from lyceum.objective._pairs import log_ratio
from lyceum.objective.base import BaseObjective, clean, measured
from lyceum.utils.lazy_imports import Tensor, torch


class KTO(ObjectiveSettings):
    """Makes desirable trajectories likelier than the reference has them, and undesirable ones less likely, with
    diminishing returns; no pairs, and advantages are not read."""

    refuses: ClassVar = ("value-targets",)

    kind: Literal["kto"] = "kto"
    loss: Literal["kto", "apo_zero_unpaired"] = "kto"
    """``kto``: gains and losses are relative to the mean log-ratio of the step; ``apo_zero_unpaired``: to 0."""
    beta: float = Field(0.1, gt=0, le=1e6)
    """Risk aversion: the smaller, the further the policy may go from the reference (no unit)."""
    desirable_above: float = 0.5
    """Trajectories are desirable where their outcome is above this, in the reward's unit."""
    desirable_weight: float = Field(1.0, ge=0, le=1e6)
    """Weight of a desirable trajectory's loss (no unit)."""
    undesirable_weight: float = Field(1.0, ge=0, le=1e6)
    """Weight of an undesirable trajectory's loss (no unit)."""

    def build(self) -> Objective:
        return Prospects(self)


class Prospects(BaseObjective):
    def __init__(self, settings: KTO) -> None:
        # The log-probabilities at the step's start are for the mean over the whole step, which every micro-batch needs.
        columns = {"reference_logprob"} | ({"old_logprob"} if settings.loss == "kto" else set[str]())
        super().__init__("sequence", columns=frozenset(columns), skips=False)
        self.settings = settings

    def plan(self, forest: Forest, credited: Credited, updates: Sequence[Int[Tensor, " r"]]) -> StepPlan:
        mask = forest.trainable(forest.rows(), self.origins)
        desirable = forest.reward > self.settings.desirable_above
        weight = self.weights(mask, updates)
        weight *= torch.where(desirable, self.settings.desirable_weight, self.settings.undesirable_weight)[:, None]
        trained = (weight > 0).any(1)
        of = {"desirable": trained & desirable, "undesirable": trained & ~desirable}
        counts = {f"kto/{name}": float(rows.sum()) for name, rows in of.items()}
        thresholds: dict[str, float] = {}
        if self.settings.loss == "kto":
            counts["kto/kl"] = thresholds["kl"] = mean_log_ratio(forest, mask)
        return StepPlan(weight, trained, label=desirable.float(), thresholds=thresholds, counts=counts)

    def __call__(self, batch: Batch) -> tuple[Tensor, Metrics]:
        batch = clean(batch)
        if batch.label is None:
            raise ValueError("objective.kind 'kto' needs labels, which the batch does not have")
        score, label = log_ratio(batch, "kto"), batch.label
        loss = prospect_loss(score, label > 0, beta=self.settings.beta, kl=batch.thresholds.get("kl", 0.0))
        rows = torch.ones_like(label)[:, None] > 0
        metrics: Metrics = {}
        for name, of in (("desirable", label > 0), ("undesirable", label <= 0)):
            metrics[f"kto/{name}_score"] = measured(score[:, None], rows & of[:, None])
            metrics[f"kto/{name}_logprob"] = measured(batch.logprob, batch.mask & of[:, None])
        return (batch.weight.sum(1).to(loss) * loss).sum(), metrics


def mean_log_ratio(forest: Forest, mask: Bool[Tensor, "R L"]) -> float:
    """z_0 of a step: the mean log pi / pi_ref of its trajectories as it begins, nats; at least 0.

    The trajectories are the policy's own samples: the mean estimates KL(pi || pi_ref) without the mismatched prompts
    and completions that fixed data need.
    """
    ratio = forest.rows().gather(forest.columns["old_logprob"] - forest.columns["reference_logprob"])
    of_row = torch.where(mask, ratio, 0).sum(1)[mask.any(1)]
    return max(0.0, float(of_row.double().mean())) if len(of_row) else 0.0


def prospect_loss(
    score: Float[Tensor, " R"], desirable: Bool[Tensor, " R"], *, beta: float, kl: float
) -> Float[Tensor, " R"]:
    """Loss of each trajectory.

        desirable:    1 - sigmoid(beta (s - z_0))        s = log pi(y | x) / pi_ref(y | x)
        undesirable:  1 - sigmoid(beta (z_0 - s))

    Args:
        score: s, nats, with gradient.
        kl: z_0, nats: what gains and losses are relative to; 0 is APO-zero's loss.
    Source:
        Ethayarajh et al., arXiv:2402.01306, without its constants; arXiv:2408.06266; TRL's KTOTrainer.
    """
    gain = beta * (score - kl)
    return torch.where(desirable, -gain, gain).sigmoid()

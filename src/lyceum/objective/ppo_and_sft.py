"""PPO's loss on the policy's own rollouts, and the cross-entropy of correct ones that were written with help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from jaxtyping import Bool, Float, Int
from pydantic import Field

from lyceum.core.forest import Forest
from lyceum.core.types import Batch, Credited, Metrics, Objective, Origin, StepPlan
from lyceum.objective.base import PolicyObjective, Terms, clean, measured
from lyceum.objective.ppo_clip import clipped_loss
from lyceum.utils.lazy_imports import Tensor, torch

ORIGINS = (Origin.POLICY, Origin.TEACHER)


class PPOAndSFT(Terms):
    """PPO's clipped loss, plus the cross-entropy of correct rows that a teacher, or the policy under another prompt,
    wrote. Each of the two is aggregated over its own rows.

        L = L_PPO(own rows) + imitation * mean over helped rows of -log pi(y | x)        mean: as ``aggregate`` says

    Helped rows that are not correct are not trained. Advantages of helped rows are not read.

    Source:
        ExPO, arXiv:2507.02834, the term ExP-SFT; Cog-Rethinker, arXiv:2510.15979.
    """

    kind: Literal["ppo-and-sft"] = "ppo-and-sft"
    imitation: float = Field(0.04, ge=0, le=1000)
    """Weight of the cross-entropy beside PPO's loss (loss units per nat); 0 imitates nothing."""
    clip_low: float = Field(0.2, gt=0, le=1)
    """Lower clip: the ratio of the policy's own tokens is clipped at 1 - clip_low (no unit)."""
    clip_high: float = Field(0.2, gt=0)
    """Upper clip: the ratio of the policy's own tokens is clipped at 1 + clip_high (no unit)."""

    def imitates(self, forest: Forest) -> bool:
        return self.imitation > 0 and bool(to_imitate(forest, helped(forest)).any())

    def corrected(self, batch: Batch) -> Bool[Tensor, "R L"]:
        # The engine's probability of a grafted token is of another prompt.
        own = super().corrected(batch)
        return own if batch.grafted is None else own & ~batch.grafted

    def build(self) -> Objective:
        return PPOAndCrossEntropy(self)


class PPOAndCrossEntropy(PolicyObjective):
    def __init__(self, settings: PPOAndSFT) -> None:
        super().__init__(settings, self.clipped, needs=frozenset({"old_logprob"}), origins=ORIGINS)
        self.settings = settings

    @property
    def shares(self) -> tuple[float, float]:
        """Weights of PPO's loss and of the cross-entropy."""
        return 1.0, self.settings.imitation

    def plan(self, forest: Forest, credited: Credited, updates: Sequence[Int[Tensor, " r"]]) -> StepPlan:
        plan = super().plan(forest, credited, updates)
        written, with_help = forest.trainable(forest.rows(), ORIGINS), helped(forest)
        imitated = to_imitate(forest, with_help)
        own = ~with_help.any(1)
        reinforced, imitation = self.shares
        weight = reinforced * self.weights(written & own[:, None], updates)
        weight += imitation * self.weights(with_help & imitated[:, None], updates)
        trained = (plan.trained & own) | (imitated if imitation else torch.zeros_like(own))
        counts = {"imitated/rows": float(imitated.sum()), "imitated/left_out": float((~own & ~imitated).sum())}
        return StepPlan(weight, trained, label=imitated.float(), counts=counts)

    def __call__(self, batch: Batch) -> tuple[Tensor, Metrics]:
        batch = clean(batch)
        assert batch.label is not None
        imitated = batch.mask & (batch.label == 1)[:, None]
        own = replace(batch, mask=batch.mask & ~imitated)
        token_loss, metrics = self.clipped(own)
        token_loss = token_loss * self._correction(own, metrics) + self.beside(own, metrics)
        metrics["imitated/nll"] = measured(-batch.logprob, imitated)
        return (batch.weight * torch.where(imitated, -batch.logprob, token_loss)).sum(), metrics

    def clipped(self, batch: Batch) -> tuple[Float[Tensor, "R L"], Metrics]:
        return clipped_loss(batch, self.settings.clip_low, self.settings.clip_high)


def helped(forest: Forest) -> Bool[Tensor, "R L"]:
    """The trained tokens that a teacher wrote, or the policy under another prompt than the row's."""
    rows = forest.rows()
    teachers = forest.origin == int(Origin.TEACHER)
    grafted = forest.columns.get("grafted", torch.zeros_like(teachers))
    return forest.trainable(rows, ORIGINS) & rows.gather(teachers | grafted)


def to_imitate(forest: Forest, with_help: Bool[Tensor, "R L"]) -> Bool[Tensor, " R"]:
    """The rows with helped tokens that are correct."""
    return with_help.any(1) & (forest.correct == 1)

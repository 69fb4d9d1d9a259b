"""MPO: preference, quality and generation losses on the same pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from jaxtyping import Float, Int
from pydantic import Field, model_validator

from lyceum.core.component import require_keys
from lyceum.core.forest import Forest
from lyceum.core.types import Batch, Credited, Metrics, Objective, State, StepPlan
from lyceum.objective._pairs import Couples, PairPlan, Pairs, log_ratio, pair_metrics
from lyceum.objective.base import aggregate_weights, clean, measured
from lyceum.objective.dpo import preference_loss
from lyceum.utils.lazy_imports import F, Tensor, torch


class MPO(Pairs):
    """DPO's loss, whose scale is free, beside BCO's, which asks each answer of a pair to be good or bad by itself, and
    fine-tuning on the chosen one; pairs are those of ``dpo``.

        L = w_p L_preference + w_q L_quality + w_g L_generation
    """

    kind: Literal["mpo"] = "mpo"
    beta: float = Field(0.1, gt=0, le=1e6)
    """Strength of the implicit KL penalty against the reference (no unit)."""
    preference: float = Field(0.8, ge=0)
    """Weight w_p of DPO's loss, a mean over pairs."""
    quality: float = Field(0.2, ge=0)
    """Weight w_q of BCO's loss, a mean over pairs."""
    generation: float = Field(1.0, ge=0)
    """Weight w_g of the chosen answers' negative log-probability (nats)."""
    generation_aggregate: Literal["token", "sequence"] = "token"
    """Mean of the generation loss over the tokens of all chosen answers, or over answers of the mean of each one's
    tokens (``sequence``): InternVL's, whose devices hold one pair at a time."""
    shift: Literal["running", "none"] = "running"
    """What BCO compares rewards with: the mean reward of the steps before, or 0."""

    @model_validator(mode="after")
    def _has_a_loss(self) -> MPO:
        if not (self.preference or self.quality or self.generation):
            raise ValueError("preference, quality and generation: got 0 for all; allowed: more than 0 for at least one")
        return self

    def build(self) -> Objective:
        return MixedPreference(self)


class MixedPreference(PairPlan):
    """Its state: the sum of the steps' mean rewards beta log(pi / pi_ref), and the number of these steps."""

    settings: MPO

    def __init__(self, settings: MPO) -> None:
        super().__init__(settings, columns=frozenset({"reference_logprob"}))
        self.rewards, self.steps = 0.0, 0

    def plan(self, forest: Forest, credited: Credited, updates: Sequence[Int[Tensor, " r"]]) -> StepPlan:
        """Rejected rows hold the weight of their pair, chosen ones those of their tokens in the generation loss."""
        plan = super().plan(forest, credited, updates)
        assert plan.label is not None
        mask = forest.trainable(forest.rows(), self.origins)
        chosen, rejected = (mask & (plan.label == label)[:, None] for label in (1, -1))
        weight = torch.zeros(mask.shape)
        for rows in updates:
            weight[rows] = aggregate_weights(chosen[rows], self.settings.generation_aggregate)
            weight[rows] += aggregate_weights(rejected[rows], "sequence")
        shift = self.rewards / self.steps if self.steps and self.settings.shift == "running" else 0.0
        counts = {**plan.counts, "mpo/shift": shift}
        return replace(plan, weight=weight, thresholds={"shift": shift}, counts=counts)

    def __call__(self, batch: Batch) -> tuple[Tensor, Metrics]:
        batch = clean(batch)
        couple, label = batch.couple, batch.label
        couples = Couples.of(batch, "mpo")
        if couple is None or label is None:
            raise ValueError("objective.kind 'mpo' needs pairs, which the batch does not have")
        of = self.settings
        pair = couple.unique(return_inverse=True)[1]
        score = log_ratio(batch, "mpo")
        on_chosen, on_rejected = couples.of_rows(score)
        preference = preference_loss(on_chosen, on_rejected, "sigmoid", beta=of.beta)
        margin = of.beta * (on_chosen - on_rejected)
        quality = quality_loss(score, label, pair, beta=of.beta, shift=batch.thresholds["shift"])
        chosen = batch.mask & (label > 0)[:, None]
        of_pair = torch.where(label < 0, batch.weight.sum(1), 0)
        weight = preference.new_zeros(len(preference)).index_add(0, pair, of_pair.to(preference))
        generation = -(torch.where(chosen, batch.weight, 0) * batch.logprob).sum()
        loss = (weight * (of.preference * preference + of.quality * quality)).sum() + of.generation * generation

        pairs = torch.tensor(float(len(margin)))
        by_pair = {"mpo/preference": preference, "mpo/quality": quality}
        metrics = pair_metrics("dpo", batch, couples, margin)
        metrics |= {name: (value.detach().sum(), pairs) for name, value in by_pair.items()}
        metrics["mpo/generation"] = measured(-batch.logprob, chosen)
        metrics["mpo/reward"] = (of.beta * score.detach().sum(), 2 * pairs)
        return loss, metrics

    def observe(self, metrics: Mapping[str, float]) -> None:
        if "mpo/reward" in metrics:  # where the step had a pair
            self.rewards, self.steps = self.rewards + metrics["mpo/reward"], self.steps + 1

    def state_dict(self) -> State:
        return {"rewards": self.rewards, "steps": self.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("objective.mpo", given=state, needed=self.state_dict())
        self.rewards, self.steps = float(state["rewards"]), int(state["steps"])


def quality_loss(
    score: Float[Tensor, " R"], label: Float[Tensor, " R"], pair: Int[Tensor, " R"], *, beta: float, shift: float
) -> Float[Tensor, " P"]:
    """Loss of each pair: each of its answers is classified as good or bad by itself.

        -log sigmoid(beta s_chosen - d) - log sigmoid(-(beta s_rejected - d))

    where s = log pi(y | x) - log pi_ref(y | x).

    Args:
        score: s of each row, nats, with gradient.
        label: 1 chosen, -1 rejected.
        pair: pair of each row, 0 .. P-1.
        shift: d, without unit.
    Source:
        ``bco_pair`` of TRL's DPO trainer, which InternVL's MPO trains by (``trainer_dpo.py`` of internvl_chat). There d
        is the running mean of the batches' mean rewards, the current batch's included; here of the steps before, so
        that it does not depend on how a step is split. In the first step both are 0, as the policy is the reference.
    """
    n_pairs = int(pair.max()) + 1 if len(pair) else 0
    loss = -F.logsigmoid(label.to(score) * (beta * score - shift))
    return score.new_zeros(n_pairs).index_add(0, pair, loss)

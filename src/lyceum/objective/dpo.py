"""DPO: a trajectory that was graded higher is made more likely than a lower one of the same prompt."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Literal

from jaxtyping import Float, Int
from pydantic import Field

from lyceum.core import keys
from lyceum.core.forest import Forest
from lyceum.core.settings import Composition, ObjectiveSettings
from lyceum.core.types import Batch, Credited, Metrics, Objective, StepPlan
from lyceum.objective.base import BaseObjective, clean, refuse_value_target
from lyceum.utils.lazy_imports import F, Tensor, torch


class DPO(ObjectiveSettings):
    """Preference pairs of a step's own graded trajectories; advantages are not read.

    Every trajectory is in at most one pair: the best of a prompt with the worst, the second best with the second worst,
    and so on while their outcomes differ.
    """

    kind: Literal["dpo"] = "dpo"
    beta: float = Field(0.1, gt=0)
    """Strength of the implicit KL penalty against the reference (no unit)."""
    pairs: int | None = Field(None, ge=1)
    """Maximum pairs per prompt; null: as many as there are."""
    margin: float = Field(0.0, ge=0)
    """Outcomes of a pair differ by more than this, in the reward's unit."""

    def build(self) -> Objective:
        return PreferencePairs(self)

    def check(self, stage: Composition) -> list[str]:
        company = stage.without_company("objective.kind 'dpo' pairs the samples of a task")
        return refuse_value_target(self.kind, stage) + company


class PreferencePairs(BaseObjective):
    def __init__(self, settings: DPO) -> None:
        super().__init__("sequence", columns=frozenset({"reference_logprob"}), skips=True)
        self.settings = settings

    def plan(self, forest: Forest, credited: Credited, updates: Sequence[Int[Tensor, " r"]]) -> StepPlan:
        mask = forest.trainable(forest.rows(), self.origins)
        of = [*zip(forest.group.tolist(), keys.prompts(forest), strict=True)]
        written = mask.any(1).tolist()
        pairs = graded_pairs(
            {row: outcome for row, outcome in enumerate(forest.reward.tolist()) if written[row]},
            of,
            margin=self.settings.margin,
            most=self.settings.pairs,
        )
        couple, label = torch.arange(forest.n_rows), torch.zeros(forest.n_rows)
        for chosen, rejected in pairs:
            couple[rejected] = chosen
            label[chosen], label[rejected] = 1, -1
        trained = label != 0
        weight = self.weights(mask & trained[:, None], updates)
        return StepPlan(weight, trained, couple, label, counts={"pairs": len(pairs)})

    def __call__(self, batch: Batch) -> tuple[Tensor, Metrics]:
        batch = clean(batch)
        couple, label, reference = batch.couple, batch.label, batch.reference_logprob
        if couple is None or label is None or reference is None:
            raise ValueError("objective.kind 'dpo' needs pairs and reference_logprob, which the batch does not have")
        pair = couple.unique(return_inverse=True)[1]
        loss, margin = preference_loss((batch.logprob - reference).sum(1), label, pair, beta=self.settings.beta)
        weight = loss.new_zeros(len(loss)).index_add(0, pair, batch.weight.sum(1).to(loss))
        margin, pairs = margin.detach(), torch.tensor(float(len(margin)))
        metrics = {"dpo/margin": (margin.sum(), pairs), "dpo/accuracy": ((margin > 0).sum().float(), pairs)}
        return (weight * loss).sum(), metrics


def graded_pairs(
    outcome: dict[int, float], of: Sequence[Hashable], *, margin: float = 0.0, most: int | None = None
) -> list[tuple[int, int]]:
    """(chosen, rejected) rows: of each prompt the best with the worst, inwards, while their outcomes differ.

    Args:
        outcome: of the rows that may be paired, in the reward's unit; ties go to the earlier row.
        of: prompt of each row; rows of different prompts are not paired.
        margin: by how much the outcomes differ at least, exclusive.
        most: maximum pairs per prompt; None for no limit.
    """
    of_prompt: dict[Hashable, list[int]] = {}
    for row in outcome:
        of_prompt.setdefault(of[row], []).append(row)
    pairs: list[tuple[int, int]] = []
    for rows in of_prompt.values():
        rows.sort(key=lambda row: -outcome[row])
        inwards = list(zip(rows[: len(rows) // 2], reversed(rows), strict=False))[:most]
        pairs += [(best, worst) for best, worst in inwards if outcome[best] - outcome[worst] > margin]
    return pairs


def preference_loss(
    score: Float[Tensor, " R"], label: Float[Tensor, " R"], pair: Int[Tensor, " R"], *, beta: float
) -> tuple[Float[Tensor, " P"], Float[Tensor, " P"]]:
    """(loss, margin) of each pair.

        margin = beta (s_chosen - s_rejected)        s = log pi(y | x) - log pi_ref(y | x)
        loss   = -log sigmoid(margin)

    Args:
        score: s of each row, nats, with gradient.
        label: 1 chosen, -1 rejected.
        pair: pair of each row, 0 .. P-1.
    Source:
        Rafailov et al., arXiv:2305.18290, equation 7.
    """
    n_pairs = int(pair.max()) + 1 if len(pair) else 0
    margin = beta * score.new_zeros(n_pairs).index_add(0, pair, label.to(score) * score)
    return -F.logsigmoid(margin), margin

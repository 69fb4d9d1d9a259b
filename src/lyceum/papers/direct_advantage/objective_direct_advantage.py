"""Direct Advantage Policy Optimization: the log-ratio of a step to the reference is fitted to the step's advantage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from jaxtyping import Bool, Float, Int
from pydantic import Field

from lyceum.core.forest import Forest
from lyceum.core.settings import ObjectiveSettings
from lyceum.core.types import Batch, Credited, Metrics, Objective, StepPlan
from lyceum.objective.base import BaseObjective, clean
from lyceum.utils.lazy_imports import Tensor, torch


class DirectAdvantage(ObjectiveSettings):
    """A squared error per step; whoever sampled the steps, its minimum is the same.

    Source: Direct Advantage Policy Optimization, arXiv:2412.18279.
    """

    requires: ClassVar = ("step-tokens",)

    kind: Literal["direct-advantage"] = "direct-advantage"
    beta: float = Field(default=0.1, gt=0)
    """Strength of the implicit KL penalty, in units of advantage per nat: a step of advantage A is fitted to be
    exp(A / beta) times as likely as under the reference."""

    def build(self) -> Objective:
        return StepRegression(self)


class StepRegression(BaseObjective):
    """Every step of an update counts the same; one that several rows pass is trained in the first of them."""

    def __init__(self, settings: DirectAdvantage) -> None:
        super().__init__("sequence", columns=frozenset({"reference_logprob"}), skips=False)
        self.beta = settings.beta

    def plan(self, forest: Forest, credited: Credited, updates: Sequence[Int[Tensor, " r"]]) -> StepPlan:
        mask = forest.trainable(forest.rows(), self.origins)
        step = credited.columns["step"].long()
        weight = torch.zeros(mask.shape)
        for rows in updates:
            weight[rows] = step_weights(step[rows], mask[rows])
        steps = len(step[mask].unique())
        gained = len(step[mask & (credited.advantage != 0)].unique())
        counts = {"direct/steps": float(steps), "direct/steps_with_advantage": float(gained)}
        return StepPlan(weight, (weight != 0).any(1), counts=counts)

    def __call__(self, batch: Batch) -> tuple[Tensor, Metrics]:
        batch = clean(batch)
        if batch.reference_logprob is None:
            raise ValueError("objective.kind 'direct-advantage': the batch has no reference_logprob")
        owned = batch.weight != 0
        step = batch.columns["step"].long()
        rows = torch.arange(len(step), device=step.device)[:, None].expand_as(step)
        pairs = torch.stack([rows[owned], step[owned]])
        of_step = pairs.unique(dim=1, return_inverse=True)[1] if pairs.numel() else pairs[0]
        n = int(of_step.max()) + 1 if len(of_step) else 0

        def total(x: Float[Tensor, "R L"]) -> Float[Tensor, " n"]:
            return x.new_zeros(n).index_add(0, of_step, x[owned])

        tokens = total(torch.ones_like(batch.logprob))
        log_ratio = total(batch.logprob - batch.reference_logprob)
        error = step_error(log_ratio, total(batch.advantage) / tokens, beta=self.beta)
        count = tokens.new_tensor(float(n))
        metrics = {
            "direct/error": (error.detach().sum(), count),
            "direct/log_ratio": (log_ratio.detach().abs().sum(), count),
        }
        return (total(batch.weight) * error).sum(), metrics


def step_error(log_ratio: Float[Tensor, " n"], advantage: Float[Tensor, " n"], *, beta: float) -> Float[Tensor, " n"]:
    """(beta * log(pi(a | s) / pi_ref(a | s)) - A)^2 / 2

    Args:
        log_ratio: of each step, the sum over its tokens, in nats.
        advantage: A, of each step.
        beta: units of advantage per nat.
    Source:
        Direct Advantage Policy Optimization, arXiv:2412.18279, which divides the advantage by beta instead: the same
        minimum, beta^2 times the loss.
    """
    return (beta * log_ratio - advantage).square() / 2


def step_weights(step: Int[Tensor, "r L"], mask: Bool[Tensor, "r L"]) -> Float[Tensor, "r L"]:
    """Each token's weight in the loss of an update: 1 / (steps * tokens of the step), in the first row with the step.

    Args:
        step: number of the step that each token belongs to; 0: none.
        mask: trained tokens.
    """
    row, place = (mask & (step > 0)).nonzero(as_tuple=True)
    number = step[row, place]
    size = int(number.max()) + 1 if len(number) else 1
    first = torch.full((size,), len(step)).scatter_reduce(0, number, row, "amin")
    owned = row == first[number]
    tokens = torch.bincount(number[owned], minlength=size)
    weight = torch.zeros(step.shape)
    weight[row[owned], place[owned]] = 1 / ((tokens > 0).sum() * tokens[number[owned]]).float()
    return weight

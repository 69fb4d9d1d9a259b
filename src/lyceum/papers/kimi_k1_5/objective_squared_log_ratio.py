"""Kimi k1.5's squared loss: each trajectory's log-ratio is regressed on its reward, above its group's mean."""

from __future__ import annotations

from typing import ClassVar, Literal

from jaxtyping import Float
from pydantic import Field

from lyceum.core.settings import ObjectiveSettings
from lyceum.core.types import Batch, Metrics, Objective
from lyceum.objective.base import BaseObjective, clean, of_rows, ratio_metrics, token_ratio
from lyceum.utils.lazy_imports import Tensor, torch


class SquaredLogRatio(ObjectiveSettings):
    """Mirror descent: the step's best policy under a KL penalty is a log-ratio to the step's first one, which is
    fitted; nothing is clipped, and no trajectory is weighted by its ratio."""

    refuses: ClassVar = ("value-targets",)

    kind: Literal["squared-log-ratio"] = "squared-log-ratio"
    tau: float = Field(0.1, gt=0, le=1e6)
    """tau: the KL penalty's coefficient, in reward units per nat."""

    def build(self) -> Objective:
        return LogRatioRegression(self)


class LogRatioRegression(BaseObjective):
    def __init__(self, settings: SquaredLogRatio) -> None:
        super().__init__("sequence", needs=frozenset({"old_logprob"}), skips=False)
        self.settings = settings

    def __call__(self, batch: Batch) -> tuple[Tensor, Metrics]:
        batch, tau = clean(batch), self.settings.tau
        log_ratio = (batch.logprob - batch.old_logprob).sum(1)
        advantage = of_rows(batch.advantage, batch.mask)
        loss = regression_loss(log_ratio, advantage, tau=tau)
        rows = torch.tensor(float(len(loss)))
        error = (advantage - tau * log_ratio.detach()).abs()
        held = log_ratio.detach().abs() * tau
        metrics = ratio_metrics(token_ratio(batch.logprob, batch.old_logprob), batch)
        metrics |= {"regression/error": (error.sum(), rows), "regression/held": (held.sum(), rows)}
        return (batch.weight.sum(1) * loss).sum(), metrics


def regression_loss(
    log_ratio: Float[Tensor, " R"], advantage: Float[Tensor, " R"], *, tau: float
) -> Float[Tensor, " R"]:
    """Squared error of each row's log-ratio, over 2 tau, less a constant.

        (A_i - tau l_i)^2 / (2 tau) - A_i^2 / (2 tau) = tau / 2 l_i^2 - A_i l_i        l = log pi(y) / pi_old(y)

    A is the reward less tau log Z, of which the mean of the group's rewards is the estimate. The gradient is that of
    the policy, A grad log pi, less that of tau / 2 times the squared log-ratio.

    Args:
        log_ratio: l, summed over the row's tokens, nats, with gradient.
        advantage: A, in the reward's unit.
    Source:
        Kimi k1.5, arXiv:2501.12599, section 2.3.2.
    """
    return tau / 2 * log_ratio.square() - advantage * log_ratio

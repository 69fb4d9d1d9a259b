"""ORPO: fine-tuning on the better trajectory and an odds ratio against the worse one, without a reference."""

from __future__ import annotations

from typing import Literal

from jaxtyping import Float
from pydantic import Field

from lyceum.core.types import Batch, Objective
from lyceum.objective._pairs import Couples, PairObjective, StepPairs
from lyceum.utils.lazy_imports import F, Tensor, torch

LIKELIEST = -1e-6
"""Nats per token. The odds of a likelihood of exactly 1 are infinite, and so is their gradient."""


class ORPO(StepPairs):
    """Preference pairs of a step's own graded trajectories, by the odds of each one; advantages are not read.

    Every trajectory is in at most one pair: the best of a prompt with the worst, the second best with the second worst,
    and so on while their outcomes differ.
    """

    kind: Literal["orpo"] = "orpo"
    beta: float = Field(0.1, ge=0, le=1e6)
    """Weight of the odds ratio beside the chosen trajectory's negative log-likelihood (lambda in the paper); 0 only
    imitates what was chosen."""

    def build(self) -> Objective:
        return PairObjective(self, self.of_pairs)

    def of_pairs(self, batch: Batch, couples: Couples) -> tuple[Tensor, Tensor]:
        mean = batch.logprob.sum(1) / batch.mask.sum(1).clamp(min=1)
        chosen, rejected = couples.of_rows(mean)
        ratio = log_odds_ratio(chosen, rejected)
        return -chosen - self.beta * F.logsigmoid(ratio), ratio


def log_odds_ratio(chosen: Float[Tensor, " P"], rejected: Float[Tensor, " P"]) -> Float[Tensor, " P"]:
    """How much larger the odds of the chosen are, as a logarithm.

        log(odds_w / odds_l)        odds = p / (1 - p),  log p = mean log-probability per token

    Args:
        chosen, rejected: log p, nats, with gradient.
    Source:
        Hong, Lee and Thorne, arXiv:2403.07691, section 4; TRL's ``ORPOTrainer.odds_ratio_loss``.
    """

    def log_odds(logprob: Tensor) -> Tensor:
        logprob = logprob.clamp(max=LIKELIEST)
        return logprob - torch.log(-torch.expm1(logprob))

    return log_odds(chosen) - log_odds(rejected)

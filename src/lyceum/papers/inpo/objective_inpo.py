"""INPO: each step's policy plays against itself, and its next one has a fixed log-ratio on every pair."""

from __future__ import annotations

from typing import Literal

from jaxtyping import Float
from pydantic import Field, model_validator

from lyceum.core.types import Batch, Objective
from lyceum.objective._pairs import Couples, PairObjective, Pairs, log_ratio
from lyceum.utils.lazy_imports import Tensor


class INPO(Pairs):
    """Preference pairs of a step's own graded trajectories, against the reference and the step's first policy;
    advantages are not read.

    Every trajectory is in at most one pair: the best of a prompt with the worst, the second best with the second worst,
    and so on while their outcomes differ.
    """

    kind: Literal["inpo"] = "inpo"
    eta: float = Field(0.1, gt=0, le=1e6)
    """Step size of the game (no unit): pairs are drawn to a log-ratio of 1 / (2 eta) nats."""
    tau: float = Field(0.03, ge=0, le=1e6)
    """KL coefficient against the reference (no unit), at most eta: tau / eta of the anchor is the reference, the rest
    the policy that sampled."""

    @model_validator(mode="after")
    def _tau_within_eta(self) -> INPO:
        if self.tau > self.eta:
            raise ValueError(f"tau: got {self.tau:g}, but eta is {self.eta:g}; allowed: at most eta")
        return self

    def build(self) -> Objective:
        needs = frozenset({"old_logprob"})
        return PairObjective(self, self.of_pairs, columns=frozenset({"reference_logprob"}), needs=needs)

    def of_pairs(self, batch: Batch, couples: Couples) -> tuple[Tensor, Tensor]:
        to_reference, to_old = log_ratio(batch, self.kind), (batch.logprob - batch.old_logprob).sum(1)
        score = anchored_score(to_reference, to_old, self.tau / self.eta)
        chosen, rejected = couples.of_rows(score)
        return (chosen - rejected - 1 / (2 * self.eta)).square(), chosen - rejected


def anchored_score(to_reference: Float[Tensor, " R"], to_old: Float[Tensor, " R"], share: float) -> Float[Tensor, " R"]:
    """Each row's log-ratio to the geometric mixture of reference and last policy.

        log pi - (tau / eta) log pi_ref - (1 - tau / eta) log pi_t

    Its difference over a pair is h_t; the loss is (h_t(y_w, y_l) - 1 / (2 eta))^2.

    Args:
        to_reference, to_old: log pi / pi_ref and log pi / pi_t, nats, with gradient.
        share: tau / eta; 1 is IPO's loss with beta = eta, on sums over tokens.
    Source:
        Zhang et al., arXiv:2407.00617.
    """
    return share * to_reference + (1 - share) * to_old

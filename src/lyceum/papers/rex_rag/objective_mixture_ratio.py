"""REX-RAG's policy correction: inserted tokens by their ratio to the mixture of both ways of sampling."""

from __future__ import annotations

from typing import Literal

from jaxtyping import Float
from pydantic import Field

from lyceum.core.types import Batch
from lyceum.objective.luffy import MixedTerms
from lyceum.utils.lazy_imports import Tensor


class MixtureRatio(MixedTerms):
    """Trains probes (guidance ``probes``) beside the policy's own rollouts. What the policy wrote behind an inserted
    prompt it wrote itself: PPO's ratio is right there. The prompt it did not choose, or seldom would have."""

    kind: Literal["mixture-ratio"] = "mixture-ratio"
    share: float = Field(0.2, gt=0, lt=1)
    """Share of trajectories that are probes (no unit)."""
    prompts: int = Field(1, ge=1, le=64)
    """Prompts that may be inserted, each as likely. Every inserted token has a q of 1 over this, which is right for
    prompts of one token; a longer prompt is certain after its first, so that its other tokens weigh too much."""

    def external_weight(self, batch: Batch) -> Float[Tensor, "R L"]:
        return mixture_ratio(batch.logprob, batch.old_logprob, self.share, 1 / self.prompts)


def mixture_ratio(
    logprob: Float[Tensor, "*token"], old_logprob: Float[Tensor, "*token"], share: float, inserted: float
) -> Float[Tensor, "*token"]:
    """Ratio of an inserted token: the policy against the mixture of the old policy and the probing one.

        r_t = pi_theta / ((1 - alpha) pi_old + alpha q)

    Args:
        logprob: nats, of the current weights, with gradient.
        old_logprob: nats, of the weights at the start of the step.
        share: alpha, no unit.
        inserted: q, the probability with which the probing policy writes the token.
    Returns:
        Without unit, at most pi_theta / (alpha q): a token that the policy would never write weighs next to nothing.
    Source:
        REX-RAG, arXiv:2508.08149, policy correction by importance sampling over both ways of sampling; MiliLab/REX-RAG,
        verl/workers/actor/exploration_distribution.py, where q is the share of the prompts that go on with the token.
    """
    return logprob.exp() / ((1 - share) * old_logprob.exp() + share * inserted)

"""LUFFY: demonstrations in the group, with policy shaping so that unlikely tokens are learnt too."""

from __future__ import annotations

from typing import Literal

from jaxtyping import Bool, Float
from pydantic import Field

from lyceum.core.types import Batch, Metrics, Objective, Origin
from lyceum.objective.base import PolicyObjective, Terms, measured
from lyceum.objective.ppo_clip import clipped_loss
from lyceum.utils.lazy_imports import Tensor, torch


class MixedTerms(Terms):
    """PPO's surrogate on the policy's own tokens, and another loss on a teacher's."""

    clip_low: float = Field(0.2, gt=0, le=1)
    """Lower clip of the ratio of the policy's own tokens, at 1 - clip_low (no unit); a teacher's is never clipped."""
    clip_high: float = Field(0.2, gt=0)
    """Upper clip of the ratio of the policy's own tokens, at 1 + clip_high (no unit)."""

    def build(self) -> Objective:
        origins = (Origin.POLICY, Origin.TEACHER)
        return PolicyObjective(self, self.surrogate, needs=frozenset({"old_logprob"}), origins=origins)

    def surrogate(self, batch: Batch) -> tuple[Tensor, Metrics]:
        external = teachers(batch)
        weight = self.external_weight(batch)
        own, metrics = clipped_loss(batch, self.clip_low, self.clip_high)
        metrics |= {
            "external/weight": measured(weight, external),
            "external/probability": measured(batch.logprob.exp(), external),
        }
        return torch.where(external, -weight * batch.advantage, own), metrics

    def external_weight(self, batch: Batch) -> Float[Tensor, "R L"]:
        """Factor on the advantage of a teacher's token, with gradient."""
        raise NotImplementedError


class Luffy(MixedTerms):
    """Trains demonstrations in the group (guidance ``demonstrations``) beside the policy's own rollouts."""

    kind: Literal["luffy"] = "luffy"
    shaping: float = Field(0.1, gt=0)
    """Shaping gamma: the probability at which p / (p + gamma) is 1/2 (no unit)."""

    def external_weight(self, batch: Batch) -> Float[Tensor, "R L"]:
        return shaped_probability(batch.logprob, self.shaping)


def shaped_probability(logprob: Float[Tensor, "R L"], gamma: float) -> Float[Tensor, "R L"]:
    """Shaped probability of a demonstration's token, with the demonstrator's probability taken as 1.

        f(p) = p / (p + gamma)        df/dlog p = gamma p / (p + gamma)^2, highest at p = gamma

    Args:
        logprob: log p in nats, of the current weights, with gradient.
        gamma: no unit.
    Returns:
        Between 0 and 1, without unit.
    Source:
        LUFFY, arXiv:2504.14945, section 3 (policy shaping); gamma 0.1 as in the authors' training script.
    """
    p = logprob.exp()
    return p / (p + gamma)


def teachers(batch: Batch) -> Bool[Tensor, "R L"]:
    """The trained tokens that a teacher wrote."""
    return batch.mask & (batch.origin == int(Origin.TEACHER))

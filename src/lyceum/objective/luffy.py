"""LUFFY: demonstrations in the group, with policy shaping so that unlikely tokens are learnt too."""

from __future__ import annotations

from typing import Literal

from jaxtyping import Float
from pydantic import Field

from lyceum.core.types import Batch
from lyceum.objective.rl_plus import MixedTerms
from lyceum.utils.lazy_imports import Tensor


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

"""MDPO: several updates on the linearised return minus the distance to the last policy, without a clip."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from jaxtyping import Float
from pydantic import Field

from lyceum.core.component import require_keys
from lyceum.core.types import Batch, Metrics, Objective
from lyceum.objective.base import PolicyObjective, Terms, measured, ratio_metrics, token_ratio
from lyceum.objective.kl import kl_estimate
from lyceum.utils.lazy_imports import Tensor


class MDPO(Terms):
    """Mirror descent: each token's ratio times its advantage, less its KL from the step's first policy over t.

    Source:
        Tomar et al., arXiv:2005.09814 (on-policy MDPO); authors' code manantomar/Mirror-Descent-Policy-Optimization
        (``mdpo_on/mdpo.py``).
    """

    kind: Literal["mdpo"] = "mdpo"
    step_size: float = Field(1.0, gt=0, le=1e9)
    """t of the first step, nats per unit of advantage: the KL penalty is divided by it."""
    fall_steps: int | None = Field(None, ge=1)
    """Steps K over which t falls in a line, to step_size / K in the K-th and later ones; None for no fall."""

    def build(self) -> Objective:
        return MirrorDescent(self)

    def at(self, step: int) -> float:
        """t after so many steps: step_size (1 - k / K), k at most K - 1."""
        if self.fall_steps is None:
            return self.step_size
        return self.step_size * (1 - min(step, self.fall_steps - 1) / self.fall_steps)


class MirrorDescent(PolicyObjective):
    """The loss, and how many steps are done."""

    def __init__(self, settings: MDPO) -> None:
        super().__init__(settings, self.proximal, needs=frozenset({"old_logprob"}))
        self.settings, self.steps = settings, 0
        self.skips = False  # rows without advantage are held too

    def proximal(self, batch: Batch) -> tuple[Tensor, Metrics]:
        ratio = token_ratio(batch.logprob, batch.old_logprob)
        kl = kl_from_old(batch.logprob, batch.old_logprob)
        step_size = self.settings.at(self.steps)
        metrics = ratio_metrics(ratio, batch) | {"kl/mdpo": measured(kl, batch.mask)}
        metrics["mdpo/step_size"] = measured(kl.new_full(kl.shape, step_size), batch.mask)
        return kl / step_size - ratio * batch.advantage, metrics

    def observe(self, metrics: Mapping[str, float]) -> None:
        self.steps += 1

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("objective.mdpo", given=state, needed=("steps",))
        self.steps = state["steps"]


def kl_from_old(logprob: Float[Tensor, "R L"], old_logprob: Float[Tensor, "R L"]) -> Float[Tensor, "R L"]:
    """Each token's estimate of KL(policy || old policy), for tokens that the old policy drew.

        rho (x + exp(-x) - 1) = rho x - rho + 1        x = logprob - old_logprob, rho = exp(x)

    k3 weighted by the ratio: its mean under the old policy is the divergence, since that of rho - 1 is 0, and its
    gradient, rho x grad logprob, is that of the divergence too.

    Returns:
        Nats per token, never negative.
    """
    return token_ratio(logprob, old_logprob) * kl_estimate(logprob, old_logprob, "k3")

"""AMFT: PPO's loss and the cross-entropy of demonstrations, in a balance that is learnt by looking ahead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from jaxtyping import Float, Int
from pydantic import Field, model_validator

from lyceum.core.component import require_keys
from lyceum.core.forest import Forest
from lyceum.core.types import Credited, GradientsOf, Objective, StepPlan
from lyceum.objective.ppo_and_sft import PPOAndCrossEntropy, PPOAndSFT
from lyceum.utils.lazy_imports import Tensor, torch


class AMFT(PPOAndSFT):
    """PPO's clipped loss times 1 - mu, plus the cross-entropy of correct rows of a teacher times mu; mu is learnt.

        L = (1 - mu) L_PPO(own rows) + mu * mean over demonstrations of -log pi(y | x)

    After each step mu grows by ``meta_lr`` times the agreement of :func:`agreement`, and by ``entropy_lr`` times what
    the policy's entropy is short of its target. The tasks on which a smaller loss counts as better are every n-th of
    the step; the two gradients that are compared for them are of the others.

    Source:
        AMFT, arXiv:2508.06944, and TSYJ-He/AMFT (``adaptive_weight_controller.py``).
    """

    kind: Literal["amft"] = "amft"  # pyright: ignore[reportIncompatibleVariableOverride]
    imitation: float = Field(0.8, ge=0, le=1)
    """mu at first: the weight of the cross-entropy; that of PPO's loss is 1 - mu (no unit)."""
    lowest: float = Field(0.05, ge=0, le=1)
    """Lowest mu."""
    highest: float = Field(0.95, ge=0, le=1)
    """Highest mu."""
    meta_lr: float = Field(0.02, ge=0, le=1)
    """Change of mu where all gradients agree (per step); 0 looks at no gradient."""
    meta_every: int = Field(1, ge=1)
    """Steps between two looks at the gradients."""
    held_back: int = Field(4, ge=2)
    """One task of so many is one on which a smaller loss counts as better."""
    entropy_lr: float = Field(0.05, ge=0, le=100)
    """Change of mu per nat that the entropy is below its target."""
    target_entropy: float | None = Field(None, ge=0)
    """Target of the entropy of the policy's own tokens (nats per token); null: that of the stage's first step."""

    @model_validator(mode="after")
    def _bounds_fit(self) -> AMFT:
        if not self.lowest <= self.imitation <= self.highest:
            raise ValueError(f"imitation: got {self.imitation}; allowed: {self.lowest} to {self.highest}, its bounds")
        return self

    @property
    def needs(self) -> frozenset[str]:
        return super().needs | ({"entropy"} if self.entropy_lr else frozenset())

    def build(self) -> Objective:
        return Balanced(self)


class Balanced(PPOAndCrossEntropy):
    """The loss, mu, the target of the entropy, and how many steps are done."""

    settings: AMFT

    def __init__(self, settings: AMFT) -> None:
        super().__init__(settings)
        self.mu, self.target, self.steps = settings.imitation, settings.target_entropy, 0

    @property
    def shares(self) -> tuple[float, float]:
        return 1 - self.mu, self.mu

    def plan(self, forest: Forest, credited: Credited, updates: Sequence[Int[Tensor, " r"]]) -> StepPlan:
        plan = super().plan(forest, credited, updates)
        return replace(plan, counts={**plan.counts, "amft/imitation": self.mu})

    def look_ahead(self, gradients: GradientsOf) -> Mapping[str, float]:
        if not self.settings.meta_lr or self.steps % self.settings.meta_every:
            return {}
        better, reinforced, imitated = (
            torch.cat([weight.flatten() for weight in gradients(PartialLoss(self.settings, *part)).weights])
            for part in ((True, (1.0, 0.0)), (False, (1.0, 0.0)), (False, (0.0, 1.0)))
        )
        return {"amft/agreement": agreement(better, reinforced, imitated)}

    def observe(self, metrics: Mapping[str, float]) -> None:
        of, self.steps = self.settings, self.steps + 1
        change = of.meta_lr * metrics.get("amft/agreement", 0.0)
        if of.entropy_lr and "entropy" in metrics:  # else no token of the policy was trained
            self.target = metrics["entropy"] if self.target is None else self.target
            change += of.entropy_lr * (self.target - metrics["entropy"])
        self.mu = min(max(self.mu + change, of.lowest), of.highest)

    def state_dict(self) -> dict[str, Any]:
        return {"mu": self.mu, "target": self.target, "steps": self.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("objective.amft", given=state, needed=self.state_dict())
        self.mu, self.target, self.steps = state["mu"], state["target"], state["steps"]


class PartialLoss(PPOAndCrossEntropy):
    """The loss with given weights, on the tasks held back or on the others."""

    def __init__(self, settings: AMFT, held_back: bool, shares: tuple[float, float]) -> None:
        super().__init__(settings)
        self.every, self.held_back, self._shares = settings.held_back, held_back, shares

    @property
    def shares(self) -> tuple[float, float]:
        return self._shares

    def plan(self, forest: Forest, credited: Credited, updates: Sequence[Int[Tensor, " r"]]) -> StepPlan:
        plan = super().plan(forest, credited, updates)
        task = forest.tree[forest.leaf]
        weight = plan.weight * ((task % self.every == self.every - 1) == self.held_back)[:, None]
        return replace(plan, weight=weight, trained=plan.trained & (weight != 0).any(1))


def agreement(better: Float[Tensor, " P"], reinforced: Float[Tensor, " P"], imitated: Float[Tensor, " P"]) -> float:
    """Whether more imitation in the next update would help where it counts: the direction of the meta-gradient.

        theta' = theta - lr ((1 - mu) g_RL + mu g_SFT)        dL(theta') / dmu = -lr g . (g_SFT - g_RL)

    The cosine of g and g_SFT - g_RL: L falls with mu where it is positive. The rate and the norms are left out,
    since Adam's updates do not depend on the scale of a gradient.

    Args:
        better: g, the gradient of the loss L that counts, by all P weights.
        reinforced: g_RL, of the loss on the policy's own rows.
        imitated: g_SFT, of the demonstrations' cross-entropy.
    Returns:
        -1 to 1; 0 where one of the two has no direction.
    Source:
        TSYJ-He/AMFT, ``compute_meta_gradient``, which descends by mu along the sign opposite to this one.
    """
    difference = imitated - reinforced
    norm = better.norm() * difference.norm()
    return float(better @ difference / norm) if norm > 0 else 0.0

"""PPO's clip, with some of the tokens left out whose probability and advantage are high, or low, together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from jaxtyping import Bool, Float, Int
from pydantic import Field, model_validator

from lyceum.core.component import require_keys
from lyceum.core.forest import Forest
from lyceum.core.group import START_LOGPROB
from lyceum.core.types import Credited, Objective, StepPlan
from lyceum.objective.base import PolicyObjective, token_ratio
from lyceum.objective.ppo_clip import PPOClip
from lyceum.utils.lazy_imports import Tensor, torch
from lyceum.utils.seeds import counter_seed


class ClipCov(PPOClip):
    """A small random share of the tokens whose covariance lies between two bounds adds nothing to the loss, so that the
    policy does not become too sure of them."""

    kind: Literal["clip-cov"] = "clip-cov"  # pyright: ignore[reportIncompatibleVariableOverride]
    clip_share: float = Field(default=0.0002, gt=0, le=1)
    """Tokens left out, as a share of the update's; at least one where any lies between the bounds."""
    cov_low: float = Field(default=1.0)
    """Lower bound of the covariance of a token that may be left out (nats times the advantage's unit)."""
    cov_high: float = Field(default=5.0)
    """Upper bound of it."""

    @model_validator(mode="after")
    def _ordered(self) -> ClipCov:
        if self.cov_low >= self.cov_high:
            raise ValueError(f"cov_low: got {self.cov_low}; allowed: less than cov_high, which is {self.cov_high}")
        return self

    def build(self) -> Objective:
        return ClipCovObjective(self)


class ClipCovObjective(PolicyObjective):
    """The surrogate, and which tokens are left out of each update."""

    def __init__(self, settings: ClipCov) -> None:
        super().__init__(settings, settings.surrogate, needs=frozenset({"old_logprob"}))
        self.columns |= {"old_logprob"}  # for the plan; rows without advantage are skipped all the same
        self.settings, self.steps = settings, 0

    def plan(self, forest: Forest, credited: Credited, updates: Sequence[Int[Tensor, " r"]]) -> StepPlan:
        plan, rows = super().plan(forest, credited, updates), forest.rows()
        mask = forest.trainable(rows)
        old = rows.gather(forest.columns["old_logprob"])
        start = rows.gather(forest.columns.get(START_LOGPROB, forest.columns["old_logprob"]))
        clipped = already_clipped(
            token_ratio(start, old), credited.advantage, self.settings.clip_low, self.settings.clip_high
        )
        weight, left_out = plan.weight.clone(), 0
        for number, update in enumerate(updates):
            covariance = token_covariance(start[update], credited.advantage[update], mask[update])
            between = (covariance > self.settings.cov_low) & (covariance < self.settings.cov_high) & mask[update]
            generator = torch.Generator().manual_seed(counter_seed("clip-cov", self.steps, number))
            tokens = max(1, int(self.settings.clip_share * int(mask[update].sum())))
            chosen = some_of(between & ~clipped[update], tokens, generator)
            weight[update] = weight[update].masked_fill(chosen, 0)
            left_out += int(chosen.sum())
        return replace(plan, weight=weight, counts={**plan.counts, "clip_cov/tokens": left_out})

    def observe(self, metrics: Mapping[str, float]) -> None:
        self.steps += 1

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("objective.clip-cov", given=state, needed=("steps",))
        self.steps = state["steps"]


def token_covariance(
    logprob: Float[Tensor, "r L"], advantage: Float[Tensor, "r L"], mask: Bool[Tensor, "r L"]
) -> Float[Tensor, "r L"]:
    """Each token's term of the covariance between log-probability and advantage.

        (log p_t - mean log p) (A_t - mean A)        means over the update's tokens

    Args:
        logprob: nats, of the weights at the start of the step.
        advantage: of each token.
        mask: tokens that are trained.
    Returns:
        Nats times the advantage's unit; their mean is the covariance. Undefined outside the mask.
    Source:
        The Entropy Mechanism of Reinforcement Learning for Reasoning Language Models, arXiv:2505.22617 (Clip-Cov);
        SPEAR's code (``compute_policy_loss_clip_cov``).
    """
    count = mask.sum().clamp(min=1)
    mean_logprob = torch.where(mask, logprob, 0).sum() / count
    mean_advantage = torch.where(mask, advantage, 0).sum() / count
    return (logprob - mean_logprob) * (advantage - mean_advantage)


def already_clipped(
    ratio: Float[Tensor, "R L"], advantage: Float[Tensor, "R L"], low: float, high: float
) -> Bool[Tensor, "R L"]:
    """Tokens whose ratio has left the clip range on the side that their advantage pushes to."""
    return ((advantage > 0) & (ratio > 1 + high)) | ((advantage < 0) & (ratio < 1 - low))


def some_of(allowed: Bool[Tensor, "r L"], number: int, generator: torch.Generator) -> Bool[Tensor, "r L"]:
    """At most so many random ones of the allowed tokens."""
    places = allowed.flatten().nonzero().squeeze(1)
    chosen = places[torch.randperm(len(places), generator=generator)[:number]]
    return torch.zeros(allowed.numel(), dtype=torch.bool).index_fill(0, chosen, True).view_as(allowed)

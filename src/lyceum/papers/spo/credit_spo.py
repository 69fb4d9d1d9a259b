"""SPO: one sample per prompt, against a running estimate of the prompt's own success that outlives the step."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

from pydantic import Field, model_validator

from lyceum.core import keys
from lyceum.core.component import require_keys
from lyceum.core.forest import Forest
from lyceum.core.types import Credit, Credited, State
from lyceum.credit.base import BaseCredit, CreditWithKL, recorded_rows, row_reward, spread
from lyceum.credit.group import group_relative
from lyceum.utils.lazy_imports import torch


class SPO(CreditWithKL):
    """Each row against its prompt's tracked value, normalised over the step: no group is needed.

    The estimate forgets as the policy moves: faster the more its log-probabilities have changed since it last saw the
    prompt.
    """

    kind: Literal["spo"] = "spo"
    half_life: float = Field(0.06, gt=0)
    """Drift of the policy (nats per token) after which an estimate counts half; 0.06 as in the authors' code."""
    keep_low: float = Field(0.875, ge=0, le=1)
    """Lowest fraction of an estimate's weight that is kept when its prompt is seen again; the estimate is then of about
    1 / (1 - keep_low) samples."""
    keep_high: float = Field(0.96, ge=0, lt=1)
    """Highest fraction that is kept, however little the policy has moved."""
    prior: float = 0.5
    """Value of a prompt before it was first seen, in the reward's unit."""
    prior_weight: float = Field(1.0, ge=0)
    """Number of samples that the prior counts as; 1 is the Beta(0.5, 0.5) of the authors' code."""
    eps: float = Field(1e-8, gt=0)
    """Added to the standard deviation of the step's differences."""

    @model_validator(mode="after")
    def _bounds_fit(self) -> SPO:
        if self.keep_low > self.keep_high:
            raise ValueError(f"keep_low: got {self.keep_low}, but keep_high is {self.keep_high}; allowed: at most that")
        return self

    def build(self) -> Credit:
        return ValueTracker(self)


class Estimate(NamedTuple):
    """Of one prompt.

    Attributes:
        value: its expected reward.
        weight: number of samples that this counts as.
        drift: of the policy in the whole stage, when the prompt was last seen (nats per token).
    """

    value: float
    weight: float
    drift: float


class ValueTracker(BaseCredit):
    """The estimates by prompt, and how far the policy has moved so far."""

    measures = frozenset({"drift"})

    def __init__(self, settings: SPO) -> None:
        self.settings, self.needs = settings, settings.needs
        self.estimates: dict[str, Estimate] = {}
        self.drift = 0.0

    def __call__(self, forest: Forest) -> Credited:
        rows, prompts = forest.rows(), [key_of(prompt) for prompt in keys.prompts(forest)]
        reward = row_reward(forest, rows, self.settings.kl_in_reward)
        value = torch.tensor([self.of(prompt).value for prompt in prompts], dtype=reward.dtype)
        step = torch.zeros(forest.n_rows, dtype=torch.long)
        advantage = group_relative(reward - value, step, ddof=1, eps=self.settings.eps)
        metrics = {
            "rows_tracked": float(sum(prompt in self.estimates for prompt in prompts)),
            "value": float(value.mean()) if len(value) else 0.0,
        }
        return Credited(spread(advantage, forest, rows), metrics=metrics)

    def of(self, prompt: str) -> Estimate:
        prior = Estimate(self.settings.prior, self.settings.prior_weight, 0.0)
        return self.estimates.get(prompt, prior)

    def observe(self, forest: Forest, metrics: Mapping[str, float]) -> None:
        self.drift += metrics["drift"]
        rewards: dict[str, list[float]] = {}
        of_row = row_reward(forest, forest.rows(), self.settings.kl_in_reward).tolist()
        counted = recorded_rows(forest).tolist()  # when they were sampled
        for prompt, reward, already in zip(keys.prompts(forest), of_row, counted, strict=True):
            if not already:
                rewards.setdefault(key_of(prompt), []).append(reward)
        for prompt, seen in rewards.items():
            before = self.of(prompt)
            moved = self.drift - before.drift if prompt in self.estimates else 0.0
            keep = kept(moved, self.settings.half_life, self.settings.keep_low, self.settings.keep_high)
            self.estimates[prompt] = Estimate(*tracked(before.value, keep * before.weight, seen), self.drift)

    def state_dict(self) -> State:
        return {"estimates": {prompt: list(of) for prompt, of in self.estimates.items()}, "drift": self.drift}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("credit.spo", given=state, needed=self.state_dict())
        self.estimates = {prompt: Estimate(*of) for prompt, of in state["estimates"].items()}
        self.drift = state["drift"]


def key_of(prompt: keys.Word) -> str:
    return blake2b(" ".join(map(str, prompt)).encode(), digest_size=8).hexdigest()


def kept(drift: float, half_life: float, low: float, high: float) -> float:
    """Fraction of an estimate's weight that is kept: clip(2^(-drift / half_life), low, high).

    Source:
        SPO, arXiv:2509.13232 (KL-adaptive forgetting), its code's ``_get_spo_rho``. There the drift is measured anew
        on the prompt's last completion; here it is the sum over the steps since of each step's mean.
    """
    return min(max(2 ** (-drift / half_life), low), high)


def tracked(value: float, weight: float, rewards: list[float]) -> tuple[float, float]:
    """The mean and its weight after some more rewards.

        N' = N + n        v' = (N v + sum r) / N'

    With alpha = N v and beta = N (1 - v) and a reward of 0 or 1 these are the Beta counts of SPO, arXiv:2509.13232.
    """
    total = weight + len(rewards)
    return (weight * value + sum(rewards)) / total, total

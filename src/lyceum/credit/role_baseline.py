"""Role-conditioned advantages (SPIRAL): each role against a running mean of what it earned, which outlives the step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from lyceum.core.component import require_keys
from lyceum.core.forest import Forest
from lyceum.core.settings import Composition
from lyceum.core.types import Credit, Credited, State
from lyceum.credit.base import BaseCredit, CreditWithKL, row_reward, spread
from lyceum.utils.lazy_imports import torch


class RoleBaseline(CreditWithKL):
    """Each row's reward minus its role's running mean: what a role earns whoever plays it well, as the first to move
    does, is no merit of the row.

        A_i = r_i - b_role;  then, row by row,  b_role <- decay b_role + (1 - decay) r_i        b_role is 0 at first

    Source:
        SPIRAL, arXiv:2506.24119 (role-conditioned advantage estimation); spiral-rl/spiral, train_spiral.py, where b
        follows game by game, and moves before it was read for the next one; here it is that of the step's beginning.
    """

    kind: Literal["role-baseline"] = "role-baseline"
    decay: float = Field(default=0.95, ge=0, lt=1)
    """Share of the old mean that is kept at each row (no unit)."""

    def build(self) -> Credit:
        return RoleBaselineCredit(self)

    def check(self, stage: Composition) -> list[str]:
        if any(guide.plays for guide in stage.guidance):
            return []
        return ["credit.kind: got 'role-baseline' in a stage without roles; allowed: another kind, such as reinforce"]


class RoleBaselineCredit(BaseCredit):
    """The running mean of each role, in the reward's unit."""

    def __init__(self, settings: RoleBaseline) -> None:
        self.settings, self.needs = settings, settings.needs
        self.mean: dict[str, float] = {}

    def __call__(self, forest: Forest) -> Credited:
        rows, role = forest.rows(), forest.role or [""] * forest.n_rows
        reward = row_reward(forest, rows, self.settings.kl_in_reward)
        baseline = torch.tensor([self.mean.get(name, 0.0) for name in role], dtype=reward.dtype)
        metrics = {f"baseline/{name}": self.mean.get(name, 0.0) for name in sorted(set(role))}
        apart = max(metrics.values(), default=0.0) - min(metrics.values(), default=0.0)
        return Credited(spread(reward - baseline, forest, rows), metrics={**metrics, "baseline/apart": apart})

    def observe(self, forest: Forest, metrics: Mapping[str, float]) -> None:
        rows, role = forest.rows(), forest.role or [""] * forest.n_rows
        for name, reward in zip(role, row_reward(forest, rows, self.settings.kl_in_reward).tolist(), strict=True):
            self.mean[name] = self.settings.decay * self.mean.get(name, 0.0) + (1 - self.settings.decay) * reward

    def state_dict(self) -> State:
        return {"mean": dict(self.mean)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("credit.role-baseline", given=state, needed=self.state_dict())
        self.mean = dict(state["mean"])

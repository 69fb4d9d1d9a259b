"""Role-conditioned advantages (SPIRAL): each role against a running mean of what it earned, which outlives the step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, ClassVar, Literal

from jaxtyping import Float, Int
from pydantic import Field

from lyceum.core.component import require_keys
from lyceum.core.forest import Forest
from lyceum.core.types import Credit, Credited, State
from lyceum.credit.base import BaseCredit, CreditWithKL, row_reward, spread
from lyceum.utils.lazy_imports import Tensor, torch


class RoleBaseline(CreditWithKL):
    """Each row's reward minus its role's running mean: what a role earns whoever plays it well, as the first to move
    does, is no merit of the row.

        A_i = r_i - b_role;  then, once a step,  b_role <- decay b_role + (1 - decay) mean_deal mean_row r_i
        b_role is 0 at first

    The games of one deal share its luck, and the moves of a game its result: a mean that followed row by row would be
    mostly the luck of the last deals, and its error the same for every row of a step.

    Source:
        SPIRAL, arXiv:2506.24119 (role-conditioned advantage estimation); spiral-rl/spiral, train_spiral.py, where b
        follows game by game, each of a deal of its own, and moves before it was read for the next one.
    """

    requires: ClassVar = ("played-roles",)

    kind: Literal["role-baseline"] = "role-baseline"
    decay: float = Field(default=0.95, ge=0, lt=1)
    """Share of the old mean that is kept at each step (no unit)."""

    def build(self) -> Credit:
        return RoleBaselineCredit(self)


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
        self.follow(
            mean_by_role(row_reward(forest, rows, self.settings.kl_in_reward), role, forest.tree[rows.index[:, 0]])
        )

    def follow(self, earned: Mapping[str, float]) -> None:
        """Move the running means towards what each role earned in a step."""
        decay = self.settings.decay
        for name, mean in earned.items():
            self.mean[name] = decay * self.mean.get(name, 0.0) + (1 - decay) * mean

    def state_dict(self) -> State:
        return {"mean": dict(self.mean)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("credit.role-baseline", given=state, needed=self.state_dict())
        self.mean = dict(state["mean"])


def mean_by_role(reward: Float[Tensor, " R"], role: Sequence[str], tree: Int[Tensor, " R"]) -> dict[str, float]:
    """What each role earned in a step: the mean over its trees (deals) of the mean over their rows, in reward's unit.

    Args:
        role, tree: of each row.
    """
    by_deal: dict[str, dict[int, list[float]]] = {}
    for name, deal, earned in zip(role, tree.tolist(), reward.tolist(), strict=True):
        by_deal.setdefault(name, {}).setdefault(deal, []).append(earned)
    return {name: fmean(map(fmean, deals.values())) for name, deals in by_deal.items()}

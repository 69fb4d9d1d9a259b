"""SRGPO: the trajectory's advantage in its group, plus each judged step's among random steps of the whole batch."""

from __future__ import annotations

from typing import Literal

from jaxtyping import Int
from pydantic import Field

from lyceum.core.forest import Forest
from lyceum.core.keys import judged_steps
from lyceum.core.types import Credited
from lyceum.credit.base import ForestCreditSettings, lay, row_reward
from lyceum.credit.group import Scale, group_relative
from lyceum.credit.shares import token_shares
from lyceum.utils.lazy_imports import Tensor, torch
from lyceum.utils.seeds import counter_seed


class SRGPO(ForestCreditSettings):
    """Judged steps compared with each other whatever their task, trajectory and state are: their rewards mean the same.

    Where a grader judges no steps, this is ``group``; ``credit/steps`` counts them.
    """

    kind: Literal["srgpo"] = "srgpo"
    group_size: int = Field(16, ge=2)
    """Steps that are drawn to be compared; the rest of the batch is a smaller group."""
    step_weight: float = Field(0.5, ge=0, le=1e6)
    """Weight of the steps' advantages beside the trajectory's (no unit); 0 is ``credit: group``."""
    scale: Scale = "std"
    """Divisor of both differences from their means, as in ``credit: group``."""
    ddof: Literal[0, 1] = 1
    """The standard deviation divides by n - ddof; 1 as in the authors' code."""
    eps: float = Field(1e-6, gt=0)
    """Added to the standard deviation, in the reward's unit."""

    def sources(self, outcome: tuple[str, ...]) -> tuple[str, ...]:
        return (*super().sources(outcome), *(("steps",) if self.step_weight else ()))

    def credited(self, forest: Forest) -> Credited:
        rows = forest.rows()
        reward = row_reward(forest, rows, self.kl_in_reward)
        of_row = group_relative(reward, forest.group, scale=self.scale, ddof=self.ddof, eps=self.eps)
        steps, of_step = judged_steps(forest)
        # Drawn by what was written: the same in a resumed run and a replay, another one in every step and run.
        number = random_groups(len(of_step), self.group_size, seed=counter_seed("srgpo", *forest.token.tolist()))
        of_steps = steps.lay(group_relative(of_step, number, scale=self.scale, ddof=self.ddof, eps=self.eps), rows)
        weighted = self.step_weight * of_steps
        advantage = of_row[:, None] + weighted
        compared = (of_steps != 0) & forest.trainable(rows)
        metrics = {"steps": float(len(of_step)), "tokens_with_step_advantage": float(compared.sum())}
        if self.step_weight:
            metrics |= token_shares({"outcome": of_row[:, None], "steps": weighted}, forest.trainable(rows))
        return Credited(lay(advantage, forest, rows), metrics=metrics)


def random_groups(count: int, size: int, *, seed: int) -> Int[Tensor, " U"]:
    """The group of each of ``count`` steps, drawn at random: as many of ``size`` as there are, and the rest.

    Source:
        SRGPO (SeeNav-Agent), arXiv:2512.02631; WzcTHU/SeeNav-Agent, ``build_step_group``.
    """
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    number = torch.empty_like(order)
    number[order] = torch.arange(count) // size
    return number

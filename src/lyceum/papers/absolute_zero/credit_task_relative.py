"""Task-relative REINFORCE++: each role has a baseline and a scale of its own, over the whole step (Absolute Zero)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from jaxtyping import Int
from pydantic import Field

from lyceum.core.forest import Forest
from lyceum.core.types import Credit, Credited
from lyceum.credit.base import BaseCredit, CreditWithKL, row_reward, spread
from lyceum.credit.group import group_relative
from lyceum.utils.lazy_imports import Tensor, torch


class TaskRelative(CreditWithKL):
    """Each row against all rows of its role in the step.

        A_i = (r_i - mean_role) / (std_role + eps)

    Source: Absolute Zero, arXiv:2505.03335 (task-relative REINFORCE++): between one baseline for all and one per
    question, one for each pair of kind of task and role. Tasks of one source are of one kind.
    """

    requires: ClassVar = ("played-roles",)

    kind: Literal["task-relative"] = "task-relative"
    eps: float = Field(1e-6, gt=0)
    """Added to the standard deviation, in the reward's unit."""

    def build(self) -> Credit:
        return TaskRelativeCredit(self.needs, self)


@dataclass
class TaskRelativeCredit(BaseCredit):
    needs: frozenset[str]
    settings: TaskRelative

    def __call__(self, forest: Forest) -> Credited:
        rows = forest.rows()
        reward = row_reward(forest, rows, self.settings.kl_in_reward)
        return Credited(spread(group_relative(reward, roles_of(forest), eps=self.settings.eps), forest, rows))


def roles_of(forest: Forest) -> Int[Tensor, " R"]:
    """The role of each row, numbered from 0 in the order of their names."""
    role = forest.role or [""] * forest.n_rows
    number = {name: i for i, name in enumerate(sorted(set(role)))}
    return torch.tensor([number[name] for name in role], dtype=torch.long)

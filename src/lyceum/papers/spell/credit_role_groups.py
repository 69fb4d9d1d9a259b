"""SPELL's advantages: answers and votes against their own group, questions against all questions of the step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field

from lyceum.core.forest import Forest
from lyceum.core.types import Credit, Credited
from lyceum.credit.base import BaseCredit, CreditWithKL, row_reward, spread
from lyceum.credit.group import group_relative


class RoleGroups(CreditWithKL):
    """Rows of some roles are one group over the step, all others are compared within their own group.

        A_i = (r_i - mean_g) / (std_g + eps)        g: the group of row i, or all rows of its role

    Source:
        SPELL, arXiv:2509.23863, section 3.3, equations 8 and 9.
    """

    requires: ClassVar = ("played-roles",)

    kind: Literal["role-groups"] = "role-groups"
    together: tuple[str, ...] = ("questioner",)
    """Roles whose rows are compared over the whole step."""
    eps: float = Field(1e-6, gt=0)
    """Added to the standard deviation, in the reward's unit."""

    def build(self) -> Credit:
        return RoleGroupsCredit(self.needs, self)


@dataclass
class RoleGroupsCredit(BaseCredit):
    needs: frozenset[str]
    settings: RoleGroups

    def __call__(self, forest: Forest) -> Credited:
        rows, role = forest.rows(), forest.role or [""] * forest.n_rows
        reward = row_reward(forest, rows, self.settings.kl_in_reward)
        group, after = forest.group.clone(), int(forest.group.max()) + 1 if forest.n_rows else 0
        for i, name in enumerate(role):
            if name in self.settings.together:
                group[i] = after + self.settings.together.index(name)
        return Credited(spread(group_relative(reward, group, eps=self.settings.eps), forest, rows))

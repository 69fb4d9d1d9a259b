"""A reward for using exactly a token budget (Train Long, Think Short)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field

from lyceum.core.needs import Need
from lyceum.core.notes import Note
from lyceum.core.settings import RewardSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, Task, TaskSource
from lyceum.reward.base import each


@dataclass(frozen=True)
class TaskBudget(Note):
    """Tokens that a completion of the task should use. Written by the curriculum ``shrinking-budget``."""

    kind: ClassVar[str] = "token-budget"
    tokens: int


class TokenBudget(RewardSettings):
    """1 for a completion as long as its budget, falling to 0 at 0 tokens and at twice the budget."""

    requires: ClassVar = (Need("token-budgets", when=lambda own: own.budget_tokens is None),)

    kind: Literal["token-budget"] = "token-budget"
    weight: float = 0.3
    """Weight of the part in the outcome. The paper weighs 0.3 for length against 0.6 for a correct answer, or 0.6
    against 0.3 for shorter completions."""
    shape: Literal["triangle", "band"] = "triangle"
    """``band`` gives 1 for anything up to the budget."""
    budget_tokens: int | None = Field(None, ge=1)
    """One budget for all tasks, in tokens; null takes each task's own from the curriculum 'shrinking-budget'."""

    def build(self, source: TaskSource) -> Grader:
        return each(self.score)

    def score(self, task: Task, leaf: Node) -> Grade:
        budget = self.budget_tokens
        if budget is None and (note := task.note(TaskBudget)) is not None:
            budget = note.tokens
        if budget is None:
            return Grade.ungraded("the task has no token_budget")
        length = leaf.policy_tokens
        return Grade(length_reward(length, budget=budget, band=self.shape == "band"))


def length_reward(length: int, *, budget: int, band: bool = False) -> float:
    """How well a completion uses its budget.

        R(l) = l / L              l <= L      (1 with band)
               1 - (l - L) / L    L < l <= 2 L
               0                  l > 2 L

    Args:
        length: l, in tokens.
        budget: L, in tokens.
    Returns:
        In 0 .. 1, without unit.
    Source:
        Train Long, Think Short, arXiv:2508.08940, section 3.3; band, section 4.5.
    """
    if length <= budget:
        return 1.0 if band else length / budget
    return max(0.0, 1 - (length - budget) / budget)

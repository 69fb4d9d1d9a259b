"""What completions make of the advice in their prompt: followed, corrected or misled; nothing is paid for it."""

from __future__ import annotations

from typing import ClassVar, Literal

from lyceum.core.settings import RewardSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, ShapingGrader, Task, TaskSource
from lyceum.reward.base import each_with_verdict
from lyceum.utils.errors import RecipeError


class Advice(RewardSettings):
    """1 where a completion answers what most advisers say, else 0. Of the tasks whose majority is wrong, ``corrected``
    is the share of right answers and ``misled`` that of the majority's; of the others, ``spoilt`` is the share of wrong
    answers."""

    after_verdict: ClassVar[bool] = True

    kind: Literal["advice"] = "advice"
    weight: float = 0.0
    """Weight of following in the outcome; 0 only records it."""

    def check_tasks(self, source: TaskSource) -> None:
        super().check_tasks(source)
        if "majority" not in source[0].columns:
            raise RecipeError(
                f"reward.kind: got {self.kind!r}, and task {source[0].id!r} has no column 'majority'; allowed: tasks "
                "with one, such as kind 'advised-chains'"
            )

    def build(self, source: TaskSource) -> ShapingGrader:
        return each_with_verdict(treated)


def treated(task: Task, leaf: Node, verdict: bool | None) -> Grade:
    majority = str(task.columns["majority"])
    followed = leaf.completion.partition("#")[2].strip() == majority
    parts: dict[str, float] = {}
    if verdict is not None and majority == task.answer:
        parts = {"spoilt": float(not verdict)}
    elif verdict is not None:
        parts = {"corrected": float(verdict), "misled": float(followed)}
    return Grade(float(followed), parts=parts)

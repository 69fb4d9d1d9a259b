"""What a refactored program earns: that it can be parsed, and that the refactoring is there."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from lyceum.core.settings import RewardSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, Task, TaskSource
from lyceum.papers.extract_method.tasks_extractions import read
from lyceum.reward.base import each
from lyceum.utils.errors import RecipeError


class Refactored(RewardSettings):
    """``parses`` for a program that can be parsed, plus ``extracted`` where a function of its own was extracted and is
    called. Whether it computes what it did before is not paid.

    Source:
        Generating refactored code accurately using reinforcement learning, arXiv:2412.18035: reward by compiler and
        by a detector of refactorings.
    """

    kind: Literal["refactored"] = "refactored"
    parses: float = Field(default=0.5, ge=0, le=100)
    """What a program that can be parsed earns."""
    extracted: float = Field(default=0.5, ge=0, le=100)
    """What it earns beside that where the refactoring is there."""

    def check_tasks(self, source: TaskSource) -> None:
        super().check_tasks(source)
        if "before" not in source[0].columns:
            raise RecipeError(
                f"reward.kind: got {self.kind!r}, and task {source[0].id!r} has no column 'before'; allowed: tasks "
                "with one, such as kind 'extractions'"
            )

    def build(self, source: TaskSource) -> Grader:
        return each(self.grade)

    def grade(self, task: Task, leaf: Node) -> Grade:
        found = read(leaf.completion)
        parts = {"parses": float(found.parses), "extracted": float(found.extracted)}
        return Grade(self.parses * found.parses + self.extracted * found.extracted, parts=parts)

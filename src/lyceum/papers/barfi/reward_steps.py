"""Judged steps by the rule of the tasks, as process rewards."""

from __future__ import annotations

from typing import Literal

from lyceum.core.settings import RewardSettings
from lyceum.core.sources import JudgesSteps, source_of, sources_of
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, Task, TaskSource
from lyceum.reward.base import each
from lyceum.utils.errors import RecipeError


class StepsReward(RewardSettings):
    """1 for each correct step and 0 for each incorrect one, by the tasks' own rule; it adds nothing to the outcome.

    ``countdown``: each equation is true and uses numbers that are left; ``logic``: each rule applies;
    ``reasoning-gym``: each equation is true. A credit reads them: ``gae`` with ``process_coefficient``, or ``salt``.
    ``weight`` multiplies the steps' rewards.
    """

    kind: Literal["steps"] = "steps"

    def check_tasks(self, source: TaskSource) -> None:
        self.build(source)

    def build(self, source: TaskSource) -> Grader:
        if not all(isinstance(one, JudgesSteps) for one in sources_of(source)):
            raise RecipeError(
                "reward.steps: no rule judges the steps of these tasks; allowed: tasks countdown, logic, reasoning-gym "
                "or a mixture of them, or a reward that judges them itself (kind 'task' with chain)"
            )

        def score(task: Task, leaf: Node) -> Grade:
            own, of = source_of(source, task)
            assert isinstance(own, JudgesSteps), "checked before"
            steps = own.judged_steps(of, leaf.completion)
            return Grade(0.0, steps=steps, parts={"count": len(steps), "correct": sum(step.reward for step in steps)})

        return each(score)

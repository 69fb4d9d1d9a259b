"""Supervised fine-tuning: imitate the completion that each task's ``demonstration`` column holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from lyceum.core.component import of_kind, require_keys, slot
from lyceum.core.settings import (
    Composition,
    CurriculumSettings,
    EngineSettings,
    LearnerSettings,
    ObjectiveSettings,
    StageSettings,
    TasksSettings,
)
from lyceum.core.tree import Tree
from lyceum.core.types import Task, TaskSource, Trace
from lyceum.models.demonstrations import demonstrated, needed_demonstration
from lyceum.stages.session import Session


class SupervisedStage(StageSettings):
    """Cross-entropy on demonstrations, through the same trees and the same learner as everything else."""

    kind: Literal["sft"] = "sft"
    steps: int = Field(default=100, ge=1)
    """Optimiser steps of this stage."""
    tasks_per_step: int = Field(default=64, ge=1)
    """Demonstrations per step."""
    max_completion_tokens: int = Field(default=2048, ge=1)
    """Maximum tokens per demonstration; longer ones are truncated."""
    tasks: Annotated[TasksSettings, slot("tasks")] | None = None
    """Tasks whose demonstrations are imitated; by default the recipe's."""
    curriculum: Annotated[CurriculumSettings, slot("curriculum", "uniform")] = of_kind("uniform")
    """Which demonstrations are drawn."""
    objective: Annotated[ObjectiveSettings, slot("objective", "sft")] = of_kind("sft")
    """The loss."""
    learner: Annotated[LearnerSettings, slot("learner", "local")] = of_kind("local")
    """How weights are updated."""
    engine: Annotated[EngineSettings, slot("engine", "embedded")] = of_kind("embedded")
    """What samples in evaluations."""

    def in_words(self) -> list[str]:
        return [f"{self.steps} steps of {self.tasks_per_step} tasks"]

    def check(self, stage: Composition) -> list[str]:
        if self.objective.kind == "sft":
            return []
        return [f"objective.kind: got '{self.objective.kind}', but stage 'sft' has no advantages; allowed: sft"]

    def check_tasks(self, source: TaskSource) -> None:
        """Raise RecipeError if the tasks have no demonstrations."""
        needed_demonstration(self.source(source, 0)[0], "stage 'sft'")

    def source(self, of_recipe: TaskSource, seed: int) -> TaskSource:
        """The stage's tasks, of the run's seed."""
        return of_recipe if self.tasks is None else self.tasks.build("train", seed)

    def build(self, session: Session) -> SupervisedRun:
        return SupervisedRun(self, session)


class SupervisedRun:
    """The loop and its state."""

    def __init__(self, settings: SupervisedStage, session: Session) -> None:
        self.settings, self.session = settings, session
        self.steps, self.step = settings.steps, 0
        self.objective = settings.objective.build()
        self.learner = settings.learner.build(session.policy, total_steps=settings.steps, needs=frozenset())
        self.engine = session.build_engine(settings.engine)
        source = settings.source(session.source, session.seed)
        self.curriculum = settings.curriculum.build(source, seed=session.stage_seed, policy=session.policy)

    async def run(self) -> None:
        session = self.session
        while self.step < self.steps:
            trees = self.demonstrations(self.curriculum.draw(self.settings.tasks_per_step))
            metrics = session.imitate(self.learner, trees, self.objective)
            self.step += 1
            await self.engine.load(self.learner.weights(), version=session.first_step + self.step)
            session.digest(session.first_step + self.step, trees, metrics)
            await session.finish_step(self, metrics)
            session.pause(self.step, self.steps, self.state_dict)
        self.learner.require_learnt()

    def demonstrations(self, tasks: list[Task]) -> list[Tree]:
        """One trajectory for each task: its prompt, and the demonstration written by a teacher."""
        policy, longest = self.session.policy, self.settings.max_completion_tokens
        traces = [Trace(task.id, task.messages, needed_demonstration(task, "stage 'sft'")) for task in tasks]
        return [demonstrated(policy, trace, longest) for trace in traces]

    def state_dict(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "learner": self.learner.state_dict(),
            "curriculum": self.curriculum.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("stage", given=state, needed=("step", "learner", "curriculum"))
        self.step = state["step"]
        self.learner.load_state_dict(state["learner"])
        self.curriculum.load_state_dict(state["curriculum"])
        self.engine.version = self.session.first_step + self.step

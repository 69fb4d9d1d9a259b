"""Supervised fine-tuning: imitate the completion that each task comes with (``TaskSource.imitated``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from lyceum.core.component import Settings, of_kind, slot
from lyceum.core.settings import (
    Composition,
    CurriculumSettings,
    EngineSettings,
    LearnerSettings,
    ObjectiveSettings,
    StageSettings,
    TasksSettings,
)
from lyceum.core.sources import ShowsEpisodes, source_of
from lyceum.core.tree import Tree
from lyceum.core.types import Exchange, Task, TaskSource
from lyceum.models.demonstrations import demonstrated_episode
from lyceum.models.frozen import copy_values
from lyceum.models.prompts import check_prompts, fitting_prompts
from lyceum.training.stages.session import Session, StageLoop
from lyceum.training.stages.stopping import Ending, UntilHeldOut, ends_in_words, last_step, note, steps_in_words
from lyceum.utils.errors import RecipeError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class SupervisedStage(StageSettings):
    """Cross-entropy on demonstrations, through the same trees and the same learner as everything else."""

    grades: ClassVar[bool] = False
    requires: ClassVar = ("imitation",)

    kind: Literal["sft"] = "sft"
    steps: int = Field(default=100, ge=1)
    """Optimiser steps of this stage."""
    epochs: int | None = Field(default=None, ge=1, le=10**6)
    """Passes over the demonstrations after which the stage ends, even before its steps are done. The last step may have
    fewer of them. Null: as many passes as its steps take."""
    until: UntilHeldOut | None = None
    """Early stopping: when held-out accuracy reaches a target, or no longer rises."""
    tasks_per_step: int = Field(default=64, ge=1)
    """Demonstrations per step."""
    start: Literal["current", "run"] = "current"
    """The model that it trains: the one that the stage before left, or the one that the run began with, so that several
    stages fine-tune it independently of each other."""
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
        return [
            steps_in_words(self.steps, self.epochs, self.tasks_per_step),
            *ends_in_words(self.until),
        ]

    def checked(self, stage: Composition) -> Iterator[tuple[str, Settings]]:
        """Its rule of stopping and its learner: nothing samples, and nothing has advantages."""
        return ((name, part) for name, part in super().checked(stage) if name in ("until", "learner"))

    def check_tasks(self, source: TaskSource) -> None:
        """Raise RecipeError if the tasks have no demonstrations."""
        tasks = self.source(source, 0)
        episode_of(tasks, tasks[0])

    def source(self, of_recipe: TaskSource, seed: int) -> TaskSource:
        """The stage's tasks, of the run's seed."""
        return of_recipe if self.tasks is None else self.tasks.build("train", seed)

    def fitting(
        self, seed: int, tokenizer: PreTrainedTokenizerBase, limit: int, *, checked: bool = False
    ) -> TaskSource | None:
        """The stage's own tasks whose prompts fit the context; None where it has none of its own.

        Args:
            checked: whether a check before the run has rendered their prompts.
        Raises:
            RecipeError: a prompt does not fit, and the tasks do not say that such rows are left out or cut.
        """
        if self.tasks is None:
            return None
        fit = fitting_prompts if checked else check_prompts
        return fit(f"stages.{self.name}.tasks", self.tasks.build("train", seed), tokenizer, limit)

    def build(self, session: Session) -> SupervisedRun:
        return SupervisedRun(self, session)


class SupervisedRun(StageLoop):
    """The loop and its state."""

    stateful = ("learner", "curriculum", "ending")

    def __init__(self, settings: SupervisedStage, session: Session) -> None:
        self.settings, self.session = settings, session
        self.step = 0
        self.objective = settings.objective.build()
        tokenizer = session.policy.tokenizer
        limit = min(session.policy.context_length, int(tokenizer.model_max_length))
        own = settings.fitting(session.seed, tokenizer, limit, checked=True)
        self.source = session.source if own is None else own
        tasks = len(self.source)
        self.steps = last_step(settings.steps, settings.epochs, tasks, settings.tasks_per_step)
        self.note = note(settings.steps, settings.epochs, tasks, settings.tasks_per_step)
        self.draws = None if settings.epochs is None else settings.epochs * tasks
        if settings.start == "run" and session.start_weights is not None:
            copy_values(session.start_weights, [p for p in session.policy.module.parameters() if p.requires_grad])
        needs = frozenset(name for reduction in self.objective.reductions for name in reduction.models)
        self.learner = settings.learner.build(session.policy, total_steps=self.steps, needs=needs)
        self.engine = session.build_engine(settings.engine)
        self.curriculum = settings.curriculum.build(self.source, seed=session.stage_seed, policy=session.policy)
        self.ending = Ending(settings.until)

    async def run(self) -> None:
        session = self.session
        if self.note and not self.step:
            session.progress.say(self.note)
        while self.step < self.steps and not self.ending.reached:
            size = self.settings.tasks_per_step
            left = size if self.draws is None else self.draws - self.step * size
            trees, metrics = self.learn(self.curriculum.draw(min(size, left)))
            self.step += 1
            await self.engine.load(self.learner.weights(), version=session.first_step + self.step)
            session.digest(session.first_step + self.step, trees, metrics)
            expected = None if self.draws is None else self.steps
            self.ending.observe(await session.finish_step(self, metrics, expected_steps=expected))
            session.pause(self.step, self.steps, self.state_dict)
        self.learner.require_learnt()

    def learn(self, tasks: list[Task]) -> tuple[list[Tree], dict[str, Any]]:
        """One update on these tasks' demonstrations; returns them and its metrics."""
        trees = self.demonstrations(tasks)
        return trees, self.session.imitate(self.learner, trees, self.objective)

    @property
    def ended_by(self) -> str:
        return self.ending.why or ("its epochs are over" if self.steps < self.settings.steps else "")

    def demonstrations(self, tasks: list[Task]) -> list[Tree]:
        """One trajectory for each task: its prompt, and the demonstration written by a teacher."""
        policy, longest = self.session.policy, self.settings.max_completion_tokens
        return [
            demonstrated_episode(policy, task, episode_of(self.source, task), longest)
            for task in policy.foreseen(tasks)
        ]


def episode_of(source: TaskSource, task: Task) -> Sequence[Exchange]:
    """What is imitated of a task: its worked episode, or its completion as an episode of one turn.

    Raises:
        RecipeError: the task has neither.
    """
    its_own, own = source_of(source, task)
    if isinstance(its_own, ShowsEpisodes):
        return its_own.episode(own)
    text = source.imitated(task)
    if not text:
        raise RecipeError(
            f"tasks: task {task.id!r} has no column 'demonstration', which stage 'sft' imitates; allowed: rows with a "
            "completion, messages that end with an answer, an answer, or tasks.columns.demonstration"
        )
    return [Exchange(text, "")]

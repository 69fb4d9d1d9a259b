"""WebRL's curriculum: tasks that failed are rewritten, and a critic keeps the new ones that are neither easy nor
hopeless."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from lyceum.core.component import require_keys
from lyceum.core.notes import Note
from lyceum.core.settings import GuidanceSettings
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Context, Message, ProposedSource, Rollout, Sampling, Task, TaskSource
from lyceum.guidance.base import TaskGuide, answers_to, notes_of, writable
from lyceum.utils.numbers import mean


class FailedTasks(GuidanceSettings):
    """Drawn tasks give way to new ones, which the run's model writes from tasks that failed in earlier steps.

    A rule reads what is written. Of what is a task, the stage's value model predicts how often it will succeed, from
    the prompt alone; one whose prediction is between ``easier`` and ``harder`` is answered in the place of the drawn
    task, which stays where there is none. Writing is not trained.

    Source:
        WebRL, arXiv:2411.02337, section on the self-evolving curriculum; THUDM/WebRL, ``scripts/gen_task.py``: the
        bounds 0.05 and 0.75 on the critic's value.
    """

    requires: ClassVar = ("value",)

    kind: Literal["failed-tasks"] = "failed-tasks"
    share: float = Field(default=1.0, ge=0, le=1)
    """Share of the drawn tasks that new ones take the place of, where one passes (no unit)."""
    attempts: int = Field(default=4, ge=1, le=64)
    """Texts that are written from one failed task; the first that passes is answered."""
    harder: float = Field(default=0.05, ge=0, le=1)
    """Predicted success rate below which a task is hopeless."""
    easier: float = Field(default=0.75, ge=0, le=1)
    """Predicted success rate above which a task is easy."""
    failed_below: float = Field(default=0.5, gt=0, le=1)
    """Mean outcome of a task's trajectories below which it failed."""
    pool: int = Field(default=128, ge=1)
    """Failed tasks that may be rewritten, the last ones."""
    sampling: Sampling = Sampling(max_completion_tokens=48)
    """How a new task is sampled."""

    @model_validator(mode="after")
    def _some_tasks_pass(self) -> FailedTasks:
        if self.harder >= self.easier:
            raise ValueError(f"harder: got {self.harder:g} with easier {self.easier:g}; allowed: less than it")
        return self

    def check_tasks(self, source: TaskSource) -> None:
        writable(self.kind, source)

    def build(self, source: TaskSource, *, seed: int) -> FailedTasksGuide:
        return FailedTasksGuide(self, writable(self.kind, source))


@dataclass(frozen=True)
class FailedTask:
    """A task of the pool; ``generation`` is how often it was rewritten since it was drawn."""

    id: str
    messages: tuple[Message, ...]
    generation: int


@dataclass
class Rewritten(Note):
    """What became of a drawn task.

    Attributes:
        id, messages, generation: of the task that was answered.
        written: texts that were written from a failed task.
        values: predicted success rates of those that a rule read.
        rejected: why the others were no task, or what the critic said: ``easy``, ``hopeless``.
        value: of the new task that was answered; None where the drawn one was.
    """

    kind: ClassVar[str] = "failed-tasks"
    id: str
    messages: tuple[Message, ...]
    generation: int = 0
    written: int = 0
    values: list[float] = field(default_factory=list)
    rejected: Counter[str] = field(default_factory=Counter)
    value: float | None = None


class FailedTasksGuide(TaskGuide):
    """Its state: the pool, the tasks that failed last at the end."""

    def __init__(self, settings: FailedTasks, source: ProposedSource) -> None:
        self.settings, self.source = settings, source
        self.pool: dict[str, FailedTask] = {}

    async def roll(self, rollout: Rollout, context: Context, start: Node, n: int | None) -> list[Node]:
        note = Rewritten(context.task.id, context.task.messages)
        context.tree.add_note(note)
        rng = np.random.default_rng(context.seed(self.settings.kind))
        if not self.pool or rng.random() >= self.settings.share:
            return await rollout(context, start, n)
        seed_task = list(self.pool.values())[int(rng.integers(len(self.pool)))]
        task = await self.rewritten(seed_task, context, note)
        if task is not None:
            leaves = await answers_to(rollout, context.acting("", task), task.messages, task.id, n)
            if leaves:
                note.id, note.messages, note.generation = task.id, task.messages, seed_task.generation + 1
                return leaves
        note.value = None
        return await rollout(context, start, n)

    async def rewritten(self, failed: FailedTask, context: Context, note: Rewritten) -> Task | None:
        """The first of the texts that is a task and that the critic lets pass; None where there is none."""
        like = Task(failed.id, failed.messages)
        prompt = context.render(self.source.to_propose(like))
        of, left = self.settings, context.tokens_left(Node.prompt(prompt))
        most = min(of.sampling.max_completion_tokens, left, context.budget_left // of.attempts)
        if most < 1:
            return None
        sampling = of.sampling.model_copy(update={"max_completion_tokens": most})
        drawn = await context.ask(prompt, of.attempts, sampling, key=(of.kind,))
        note.written = len(drawn)
        tasks: dict[str, Task] = {}
        for one in drawn:
            read = self.source.proposed(context.decode(one.tokens), like) if one.finish != "length" else "truncated"
            if isinstance(read, Task):
                tasks.setdefault(read.id, read)
            else:
                note.rejected[read] += 1
        values = await context.value([Node.prompt(context.render(task.messages)) for task in tasks.values()])
        note.values = list(values)
        said = [verdict_on(value, harder=of.harder, easier=of.easier) for value in values]
        note.rejected.update(word for word in said if word)
        passed = [(task, value) for task, value, word in zip(tasks.values(), values, said, strict=True) if not word]
        if not passed:
            return None
        task, note.value = passed[0]
        return task

    def observe(self, trees: Sequence[Tree]) -> None:
        notes = notes_of(trees, Rewritten)
        predicted: list[float] = []
        found: list[float] = []
        drawn: list[float] = []
        for tree, note in notes:
            outcomes = [outcome for _, _, outcome in tree.graded_with_outcome()]
            if not outcomes:
                continue
            success = mean(outcomes)
            self.pool.pop(note.id, None)
            if success < self.settings.failed_below:
                self.pool[note.id] = FailedTask(note.id, note.messages, note.generation)
            if note.value is None:
                drawn.append(success)
            else:
                predicted.append(note.value)
                found.append(success)
        self.pool = dict(list(self.pool.items())[-self.settings.pool :])
        rejected = sum((Counter(note.rejected) for _, note in notes), Counter[str]())
        values = [value for _, note in notes for value in note.values]
        self._metrics = {
            "pool/failed": len(self.pool),
            "tasks/written": sum(note.written for _, note in notes),
            "tasks/new": len(predicted),
            "tasks/generation": max((note.generation for _, note in notes), default=0),
            **{f"rejected/{reason}": times for reason, times in sorted(rejected.items())},
            **({"critic/value": mean(values)} if values else {}),
            **({"success/drawn": mean(drawn)} if drawn else {}),
        }
        if predicted:
            error = [abs(value - success) for value, success in zip(predicted, found, strict=True)]
            self._metrics |= {
                "success/new": mean(found),
                "success/predicted": mean(predicted),
                "success/error": mean(error),
            }

    def state_dict(self) -> dict[str, Any]:
        return {"pool": [[task.id, list(task.messages), task.generation] for task in self.pool.values()]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("guidance.failed-tasks", given=state, needed=self.state_dict())
        tasks = [FailedTask(id, tuple(messages), generation) for id, messages, generation in state["pool"]]
        self.pool = {task.id: task for task in tasks}


def verdict_on(value: float, *, harder: float, easier: float) -> str:
    """``hopeless`` below ``harder``, ``easy`` above ``easier``, empty between them: predicted success rates in 0 .. 1.

    Source:
        THUDM/WebRL, ``scripts/gen_task.py: filter_by_critic``; both bounds pass.
    """
    return "hopeless" if value < harder else "easy" if value > easier else ""

"""ReLIFT: online reinforcement learning, with a fine-tuning step whenever enough tasks have failed.

Source: Learning What Reinforcement Learning Can't, arXiv:2506.07527, and its released code (relift/trainer.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from lyceum.core.component import Component, of_kind, slot
from lyceum.core.group import Group
from lyceum.core.settings import Composition, LearnerSettings, ObjectiveSettings
from lyceum.core.tree import Tree, is_correct
from lyceum.core.types import StepMetrics, Task, TaskSource, Trace
from lyceum.guidance.base import failed
from lyceum.models.demonstrations import demonstrated, demonstration_of, needed_demonstration
from lyceum.runtime.in_process import InProcess
from lyceum.training.stages._auxiliary import Auxiliary, Imitation
from lyceum.training.stages.online import Online, OnlineRun
from lyceum.training.stages.session import Session


class FineTuning(Component):
    """Fine-tuning on the demonstrations of failed tasks."""

    batch: int = Field(default=32, ge=1)
    """Demonstrations per fine-tuning step, which is taken as soon as this many are waiting."""
    objective: Annotated[ObjectiveSettings, slot("objective", "sft")] = of_kind("sft")
    """The loss."""
    learner: Annotated[LearnerSettings, slot("learner", "local")] = of_kind("local")
    """How these steps update the weights: a learning rate and an optimiser of their own."""
    verified: bool = True
    """Leave out demonstrations that the tasks' own verifier does not grade correct; the paper's are not checked."""
    max_completion_tokens: int = Field(default=2048, ge=1)
    """Maximum tokens per demonstration; longer ones are left out."""


class Interleaved(Online):
    """The online loop, with fine-tuning between its steps on demonstrations of the tasks that it fails."""

    kind: Literal["interleaved"] = "interleaved"  # pyright: ignore[reportIncompatibleVariableOverride]
    fine_tuning: FineTuning = FineTuning()
    """The steps in between."""

    def check(self, stage: Composition) -> list[str]:
        lines = super().check(stage)
        if "imitation" not in self.fine_tuning.objective.offers:
            lines.append(
                f"fine_tuning.objective.kind: got '{self.fine_tuning.objective.kind}', but demonstrations of failed "
                "tasks have no advantages; allowed: sft"
            )
        if len(self.roles.models) > 1:
            lines.append(
                f"roles.models: got {', '.join(self.roles.models)} in stage 'interleaved', whose fine-tuning "
                "trains one model; allowed: one, or stage 'online'"
            )
        return lines

    def check_tasks(self, source: TaskSource) -> None:
        super().check_tasks(source)
        needed_demonstration(source[0], "stage 'interleaved'")

    def also(self, run: OnlineRun) -> list[Auxiliary]:
        return [FineTuner(self.fine_tuning, run.session, run.sampler.growing.here, total_steps=run.steps)]


class FineTuner(Imitation):
    """Buffers the demonstrations of failed tasks, newest first, and fine-tunes on them as soon as enough are waiting.

    Args:
        runtime: grades demonstrations, by the stage's own grader.
        total_steps: of the stage.
    """

    def __init__(self, settings: FineTuning, session: Session, runtime: InProcess, *, total_steps: int) -> None:
        super().__init__("fine_tuning", settings.objective, settings.learner, session, total_steps=total_steps)
        self.settings, self.runtime = settings, runtime
        self.buffer: list[Trace] = []
        self.demonstrations_used = 0

    async def after(self, groups: Sequence[Group], metrics: StepMetrics) -> StepMetrics:
        sampled = [group.tree for group in groups if group.sampled]
        collected = Counter([await self.put_aside(tree.task) for tree in sampled if failed(tree.trajectories)])
        steps, self.updated = 0, False
        while len(self.buffer) >= self.settings.batch:
            metrics = self.imitate(self.next_batch(), metrics)
            steps += 1
        return {
            **metrics,
            "fine_tuning/steps": steps,
            "fine_tuning/waiting": len(self.buffer),
            "fine_tuning/demonstrations_used": self.demonstrations_used,
            "fine_tuning/skipped_steps": self.learner.skipped_steps,
            **{f"fine_tuning/{what}": n for what, n in sorted(collected.items())},
        }

    async def put_aside(self, task: Task) -> str:
        """Add a failed task's demonstration to the buffer; returns ``collected``, or why it was left out."""
        text = demonstration_of(task)
        if text is None:
            return "missing"
        trace = Trace(task.id, task.messages, text)
        (leaf,) = demonstrated(self.session.policy, trace, self.settings.max_completion_tokens).trajectories
        if leaf.finish == "length":
            return "too_long"
        if self.settings.verified:
            await self.runtime.grade(task, [leaf], key="demonstration")
            if not is_correct(leaf):
                return "not_right"
        self.buffer = [trace, *(other for other in self.buffer if other.task != task.id)]
        return "collected"

    def next_batch(self) -> list[Tree]:
        """The newest demonstrations of the buffer, which leave it."""
        batch, self.buffer = self.buffer[: self.settings.batch], self.buffer[self.settings.batch :]
        self.demonstrations_used += len(batch)
        return [demonstrated(self.session.policy, trace) for trace in batch]

    def state_dict(self) -> dict[str, Any]:
        buffer = [trace.state_dict() for trace in self.buffer]
        return super().state_dict() | {"buffer": buffer, "demonstrations_used": self.demonstrations_used}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.buffer = [Trace.from_state(trace) for trace in state["buffer"]]
        self.demonstrations_used = state["demonstrations_used"]

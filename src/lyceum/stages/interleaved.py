"""ReLIFT: online reinforcement learning, and a fine-tuning step whenever enough has turned out to be out of its reach.

Source: Learning What Reinforcement Learning Can't, arXiv:2506.07527, and its released code (relift/trainer.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from lyceum.component import Component, of_kind, require_keys, slot
from lyceum.demonstrations import demonstrated, demonstration_of, imitate, needed_demonstration
from lyceum.forest import Forest
from lyceum.guidance.base import failed
from lyceum.rooms import Composition, LearnerSettings, ObjectiveSettings
from lyceum.stages.online import Online, OnlineRun
from lyceum.stages.session import Session
from lyceum.tree import Tree, is_right
from lyceum.types import Credited, Task, TaskSource


class FineTuning(Component):
    """What is done with the demonstrations of tasks that failed."""

    batch: int = Field(default=32, ge=1)
    """Demonstrations of one fine-tuning step, which is taken as soon as so many are waiting."""
    objective: Annotated[ObjectiveSettings, slot("objective", "sft")] = of_kind("sft")
    """The loss."""
    learner: Annotated[LearnerSettings, slot("learner", "local")] = of_kind("local")
    """How these steps update the weights: a learning rate and an optimiser of their own."""
    verified: bool = True
    """Leave out demonstrations that the tasks' own verifier does not find right; the paper's are taken as they are."""
    max_completion_tokens: int = Field(default=2048, ge=1)
    """Demonstrations longer than this are left out."""


class Interleaved(Online):
    """The online loop, with fine-tuning on the demonstrations of what it fails at between its steps."""

    kind: Literal["interleaved"] = "interleaved"  # pyright: ignore[reportIncompatibleVariableOverride]
    fine_tuning: FineTuning = FineTuning()
    """The steps in between."""

    def check(self, stage: Composition) -> list[str]:
        lines = super().check(stage)
        if self.fine_tuning.objective.kind != "sft":
            lines.append(
                f"fine_tuning.objective.kind: got '{self.fine_tuning.objective.kind}', but demonstrations of failed "
                "tasks have no advantages; allowed: sft"
            )
        return lines

    def check_tasks(self, source: TaskSource) -> None:
        super().check_tasks(source)
        needed_demonstration(source[0], "stage 'interleaved'")

    def build(self, session: Session) -> InterleavedRun:
        return InterleavedRun(self, session)


class InterleavedRun(OnlineRun):
    """The loop with two of its steps extended: collecting also fills the buffer, learning also empties it.

    The buffer holds what a demonstration needs, newest first, and is part of the checkpoint.
    """

    settings: Interleaved

    def __init__(self, settings: Interleaved, session: Session) -> None:
        super().__init__(settings, session)
        self.tuning = settings.fine_tuning
        self.tuning_objective = self.tuning.objective.build()
        self.tuner = self.tuning.learner.build(session.policy, total_steps=settings.steps, needs=frozenset())
        self.buffer: list[dict[str, Any]] = []
        self.demonstrations_used = 0
        self._collected: Counter[str] = Counter()

    async def run(self) -> None:
        await super().run()
        self.tuner.require_learnt()

    async def collect(self) -> tuple[list[Tree], list[Tree]]:
        trees, dropped = await super().collect()
        self._collected = Counter()
        for tree in [*trees, *dropped]:
            if failed(tree):
                self._collected[await self._put_aside(tree.task)] += 1
        return trees, dropped

    async def _put_aside(self, task: Task) -> str:
        """Add a failed task's demonstration to the buffer; why not, where not."""
        text = demonstration_of(task)
        if text is None:
            return "missing"
        tree = demonstrated(self.session.policy, task, text, self.tuning.max_completion_tokens)
        (leaf,) = tree.trajectories
        if leaf.finish == "length":
            return "too_long"
        if self.tuning.verified:
            (leaf.grade,) = await self.runtime.grader(task, [leaf])
            if not is_right(leaf):
                return "not_right"
        waiting = {"id": task.id, "messages": [dict(message) for message in task.messages], "demonstration": text}
        self.buffer = [waiting, *(other for other in self.buffer if other["id"] != task.id)]
        return "collected"

    def learn(self, forest: Forest) -> tuple[Credited | None, dict[str, Any]]:
        credited, figures = super().learn(forest)
        steps = 0
        while len(self.buffer) >= self.tuning.batch:
            figures = together(figures, self._fine_tune())
            steps += 1
        figures |= {
            "fine_tuning/steps": steps,
            "fine_tuning/waiting": len(self.buffer),
            "fine_tuning/demonstrations_used": self.demonstrations_used,
            "fine_tuning/skipped_steps": self.tuner.skipped_steps,
        }
        return credited, figures | {f"fine_tuning/{what}": n for what, n in sorted(self._collected.items())}

    def has_signal(self, forest: Forest, credited: Credited | None, figures: Mapping[str, Any]) -> bool:
        return figures["fine_tuning/steps"] > 0 or super().has_signal(forest, credited, figures)

    def _fine_tune(self) -> dict[str, Any]:
        """One step on the newest demonstrations of the buffer, which leave it."""
        batch, self.buffer = self.buffer[: self.tuning.batch], self.buffer[self.tuning.batch :]
        self.demonstrations_used += len(batch)
        with self.session.training(self.tuner):
            return imitate(self.tuner, self._trees(batch), self.tuning_objective)

    def _trees(self, batch: Sequence[Mapping[str, Any]]) -> list[Tree]:
        policy, longest = self.session.policy, self.tuning.max_completion_tokens
        return [
            demonstrated(policy, Task(kept["id"], tuple(kept["messages"])), kept["demonstration"], longest)
            for kept in batch
        ]

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {
            "tuner": self.tuner.state_dict(),
            "buffer": self.buffer,
            "demonstrations_used": self.demonstrations_used,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("stage", given=state, needed=self.state_dict())
        super().load_state_dict(state)
        self.tuner.load_state_dict(state["tuner"])
        self.buffer = [dict(waiting) for waiting in state["buffer"]]
        self.demonstrations_used = state["demonstrations_used"]


def together(figures: Mapping[str, Any], tuned: Mapping[str, Any]) -> dict[str, Any]:
    """A step's figures with those of a fine-tuning step: tokens add up, the rest is kept apart by name."""
    added = ("tokens_trained", "row_tokens_trained", "seconds/train")
    both = {**figures, **{f"fine_tuning/{name}": value for name, value in tuned.items() if name not in added}}
    return both | {name: figures.get(name, 0) + tuned.get(name, 0) for name in added}

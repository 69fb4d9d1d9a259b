"""QwenLong-L1: phases of growing input length, with the hardest tasks of earlier phases drawn again."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field, field_validator

from lyceum.core.settings import CurriculumSettings
from lyceum.core.sources import checked_tasks
from lyceum.core.tree import Tree
from lyceum.core.types import Message, Task, TaskSource
from lyceum.curriculum.base import LOOKED_AT, FromSource, task_index, without_replacement
from lyceum.models.policy import Policy
from lyceum.utils.errors import RecipeError, RunError
from lyceum.utils.numbers import mean


class Phases(CurriculumSettings):
    """Each phase draws tasks whose prompts are longer than those of the phase before, up to its own limit, and, in
    part, hard ones of earlier phases.

    Source: QwenLong-L1, arXiv:2505.17667: curriculum-guided phased RL, and retrospective sampling with the inverse mean
    reward as difficulty. There length is counted in tokens.
    """

    gives: ClassVar = ("end",)
    kind: Literal["phases"] = "phases"
    lengths: tuple[int, ...] = Field(min_length=1, max_length=64)
    """Maximum prompt length of each phase, in characters, increasing; longer tasks are never drawn."""
    every_steps: int = Field(default=20, ge=1)
    """Steps per phase; the last one lasts to the end of the stage, unless that ends with it (``until.curriculum``)."""
    returning: float = Field(default=0.25, ge=0, lt=1)
    """Share of a step's tasks that are drawn from earlier phases, from the second phase on, rounded down (no unit)."""
    most: float = Field(default=16.0, ge=1)
    """Maximum sampling weight of a returning task, 1 / its mean reward (no unit)."""

    @field_validator("lengths")
    @classmethod
    def _lengths_increase(cls, lengths: tuple[int, ...]) -> tuple[int, ...]:
        if lengths[0] < 1 or any(b <= a for a, b in itertools.pairwise(lengths)):
            raise ValueError(f"got {list(lengths)}; allowed: positive numbers, each larger than the one before")
        return lengths

    def check_tasks(self, source: TaskSource) -> None:
        """Refuse phases without a task."""
        found = {self.phase_of(source[index]) for index in checked_tasks(source, LOOKED_AT)}
        for phase, limit in enumerate(self.lengths):
            if phase not in found:
                least = self.lengths[phase - 1] + 1 if phase else 0
                raise RecipeError(
                    f"curriculum.lengths: no task has a prompt of {least} to {limit} characters, which phase "
                    f"{phase + 1} draws; allowed: limits with tasks between them"
                )

    def phase_of(self, task: Task) -> int | None:
        """The phase that a task is first drawn in; None where it is longer than all."""
        length = prompt_length(task.messages)
        return next((phase for phase, limit in enumerate(self.lengths) if length <= limit), None)

    def build(self, source: TaskSource, *, seed: int, policy: Policy | None = None) -> PhasesCurriculum:
        return PhasesCurriculum(self, source, seed=seed)


class PhasesCurriculum(FromSource):
    """Its state: steps done, its position in the source, and the mean reward of each task that may return."""

    kept = ("steps", "position", "draws")

    def __init__(self, settings: Phases, source: TaskSource, *, seed: int) -> None:
        super().__init__(source, seed=seed)
        self.settings = settings
        self.steps = self.position = self.draws = 0
        self.seen: dict[str, tuple[int, int, float]] = {}
        """Of each task by its id: index, phase, and the mean reward of its latest group, within 0 .. 1."""
        self.drawn: dict[str, tuple[int, int]] = {}
        """Index and phase of tasks without an outcome so far."""

    @property
    def phase(self) -> int:
        return min(self.steps // self.settings.every_steps, len(self.settings.lengths) - 1)

    @property
    def done(self) -> str:
        phases, every = len(self.settings.lengths), self.settings.every_steps
        return f"all {phases} phases are over" if self.steps >= phases * every else ""

    def draw(self, n: int) -> list[Task]:
        back = self.returning(int(self.settings.returning * n))
        return back + [self._next() for _ in range(n - len(back))]

    def returning(self, n: int) -> list[Task]:
        """Up to n different tasks of earlier phases, by weights 1 / mean reward."""
        earlier = [(index, reward) for index, phase, reward in self.seen.values() if phase < self.phase]
        count = min(n, len(earlier))
        if not count:
            return []
        weight = np.array([difficulty(reward, self.settings.most) for _, reward in earlier])
        rng = np.random.default_rng([self.seed, self.draws, 1])
        self.draws += 1
        return [self.source[earlier[i][0]] for i in without_replacement(np.log(weight), count, rng)]

    def _next(self) -> Task:
        for _ in range(2 * len(self.source)):
            index = task_index(self.seed, self.position, len(self.source))
            self.position += 1
            task = self.source[index]
            if self.settings.phase_of(task) == self.phase:
                self.drawn[task.id] = index, self.phase
                return task
        raise RunError(f"curriculum.lengths: no task of the source belongs to phase {self.phase + 1}")

    def observe(self, trees: Sequence[Tree]) -> None:
        phase, back = self.phase, 0
        for tree in trees:
            before = self.seen.get(tree.task.id)
            outcomes = [outcome for _, _, outcome in tree.graded_with_outcome()]
            index, own = self.drawn.pop(tree.task.id, None) or (before[:2] if before else (-1, -1))
            back += 0 <= own < phase
            if outcomes and index >= 0:
                self.seen[tree.task.id] = index, own, min(max(mean(outcomes), 0.0), 1.0)
        self.steps += 1
        self._metrics = {
            "phase": phase + 1.0,
            "length/most": float(self.settings.lengths[phase]),
            "returned/tasks": float(back),
            "seen/tasks": float(len(self.seen)),
        }

    def state_dict(self) -> dict[str, Any]:
        pairs = {"seen": self.seen, "drawn": self.drawn}
        return super().state_dict() | {name: {id: list(of) for id, of in all.items()} for name, all in pairs.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.seen = {
            id: (int(index), int(phase), float(reward)) for id, (index, phase, reward) in state["seen"].items()
        }
        self.drawn = {id: (int(index), int(phase)) for id, (index, phase) in state["drawn"].items()}


def difficulty(reward: float, most: float) -> float:
    """Weight of a task by its group's mean reward, 1 / r, at most ``most``."""
    return min(1 / reward, most) if reward > 0 else most


def prompt_length(messages: Sequence[Message]) -> int:
    """Characters of all messages' text."""
    contents = [message["content"] for message in messages]
    return sum(
        len(content) if isinstance(content, str) else sum(len(part.get("text", "")) for part in content)
        for content in contents
    )

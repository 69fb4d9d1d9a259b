"""Tasks of Inspect, as they are published."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from lyceum.tasks.episodes import EpisodeTasks


class InspectTasks(EpisodeTasks):
    """A task of Inspect (https://inspect.aisi.org.uk), unchanged: rollout ``agent``.

    Its data set makes the tasks, its solver asks the run's model, its first scorer's value is the reward (correct 1,
    partial 0.5, incorrect 0, or a number); others are recorded as parts. Each process plays one episode at a time.
    """

    library: ClassVar[str] = "inspect_ai"
    at_once: ClassVar[int | None] = 1

    kind: Literal["inspect"] = "inspect"
    task: str = Field(min_length=1)
    """``FILE.py@NAME``, or the name of a task in an installed package, such as ``inspect_evals/gsm8k``."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """Arguments with which the task is made."""
    processes: int = Field(default=4, ge=1, le=64)
    """Processes in which episodes are played, one at a time in each."""

    @property
    def name(self) -> str:
        return self.task

    @property
    def made(self) -> dict[str, Any]:
        return {"task": self.task, "arguments": self.arguments}

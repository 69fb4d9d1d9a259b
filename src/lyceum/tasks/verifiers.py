"""Environments of verifiers, as they are published."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from lyceum.tasks.episodes import EpisodeTasks


class VerifiersTasks(EpisodeTasks):
    """An environment of verifiers 0.4 (https://github.com/PrimeIntellect-ai/verifiers), unchanged: rollout ``agent``.

    Its taskset makes the tasks, its harness plays an episode and asks the run's model, its own functions give the
    reward; other rewards, and its metrics, are recorded as parts. One of a single agent. Harnesses run on this machine
    unless ``agent`` names another runtime; those that verifiers starts as scripts need ``uv``.
    """

    library: ClassVar[str] = "verifiers"

    kind: Literal["verifiers"] = "verifiers"
    taskset: dict[str, Any] = Field(min_length=1)
    """The taskset's name, an installed package or a module in the working directory, or its settings with ``id``."""
    agent: dict[str, Any] = Field(default_factory=dict)
    """Settings of the environment's agent, such as ``{harness: {id: "null"}, max_turns: 8}``. Limits that are not set
    are the rollout's; its verdicts on what ended at them hold."""

    @field_validator("taskset", mode="before")
    @classmethod
    def _by_name(cls, given: Any) -> Any:
        return {"id": given} if isinstance(given, str) else given

    @field_validator("taskset")
    @classmethod
    def _has_a_name(cls, given: dict[str, Any]) -> dict[str, Any]:
        if not isinstance(given.get("id"), str):
            raise ValueError("got settings without id; allowed: the name of a taskset, or its settings with id")
        return given

    @property
    def name(self) -> str:
        return self.taskset["id"]

    @property
    def made(self) -> dict[str, Any]:
        return {"taskset": self.taskset, "agent": self.agent}

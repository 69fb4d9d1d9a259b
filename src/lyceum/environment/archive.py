"""The archive of the tasks ``archive``: the passage that each search finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from lyceum.core.settings import EnvironmentSettings
from lyceum.core.tree import Node
from lyceum.core.types import Environment, Exchange, GradingContext, Observation, Task, TaskSource
from lyceum.tasks.archive import Findings, Papers, found_by, papers_of, played, state_of, text_of, with_found
from lyceum.utils.errors import RecipeError


class ArchiveEnvironment(EnvironmentSettings):
    """Answers searches with the passage that is most like their words (tasks ``archive``).

    A turn is a command. An answer ends the trajectory, and the right one earns 1. What shows nothing new changes
    nothing; what shows no passage is counted as failed. A state's key is the passages found.
    """

    kind: Literal["archive"] = "archive"

    def check_tasks(self, source: TaskSource) -> None:
        if not source[0].columns.keys() >= {"entries", "relations"}:
            raise RecipeError("environment.archive: the tasks have no passages; allowed: tasks 'archive'")

    def build(self) -> Environment[Research]:
        return PapersEnvironment()


@dataclass(frozen=True)
class Research:
    papers: Papers
    findings: Findings
    answer: str
    """The right one."""


class PapersEnvironment:
    def reset(self, task: Task) -> Research:
        return self.replay(task, ())

    def replay(self, task: Task, exchanges: Sequence[Exchange]) -> Research:
        papers = papers_of(task)
        return Research(papers, played(papers, [said for said, _ in exchanges]), task.answer)

    def key_of(self, state: Research) -> str:
        return state_of(state.papers, state.findings)

    async def step(self, state: Research, turn: Node, said: str, context: GradingContext) -> Observation[Research]:
        place = found_by(state.papers, said)
        now = replace(state, findings=with_found(state.findings, said, place))
        answer = now.findings.answer
        messages = () if answer else ({"role": "user", "content": text_of(state.papers, place)},)
        return Observation(
            now,
            messages,
            reward=float(answer == state.answer),
            end=bool(answer),
            key=self.key_of(now),
            calls=1,
            failed=int(not answer and place is None),
        )

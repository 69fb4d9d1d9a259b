"""Trajectories for tests of rewards."""

import asyncio
from collections.abc import Sequence
from typing import Any

from fake_task import NO_MODEL

from lyceum.core.settings import RewardSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, Origin, Task
from lyceum.reward.base import combine
from lyceum.tasks import base as tasks


def leaf(text: str, *, tokens: int | None = None, finish: str = "stop") -> Node:
    prompt = Node(None, [1, 2], Origin.PROMPT, text="What?")
    count = len(text) if tokens is None else tokens
    node = Node(prompt, list(range(count)), Origin.POLICY, version=[7] * count, finish=finish, text=text)
    prompt.children.append(node)
    return node


def task(answer: Any = "42", **columns: Any) -> Task:
    return Task("t/1", ({"role": "user", "content": "What?"},), answer, columns, provenance="tests")


class Source(tasks.Source):
    """One task, whose own verifier looks for the answer's text."""

    def __init__(self, one: Task, grader: Grader | None = None) -> None:
        self.one, self.own_grader = one, grader

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Task:
        return self.one

    def grader(self) -> Grader:
        assert self.own_grader is not None
        return self.own_grader


def grades(
    part: RewardSettings | Sequence[RewardSettings], one: Task, *texts: str | Node, source: Source | None = None
) -> list[Grade]:
    """What the parts, combined, say of completions."""
    parts = [part] if isinstance(part, RewardSettings) else part
    leaves = [leaf(text) if isinstance(text, str) else text for text in texts]
    return asyncio.run(_grades(combine(parts, source or Source(one)), one, leaves))


async def _grades(grader: Grader, one: Task, leaves: Sequence[Node]) -> list[Grade]:
    return await grader(one, leaves, NO_MODEL)


def outcomes(part: RewardSettings, one: Task, *texts: str | Node) -> list[float | None]:
    return [grade.outcome for grade in grades(part, one, *texts)]

"""An answer that is right when it means the same in mathematics, by math-verify."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Literal

from pydantic import Field

from lyceum.reward.base import RewardPart, right_answers, verdict
from lyceum.reward.extract import WHOLE, Extract
from lyceum.reward.pool import WorkerError, shared_pool
from lyceum.tree import Node
from lyceum.types import Grade, Grader, Task, TaskSource

FACTORY = "lyceum.reward.math:checker"


class Math(RewardPart):
    """1 where math-verify finds the completion's answer equal to the task's, or to one of several, else 0.

    It runs in processes of its own with a time limit that ends them: math-verify's own limit is a signal, which needs
    the main thread and does not interrupt the computation of 9**9**9**9.
    """

    kind: Literal["math"] = "math"
    extract: Extract = WHOLE
    """Where the answer stands in a completion; ``whole`` leaves the search to math-verify, which prefers a box."""
    timeout_seconds: float = Field(5.0, gt=0)
    """Longest time for one completion, in seconds; one that takes longer is ungraded."""
    workers: int = Field(2, ge=1, le=64)
    """Processes that check at the same time."""
    memory_mb: int = Field(2048, ge=64)
    """Memory that a check may take, in MiB; one that takes more is ungraded."""

    def build(self, source: TaskSource) -> Grader:
        pool = shared_pool(
            FACTORY,
            {},
            workers=self.workers,
            timeout_seconds=self.timeout_seconds,
            memory_mb=self.memory_mb,
        )

        async def one(task: Task, leaf: Node) -> Grade:
            answers = right_answers(task)
            if not answers:
                return Grade.ungraded(f"task {task.id!r} has no answer to compare with")
            found = self.extract(leaf.completion)
            if found is None:
                return verdict(False)
            job = {"answers": list(map(str, answers)), "found": found, "search": self.extract.form == "whole"}
            try:
                return verdict(await pool.run(job))
            except WorkerError as error:
                return Grade.ungraded(str(error))

        async def grade(task: Task, leaves: Sequence[Node]) -> list[Grade]:
            return list(await asyncio.gather(*(one(task, leaf) for leaf in leaves)))

        return grade


def checker() -> Callable[[dict[str, Any]], bool]:
    """What a worker does: compares ``found`` with ``answers``; ``search`` where ``found`` is a text to search first."""
    from math_verify import parse, verify

    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns of limits that are off, as they are meant to be

    def check(job: dict[str, Any]) -> bool:
        answers = [parse(boxed(answer), parsing_timeout=0) for answer in job["answers"]]
        if not all(answers):
            raise ValueError(f"math-verify cannot read the answer {job['answers'][answers.index([])]!r}")
        found = parse(job["found"] if job["search"] else boxed(job["found"]), parsing_timeout=0)
        return any(verify(answer, found, timeout_seconds=0) for answer in answers)

    return check


def boxed(answer: str) -> str:
    """A bare ``\\frac{1}{2}`` in a box: outside of one math-verify reads LaTeX as a plain expression."""
    return answer if "$" in answer or "\\boxed" in answer or "\\(" in answer else f"\\boxed{{{answer}}}"

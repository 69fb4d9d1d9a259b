"""Verifiers that run in worker processes: what their settings have in common, and how their jobs are asked."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from pydantic import Field

from lyceum.core.settings import RewardSettings
from lyceum.core.sources import checked_tasks
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, Task, TaskSource
from lyceum.reward.base import each_at_once, verdict
from lyceum.reward.extract import WHOLE, Extract
from lyceum.reward.pool import WorkerError, shared_pool
from lyceum.utils.errors import RecipeError


class InWorker(RewardSettings):
    """A verifier whose check of one completion is a job of a worker process, which is ended at its limits."""

    factory: ClassVar[str]
    """``module:name`` of the function that makes the worker's job function from :meth:`worker_settings`."""

    extract: Extract = WHOLE
    """Where to find the answer in a completion: whole, boxed, fenced, {after: MARK}, {tags: NAME} or {json: FIELD}."""
    timeout_seconds: float = Field(5.0, gt=0)
    """Time limit per completion, in seconds; one that takes longer is incorrect, unless what the task gives (a query,
    an expression, a schema) takes longer itself: then it is ungraded."""
    workers: int = Field(2, ge=1, le=64)
    """Number of processes that check in parallel."""
    memory_mb: int = Field(512, ge=64)
    """Memory limit per check, in MiB; one that takes more is incorrect, likewise."""

    def worker_settings(self) -> dict[str, Any]:
        """What the worker's factory is given, in JSON types."""
        return {}

    @property
    def reads(self) -> str | None:
        """The column that each task must have; None: none."""
        return None

    def check_tasks(self, source: TaskSource) -> None:
        """Refuse tasks of which the first has not the column."""
        super().check_tasks(source)
        for index in checked_tasks(source, 1)[:1]:
            if self.reads is not None and source[index].columns.get(self.reads) is None:
                raise RecipeError(
                    f"reward.{self.kind}.column: got {self.reads!r}, which task {source[index].id!r} has not; "
                    "allowed: a column of the tasks, or the setting that takes its place"
                )

    @abstractmethod
    def job(self, task: Task, found: str) -> dict[str, Any]:
        """The job for an answer that was found in a completion. Raises ValueError where the task has not what it
        needs: the completion is then ungraded, with the message as its reason."""

    def alone(self, job: dict[str, Any]) -> dict[str, Any]:
        """The job with an empty answer in place of the completion's, or with the task's own.

        Where that has a result, a completion that has none (over its time, or its memory) is incorrect.
        """
        return {**job, "found": ""}

    def grade(self, result: Any, answered: bool | None) -> Grade:
        """The grade from the job's result; ``result`` is None where the completion has no answer in its place."""
        return verdict(bool(result), answered=answered)

    def build(self, source: TaskSource) -> Grader:
        pool = shared_pool(
            self.factory,
            self.worker_settings(),
            workers=self.workers,
            timeout_seconds=self.timeout_seconds,
            memory_mb=self.memory_mb,
        )

        async def one(task: Task, leaf: Node) -> Grade:
            found = self.extract(leaf.completion)
            try:
                job = self.job(task, found or "")
            except ValueError as error:
                return Grade.ungraded(str(error))
            if found is None:
                return self.grade(None, self.extract.answered(leaf.completion))
            try:
                result = await pool.run(job)
            except WorkerError as error:
                try:
                    own = await pool.run(self.alone(job))
                except WorkerError:
                    return Grade.ungraded(str(error))
                # The task's own answer in its place takes as long, or fails: then it is not the completion's fault.
                if isinstance(own, dict) and "ungraded" in own:
                    return Grade.ungraded(str(error))
                return self.grade(None, self.extract.answered(leaf.completion))
            if isinstance(result, dict) and "ungraded" in result:
                return Grade.ungraded(str(result["ungraded"]))
            return self.grade(result, self.extract.answered(leaf.completion))

        return each_at_once(one)


def cell(task: Task, column: str, what: str) -> Any:
    """A task's column. Raises ValueError where it has none."""
    value = task.columns.get(column)
    if value is None:
        raise ValueError(f"task {task.id!r} has no column {column!r} with {what}")
    return value

"""A program in the completion, judged by tests that run it in a sandbox (``docs/sandbox.md``)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from lyceum.core.settings import RewardSettings
from lyceum.core.sources import checked_tasks
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, GradingContext, Task, TaskSource
from lyceum.reward.base import code_allowed
from lyceum.reward.pool import WorkerError, WorkerPool, shared_pool
from lyceum.sandbox.backends import Backend
from lyceum.sandbox.limits import ProgramLimits
from lyceum.sandbox.run import (
    MOST_PAIRS,
    START_SECONDS,
    Choice,
    SandboxError,
    Verdict,
    usable,
)
from lyceum.utils.errors import KILLED_IN_A_ROW, RecipeError
from lyceum.utils.terminal import quoted

NO_SANDBOX = "programs without a sandbox"
MOST_CHARACTERS = 100_000
"""Maximum length of a program."""

_FENCE = re.compile(r"^[ \t]*```([^\n`]*)$", re.MULTILINE)


class ProgramPart(RewardSettings):
    """A reward that runs the program in the completion."""

    tests: str = "tests"
    """Column with a task's tests: a list of Python texts, one test each; one Python script; or a list of
    ``{stdin: ..., stdout: ...}``. Names that the tests do not define are the program's."""
    head: str = "head"
    """Column with the text that a task's program begins with, such as the head of a function; tasks may lack it."""
    limits: ProgramLimits = Field(default_factory=ProgramLimits)
    """What a program may use; one that exceeds a limit passes no test."""
    sandbox: Choice = "auto"
    """What confines programs: ``bubblewrap``, ``unshare``, ``landlock``, or ``auto`` for the first of them that works
    here. ``none`` runs them with the rights of this user, and needs trust_code=true."""
    processes: int = Field(default=2, ge=1, le=64)
    """Programs that are run at the same time."""

    def code(self) -> tuple[str, ...]:
        return (NO_SANDBOX,) if self.sandbox == "none" else ()

    def check_tasks(self, source: TaskSource) -> None:
        """Raise RecipeError where tasks have no tests, or no sandbox works here."""
        super().check_tasks(source)
        for index in checked_tasks(source, 20):
            task = source[index]
            if isinstance(found := read_tests(task.columns, self.tests), str):
                raise RecipeError(f"reward.tests: task {task.id!r}: {found}")
        self.backend()

    def backend(self) -> Backend:
        """What confines programs on this machine. Raises RecipeError where nothing does, or must not."""
        if self.sandbox == "none" and not code_allowed():
            raise RecipeError(f"reward.sandbox: got 'none', {NO_SANDBOX}; allowed: with trust_code=true")
        try:
            return usable(self.sandbox)
        except SandboxError as error:
            raise RecipeError(
                f"reward.sandbox: {error}; allowed: a machine on which one works (apt-get install bubblewrap), or "
                "sandbox=none with trust_code=true where programs may do whatever you may"
            ) from None

    def pool(self) -> WorkerPool:
        return shared_pool(
            "lyceum.sandbox.worker:judge",
            {"limits": self.limits.model_dump(), "backend": self.backend()},
            workers=self.processes,
            timeout_seconds=self.limits.seconds + 2 * START_SECONDS,
        )

    async def judged(
        self, pool: WorkerPool, task: Task, programs: Sequence[str], *, metered: bool = False
    ) -> list[Verdict | Grade]:
        """The verdict on each program, or why there is none; equal programs are run once."""
        tests = read_tests(task.columns, self.tests)
        if isinstance(tests, str):
            return [Grade.ungraded(tests)] * len(programs)
        # Characters that are none (lone surrogates) cannot be sent, nor be in a program.
        head = str(task.columns.get(self.head, ""))
        sent = [(head + program).encode("utf-8", "replace").decode() for program in programs]
        distinct = list(dict.fromkeys(program for program in sent if len(program) <= MOST_CHARACTERS))
        job = {"programs": distinct, "metered": metered, "head": head.encode("utf-8", "replace").decode(), **tests}
        tries = 1 + KILLED_IN_A_ROW  # all together, and each for itself
        seconds = (self.limits.seconds + START_SECONDS) * tries * len(distinct) * len(tests.get("pairs", "1"))
        try:
            replies = await pool.run(job, timeout_seconds=seconds) if distinct else []
        except (WorkerError, TypeError) as error:
            return [Grade.ungraded(str(error))] * len(programs)
        found = {program: read_reply(reply) for program, reply in zip(distinct, replies, strict=True)}
        return [found.get(program) or too_long(program) for program in sent]


class Code(ProgramPart):
    """1 where the program in the completion passes all tests, else 0; or the share of tests that it passes.

    The program is the last fenced block (three backticks), or all of a completion without one.
    """

    kind: Literal["code"] = "code"
    score: Literal["all", "share"] = "all"
    """``all``: 1 for a program that passes every test; ``share``: passed tests / tests."""

    def build(self, source: TaskSource) -> Grader:
        pool = self.pool()

        async def grade(task: Task, leaves: Sequence[Node], context: GradingContext) -> list[Grade]:
            programs = [program_of(leaf.completion) for leaf in leaves]
            found = await self.judged(pool, task, programs)
            return [each if isinstance(each, Grade) else self.grade(each) for each in found]

        return grade

    def grade(self, verdict: Verdict) -> Grade:
        right = all(verdict.tests) and bool(verdict.tests)
        share = sum(verdict.tests) / len(verdict.tests) if verdict.tests else 0.0
        parts = {"passed": share, "over_limit": float(verdict.limit is not None)}
        why = f"over its limits: {verdict.limit}" if verdict.limit else verdict.note
        outcome = float(right) if self.score == "all" else share
        return Grade(outcome, right, parts=parts, details=None if right else why)


def program_of(completion: str) -> str:
    """The last fenced block of a completion, or all of it where it has none; a fence may be left open at the end."""
    fences = list(_FENCE.finditer(completion))
    if not fences:
        return completion
    opening = fences[-2 if len(fences) % 2 == 0 else -1]
    closing = fences[-1].start() if len(fences) % 2 == 0 else len(completion)
    return completion[opening.end() : closing].strip("\n")


def read_tests(columns: Mapping[str, Any], column: str) -> dict[str, Any] | str:
    """The keywords of ``sandbox.run`` for a task's tests, or what is wrong with them."""
    found = columns.get(column)
    if isinstance(found, str) and found.strip():
        return {"tests": found}
    if not isinstance(found, list | tuple) or not found:
        return f"column {column!r} holds {quoted(found)}; allowed: a text, or a list of texts or of stdin and stdout"
    if all(isinstance(test, str) for test in found):
        return {"tests": list(found)}
    pairs = [(test.get("stdin"), test.get("stdout")) if isinstance(test, Mapping) else (None, None) for test in found]
    if not all(isinstance(text, str) for pair in pairs for text in pair) or len(pairs) > MOST_PAIRS:
        return f"column {column!r}: allowed: a list of texts, or of at most {MOST_PAIRS} {{stdin: text, stdout: text}}"
    return {"pairs": [list(pair) for pair in pairs]}


def too_long(program: str) -> Verdict:
    limit = f"a program of {len(program)} characters; allowed: {MOST_CHARACTERS}"
    return Verdict((False,), None, limit, False, 0.0, None)


def read_reply(reply: str | dict[str, Any]) -> Verdict | Grade:
    if isinstance(reply, str):
        return Grade.ungraded(reply)
    return Verdict(tuple(reply["tests"]), **{name: value for name, value in reply.items() if name != "tests"})

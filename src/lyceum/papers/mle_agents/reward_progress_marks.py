"""Partial credit for a program's progress, read from marks that are put into it and that it prints (instrumentation).

Source: arXiv:2509.01684: print statements are put into a program, and credit is given for those that are reached.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from lyceum.core.settings import RewardSettings
from lyceum.core.sources import checked_tasks
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, GradingContext, Task, TaskSource
from lyceum.reward.code import program_of
from lyceum.reward.pool import WorkerError, shared_pool
from lyceum.sandbox.backends import Backend
from lyceum.sandbox.limits import ProgramLimits
from lyceum.sandbox.run import START_SECONDS, Printed, SandboxError, usable
from lyceum.utils.aio import gather
from lyceum.utils.errors import RecipeError

END = "end"
"""The mark that stands below every program, reached or not: it says how long the program ran."""
STATE = re.compile(r"\b(now|apart|score|globals?|locals|vars|exec|eval)\b|__")
"""The library's own state, and ways to it: a program that has one could write its own score, and fails instead."""
CHARACTERS = 1000


class ProgressMarks(RewardSettings):
    """Runs the program in the completion, a print statement put after each of its statements that calls one of
    ``marks``. One that submits earns its score, another ``failed`` and ``each`` for every mark that it reached.

        R = score, or failed + each * (different marks that were printed)

    What a mark looks like depends on the task, and the policy never sees it. Part ``duration`` is how long the program
    ran, in seconds of the clock ``now`` of the task's library.
    """

    kind: Literal["progress-marks"] = "progress-marks"
    library: str = "library"
    """Column with the text that every program is run below; it has a clock ``now``, and ``score``, None at first."""
    marks: tuple[str, ...] = ("load", "mean", "fit", "submit")
    """Functions of the library whose return is a mark of progress."""
    each: float = Field(default=0.1, ge=0, le=10)
    """Reward of each different mark of a program that submitted nothing; 0 tells no failure from another."""
    failed: float = Field(default=-0.5, ge=-100, le=0)
    """Reward of a program that submitted nothing, without its marks."""
    right: float = Field(default=0.9, ge=0, le=1)
    """Score from which on a program counts as correct."""
    limits: ProgramLimits = ProgramLimits(seconds=4.0, cpu_seconds=2, output_kb=64)
    """What a program may use."""
    sandbox: Literal["auto", "bubblewrap", "unshare", "landlock"] = "auto"
    """What confines programs; ``auto``: the first of them that works here."""
    processes: int = Field(default=2, ge=1, le=64)
    """Programs that are run at the same time."""

    def check_tasks(self, source: TaskSource) -> None:
        super().check_tasks(source)
        for index in checked_tasks(source, 20):
            if not isinstance(source[index].columns.get(self.library), str):
                raise RecipeError(
                    f"reward.library: task {source[index].id!r} has no text in column {self.library!r}; allowed: tasks "
                    "with the library that their programs use"
                )
        self.backend()

    def backend(self) -> Backend:
        try:
            return usable(self.sandbox)
        except SandboxError as error:
            raise RecipeError(
                f"reward.sandbox: {error}; allowed: a machine on which one works (apt-get install bubblewrap)"
            ) from None

    def build(self, source: TaskSource) -> Grader:
        pool = shared_pool(
            "lyceum.sandbox.worker:interpret",
            {"limits": self.limits.model_dump(), "backend": self.backend(), "characters": CHARACTERS},
            workers=self.processes,
            timeout_seconds=self.limits.seconds + 2 * START_SECONDS,
        )

        async def ran(task: Task, program: str) -> Printed | str:
            text = instrumented(program, self.marks, mark_of(task))
            sent = f"{task.columns[self.library]}\n{text}".encode("utf-8", "replace").decode()
            try:
                return Printed(**await pool.run(sent))
            except WorkerError as error:
                return str(error)

        async def grade(task: Task, leaves: Sequence[Node], context: GradingContext) -> list[Grade]:
            programs = [program_of(leaf.completion) for leaf in leaves]
            distinct = list(dict.fromkeys(programs))
            found = dict(zip(distinct, await gather([ran(task, program) for program in distinct]), strict=True))
            return [self.grade(found[program], mark_of(task)) for program in programs]

        return grade

    def grade(self, printed: Printed | str, mark: str) -> Grade:
        if isinstance(printed, str):
            return Grade.ungraded(f"the program could not be run: {printed}")
        reached = progress(printed.text, mark)
        submitted = reached.score is not None
        outcome = reached.score if reached.score is not None else self.failed + self.each * len(reached.marks)
        parts = {
            "duration": reached.seconds,
            "marks": float(len(reached.marks)),
            "submitted": float(submitted),
            "partial": float(not submitted and bool(reached.marks)),
            "score": reached.score or 0.0,
        }
        right = submitted and (reached.score or 0.0) >= self.right
        return Grade(outcome, right, parts=parts, details=printed.limit or printed.error)


@dataclass(frozen=True)
class ReachedMarks:
    """How far a program came.

    Attributes:
        marks: that it printed, in their order, each once.
        seconds: that it ran on its library's clock; at least 1, which even one that cannot be read takes.
        score: of what it submitted; None where it submitted nothing.
    """

    marks: tuple[str, ...]
    seconds: float
    score: float | None


def mark_of(task: Task) -> str:
    """What a mark of this task's programs begins with; no program can know it."""
    return f"@{zlib.crc32(f'progress/{task.id}'.encode())}"


def instrumented(program: str, marks: Sequence[str], mark: str) -> str:
    """A program of one line with a print statement after each statement that calls one of ``marks``, and one below all
    that is reached in any case, with the score. A rule in the place of the paper's language model. A program that names
    the library's own state is not run.

    ``d=load(3);m=mean(d)`` becomes lines of ``d=load(3)``, ``print('@1','load',now)`` and so on, within a ``try``.
    """
    names = "|".join(map(re.escape, marks))
    lines: list[str] = []
    if STATE.search(program):
        program = "raise NameError"
    for statement in program.replace("\n", ";").split(";"):
        lines.append(statement.strip() or "pass")
        if called := re.search(rf"\b({names})\(", statement):
            lines.append(f"print({mark!r},{called[1]!r},now)")
    body = "".join(f"    {line}\n" for line in lines)
    return f"try:\n{body}finally:\n    print({mark!r},{END!r},now,score)\n"


def progress(text: str, mark: str) -> ReachedMarks:
    """What a program's printed marks say."""
    marks, seconds, score = dict[str, None](), 1.0, None
    for line in text.splitlines():
        match line.split(" "):
            case [begin, name, said] if begin == mark:
                marks[name] = None
                seconds = max(seconds, float(said))
            case [begin, name, said, scored] if begin == mark and name == END:
                seconds = max(seconds, float(said))
                score = None if scored == "None" else float(scored)
            case _:
                pass
    return ReachedMarks(tuple(marks), seconds, score)

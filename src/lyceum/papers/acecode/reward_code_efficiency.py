"""Programs that are correct and cheap to run, beside a reference program (ACECode)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from lyceum.core.sources import checked_tasks
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, GradingContext, Task, TaskSource
from lyceum.reward.code import ProgramPart, program_of
from lyceum.sandbox.run import Verdict
from lyceum.utils.errors import RecipeError
from lyceum.utils.terminal import quoted


class CodeEfficiency(ProgramPart):
    """For a program that passes every test, more the less it costs beside a reference that is run by the same tests.

        R = passes + (1 - passes) min(cost of the reference / cost of the program, 1)

    and ``fails`` or ``breaks`` for one that does not pass, or cannot be run at all.

    Source: ACECode, arXiv:2412.17264: a step function of correctness, and among correct programs of E_reference / E.
    """

    kind: Literal["code-efficiency"] = "code-efficiency"
    reference: str = "reference"
    """Column with the program that a task's programs are compared with; it passes the tests."""
    cost: Literal["operations", "seconds"] = "operations"
    """Python instructions, which do not depend on the machine and are counted for programs without imports, classes and
    reflection (others earn nothing for efficiency); or CPU time, which differs from run to run."""
    passes: float = Field(default=0.5, ge=0, le=1)
    """Reward of a correct program of endless cost; 1 ignores efficiency."""
    fails: float = Field(default=0.0, ge=-10, le=0)
    """Reward of a program that fails a test."""
    breaks: float = Field(default=-0.5, ge=-10, le=0)
    """Reward of one that is no Python, raises an error before its tests, or exceeds a limit."""

    def check_tasks(self, source: TaskSource) -> None:
        super().check_tasks(source)
        for index in checked_tasks(source, 20):
            task = source[index]
            if not isinstance(found := task.columns.get(self.reference), str):
                raise RecipeError(
                    f"reward.reference: task {task.id!r} has {quoted(found)} in column {self.reference!r}; "
                    "allowed: a column with a correct program"
                )

    def build(self, source: TaskSource) -> Grader:
        pool = self.pool()

        async def grade(task: Task, leaves: Sequence[Node], context: GradingContext) -> list[Grade]:
            reference = str(task.columns.get(self.reference))
            programs = [reference, *(program_of(leaf.completion) for leaf in leaves)]
            found = await self.judged(pool, task, programs, metered=self.cost == "operations")
            [best, *others] = found
            if isinstance(best, Grade) or not all(best.tests):
                reason = best.reason if isinstance(best, Grade) else best.note or best.limit
                return [Grade.ungraded(f"the reference program does not pass: {reason}")] * len(leaves)
            return [each if isinstance(each, Grade) else self.grade(each, best) for each in others]

        return grade

    def grade(self, verdict: Verdict, reference: Verdict) -> Grade:
        right = all(verdict.tests) and bool(verdict.tests)
        own, best = self.cost_of(verdict), self.cost_of(reference)
        efficiency = min(best / own, 1.0) if right and own and best is not None else 0.0
        failed = self.fails if verdict.ran else self.breaks
        outcome = self.passes + (1 - self.passes) * efficiency if right else failed
        parts = {"passed": float(right), "efficiency": efficiency, "over_limit": float(verdict.limit is not None)}
        parts["dearer"] = float(0 < efficiency < 1)  # right, and not as cheap as the reference
        return Grade(outcome, right, parts=parts, details=None if right else verdict.limit or verdict.note)

    def cost_of(self, verdict: Verdict) -> float | None:
        return verdict.operations if self.cost == "operations" else verdict.seconds

"""Each line of a program judged by running it in the place of the reference's own (PRLCoder's labels)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from lyceum.core.sources import checked_tasks
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, GradingContext, JudgedStep, Task, TaskSource
from lyceum.reward.code import ProgramPart, program_of
from lyceum.sandbox.run import Verdict
from lyceum.utils.errors import RecipeError
from lyceum.utils.terminal import quoted

MOST_LINES = 64
"""Maximum lines of a reference: each is run once per completion."""
Span = tuple[int, int]


class CodeLines(ProgramPart):
    """1 where the program passes all tests, else 0; and for each of its lines 1 or 0 as judged steps.

    Line k takes the place of the reference's line k, and the tests are run: they pass where it is the same statement,
    perhaps in another form (a refactoring), and fail where it is another one (a mutation). All lines of a program that
    passes are right; those beyond the reference's last are wrong otherwise.

    Resists: a later line is not blamed for an earlier one, as each is judged alone. Programs that pass by another
    algorithm are right as a whole; of those that fail by one, lines that fit the reference by chance count as right.

    Source: PRLCoder, arXiv:2502.01715: statements that a teacher mutated or refactored, labelled by execution.
    """

    kind: Literal["code-lines"] = "code-lines"
    reference: str = "reference"
    """Column with the program whose lines are replaced; it passes the tests."""
    separator: Literal["\n", ";"] = "\n"
    """What ends a line: a line's end, or a semicolon between statements."""

    def check_tasks(self, source: TaskSource) -> None:
        super().check_tasks(source)
        for index in checked_tasks(source, 20):
            task = source[index]
            if fault := self.fault_of(task.columns.get(self.reference)):
                raise RecipeError(f"reward.reference: task {task.id!r}, column {self.reference!r}: {fault}")

    def fault_of(self, reference: object) -> str | None:
        """What is wrong with a column's reference; None where nothing is."""
        lines = len(spans_of(reference, self.separator)) if isinstance(reference, str) else 0
        if 1 <= lines <= MOST_LINES:
            return None
        return f"got {quoted(reference)}; allowed: a correct program of 1 to {MOST_LINES} lines"

    def build(self, source: TaskSource) -> Grader:
        pool = self.pool()

        async def grade(task: Task, leaves: Sequence[Node], context: GradingContext) -> list[Grade]:
            reference = str(task.columns.get(self.reference, ""))
            if fault := self.fault_of(reference):
                return [Grade.ungraded(f"the reference in column {self.reference!r}: {fault}")] * len(leaves)
            programs = [program_of(leaf.completion) for leaf in leaves]
            variants = [replaced(reference, program, self.separator) for program in programs]
            asked = list(dict.fromkeys([reference, *programs, *(one for each in variants for one in each)]))
            found = dict(zip(asked, await self.judged(pool, task, asked), strict=True))
            if not passes(found[reference]):
                return [Grade.ungraded("the reference program does not pass")] * len(leaves)
            return [
                self.graded(leaf.completion, found[program], program, [found[one] for one in each], reference, each)
                for leaf, program, each in zip(leaves, programs, variants, strict=True)
            ]

        return grade

    def graded(
        self,
        completion: str,
        whole: Verdict | Grade,
        program: str,
        lines: Sequence[Verdict | Grade],
        reference: str,
        variants: Sequence[str],
    ) -> Grade:
        """The grade of a completion.

        Args:
            whole: the verdict on its program.
            lines: the verdict on the reference with each of the program's lines, as far as it has lines.
            variants: these programs; one that is the reference itself has the same line.
        """
        ungraded = next((one for one in (whole, *lines) if isinstance(one, Grade)), None)
        if ungraded is not None:
            return ungraded
        right, before = passes(whole), completion.rfind(program)
        labels = [right or passes(one) for one in lines]
        spans = spans_of(program, self.separator)
        labels += [right] * (len(spans) - len(labels))
        steps = tuple(
            JudgedStep(before + start, before + stop, float(label))
            for (start, stop), label in zip(spans, labels, strict=True)
        )
        other = [label for label, variant in zip(labels, variants, strict=False) if variant != reference]
        parts = {
            "passed": float(right),
            "lines": float(len(steps)),
            "right": float(sum(labels)),
            "refactored": float(sum(other)),
            "mutated": float(len(other) - sum(other)),
        }
        return Grade(float(right), right, steps=steps, parts=parts)


def passes(verdict: Verdict | Grade) -> bool:
    return isinstance(verdict, Verdict) and bool(verdict.tests) and all(verdict.tests)


def spans_of(program: str, separator: str) -> list[Span]:
    """Start and end of each line that is not blank, its separator included."""
    spans: list[Span] = []
    at = 0
    for line in program.split(separator):
        stop = min(at + len(line) + 1, len(program))
        if line.strip():
            spans.append((at, stop))
        at = stop
    return spans


def replaced(reference: str, program: str, separator: str) -> list[str]:
    """The reference with its line k replaced by the program's, for each line that both have."""
    own = [reference[start:stop].removesuffix(separator) for start, stop in spans_of(reference, separator)]
    new = [program[start:stop].removesuffix(separator) for start, stop in spans_of(program, separator)]
    both = range(min(len(own), len(new)))
    return [separator.join([*own[:k], new[k], *own[k + 1 :]]) for k in both]

"""Math verifier: an answer is correct when it is mathematically equal, by math-verify."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from lyceum.core.settings import RewardSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, Task, TaskSource
from lyceum.reward.base import each_at_once, no_right_answer, right_answers, verdict
from lyceum.reward.extract import WHOLE, Extract
from lyceum.reward.pool import WorkerError, WorkerTimeoutError, shared_pool

FACTORY = "lyceum.reward.math_worker:checker"


class Math(RewardSettings):
    """1 where the completion gives the task's answer, or one of several, and no other value; else 0.

    The answer is the last ``\\boxed{}``; without any, what follows the last "answer", else the last value of the
    text. Every value that it names must be correct: the sides of ``x = 2 + 3 = 5``, the alternatives of ``0.5 or
    1/2``, each item of a list; an approximation to less than one unit of its last digit. Names of the value (``x``,
    ``f(2)``) and units may accompany it. A list, set, pair or interval is correct only where the task's answer is
    one; boxes joined by "and", "or" or a comma are one list.

    Of math-verify and its parser, latex2sympy2_extended, this uses ``NormalizationConfig`` with ``basic_latex``,
    ``malformed_operators`` and ``nits``, and ``units`` only where no ``\\text{}`` is left (it drops all that
    follows the first); and ``verify`` with its defaults: ``strict`` (letters count), ``float_rounding=6`` (0.333333
    is 1/3), ``numeric_precision=15``, no ``allow_set_relation_comp`` (an interval is correct for ``x > 5``, ``x > 5``
    is incorrect for an interval). It does not use ``parse``, the search for the answer, and so none of
    ``boxed_match_priority``, ``try_extract_without_anchor``, ``extraction_mode``, ``ExprExtractionConfig`` and
    ``StringExtractionConfig``: with any of them, boxes near each other make a set, and by default an unreadable box is
    replaced by the last number in it.

    ``lyceum.reward._mathematics`` does the rest: finding the answer, which values it names, units in
    ``\\text{}``, ``5(3)`` and ``5 3`` (both 8 to the parser), number bases, and a comparison of numbers relative to
    their size (1/2^{99} is 1/2^{98} to ``verify``).

    False negatives: an answer explained or derived in its box (``2x = 10 \\implies x = 5``), words before
    a number, ordinals, units in plain letters that math-verify does not know, ``0.\\overline{3}``, a decimal comma
    in a box, ``5e3``, ``½``, numbers in words, residues, lists with dots, another name for a constant (``+ K`` for
    ``+ C``), an inequality for an interval, an exact value where the task's answer is rounded, more than 10,000
    characters or 60 nested brackets (where the task's answer has as many, all are ungraded); without a box and the
    word "answer", a value that is not in the last line with a number. Not checked: the left side of an
    equation (``x + 3 = 5`` gives 5), ``5\\%`` for 5 and 5 for ``5\\%``.

    It runs in separate processes with a time limit that ends them: math-verify's own limit is a signal, which needs
    the main thread and does not interrupt the computation of 9**9**9**9.
    """

    kind: Literal["math"] = "math"
    compares_answers: ClassVar[bool] = True
    extract: Extract = WHOLE
    """Where to find the answer in a completion; ``whole`` is the last box, or the stated value where there is none."""
    timeout_seconds: float = Field(5.0, gt=0)
    """CPU time per completion, in seconds; one that takes longer is incorrect, unless the task's own answer does. One
    that a busy machine does not get done in four times as many seconds of the clock, and 10 more, is ungraded."""
    workers: int = Field(2, ge=1, le=64)
    """Number of processes that check in parallel."""
    memory_mb: int = Field(2048, ge=64)
    """Memory limit per check, in MiB; one that takes more is incorrect, unless the task's own answer does."""

    def build(self, source: TaskSource) -> Grader:
        pool = shared_pool(
            FACTORY,
            {},
            workers=self.workers,
            timeout_seconds=4 * self.timeout_seconds + 10,
            memory_mb=self.memory_mb,
        )

        async def one(task: Task, leaf: Node) -> Grade:
            answers = right_answers(task)
            if not answers:
                return no_right_answer(task)
            # Boxes are searched in the worker, with the answers known: joined boxes are one answer.
            whole = self.extract.form in ("whole", "boxed")
            found = leaf.completion if whole else self.extract(leaf.completion)
            if found is None:
                return verdict(False, answered=False)
            job = {
                "answers": list(map(str, answers)),
                "found": found,
                "boxed": self.extract.form == "boxed",
                "cpu_seconds": self.timeout_seconds,
            }
            answered = self.extract.answered(leaf.completion)
            try:
                return verdict(await pool.run(job), answered=answered)
            except WorkerTimeoutError as error:  # of the clock: the machine is busy
                return Grade.ungraded(str(error))
            except WorkerError:  # too much CPU time or memory, or a crash
                pass
            try:  # whether the task's own answer is the cause
                await pool.run({**job, "found": None})
            except WorkerError as error:
                return Grade.ungraded(str(error))
            return verdict(False, answered=answered)

        return each_at_once(one)

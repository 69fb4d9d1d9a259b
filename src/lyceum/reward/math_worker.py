"""The worker side of the reward ``math``; imports little beside math-verify, so that workers start quickly."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def checker() -> Callable[[dict[str, Any]], bool]:
    """In a worker: the job function, whether ``found`` gives one of ``answers``; ``boxed`` allows it in a box only."""
    from lyceum.reward._mathematics.compare import Right

    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns of limits that are off, which is intended

    def gives(answer: Right, job: dict[str, Any]) -> bool:
        try:
            with cpu_limit(job.get("cpu_seconds", 5.0)):
                if job["found"] is None:
                    answer.compare_with_itself()
                    return False
                return answer.is_given_by(job["found"], boxed=job["boxed"])
        except (Exception, OverCpuTime):
            # Too long, deep, large or slow. Left ungraded, it would be a way not to be told that an answer is wrong.
            with cpu_limit(job.get("cpu_seconds", 5.0)):
                answer.compare_with_itself()  # where the task's answer is the cause it fails here again
            return False

    def check(job: dict[str, Any]) -> bool:
        try:
            with cpu_limit(job.get("cpu_seconds", 5.0)):
                answers = [Right(answer) for answer in job["answers"]]
            return any(gives(answer, job) for answer in answers)
        except OverCpuTime:
            raise TimeoutError("the task's own answer takes more than its CPU time") from None

    return check


class OverCpuTime(BaseException):
    """Not an Exception: SymPy catches those."""


@contextmanager
def cpu_limit(seconds: float) -> Iterator[None]:
    """Raise OverCpuTime after so many seconds of this process's CPU time, which do not pass while others are served.

    A computation in C does not come to see that: after twice the time it ends the process (``WorkerCpuError``).
    """
    if not hasattr(signal, "setitimer"):
        yield
        return

    def over(*_: object) -> None:
        raise OverCpuTime

    before = signal.signal(signal.SIGPROF, over)
    try:
        signal.signal(signal.SIGVTALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_VIRTUAL, 2 * seconds)
        signal.setitimer(signal.ITIMER_PROF, seconds, 0.1)  # again, where a destructor or a callback swallowed it
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGPROF, before)

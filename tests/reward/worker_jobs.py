"""Job functions of worker processes that fail as they are told to."""

import os
import time

from lyceum.reward.math_worker import OverCpuTime, cpu_limit


def checker():
    """As that of ``math``, whose time is over in C, in Python or by the end of its process."""

    def check(job):
        found, [answer] = job["found"], job["answers"]
        if found is None:
            return fails("in C", job) if answer == "own" else False
        return fails(found, job)

    return check


def fails(how, job):
    try:
        with cpu_limit(job["cpu_seconds"]):
            if how == "in C":
                return sum(range(10**13))
            while how == "in Python":
                pass
            if how == "dies":
                os._exit(3)
            return True
    except OverCpuTime:
        return "over its time"


def hangs(**settings):
    """A verifier that has no end on one text, and where a task's own is that, on none."""

    def check(job):
        texts = [job] if isinstance(job, str) else [text for text in job.values() if isinstance(text, str)]
        if "hang" in texts:
            time.sleep(600)
        if "die" in texts:
            os._exit(3)
        return True

    return check

"""Passes over the tasks, in stages that end after a number of them."""

from __future__ import annotations

import math

from lyceum.utils.numbers import counted


def last_step(steps: int, epochs: int | None, tasks: int, tasks_per_step: int) -> int:
    """The step with which a stage ends: when its steps are done or it has drawn each task ``epochs`` times."""
    return steps if epochs is None else min(steps, math.ceil(epochs * tasks / tasks_per_step))


def note(steps: int, epochs: int | None, tasks: int, tasks_per_step: int) -> str:
    """What to tell the user where ``steps`` ends a stage before its epochs are done; else empty."""
    needed = 0 if epochs is None else math.ceil(epochs * tasks / tasks_per_step)
    if needed <= steps:
        return ""
    return (
        f"epochs: {epochs} over {tasks} tasks would take {needed} steps of {tasks_per_step}, but the stage ends after "
        f"steps={steps}; for all of them: steps={needed}"
    )


def steps_in_words(steps: int, epochs: int | None, tasks_per_step: int) -> str:
    """The length of a stage, as the plan tells it."""
    passes = "" if epochs is None else f", at most {counted(epochs, 'epoch')}"
    return f"{counted(steps, 'step')} of {counted(tasks_per_step, 'task')}{passes}"

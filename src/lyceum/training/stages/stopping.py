"""Early stopping of a stage: a target accuracy is reached, accuracy no longer rises, or the curriculum is through."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import fmean
from typing import Any, Literal

from pydantic import Field, model_validator

from lyceum.core.component import Component, kinds, require_keys
from lyceum.core.needs import able
from lyceum.core.settings import Composition
from lyceum.utils.numbers import counted


class Until(Component):
    """Ends a stage by its accuracy; ``steps`` stays the maximum."""

    accuracy: Literal["training", "held-out"] = "training"
    """Accuracy of what each step sampled, or of the evaluations during training (``evaluate.every``)."""
    solved: float | None = Field(None, gt=0, le=1)
    """Accuracy, averaged over a window, at which the stage ends (0 to 1)."""
    least_rise: float | None = Field(None, ge=0, lt=1)
    """Minimum rise of a window's mean accuracy over the window before; the stage ends below it (0 to 1)."""
    window: int = Field(5, ge=1)
    """Window length (steps, or evaluations)."""

    @model_validator(mode="after")
    def _something_ends_it(self) -> Until:
        if not self.by_accuracy:
            raise ValueError(
                "got neither solved nor least_rise, so that it can never end a stage; allowed: one or both"
            )
        return self

    @property
    def by_accuracy(self) -> bool:
        """Whether accuracy can end the stage."""
        return self.solved is not None or self.least_rise is not None

    @property
    def held_out(self) -> bool:
        return self.by_accuracy and self.accuracy == "held-out"

    def check(self, stage: Composition) -> list[str]:
        """A line if the stage ends before the rule can first apply."""
        if not self.by_accuracy:
            return []
        every = stage.evaluated_every if self.held_out else 1
        if not every:
            return [
                "until.accuracy: got 'held-out', but nothing is evaluated during training; allowed: evaluate.every and "
                "evaluate.n of 1 or more"
            ]
        needed = every * (self.window if self.solved is not None else 2 * self.window)
        if stage.steps is None or needed < stage.steps:
            return []
        evaluated = f", an evaluation every {every}" if self.held_out else ""
        longest = (stage.steps - 1) // (needed // self.window)
        return [
            f"until.window: got {self.window}, but the stage has {stage.steps} steps{evaluated}, so it never ends "
            f"earlier; allowed: {f'a window of at most {longest}' if longest else 'more steps'}, or no until"
        ]


class UntilOnline(Until):
    """Ends a stage by its accuracy or by its curriculum; ``steps`` stays the maximum."""

    curriculum: bool = False
    """Whether the stage ends when its curriculum is through, where that has an end: its last phase is over, no hard
    task is left, and the like."""

    @model_validator(mode="after")
    def _something_ends_it(self) -> UntilOnline:
        if not (self.by_accuracy or self.curriculum):
            raise ValueError(
                "got neither solved nor least_rise nor curriculum, so that it can never end a stage; allowed: one or "
                "several"
            )
        return self

    def check(self, stage: Composition) -> list[str]:
        lines, given = super().check(stage), stage.curriculum
        if self.curriculum and given is not None and "end" not in given.offers:
            known = able(kinds("curriculum"), "end")
            lines.append(
                f"until.curriculum: got true, but curriculum.kind '{given.kind}' has no end; allowed: false, or one of "
                f"{', '.join(known)}"
            )
        return lines


class UntilHeldOut(Until):
    """Ends a stage that does not sample in each step by its held-out accuracy; ``steps`` stays the maximum."""

    accuracy: Literal["held-out"] = "held-out"  # pyright: ignore[reportIncompatibleVariableOverride] - frozen
    """Accuracy of the evaluations during training (``evaluate.every``)."""


def ends_in_words(until: Until | None) -> list[str]:
    """What a stage's plan says of the rule, in a line; none without one."""
    if until is None:
        return []
    ends = [] if until.solved is None else [f"reaches {until.solved:g}"]
    ends += [] if until.least_rise is None else [f"rises by less than {until.least_rise:g}"]
    by = [f"{until.accuracy} accuracy (mean of {until.window}) {' or '.join(ends)}"] if ends else []
    by += ["its curriculum is through"] if isinstance(until, UntilOnline) and until.curriculum else []
    return [f"ends early if {', or '.join(by)}"]


class Ending:
    """The last accuracies, as many as the rule needs."""

    def __init__(self, settings: Until | None) -> None:
        self.settings = settings
        self.solved: list[float] = []

    def observe(self, metrics: Mapping[str, Any]) -> None:
        """A step's metrics; without the accuracy where no grader gives verdicts, or nothing was evaluated."""
        if self.settings is None:
            return
        solved = metrics.get("heldout/overall" if self.settings.held_out else "correct/mean")
        if solved is not None:
            self.solved = [*self.solved, solved][-2 * self.settings.window :]

    @property
    def reached(self) -> bool:
        return bool(self.why)

    @property
    def why(self) -> str:
        """Why the stage ends, as a clause; empty if it goes on."""
        of = self.settings
        if of is None or not of.by_accuracy or len(self.solved) < of.window:
            return ""
        now, before = fmean(self.solved[-of.window :]), self.solved[: -of.window]
        mean = f"{of.accuracy} accuracy (mean of {of.window})"
        if of.solved is not None and now >= of.solved:
            return f"{mean} is {now:.4f} (until.solved={of.solved:g})"
        if of.least_rise is not None and len(before) == of.window and now - fmean(before) < of.least_rise:
            return f"{mean} rose by {now - fmean(before):.4f} (until.least_rise={of.least_rise:g})"
        return ""

    def state_dict(self) -> dict[str, Any]:
        return {"solved": list(self.solved)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("until", given=state, needed=("solved",))
        self.solved = [float(share) for share in state["solved"]]


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

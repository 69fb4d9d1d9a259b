"""When an online stage ends before its steps are done: what it was for is reached, or it gets no further."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from pydantic import Field, model_validator

from lyceum.core.component import Component, require_keys
from lyceum.core.settings import Composition


class Until(Component):
    """Ends a stage by the share of right answers in training; its ``steps`` stay the most that it takes."""

    solved: float | None = Field(None, gt=0, le=1)
    """End once the mean share of right answers over a window is at least this."""
    least_rise: float | None = Field(None, ge=0, lt=1)
    """End once a window's mean is less than this above the mean of the window before it."""
    window: int = Field(5, ge=1)
    """Steps of a window."""

    @model_validator(mode="after")
    def _something_ends_it(self) -> Until:
        if self.solved is None and self.least_rise is None:
            raise ValueError(
                "got neither solved nor least_rise, so that it can never end a stage; allowed: one or both"
            )
        return self

    def check(self, stage: Composition) -> list[str]:
        """A line where the stage is over before the rule can first be asked."""
        needed = self.window if self.solved is not None else 2 * self.window
        if stage.steps is None or needed < stage.steps:
            return []
        return [
            f"until.window: got {self.window}, but the stage has {stage.steps} steps, so it never ends earlier; "
            f"allowed: a window of less than {stage.steps // (needed // self.window)} steps, or no until"
        ]


class Ending:
    """The shares seen so far, as many as the rule looks back on."""

    def __init__(self, settings: Until | None) -> None:
        self.settings = settings
        self.solved: list[float] = []

    def observe(self, solved: float | None) -> None:
        """A step's share of right answers; None where no grader says."""
        if self.settings is not None and solved is not None:
            self.solved = [*self.solved, solved][-2 * self.settings.window :]

    @property
    def reached(self) -> bool:
        of = self.settings
        if of is None or len(self.solved) < of.window:
            return False
        now, before = self.solved[-of.window :], self.solved[: -of.window]
        if of.solved is not None and fmean(now) >= of.solved:
            return True
        return of.least_rise is not None and len(before) == of.window and fmean(now) - fmean(before) < of.least_rise

    def state_dict(self) -> dict[str, Any]:
        return {"solved": list(self.solved)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("until", given=state, needed=("solved",))
        self.solved = [float(share) for share in state["solved"]]

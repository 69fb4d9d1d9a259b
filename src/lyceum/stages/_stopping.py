"""Early stopping of an online stage: its target accuracy is reached, or accuracy no longer rises."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from pydantic import Field, model_validator

from lyceum.core.component import Component, require_keys
from lyceum.core.settings import Composition


class Until(Component):
    """Ends a stage by its training accuracy; ``steps`` stays the maximum."""

    solved: float | None = Field(None, gt=0, le=1)
    """Training accuracy, averaged over a window, at which the stage ends (0 to 1)."""
    least_rise: float | None = Field(None, ge=0, lt=1)
    """Minimum rise of a window's mean accuracy over the window before; the stage ends below it (0 to 1)."""
    window: int = Field(5, ge=1)
    """Window length (steps)."""

    @model_validator(mode="after")
    def _something_ends_it(self) -> Until:
        if self.solved is None and self.least_rise is None:
            raise ValueError(
                "got neither solved nor least_rise, so that it can never end a stage; allowed: one or both"
            )
        return self

    def check(self, stage: Composition) -> list[str]:
        """A line if the stage ends before the rule can first apply."""
        needed = self.window if self.solved is not None else 2 * self.window
        if stage.steps is None or needed < stage.steps:
            return []
        return [
            f"until.window: got {self.window}, but the stage has {stage.steps} steps, so it never ends earlier; "
            f"allowed: a window of less than {stage.steps // (needed // self.window)} steps, or no until"
        ]


class Ending:
    """The last steps' accuracies, as many as the rule needs."""

    def __init__(self, settings: Until | None) -> None:
        self.settings = settings
        self.solved: list[float] = []

    def observe(self, solved: float | None) -> None:
        """A step's accuracy; None if no grader gives verdicts."""
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

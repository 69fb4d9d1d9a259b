"""Numbers that change over a stage."""

from __future__ import annotations

import math
from typing import Any, Literal

from pydantic import Field, model_validator

from lyceum.core.component import Settings


class Schedule(Settings):
    """Values that follow each other over a stage; a list alone is its ``values``."""

    values: tuple[float, ...] = Field(min_length=2, max_length=64)
    """The values, at equal distances from ``begin`` to ``end``; the first holds before, the last after."""
    form: Literal["linear", "cosine", "steps"] = "linear"
    """What lies between two values: a line, half a cosine wave (slow at both), or nothing: each value holds for an
    equal part of the way, and the next one comes at once."""
    begin: float = Field(default=0.0, ge=0, le=1)
    """Progress of the stage, as a share, at which the first value is left."""
    end: float = Field(default=1.0, ge=0, le=1)
    """Progress of the stage at which the last value is reached; as ``steps`` it holds from one part earlier on."""

    @model_validator(mode="before")
    @classmethod
    def _values_alone(cls, value: Any) -> Any:
        return {"values": value} if isinstance(value, list | tuple) else value

    @model_validator(mode="after")
    def _begins_before_it_ends(self) -> Schedule:
        if self.begin >= self.end:
            raise ValueError(f"begin: got {self.begin:g} with end {self.end:g}; allowed: less than that")
        return self

    def at(self, progress: float) -> float:
        """The value after a share of the stage.

            x = clip((progress - begin) / (end - begin), 0, 1) (n - 1),  k = floor(x),  f = x - k
            linear v_k + f (v_{k+1} - v_k)    cosine v_k + (1 - cos(pi f)) / 2 (v_{k+1} - v_k)

        ``steps``: v_k with k = floor(n clip(...)), at most n - 1.

        Args:
            progress: 0 to 1.
        """
        share = min(1.0, max(0.0, (progress - self.begin) / (self.end - self.begin)))
        last = len(self.values) - 1
        if self.form == "steps":
            return self.values[min(last, int(share * (last + 1)))]
        k = min(last - 1, int(share * last))
        part = share * last - k
        if self.form == "cosine":
            part = (1 - math.cos(math.pi * part)) / 2
        return self.values[k] + part * (self.values[k + 1] - self.values[k])

"""What a check says: what it measured, what is allowed, and a cure where it fails."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

Status = Literal["ok", "fails", "note", "skipped"]
"""``note``: a fact, nothing to pass; ``skipped``: could not be checked here, with the reason."""

POSITIONS = 4
"""Number of parts of a completion by which differences are listed."""


@dataclass(frozen=True)
class CheckResult:
    """One line of the doctor's report.

    Attributes:
        check: name of what was checked.
        found: what was measured, in words.
        allowed: what passes; empty for a note.
        cure: what to do; only where it fails.
        values: the same as numbers, for ``--json``.
    """

    check: str
    status: Status
    found: str
    allowed: str = ""
    cure: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, check: str, passes: bool, found: str, *, allowed: str, cure: str, **values: Any) -> CheckResult:
        if passes:
            return cls(check, "ok", found, allowed, values=values)
        return cls(check, "fails", found, allowed, cure, values)

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "values": dict(self.values)}


@dataclass(frozen=True)
class Allowed:
    """What counts as rounding, by the coarsest precision that takes part.

    Attributes:
        mean_nats, max_nats: difference of two log-probabilities of a token.
        logits: |difference| / |logits|, of a model saved and loaded again.
        gradient: |difference| / |gradient|, against float64.
        other_tokens: share of draws that another batch, whose matrix products are rounded otherwise, may move to
            another token. A draw is moved where its random number is within the rounding of one of the many edges of
            the cumulative distribution.
    """

    precision: str
    mean_nats: float
    max_nats: float
    logits: float
    gradient: float
    other_tokens: float

    @property
    def coarse(self) -> bool:
        return self.precision in ("bfloat16", "float16")

    @property
    def nats(self) -> str:
        return f"mean {self.mean_nats:g}, max {self.max_nats:g} in {self.precision}"


def allowed_in(precisions: Sequence[str]) -> Allowed:
    """
    Args:
        precisions: of the weights, of the engine and of the learner.
    """
    coarse = [precision for precision in precisions if precision not in ("float32", "float64")]
    if coarse:
        return Allowed(coarse[0], mean_nats=0.1, max_nats=1.0, logits=0.02, gradient=0.15, other_tokens=0.3)
    return Allowed("float32", mean_nats=1e-4, max_nats=2e-3, logits=1e-4, gradient=1e-3, other_tokens=0.02)


@dataclass(frozen=True)
class LogprobDifference:
    """|a - b| of tokens' log-probabilities (nats), over all tokens of some completions.

    Attributes:
        by_position: (first token, last token, mean) of each part of the completions.
        worst: (completion, token) of the largest one.
    """

    mean: float
    max: float
    tokens: int
    by_position: list[tuple[int, int, float]]
    worst: tuple[int, int]

    @classmethod
    def of(cls, a: Sequence[Sequence[float]], b: Sequence[Sequence[float]]) -> LogprobDifference:
        """Infinite where one of them is not a number, or infinite alone."""
        each = [[_apart(x, y) for x, y in zip(row, other, strict=True)] for row, other in zip(a, b, strict=True)]
        longest = max(map(len, each))
        edges = sorted({round(longest * part / POSITIONS) for part in range(POSITIONS + 1)})
        parts = [(low, high, [x for row in each for x in row[low:high]]) for low, high in pairwise(edges)]
        flat = [(x, (r, i)) for r, row in enumerate(each) for i, x in enumerate(row)]
        largest, worst = max(flat, key=lambda of: of[0])
        return cls(
            mean=sum(x for x, _ in flat) / len(flat),
            max=largest,
            tokens=len(flat),
            by_position=[(low + 1, high, sum(part) / len(part)) for low, high, part in parts],
            worst=worst,
        )

    def within(self, allowed: Allowed) -> bool:
        return self.mean <= allowed.mean_nats and self.max <= allowed.max_nats

    def result(self, check: str, allowed: Allowed, cure: str, **values: Any) -> CheckResult:
        places = "" if self.within(allowed) else f"; by position {self.in_places}"
        return CheckResult.of(
            check,
            self.within(allowed),
            f"mean {self.mean:.1e}, max {self.max:.1e} nats over {self.tokens} tokens{places}",
            allowed=allowed.nats,
            cure=cure,
            mean=self.mean,
            max=self.max,
            tokens=self.tokens,
            by_position=[{"from": low, "to": high, "mean": mean} for low, high, mean in self.by_position],
            worst={"completion": self.worst[0], "token": self.worst[1]},
            **values,
        )

    @property
    def in_places(self) -> str:
        return ", ".join(f"{low}-{high}: {mean:.1e}" for low, high, mean in self.by_position)


def _apart(x: float, y: float) -> float:
    apart = abs(x - y)
    return apart if math.isfinite(apart) else math.inf

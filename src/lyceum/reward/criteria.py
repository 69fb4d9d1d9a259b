"""Rubrics: weighted criteria that a completion meets or does not, checked by rule.

A criterion is ``{"criterion": TEXT, "points": NUMBER}`` with the rule that checks it: ``"contains": TEXT`` anywhere
in the completion, or ``"ends": TEXT`` at its end. Negative points are for what should not be there. ``"leaks": true``
marks a criterion that reveals the answer, ``"veto": true`` one whose violation costs all points, and
``"dimension": NAME`` criteria that saturate together (reward ``rubric``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

Criterion = Mapping[str, Any]

RULES = ("contains", "ends")


def rubric_of(columns: Mapping[str, Any]) -> list[Criterion]:
    """A task's criteria; empty where it has none."""
    return list(columns.get("rubric") or ())


def is_rubric(value: Any) -> bool:
    """Whether a dataset cell holds criteria; a judge may be needed to check them."""
    return isinstance(value, list) and all(
        isinstance(one, Mapping)
        and isinstance(one.get("criterion"), str)
        and isinstance(points := one.get("points"), int | float)
        and math.isfinite(points)
        and all(isinstance(one.get(name) or "", str) for name in (*RULES, "dimension"))
        and isinstance(one.get("veto") or False, bool)
        for one in value
    )


def has_rule(criterion: Criterion) -> bool:
    """Whether the criterion has exactly one rule."""
    return sum(criterion.get(rule) is not None for rule in RULES) == 1


def dimension_of(rubric: Sequence[Criterion], number: int) -> str:
    """The dimension of a criterion; one without a name is alone in its own."""
    return rubric[number].get("dimension") or f"#{number}"


def is_met(criterion: Criterion, completion: str) -> bool:
    """Whether a completion meets a criterion, by its rule."""
    if criterion.get("contains") is not None:
        return criterion["contains"] in completion
    return completion.rstrip().endswith(criterion["ends"])


def step_rubric(steps: Sequence[str]) -> list[dict[str, Any]]:
    """One criterion per step of a solution, met by a completion that contains it. The last one reveals the answer."""
    return [
        {
            "criterion": f"writes {step}",
            "points": 1,
            "contains": step,
            "dimension": "steps",
            "leaks": number == len(steps) - 1,
        }
        for number, step in enumerate(steps)
    ]

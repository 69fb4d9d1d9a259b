"""Difficulty levels, which datasets name by numbers or by words."""

from __future__ import annotations

import math


def level_order(level: str) -> tuple[float, str]:
    """Sort key: levels that are numbers by value ("2" before "10"), then words."""
    try:
        return float(level), level
    except ValueError:
        return math.inf, level

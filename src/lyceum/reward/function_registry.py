"""Python functions that were passed in directly, registered so that a recipe can name them.

A recipe is plain values; a notebook's function is not. It is kept here under a name, which the recipe writes as
``lyceum.reward.function_registry:NAME`` (``reward/_code.py`` looks there), and lives as long as its process: to resume
a run that used one, pass it in again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from lyceum.reward._conventions import convention_of

PLACE = __name__
"""Module part of the name of a function registered here."""
FUNCTIONS: dict[str, Callable[..., Any]] = {}
"""Name -> function."""

SYNC = 0
"""Processes for a function that is not async: 0, as it may close over objects of this process."""


def reward_settings(reward: Any) -> Any:
    """A reward as a recipe writes it: functions become parts, alone or in a list; everything else stays.

    A function is called as its parameters say (``reward/_conventions.py``): as TRL does, as verl does, or with the
    keywords of reward kind ``function`` that it names.
    """
    taken: set[str] = set()
    if isinstance(reward, Sequence) and not isinstance(reward, str):
        return [_part(part, taken) for part in reward]
    return _part(reward, taken)


def _part(part: Any, taken: set[str]) -> Any:
    if not callable(part) or hasattr(part, "model_fields"):
        return part
    return {"kind": convention_of(part), "function": f"{PLACE}:{_keep(part, taken)}", "processes": SYNC}


def _keep(function: Callable[..., Any], taken: set[str]) -> str:
    """A name for the function: its own, so that the same recipe stays the same, numbered where two parts of one
    reward share it. A later function of the same name replaces it."""
    plain = re.sub(r"\W", "_", getattr(function, "__name__", type(function).__name__)).strip("_")
    stem = f"reward_{plain or 'function'}"
    name = stem
    while name in taken:
        name = f"{stem}_{len(taken) + 1}"
    taken.add(name)
    FUNCTIONS[name] = function
    return name

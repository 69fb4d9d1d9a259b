"""What a component of the user's own built, compared with what its slot declares before anything calls it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, TypeVar

from lyceum.core.component import Component
from lyceum.core.own_components import is_own
from lyceum.utils.errors import RecipeError

T = TypeVar("T")

BASES = {
    "credit": "lyceum.credit.base.BaseCredit",
    "objective": "lyceum.objective.base.BaseObjective",
    "reward": "lyceum.reward.base.BaseGrader",
    "scorer": "lyceum.reward.scorer.base.BaseScorer",
}
"""Slot -> what to derive from, with the members that most need not have of their own."""


def named(settings: Component) -> str:
    """A component in a message: ``credit 'my-median'``."""
    return f"{settings.slot} {settings.kind!r}"


def described(value: object) -> str:
    """What a value is, in a message: ``None``, ``a list``, ``a Tensor of shape (31,)``."""
    if value is None:
        return "None"
    name, shape = type(value).__name__, getattr(value, "shape", None)
    return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}" + ("" if shape is None else f" of shape {tuple(shape)}")


def require_built(settings: Component, built: T, declared: type[Any]) -> T:
    """What ``build`` returned, where it is what the slot declares; only one of the user's own is looked at.

    Args:
        declared: the protocol, of ``lyceum.core.types``.
    Raises:
        RecipeError: it lacks something, has a method with other arguments, or one that is not async.
    """
    if not is_own(type(settings)):
        return built
    members = {name: value for of in declared.__mro__[::-1] for name, value in _members(of).items()}
    allowed = f"what {declared.__module__}.{declared.__name__} declares"
    lacking = [name for name in members if not hasattr(built, name)]
    if lacking:
        base = f"; {BASES[settings.slot]} has the usual" if settings.slot in BASES else ""
        raise RecipeError(
            f"{named(settings)}: build returned {described(built)}, without {', '.join(lacking)}; allowed: {allowed}"
            f"{base}"
        )
    for name, function in members.items():
        if not inspect.isfunction(function) or (name == "__call__" and not callable(built)):
            continue
        method: Any = built if name == "__call__" else getattr(built, name)
        if not _takes(method, function):
            given, wanted = inspect.signature(method), ", ".join(_parameters(function))
            raise RecipeError(f"{named(settings)}: {name} takes {given}; allowed: {name}({wanted}), {allowed}")
        if inspect.iscoroutinefunction(function) and not inspect.iscoroutinefunction(method):
            raise RecipeError(f"{named(settings)}: {name} is not async; allowed: async def {name}(...), {allowed}")
    return built


def _members(of: type[Any]) -> Mapping[str, Any]:
    """The attributes and functions that a protocol declares itself."""
    if not getattr(of, "_is_protocol", False):
        return {}
    declared = {name: value for name, value in vars(of).items() if not name.startswith("_") or name == "__call__"}
    return dict.fromkeys(inspect.get_annotations(of)) | declared


def _parameters(function: Any) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name != "self"]


def _takes(method: Any, declared: Any) -> bool:
    """Whether a bound method can be called with the arguments that are declared, by position."""
    try:
        inspect.signature(method).bind(*_parameters(declared))
    except TypeError:
        return False
    except ValueError:  # of something that is not Python
        return True
    return True

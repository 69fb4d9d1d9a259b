"""Numbers for files and pages, and what is a reward.

JSON has neither nan nor infinities, and a page with one fails to load: everything written as JSON passes here.
"""

from __future__ import annotations

import json
import math
import numbers
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from decimal import Decimal
from statistics import fmean
from typing import Any

LARGEST_REWARD = 1e15
"""Largest magnitude of a reward: float32 holds its square, and the sum of a step's."""
LARGEST_FLOAT = sys.float_info.max


def python_number(value: Any) -> bool | int | float | None:
    """A real number as a Python bool, int of at most 64 bits, or float; None where it is not a real number.

    Scalars of numpy and torch, tensors and arrays of one element, ``Decimal`` and ``Fraction`` are numbers. What is
    larger than a float can hold is infinite; integers of more than 64 bits become the nearest float.
    """
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if -(2**63) <= value < 2**64 else _nearest(value)
    if isinstance(value, numbers.Integral):
        return python_number(int(value))
    if isinstance(value, numbers.Real | Decimal):
        return _nearest(value)
    if hasattr(value, "item") and math.prod(getattr(value, "shape", (0,))) == 1:
        item = value.item()
        return None if type(item) is type(value) else python_number(item)  # a complex long double is its own item
    return None


def _nearest(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    except ValueError:  # Decimal's signalling nan
        return math.nan


def real(value: Any, what: str, *, largest: float = LARGEST_REWARD) -> float:
    """A number from user code, as a float; nan and infinities pass, for the caller to interpret.

    Args:
        largest: magnitude up to which a finite number is allowed, in any unit.
    Raises:
        TypeError: it is not a real number: a text, a complex number, a list.
        ValueError: it is finite and larger than allowed.
    """
    if isinstance(value, numbers.Real | Decimal):
        number = _nearest(value)
        if abs(number) > largest and value not in (math.inf, -math.inf):
            raise ValueError(f"{what} is too large a number ({number:g}); allowed: magnitudes up to {largest:g}")
        return number
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        item = value.item()
        if not hasattr(item, "item"):
            return real(item, what, largest=largest)
    raise TypeError(f"{what} is {value!r:.100}, a {type(value).__name__}; allowed: a number or None")


def plain(value: Any, *, other: Callable[[Any], Any] | None = None) -> Any:
    """Nested values as JSON supports them: mappings, lists, texts, bools, finite numbers and None.

    A number that is not finite becomes None; arrays and tensors become lists; a dataclass becomes the mapping of its
    fields; keys become texts.

    Args:
        other: makes a plain value of anything else, ``str`` for instance; without it, that is an error.
    Raises:
        TypeError: something else, and no ``other``.
    """
    kind = type(value)  # the usual ones first: a step's record has hundreds of thousands
    if value is None or kind is bool or isinstance(value, str) or (kind is int and -(2**63) <= value < 2**64):
        return value
    if kind is float:
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else str(key): plain(item, other=other) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, other=other) for item in value]
    number = python_number(value)
    if number is not None:
        return number if math.isfinite(number) else None
    if hasattr(value, "tolist") and isinstance(items := value.tolist(), list):
        return plain(items, other=other)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name), other=other) for field in fields(value)}
    if other is None:
        raise TypeError(f"got a {type(value).__name__}; allowed: numbers, texts, booleans, None, lists and mappings")
    return other(value)


_ENCODER = json.JSONEncoder(allow_nan=False)  # json.dumps makes one for each call


def to_json(value: Any, *, indent: int | None = None, other: Callable[[Any], Any] | None = None) -> str:
    """JSON text of nested values, in which every number is finite; see :func:`plain`."""
    encoder = _ENCODER if indent is None else json.JSONEncoder(indent=indent, allow_nan=False)
    return encoder.encode(plain(value, other=other))


def figure(name: str, value: Any) -> bool | int | float | str | None:
    """One metric as a Python value; nan and infinities count as numbers.

    Raises:
        TypeError: it is not a number, a text, a boolean or None.
    """
    if value is None or isinstance(value, str):
        return value
    number = python_number(value)
    if number is None:
        raise TypeError(f"{name}: got a {type(value).__name__}; allowed: a number, string, boolean or None")
    return number


def finite_line(metrics: Mapping[str, bool | float | str | None]) -> dict[str, Any]:
    """Metrics for JSON: one that is not finite is None, and ``NAME/nonfinite`` says nan, inf or -inf."""
    line: dict[str, Any] = {}
    for name, value in metrics.items():
        if isinstance(value, float) and not math.isfinite(value):
            line |= {name: None, f"{name}/nonfinite": str(value)}
        else:
            line[name] = value
    return line


def shown(value: float, digits: int) -> str:
    """A number with ``digits`` decimals; from 1e6 on in scientific notation, 1.2e+30."""
    return f"{value:.{digits}f}" if abs(value) < 1e6 else f"{value:.4g}"


def mean(values: Iterable[float]) -> float:
    """The mean, correctly rounded, also where the sum is larger than a float can hold; nan for inf and -inf together.

    Raises:
        StatisticsError: no value.
    """
    found = list(values)
    if others := [value for value in found if not math.isfinite(value)]:
        return sum(others)
    try:
        return fmean(found)
    except OverflowError:
        scaled = math.fsum(math.ldexp(value, -64) for value in found) / len(found)
        return min(max(scaled * 2.0**64, min(found)), max(found))  # rounding must not take it past the largest


def share(interval: Mapping[str, float] | None) -> str:
    """``61.5 [57, 66]``: percent with the 95 % interval."""
    if not interval:
        return "-"
    return f"{100 * interval['mean']:.1f} [{100 * interval['low']:.0f}, {100 * interval['high']:.0f}]"


def evenly(total: int, parts: int) -> list[int]:
    """A total split into integers that differ by at most one, larger ones first; empty for 0 parts."""
    return [total // parts + (part < total % parts) for part in range(parts)]


def counted(number: int, one: str) -> str:
    """``1 step``, ``2 steps``."""
    return f"{number} {one}{'' if number == 1 else 's'}"


def level_order(level: str) -> tuple[float, str]:
    """Sort key of difficulty levels: those that are numbers by value ("2" before "10"), then words."""
    try:
        return float(level), level
    except ValueError:
        return math.inf, level

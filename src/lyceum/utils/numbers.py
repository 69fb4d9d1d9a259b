"""Numbers on their way into files and pages, and numbers too large to be added up as they are.

JSON knows neither nan nor infinities, and a page that meets one shows nothing at all: whatever is written as JSON
passes here. A finite number is a number however large it is: what would overflow on the way to a representable result
(a mean of rewards of 1e308) is divided by a power of two first.
"""

from __future__ import annotations

import json
import math
import numbers
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from decimal import Decimal
from statistics import fmean
from typing import Any

LARGE = 1e15
"""Numbers up to here are squared and added up in float32 as they are; larger ones are divided by a power of two first,
or take float64."""


def python_number(value: Any) -> bool | int | float | None:
    """A real number as Python has it: bool, int of at most 64 bits, or float; None where it is no real number.

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


def real(value: Any, what: str) -> float:
    """A number that somebody's code gave, as a float; nan and infinities pass, for the caller to say what they mean.

    Raises:
        TypeError: it is no real number: a text, a complex number, a list.
        ValueError: it is finite and larger than a float can hold.
    """
    if isinstance(value, numbers.Real | Decimal):
        number = _nearest(value)
        if math.isinf(number) and value not in (math.inf, -math.inf):
            raise ValueError(f"{what} is larger than a float can hold; allowed: numbers up to 1.8e308")
        return number
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        item = value.item()
        if not hasattr(item, "item"):
            return real(item, what)
    raise TypeError(f"{what} is {value!r:.100}, a {type(value).__name__}; allowed: a number or None")


def plain(value: Any, *, other: Callable[[Any], Any] | None = None) -> Any:
    """Nested values as JSON takes them: mappings, lists, texts, bools, finite numbers and None.

    A number that is not finite becomes None; arrays and tensors become lists; a dataclass becomes the mapping of its
    fields; keys become texts.

    Args:
        other: makes a plain value of anything else, ``str`` for instance; without it, that is a mistake.
    Raises:
        TypeError: something else, and no ``other``.
    """
    if value is None or isinstance(value, str):
        return value
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


def to_json(value: Any, *, indent: int | None = None, other: Callable[[Any], Any] | None = None) -> str:
    """JSON text of nested values, in which every number is finite; see :func:`plain`."""
    return json.dumps(plain(value, other=other), indent=indent, allow_nan=False)


def figure(name: str, value: Any) -> bool | int | float | str | None:
    """One metric as Python has it, nan and infinities among the numbers.

    Raises:
        TypeError: it is neither a number, a text, a boolean nor None.
    """
    if value is None or isinstance(value, str):
        return value
    number = python_number(value)
    if number is None:
        raise TypeError(f"{name}: got a {type(value).__name__}; allowed: a number, string, boolean or None")
    return number


def finite_line(metrics: Mapping[str, bool | float | str | None]) -> dict[str, Any]:
    """Metrics as JSON has them: one that is not finite is None, and ``NAME/nonfinite`` says nan, inf or -inf."""
    line: dict[str, Any] = {}
    for name, value in metrics.items():
        if isinstance(value, float) and not math.isfinite(value):
            line |= {name: None, f"{name}/nonfinite": str(value)}
        else:
            line[name] = value
    return line


def shown(value: float, digits: int) -> str:
    """With so many decimals; a number of more than six digits before them as 1.2e+30."""
    return f"{value:.{digits}f}" if abs(value) < 1e6 else f"{value:.4g}"


def mean(values: Iterable[float]) -> float:
    """The mean, correctly rounded, also where the sum is larger than a float can hold; nan where both infinities meet.

    Raises:
        StatisticsError: no value.
    """
    found = list(values)
    if others := [value for value in found if not math.isfinite(value)]:
        return sum(others)
    try:
        return fmean(found)
    except OverflowError:
        unit = unit_of(max(map(abs, found)))
        of_units = math.fsum(value / unit for value in found) / len(found)
        return min(max(of_units * unit, min(found)), max(found))  # rounding must not carry it past the largest


def unit_of(largest: float) -> float:
    """The power of two to divide numbers by before they are squared or added up; 1 where they are not ``LARGE``.

    Args:
        largest: of their magnitudes, in any unit; what is divided lies in -2 .. 2 then.
    """
    if not LARGE < largest < math.inf:
        return 1.0
    return math.ldexp(1.0, math.frexp(largest)[1] - 1)


def share(interval: Mapping[str, float] | None) -> str:
    """``61.5 [57, 66]``: per cent with the 95 % interval."""
    if not interval:
        return "-"
    return f"{100 * interval['mean']:.1f} [{100 * interval['low']:.0f}, {100 * interval['high']:.0f}]"


def evenly(total: int, parts: int) -> list[int]:
    """Whole shares of a total that differ by at most one, the larger ones first; none of no parts."""
    return [total // parts + (part < total % parts) for part in range(parts)]

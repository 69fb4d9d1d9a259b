"""How long a formula's numbers would be: what takes seconds to forever is refused before it is computed."""

from __future__ import annotations

import math
from typing import Any

import sympy

from lyceum.reward._mathematics.notation import MOST_DIGITS

MOST_TERMS = 10_000
"""Maximum terms of a finite sum or product."""
MOST_EXPONENT = 300
"""Maximum exponent of a sum with letters, which is multiplied out to be compared."""


def too_large(value: Any) -> bool:
    """Whether computing a formula (as parsed, nothing of it computed yet) takes more than a few seconds.

    That is: a number of more than ``MOST_DIGITS`` digits in it (powers, towers, factorials, binomials, products), a sum
    of too many terms, a power of a sum that is too long multiplied out, an integral over x^x.
    """
    if not isinstance(value, sympy.Basic):
        return False
    try:
        return any(_is_too_large(part) for part in sympy.preorder_traversal(value))
    except (TypeError, ValueError, ArithmeticError, AttributeError):  # what has no size: sets, words
        return False


def _is_too_large(part: Any) -> bool:
    if isinstance(part, sympy.Sum | sympy.Product):
        for limits in part.limits:
            terms = _count(limits)
            if terms is not None and terms > MOST_TERMS:
                return True
    elif isinstance(part, sympy.Integral):
        letters = set(part.variables)
        return any(
            power.base.free_symbols & power.exp.free_symbols & letters for power in part.function.atoms(sympy.Pow)
        )
    elif isinstance(part, sympy.Pow) and isinstance(part.base, sympy.Add) and part.base.free_symbols:
        exponent = part.exp
        return bool(exponent.is_Integer and abs(int(exponent)) > MOST_EXPONENT)
    if isinstance(part, sympy.Pow | sympy.exp | sympy.factorial | sympy.binomial | sympy.Product):
        return not part.free_symbols and digits(part) > MOST_DIGITS
    return False


def _count(limits: Any) -> float | None:
    """Terms between the limits of a sum; None where they are no finite numbers."""
    if len(limits) != 3 or any(end.free_symbols or end.has(sympy.oo, -sympy.oo) for end in limits[1:]):
        return None
    return math.inf if max(map(digits, limits[1:])) > 9 else float(limits[2] - limits[1] + 1)


def digits(value: Any) -> float:
    """At most so many decimal digits before the point has the number, or its numerator or denominator; computes none.

    log10 of: |a b| <= |a| |b|, |a + b| <= 2 max(|a|, |b|), n! <= n^n, C(n, k) <= min(2^n, n^k)
    """
    if isinstance(value, sympy.Rational):
        return math.log10(2) * max(abs(value.p).bit_length(), value.q.bit_length())
    if isinstance(value, sympy.Float):
        return max(0.0, float(sympy.log(abs(value), 10))) if value else 0.0
    if isinstance(value, sympy.exp):
        return _ten_to(digits(value.args[0])) * math.log10(math.e)
    if isinstance(value, sympy.Pow):
        base = 0.0 if value.base in (0, 1, -1) else digits(value.base)
        return base * _ten_to(digits(value.exp))
    if isinstance(value, sympy.factorial):
        of = digits(value.args[0])
        return _ten_to(of) * of
    if isinstance(value, sympy.binomial):
        above, below = (digits(argument) for argument in value.args)
        return min(_ten_to(above) * math.log10(2), _ten_to(below) * above)
    if isinstance(value, sympy.Product):
        terms = [_count(limits) for limits in value.limits]
        ends = max((digits(end) for limits in value.limits for end in limits[1:]), default=0.0)
        each = max([ends, *(digits(atom) for atom in value.function.atoms(sympy.Number))])
        return math.prod(count if count is not None else 1.0 for count in terms) * each
    if isinstance(value, sympy.Mul):
        return sum(map(digits, value.args))
    if isinstance(value, sympy.Add):
        return max(map(digits, value.args)) + math.log10(len(value.args))
    return max([0.5, *map(digits, value.args)])  # pi, and functions: none of them is longer than what it is of


def _ten_to(exponent: float) -> float:
    return 10.0**exponent if exponent < 300 else math.inf

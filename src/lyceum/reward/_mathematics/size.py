"""How long a formula's numbers would be: what takes seconds to forever is refused before it is computed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import sympy

from lyceum.reward._mathematics.notation import MOST_DIGITS

MOST_TERMS = 2100
"""Maximum terms of a finite sum: tasks like to have as many as the year."""
MOST_SLOW_TERMS = 200
"""The same of roots, functions, and of products: five hundred take one to five seconds."""
MOST_SUM_DIGITS = 1_000_000
"""Maximum digits of all terms of a sum together: as many has their common denominator."""
MOST_MULTIPLIED = 301
"""Maximum terms of a power of a sum with letters, which is multiplied out to be compared: (x + 1)^n has n + 1. Half as
many of a sum of three, a third of one of four."""
MOST_EXPONENT = 1000
"""Maximum exponent of letters that are divided by a sum with letters."""

_EXPONENTIALS = (sympy.exp, sympy.sinh, sympy.cosh, sympy.tanh, sympy.coth, sympy.sech, sympy.csch)
_FACTORIALS = (sympy.factorial, sympy.factorial2, sympy.subfactorial, sympy.gamma)


def too_large(value: Any) -> bool:
    """Whether computing a formula (as parsed, nothing of it computed yet) takes more than a few seconds.

    That is: a number of more than ``MOST_DIGITS`` digits in it (powers, towers, factorials, binomials, products), a sum
    of too many terms, a power of a sum that is too long multiplied out, an integral over x^x.
    """
    if not isinstance(value, sympy.Basic):
        return False
    try:
        return _is_long_division(value) or any(_is_too_large(part) for part in sympy.preorder_traversal(value))
    except (TypeError, ValueError, ArithmeticError, AttributeError):  # what has no size: sets, words
        return False


def _is_too_large(part: Any) -> bool:
    if isinstance(part, sympy.Sum | sympy.Product):
        for limits in part.limits:
            terms = _count(limits)
            quick = isinstance(part, sympy.Sum) and _is_rational(part.function)
            if terms is not None and terms > (MOST_TERMS if quick else MOST_SLOW_TERMS):
                return True
            if terms is not None and isinstance(part, sympy.Sum):
                each = digits(part.function, {limits[0]: max(map(digits, limits[1:]))})
                if terms * each > MOST_SUM_DIGITS:
                    return True
    elif isinstance(part, sympy.Integral):
        letters = set(part.variables)
        return any(
            power.base.free_symbols & power.exp.free_symbols & letters for power in part.function.atoms(sympy.Pow)
        )
    elif isinstance(part, sympy.Pow) and isinstance(part.base, sympy.Add) and part.base.free_symbols:
        terms = len(part.base.args)
        return part.exp.is_Integer and _multiplied_out(terms, abs(int(part.exp))) * (terms - 1) > MOST_MULTIPLIED
    elif isinstance(part, sympy.binomial) and part.free_symbols:
        return any(isinstance(number, sympy.Integer) and int(number) > MOST_MULTIPLIED for number in part.args)
    if isinstance(part, (sympy.Pow, sympy.binomial, sympy.Product, *_FACTORIALS, *_EXPONENTIALS)):
        return not part.free_symbols and digits(part) > MOST_DIGITS
    return False


def _is_rational(value: Any) -> bool:
    """Whether a term has neither roots nor functions."""
    roots = any(power.exp.is_Rational and not power.exp.is_Integer for power in value.atoms(sympy.Pow))
    return not roots and not value.has(sympy.Function)


def _is_long_division(value: Any) -> bool:
    """Whether letters to a high power are divided by a sum with letters, as in (x^100000 - 1) / (x - 1)."""
    powers = [power for power in value.atoms(sympy.Pow) if power.free_symbols and power.exp.is_Integer]
    divided = any(isinstance(power.base, sympy.Add) and power.exp < 0 for power in powers)
    return divided and any(abs(power.exp) > MOST_EXPONENT for power in powers)


def _multiplied_out(terms: int, exponent: int) -> float:
    """Terms of (a + b + ...)^exponent: C(exponent + terms - 1, terms - 1)."""
    if exponent > MOST_MULTIPLIED:
        return math.inf
    return math.comb(exponent + terms - 1, terms - 1)


def _count(limits: Any) -> float | None:
    """Terms between the limits of a sum; None where they are no finite numbers."""
    if len(limits) != 3 or any(end.free_symbols or end.has(sympy.oo, -sympy.oo) for end in limits[1:]):
        return None
    return math.inf if max(map(digits, limits[1:])) > 9 else float(limits[2] - limits[1] + 1)


def digits(value: Any, letters: Mapping[Any, float] = MappingProxyType({})) -> float:
    """At most so many decimal digits before the point has the number, or its numerator or denominator; computes none.

    ``letters``: digits that letters stand for.

    log10 of: |a b| <= |a| |b|, |a + b| <= 2 max(|a|, |b|), n! <= n^n, gamma(n) <= n^n, sinh(a) <= e^a,
    C(n, k) <= min(2^n, n^k)
    """
    if isinstance(value, sympy.Rational):
        return math.log10(2) * max(abs(value.p).bit_length(), value.q.bit_length())
    if isinstance(value, sympy.Float):
        return max(0.0, float(sympy.log(abs(value), 10))) if value else 0.0
    if isinstance(value, _EXPONENTIALS):
        return _ten_to(digits(value.args[0], letters)) * math.log10(math.e)
    if isinstance(value, sympy.Pow):
        base = 0.0 if value.base in (0, 1, -1) else digits(value.base, letters)
        return base * _ten_to(digits(value.exp, letters))
    if isinstance(value, _FACTORIALS):
        of = digits(value.args[0], letters)
        return _ten_to(of) * of
    if isinstance(value, sympy.binomial):
        above, below = (digits(argument, letters) for argument in value.args)
        return min(_ten_to(above) * math.log10(2), _ten_to(below) * above)
    if isinstance(value, sympy.Product):
        terms = [_count(limits) for limits in value.limits]
        ends = {limits[0]: max(map(digits, limits[1:]), default=0.5) for limits in value.limits}
        each = digits(value.function, {**letters, **ends})
        return math.prod(count if count is not None else 1.0 for count in terms) * each
    if isinstance(value, sympy.Mul):
        return sum(digits(part, letters) for part in value.args)
    if isinstance(value, sympy.Add):
        return max(digits(part, letters) for part in value.args) + math.log10(len(value.args))
    # Letters, pi, and functions: none of them is longer than what it is of.
    return max([letters.get(value, 0.5), *(digits(part, letters) for part in value.args)])


def _ten_to(exponent: float) -> float:
    return 10.0**exponent if exponent < 300 else math.inf

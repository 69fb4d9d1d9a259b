"""Arithmetic in a completion's text."""

from __future__ import annotations

import re
from collections import Counter
from fractions import Fraction

from lyceum.utils import arithmetic
from lyceum.utils.arithmetic import LONGEST_EXPRESSION, NotArithmetic

_EQUATION = re.compile(rf"[0-9(][0-9+\-*/() ]{{0,{LONGEST_EXPRESSION - 1}}}= ?-?[0-9]{{1,30}}")


def equations(text: str) -> list[tuple[int, int]]:
    """Where a text has equations of whole numbers, such as ``(8-3)*2=10``: start and stop in characters, in order."""
    return [found.span() for found in _EQUATION.finditer(text)]


def is_true(equation: str) -> bool | None:
    """Whether both sides of an equation have the same value; None where the left one has none."""
    left, _, right = equation.partition("=")
    value, _ = evaluate(left)
    return None if value is None else value == int(right)


def evaluate(expression: str) -> tuple[Fraction | None, Counter[Fraction]]:
    """Value of an expression of whole numbers, + - * / and brackets, and the numbers in it; None if it is not one."""
    try:
        return arithmetic.evaluate(expression)
    except NotArithmetic:
        return None, Counter()

"""Arithmetic in a text, parsed and walked: nothing of it is ever evaluated by Python."""

from __future__ import annotations

import ast
import operator
import re
from collections import Counter
from collections.abc import Callable, Mapping
from fractions import Fraction

LONGEST_EXPRESSION = 200
"""Maximum characters of an expression; with brackets alone they are nested no deeper than the parser allows."""
MOST_BITS = 1024
"""Maximum bits of a number's numerator and denominator, of all intermediate results too: about 300 digits."""

Operator = Callable[[Fraction, Fraction], Fraction | int]

# ASCII digits: "²" is a digit to str.isdigit, and the parser warns about words before it rejects them.
OF_EXPRESSIONS = "0123456789+-*/%.() "
"""Characters that an expression may have."""


class NotArithmetic(ValueError):
    """Why a text has no value."""


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    # Compared before it is computed: 9**9**9 has 370 million digits.
    if exponent.denominator != 1:
        raise NotArithmetic("a power needs a whole exponent")
    if _bits(base) * abs(exponent.numerator) > MOST_BITS:
        raise NotArithmetic("a number is too large")
    return Fraction(base ** int(exponent))


FOUR: Mapping[type[ast.operator], Operator] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
"""+ - * /"""
ALL: Mapping[type[ast.operator], Operator] = FOUR | {
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}
"""Those and // % **"""


def evaluate(
    expression: str, operators: Mapping[type[ast.operator], Operator] = FOUR, *, signed_decimals: bool = False
) -> tuple[Fraction, Counter[Fraction]]:
    """Exact value of an expression of numbers, operators and brackets, and the numbers in it.

    Args:
        expression: a text from a model: it is parsed, and only numbers and these operators are walked.
        signed_decimals: allow decimal points, and signs before a number or a bracket.
    Raises:
        NotArithmetic: it is none, it is too long, a number is too large, or it divides by zero.
    """
    if len(expression) > LONGEST_EXPRESSION:
        raise NotArithmetic(f"longer than {LONGEST_EXPRESSION} characters")
    if expression.strip(OF_EXPRESSIONS):
        raise NotArithmetic("not an expression of numbers")
    used: Counter[Fraction] = Counter()

    def number(value: int | float) -> Fraction:
        exact = Fraction(repr(value))
        used[exact] += 1
        return exact

    def value_of(node: ast.expr) -> Fraction:
        match node:
            case ast.Constant(value=value) if type(value) is int or (signed_decimals and type(value) is float):
                return _within(number(value))
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=inner) if signed_decimals:
                value = value_of(inner)
                return -value if isinstance(sign, ast.USub) else value
            case ast.BinOp(left=left, op=sign, right=right) if type(sign) in operators:
                return _within(Fraction(operators[type(sign)](value_of(left), value_of(right))))
        raise NotArithmetic("not an expression of numbers")

    try:
        return value_of(ast.parse(expression.strip(), mode="eval").body), used
    except ZeroDivisionError:
        raise NotArithmetic("division by zero") from None
    # The parser raises RecursionError or MemoryError on too many brackets, ValueError on thousands of digits.
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise error if isinstance(error, NotArithmetic) else NotArithmetic("not an expression of numbers") from None


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _within(value: Fraction) -> Fraction:
    if _bits(value) > MOST_BITS:
        raise NotArithmetic("a number is too large")
    return value


_EQUATION = re.compile(rf"[0-9(][0-9+\-*/() ]{{0,{LONGEST_EXPRESSION - 1}}}= ?-?[0-9]{{1,30}}")


def equations(text: str) -> list[tuple[int, int]]:
    """Where a text has equations of whole numbers, such as ``(8-3)*2=10``: start and stop in characters, in order."""
    return [found.span() for found in _EQUATION.finditer(text)]


def is_true(equation: str) -> bool | None:
    """Whether both sides of an equation have the same value; None where the left one has none."""
    left, _, right = equation.partition("=")
    value, _ = evaluated(left)
    return None if value is None else value == int(right)


def evaluated(expression: str) -> tuple[Fraction | None, Counter[Fraction]]:
    """Value of an expression of whole numbers, + - * / and brackets, and the numbers in it; None if it is not one."""
    try:
        return evaluate(expression)
    except NotArithmetic:
        return None, Counter()

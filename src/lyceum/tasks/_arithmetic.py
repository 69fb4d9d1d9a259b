"""Arithmetic in a completion's text: parsed, never evaluated by Python."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Mapping
from fractions import Fraction

LONGEST_EXPRESSION = 200
"""Maximum characters of an expression; a solution with eight numbers of four digits has about 60."""

# ASCII digits: "²" is a digit to str.isdigit, and the parser warns about words before it rejects them.
_CHARACTERS = re.compile(r"[0-9+\-*/() ]*")
_OPERATORS: Mapping[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
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
    """Value of an expression of whole numbers, + - * / and brackets, and the numbers in it; None if it is not one.

    The text is from a model: it is parsed, never evaluated by Python, and only these nodes are walked.
    """
    if len(expression) > LONGEST_EXPRESSION or not _CHARACTERS.fullmatch(expression):
        return None, Counter()
    used: Counter[Fraction] = Counter()

    def value_of(node: ast.expr) -> Fraction:
        match node:
            case ast.Constant(value=value) if type(value) is int:
                used[Fraction(value)] += 1
                return Fraction(value)
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
                a, b = value_of(left), value_of(right)
                match _OPERATORS[type(operator)]:
                    case "+":
                        return a + b
                    case "-":
                        return a - b
                    case "*":
                        return a * b
                    case _:
                        return a / b
        raise ValueError("not an expression of whole numbers and + - * /")

    try:
        return value_of(ast.parse(expression.strip(), mode="eval").body), used
    # The parser raises RecursionError or MemoryError on too many brackets.
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None, Counter()

"""Whether an answer equals the task's answer, and names no other value. Imported only in a worker process."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

import sympy
from latex2sympy2_extended import NormalizationConfig, is_expr_of_only_symbols, latex2sympy, normalize_latex
from math_verify import verify
from math_verify.grader import is_relation, should_treat_as_complex
from sympy.core.function import AppliedUndef

from lyceum.reward._mathematics.answer import answer_of, boxes, right_answer_of
from lyceum.reward._mathematics.notation import (
    TEXT,
    EquationSide,
    Item,
    brackets_around,
    cleaned,
    explicit,
    in_base,
    is_huge,
    items,
    without_units,
)
from lyceum.reward._mathematics.size import too_large

_NORMALIZATION = NormalizationConfig(
    basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="none", equations=False
)
_UNITS_ALONE = NormalizationConfig(
    basic_latex=False, units=True, malformed_operators=False, nits=False, boxed="none", equations=False
)
_DECIMAL = re.compile(r"-?\d+(?:\.(\d*))?|-?\.(\d+)")


class Right:
    """A task's answer, to compare with.

    Raises:
        ValueError: it cannot be parsed.
    """

    def __init__(self, answer: str) -> None:
        self.text = cleaned(right_answer_of(answer))
        self.items = items(self.text)
        if not self.items:
            raise ValueError(f"math-verify cannot read the answer {answer!r}")
        self.value = _value_of_right(self.items)
        self.closed = self.value is not None and _is_closed(self.value)
        self.kind = _kind(self.items, self.value)
        self.large = is_huge(self.text) or too_large(self.value)

    def is_given_by(self, completion: str, *, boxed: bool) -> bool:
        """Whether the completion gives this answer and no other value; ``boxed``: in a box."""
        find = boxes if boxed else answer_of
        said = find(completion)
        if not said:
            return False
        return self.agrees(said) or (self.kind == "several" and self.agrees(find(completion, parts=True) or ""))

    def compare_with_itself(self) -> None:
        """Raise what comparing the answer with an equal value raises."""
        if self.value is not None:
            same(self.value, self.value)

    def agrees(self, said: str) -> bool:
        """The same for the part of a completion that gives the answer."""
        text = cleaned(said)
        if text == self.text:
            return True
        if is_huge(text) and not self.large:  # the parser would compute it until its time is over
            return False
        found = items(text)
        if not found or self.kind == "text":
            return _letters(text) == _letters(self.text)
        if self.kind == "several":
            return self._same_list(text, found)
        one = self._same_relation if self.kind == "relation" else self._names
        return all(one(item.sides) for item in found)

    def _names(self, sides: Sequence[EquationSide]) -> bool:
        """Whether every side is this value, or a name of it (``x``, ``f(2)``), or rounds it."""
        named = False
        for place, side in enumerate(sides):
            if side.approximate and named:
                if not _rounds(side.text, self.value):
                    return False
                continue
            if not side.text and place == 0 and len(sides) > 1:  # "= 5"
                continue
            value = self._read(side.text)
            if value is not None and same(self.value, value):
                named = True
            elif len(sides) == 1 or not self._is_label(place, side.text, value):
                return False
        return named

    def _is_label(self, place: int, text: str, value: Any) -> bool:
        if re.search(r"\b(?:or|not|either)\b", text):
            return False
        if value is None:
            return place == 0 and bool(re.search("[A-Za-z]", text)) and not re.search(r"\d", text)
        if not isinstance(value, sympy.Expr):
            return False
        if self.closed:
            return not _is_closed(value)
        if place:
            return False
        if isinstance(self.value, sympy.Symbol) and isinstance(value, sympy.Symbol):
            return len(value.name) > 1 and "_" not in value.name  # A = D names two letters, \text{Answer} = D one
        return is_expr_of_only_symbols(value) or isinstance(value, AppliedUndef | sympy.Derivative)

    def _read(self, text: str) -> Any:
        based, own = in_base(text), in_base(self.text)
        if based and (own is None or own[1] != based[1]):
            value = _in_base(*based)
            return value if own is None or value is None or value != _in_base(*own) else self.value
        return self._small(_value(text, units=self.closed))

    def _small(self, value: Any) -> Any:
        """The value; None where comparing it would take forever, and the task's own is not of that kind."""
        return None if too_large(value) and not self.large else value

    def _same_relation(self, sides: Sequence[EquationSide]) -> bool:
        value = self._small(_value(_equation(sides), units=False))
        return value is not None and _coherent(sides) and same(self.value, value)

    def _same_list(self, text: str, found: Sequence[Item]) -> bool:
        ours, theirs = brackets_around(self.text), brackets_around(text)
        if ours and theirs and ours != theirs:  # {1, 2} is neither an interval nor a pair
            return False
        if not all(_coherent(item.sides) for item in found):
            return False
        labels = {item.sides[0].text for item in self.items if len(item.sides) > 1}
        if len(labels) == len(self.items) > 1 and all(len(item.sides) == 1 for item in found):
            # x = 1, y = 2 may be given as 1, 2 or (1, 2), but not as 2, 1.
            inner = items(text[1:-1]) if theirs == "(" and len(found) == 1 else found
            return len(inner) == len(self.items) and all(
                _same_texts(mine.sides[-1].text, other.sides[-1].text)
                for mine, other in zip(self.items, inner, strict=True)
            )
        value = self._small(_value(_list(found, units=self.closed), units=False))
        return value is not None and same(self.value, value)


Kind = Literal["single", "relation", "several", "text"]


def _kind(read: Sequence[Item], value: Any) -> Kind:
    if value is None:
        return "text"
    if len(read) > 1 or isinstance(value, sympy.Set | sympy.Tuple):
        return "several"
    if is_relation(value):
        return "several" if isinstance(value, sympy.Eq) and isinstance(value.rhs, sympy.Set) else "relation"
    return "single"


def _value_of_right(read: Sequence[Item]) -> Any:
    text = _list(read, units=False)
    value = _value(text, units=False)
    # "5 cm" is 5, and "2m" and "3ab" are products.
    if value is not None and value.free_symbols and re.search(r"[\d}] [A-Za-z]{2,}$", text):
        without = _value(text, units=True)
        if without is not None and not without.free_symbols:
            return without
    return value


def _list(read: Sequence[Item], *, units: bool) -> str:
    """The items as one formula again."""
    parts = [f"{item.separator} {_equation(item.sides, units=units)}" for item in read]
    return "".join(parts)[2:]


def _equation(sides: Sequence[EquationSide], *, units: bool = False) -> str:
    """An item without units and approximations; for a chain, its ends."""
    exact = [side.text for side in sides if side.text and not side.approximate] or [sides[-1].text]
    exact = [_bare(side, units) for side in exact]
    return exact[0] if len(exact) == 1 else f"{exact[0]} = {exact[-1]}"


def _coherent(sides: Sequence[EquationSide]) -> bool:
    """Whether all sides that are values, and all formulas after the first, are equal."""
    if len(sides) < 2:
        return True
    first, *others = sides
    values = [_value(side.text, units=True) for side in others if not side.approximate]
    if any(value is None for value in values):
        return False
    label = _value(first.text, units=True)
    if label is not None and _is_closed(label):
        values.append(label)
    closed = [value for value in values if _is_closed(value)]
    formulas = [value for value in values if not _is_closed(value)]
    for alike in (closed, formulas):
        if any(not same(alike[0], value) for value in alike[1:]):
            return False
    return all(not closed or _rounds(side.text, closed[0]) for side in others if side.approximate)


def _same_texts(right: str, said: str) -> bool:
    ours, theirs = _value(right, units=False), _value(said, units=True)
    return ours is not None and theirs is not None and same(ours, theirs)


def _bare(text: str, units: bool) -> str:
    """A side without its unit; ``units``: also without units outside ``\\text{}`` that math-verify knows."""
    bare = without_units(text)
    # math-verify takes everything from the first \text on for a unit: 5 \text{ apples}, 6 \text{ pears} is 5 to it.
    return normalize_latex(bare, _UNITS_ALONE) if units and not re.search(TEXT, bare) else bare


def _value(text: str, *, units: bool) -> Any:
    """The formula in SymPy; None where the parser cannot read all of it.

    Raises:
        MemoryError, RecursionError: the formula is too large for the process.
    """
    plain = explicit(_bare(text, units))
    if not plain:
        return None
    normal = normalize_latex(plain, _NORMALIZATION)
    try:
        value = latex2sympy(
            normal, is_real=not should_treat_as_complex(normal), convert_degrees=False, normalization_config=None
        )
    except (MemoryError, RecursionError):
        raise
    except Exception:  # any parser error means that this is not LaTeX that it reads
        return None
    return value if isinstance(value, sympy.Basic | sympy.MatrixBase) else None


def _is_closed(value: Any) -> bool:
    """Whether it is a value and not a formula: without letters and without undefined functions."""
    return not value.free_symbols and not value.has(AppliedUndef)


def same(gold: Any, value: Any) -> bool:
    """The result of ``verify``, unless a numeric check shows that it only agrees by rounding."""
    return verify(gold, value, timeout_seconds=0) and not _far_apart(gold, value)


def _far_apart(gold: Any, value: Any) -> bool:
    """Whether two formulas are numbers that differ.

    ``verify`` compares absolute differences, with 6 decimals or 15 digits: 1/2^{99} is 1/2^{98} to it, and 0.0000012 is
    0.000001. Letters get values here.
    """
    if isinstance(gold, sympy.Eq) and isinstance(value, sympy.Eq):
        if gold.lhs != value.lhs:
            return False  # the same equation in another form
        gold, value = gold.rhs, value.rhs
    ours, theirs = _parts(gold), _parts(value)
    if ours is None or theirs is None or len(ours) != len(theirs):
        return False
    return any(not _near(a, b) for a, b in zip(ours, theirs, strict=True))


def _parts(value: Any) -> list[Any] | None:
    """The numbers to compare one by one, in an order common to both sides."""
    if isinstance(value, sympy.Eq):
        value = value.rhs
    if isinstance(value, sympy.Symbol | sympy.core.function.UndefinedFunction):
        return None  # a word
    if isinstance(value, sympy.Expr):
        return [value]
    if isinstance(value, sympy.Interval):
        return [value.start, value.end]
    if isinstance(value, sympy.Tuple):
        return list(value.args)
    if isinstance(value, sympy.FiniteSet):
        numbers = [(_number(element), element) for element in value.args]
        if all(isinstance(number, sympy.Float | sympy.Integer) for number, _ in numbers):
            return [element for _, element in sorted(numbers, key=lambda pair: pair[0])]
    return None


def _near(gold: Any, value: Any) -> bool:
    exact = not any(isinstance(x, sympy.Basic) and x.has(sympy.Float) for x in (gold, value))
    tolerance = sympy.Float("1e-20" if exact else "1e-4", 30)
    for ours in (gold, _without_percent(gold)):
        for theirs in (value, _without_percent(value)):
            a, b = _number(ours), _number(theirs)
            if a is None or b is None:
                return True
            if exact and (a == 0 or b == 0):
                return True  # near zero, rounding residue is no reference for a relative difference
            if abs(a - b) <= tolerance * max(abs(a), abs(b)):
                return True
    return False


def _without_percent(value: Any) -> Any:
    """5 for 5 %, which ``verify`` takes for 5 as well as for 0.05."""
    percent = sympy.UnevaluatedExpr(sympy.Rational(1, 100))
    return value.args[0] if isinstance(value, sympy.Mul) and value.args[1:] == (percent,) else value


def _number(value: Any) -> Any:
    """30 digits of it, letters replaced by numbers that depend on their names alone; None where it is not a number."""
    try:
        letters = sorted(value.free_symbols, key=str)
        numbers = {letter: sympy.Rational(1009 + 37 * sum(map(ord, letter.name)), 1601) for letter in letters}
        number = value.subs(numbers).evalf(30)
        return number if number.is_number and number.is_finite and number.is_comparable else None
    except (MemoryError, RecursionError):
        raise
    except Exception:  # sets, functions without a value, what SymPy cannot evaluate
        return None


def _rounds(text: str, value: Any) -> bool:
    """Whether ``text`` is a decimal less than one unit of its last place away from ``value``."""
    found, number = _DECIMAL.fullmatch(without_units(text).replace(" ", "")), _number(value)
    if found is None or number is None:
        return False
    places = len(found.group(1) or found.group(2) or "")
    return bool(abs(sympy.Rational(found.group()) - number) < sympy.Rational(1, 10**places))


def _in_base(digits: str, base: int) -> Any:
    try:
        return sympy.Integer(int(digits, base))
    except ValueError:
        return None


def _letters(text: str) -> str:
    """A text without its wrapping, white space and case."""
    return re.sub(rf"{TEXT}|[{{}}\s]", "", text).casefold()

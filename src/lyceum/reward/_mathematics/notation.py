"""Parsing of an answer's formula: its values, the sides of each, and notation that the parser would misread.

Pure functions on text, which compute nothing; ``compare.py`` reads and compares the parts.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

LONGEST = 10_000
"""Maximum characters of an answer: a longer one is not read, as the parser's time grows faster than its length."""
DEEPEST = 60
"""Maximum nesting of brackets: the parser recurses, several calls for each level."""


MOST_DIGITS = 100_000
"""Maximum digits of a power of whole numbers: computing a longer one, such as 9^{9^9}, takes seconds to forever."""
_POWERS = re.compile(r"\d{1,9}(?: {0,3}\^ {0,3}[{(]{0,3} {0,3}\d{1,9})+")


_FACTORIALS = re.compile(r"(?<![\d.^_{!A-Za-z])(\d{1,9})\s*(!{2,9})(?!!)")
"""Digits with several exclamation marks: 20!! is 20 * 18 * ... * 2, and not (20!)!, as the parser reads it."""
MOST_FACTORIAL = 1000
"""Maximum number of which a double factorial is computed: a longer product has no place in an answer."""
_BINOMIAL = re.compile(r"\\binom\s*\{\s*(\d{1,30})\s*\}\s*\{\s*(\d{1,30})\s*\}|(\d{1,30})\s*\\choose\s*(\d{1,30})")
_DETERMINANT = re.compile(r"\\begin\s*\{vmatrix\}|\\det(?![A-Za-z])")
_LETTER = re.compile(r"(?<![\\A-Za-z])[A-Za-z](?![A-Za-z])")
MOST_ENTRIES = 25
"""Maximum column separators (&) of an answer with a determinant that has letters: 5 by 5 has 20."""


class UnreadableAnswer(ValueError):
    """The answer is too long or too deeply nested for the parser."""


TEXT = r"\\(?:text(?:normal|rm|bf|it|sf|tt)?|mathrm|mathbf|mathit|mathsf|mbox|hbox|operatorname)\s*"
"""LaTeX commands for words, upright or bold letters in a formula."""
WORD = re.compile(r"[^\W\d_]+")

_REPLACED: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\[()\[\]](?![A-Za-z])|\\?\$|[€£¥₹]", " "),  # delimiters of formulas, currencies
        (r"\\(?:left|right|[bB]igg?[lrm]?|displaystyle|textstyle|boxed|fbox)(?![A-Za-z])", " "),
        (r"\\!\s*|\\limits(?![A-Za-z])", ""),
        (r"\\[,:;> ]|~|\\(?:thin|med|thick)space(?![A-Za-z])", " "),
        (r"\\(?:text)?color\s*\{[^{}]*\}|\\(?:underline|boldsymbol|bm)(?![A-Za-z])", " "),
        (rf"^\s*{TEXT}\{{\s*(?:[Tt]he\s+)?(?:[Ff]inal\s+)?[Aa]nswer(?:\s+is)?\s*:?\s*\}}\s*(?!=)", ""),
        (rf"\\q?quad\s*(?={TEXT}\{{)", " "),  # before a unit
        (r"\\[dtc]frac(?![A-Za-z])", r"\\frac"),
        (r"\{,\}", ","),
        ("\u2212|\u2013", "-"),
        ("\u2248", r"\\approx "),
        ("\u00d7", r"\\times "),
        ("\u00f7", r"\\div "),
        ("\u00b0", r"^\\circ "),
        ("\u03c0", r"\\pi "),
        ("\u221e", r"\\infty "),
        (r"\*\*", "^"),
        (r"[\"`\u2018\u2019\u201c\u201d*]{2,}", " "),
        (rf"{TEXT}\{{\s*([eid])\s*\}}", r" \1 "),  # constants in upright type
        (rf"{TEXT}\{{([^{{}}A-Za-z]*\d[^{{}}A-Za-z]*)\}}", r" {\1} "),  # digits in a text are digits
        (rf"({TEXT})\{{\s*(-?[\d.,]+)\s+([A-Za-z][A-Za-z ]*)\}}", r"\2 \1{\3}"),
        (r"\{\s*\}", " "),
    )
)
_LINE_BREAK = "\ue000"
_THOUSANDS = re.compile(r"\\?[{(\[]|\\?[})\]]|(?<![\d.,])\d{1,3}(?:(?:,\d{3})+|(?: \d{3})+)(?![\d,]| \d)")
_SCALE = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_SCALED = re.compile(rf"(?:{TEXT}\{{\s*)?\b({'|'.join(_SCALE)}|dozen|percent)\b(\s*\}})?")


def cleaned(text: str) -> str:
    """The formula without delimiters, spacing and typographic variants; numbers without thousands separators.

    Raises:
        Unreadable: it is longer than ``LONGEST``, or deeper than ``DEEPEST``.
    """
    if len(text) > LONGEST:
        raise UnreadableAnswer(f"an answer of {len(text)} characters; at most {LONGEST} are read")
    if "matrix" not in text and "array" not in text:
        text = re.sub(r"\\\\(?=[A-Za-z]{2})", r"\\", text)  # escaped twice, as math-verify does
    text = text.replace(r"\\", _LINE_BREAK)  # or its second backslash would be that of "\ " or "\["
    for pattern, replacement in _REPLACED:
        text = pattern.sub(replacement, text)
    text = " ".join(_SCALED.sub(_scaled, text).split()).rstrip(" .,;")
    text = _without_braces(text.replace(_LINE_BREAK, r"\\"))
    depth = deepest = 0

    def outside_of_brackets(found: re.Match[str]) -> str:
        nonlocal depth, deepest
        mark = found.group()
        if mark[0].isdigit():
            return mark if depth else re.sub("[, ]", "", mark)
        depth += 1 if mark[-1] in "{([" else -1
        deepest = max(deepest, depth)
        return mark

    text = _THOUSANDS.sub(outside_of_brackets, text)
    if deepest > DEEPEST:
        raise UnreadableAnswer(f"an answer with {deepest} nested brackets; at most {DEEPEST} are read")
    return text


def is_huge(text: str) -> bool:
    """Whether a cleaned formula names a power of whole numbers with more than ``MOST_DIGITS`` digits: ``9^{9^9}``.

    Also a double factorial of more than ``MOST_FACTORIAL``, a binomial as long as that and a determinant of more than
    ``MOST_ENTRIES``, which the parser itself computes.
    Whatever else is large is found in what it has parsed (``size.too_large``).
    """
    if any(int(found.group(1)) > MOST_FACTORIAL for found in _FACTORIALS.finditer(text)):
        return True
    if text.count("&") > MOST_ENTRIES and _DETERMINANT.search(text) and _LETTER.search(text):
        return True
    for found in _BINOMIAL.finditer(text):
        above, below = (int(number) for number in found.groups() if number is not None)
        if min(below, abs(above - below)) * math.log10(above + 1) > MOST_DIGITS:
            return True
    return any(_is_huge(list(map(int, re.findall(r"\d+", found.group())))) for found in _POWERS.finditer(text))


def _is_huge(numbers: list[int]) -> bool:
    """The same of a tower of powers, which is computed from the right as long as it is short."""
    *bases, exponent = numbers
    for base in reversed(bases):
        if base > 1 and (exponent > MOST_DIGITS * 4 or exponent * math.log10(base) > MOST_DIGITS):
            return True
        exponent = base**exponent if base > 1 else base
    return False


def _scaled(found: re.Match[str]) -> str:
    word = found.group(1)
    factor = r"\%" if word == "percent" else r"\cdot 12" if word == "dozen" else rf"\cdot 10^{{{_SCALE[word]}}}"
    text = found.group()
    if text.startswith("\\") == bool(found.group(2)):
        return f" {factor} "
    return text  # that \text has more in it


def _without_braces(text: str) -> str:
    """The inside of ``{...}`` where one pair encloses everything."""
    for _ in range(DEEPEST):
        if not (text.startswith("{") and text.endswith("}")):
            break
        depth = 0
        for found in re.finditer(r"\\.|[{}]", text):
            depth += {"{": 1, "}": -1}.get(found.group(), 0)
            if depth == 0:
                break
        else:
            return text
        if found.end() < len(text):
            return text
        text = text[1:-1].strip()
    return text


# The values that it names --------------------------------------------------------------------------------------------

_SPLITTER = re.compile(
    rf"(?P<text>{TEXT}\{{[^{{}}]*\}})"
    r"|(?P<open>\\begin\s*\{[^{}]*\}|\\\{|\\lbrace(?![A-Za-z])|\\langle(?![A-Za-z])|[{(\[])"
    r"|(?P<close>\\end\s*\{[^{}]*\}|\\\}|\\rbrace(?![A-Za-z])|\\rangle(?![A-Za-z])|[})\]])"
    r"|(?P<apart>\\\\|\\q?quad(?![A-Za-z])|\\(?:lor|land|vee|wedge|newline)(?![A-Za-z])|[,;]"
    r"|(?<![A-Za-z\\])(?:or|and)(?![A-Za-z]))"
    r"|(?P<approx>\\(?:approx|simeq)(?:eq)?(?![A-Za-z]))"
    r"|(?P<equal>(?<![<>!:=])=(?!=))"
    r"|\\[A-Za-z]+|\\."
)
_CONJUNCTIONS = frozenset(
    ("or", "and", "maybe", "perhaps", "possibly", "either", "both", "else", "also", "versus", "vs")
)


@dataclass(frozen=True)
class EquationSide:
    """One side of an equation; ``approximate`` where it follows an approximation sign."""

    text: str
    approximate: bool = False


@dataclass(frozen=True)
class Item:
    """One of the values that an answer lists, as the sides of its equation.

    ``separator`` is the one before it: ``;`` or, for all others, ``,``.
    """

    sides: tuple[EquationSide, ...]
    separator: str = ","


def items(text: str) -> list[Item]:
    """The values that a cleaned answer lists.

    They are separated by ``,``, ``;``, "or", "and", a line break or a quad outside brackets.
    """
    found: list[Item] = []
    sides: list[EquationSide] = []
    begin = depth = 0
    approximate, separator = False, ","
    for mark in _SPLITTER.finditer(text):
        kind = mark.lastgroup
        if kind == "open":
            depth += 1
        elif kind == "close":
            depth = max(0, depth - 1)
        elif kind == "text" and _conjunction(mark.group()):
            kind = "apart"
        if depth or kind not in ("apart", "approx", "equal"):
            continue
        sides.append(EquationSide(_side(text[begin : mark.start()]), approximate))
        begin, approximate = mark.end(), kind == "approx"
        if kind == "apart":
            found.append(Item(tuple(sides), separator))
            sides, separator = [], ";" if mark.group() == ";" else ","
    sides.append(EquationSide(_side(text[begin:]), approximate))
    found.append(Item(tuple(sides), separator))
    return [item for item in found if any(side.text for side in item.sides)]


def _side(text: str) -> str:
    return _without_braces(text.strip().rstrip(" ."))


def _conjunction(text: str) -> bool:
    """Whether a ``\\text{...}`` says nothing but "or", "and" or a separator."""
    words = WORD.findall(text.partition("{")[2].lower())
    return all(word in _CONJUNCTIONS for word in words) and not any(character.isdigit() for character in text)


_UNIT = re.compile(rf"{TEXT}\{{([^{{}}]*)\}}\s*(?:\^\s*(?:-?\d|\{{\s*-?\d+\s*\}}))?$")
_NO_UNIT = re.compile(
    r"\b(?:or|and|not|minus|plus|times|negative|half|hundred|thousand|million|billion|trillion|dozen|twice|double|triple"
    r"|squared|cubed|factorial|if|unless|maybe|perhaps|possibly|wrong|incorrect|false|mod|modulo|base|choose|than|least"
    r"|most|to|through|between|except|without|over|under|rather|instead|either|zero|one|two|three|four|five|six|seven"
    r"|eight|nine|ten|eleven|twelve)\b",
    re.IGNORECASE,
)
"""Words that change the value of the number before them."""


def without_units(side: str) -> str:
    """The side without the ``\\text{...}`` at its end, where that is a unit of any kind.

    It counts as a unit where it has letters and no digit, and no word that changes a value ("million", "or", "less
    than").
    """
    bare = side
    for _ in range(8):
        found = _UNIT.search(bare)
        if found is None or any(character.isdigit() for character in found.group(1)):
            break
        if _NO_UNIT.search(found.group(1)):
            break
        bare = bare[: found.start()].rstrip(" /*")
        bare = re.sub(r"\\(?:cdot|times)\s*$", "", bare).rstrip()
    return bare or side


# Notation that the parser misreads ------------------------------------------------------------------------------------

_MIXED = re.compile(r"(?<![\d.^_{A-Za-z])(\d+) (\d+)\s*/\s*(\d+)(?![\d/])")
_IMPROPER = re.compile(r"(\d)\s*(\\frac\s*\{\s*(\d+)\s*\}\s*\{\s*(\d+)\s*\})")
_NUMBER_BRACKET = re.compile(r"(?<![_^\d.\\A-Za-z])(\d[\d.]*)\s*\(")
_FACTOR = re.compile(r"(\)|\\r(?:floor|ceil)|\\(?:frac|binom)\{[^{}]*\}\{[^{}]*\})\s*(?=[\d(]|\\frac)")
_BASE = re.compile(r"^(\d+)\s*_\s*(?:\{\s*(\d+)\s*\}|(\d+))$")
_SIDE_BY_SIDE = re.compile(
    # Up to two primes are units (feet, minutes); with more the parser drops them.
    r"(?<![\w^}.])\d[\d.]*\s*(?:\^\s*\{?\s*)?(?:['\u2032]\s*|\\prime\s*){3}"
    r"|(?<![\w^}.])\d[\d.]*(?:[\s'\"]+[\d.]|\s*\\?[{\[])|^\{[^{}]*\}\s*[\d{]|\\phantom|\\[lc]?dots|\.\.\."
)


def explicit(side: str) -> str | None:
    """The side with its usual meaning made explicit; None where adjacent numbers are ambiguous.

    The parser adds adjacent numbers, for the sake of 1\\frac{1}{2}: ``5(3)`` is 8 to it, and so are ``5\\ 3``
    and ``5\\frac{9}{3}``.
    """
    side = _FACTORIALS.sub(_multifactorial, _MIXED.sub(r"\1\\frac{\2}{\3}", side))
    side = _IMPROPER.sub(
        lambda found: (
            f"{found.group(1)}\\cdot {found.group(2)}" if _at_least(found.group(3), found.group(4)) else found.group()
        ),
        side,
    )
    side = _FACTOR.sub(r"\1\\cdot ", _NUMBER_BRACKET.sub(r"\1\\cdot (", side))
    return None if _SIDE_BY_SIDE.search(side) else _right_powers(side)


def _multifactorial(found: re.Match[str]) -> str:
    """n!!, n!!!, ...: n (n - k) (n - 2k) ... down to the last that is above 0, with k marks."""
    number, step = int(found.group(1)), len(found.group(2))
    return str(math.prod(range(number, 0, -step))) if number <= MOST_FACTORIAL else found.group()


def _at_least(numerator: str, denominator: str) -> bool:
    a, b = numerator.lstrip("0"), denominator.lstrip("0")
    return (len(a), a) >= (len(b), b)


def _right_powers(side: str) -> str:
    """2^3^2 with its usual meaning, 2^{3^{2}}: the parser is left-associative."""
    parts = [part.strip() for part in side.split("^")]
    if len(parts) < 3 or not all(part.isalnum() for part in parts) or len(parts) > DEEPEST:
        return side
    return "^{".join(parts) + "}" * (len(parts) - 1)


def in_base(side: str) -> tuple[str, int] | None:
    """Digits and base of ``101_2``; None for anything else."""
    found = _BASE.match(side)
    if found is None:
        return None
    base = found.group(2) or found.group(3)
    return (found.group(1), int(base)) if len(base) <= 2 and 2 <= int(base) <= 36 else None


def brackets_around(text: str) -> str | None:
    """ "{" for a set in braces and "(" for a tuple or interval, where one pair of brackets encloses all of ``text``."""
    opening = re.match(r"\\\{|\\lbrace(?![A-Za-z])|[(\[]", text)
    if opening is None or not re.search(r"(?:\\\}|\\rbrace|[)\]])$", text):
        return None
    depth = 0
    for found in re.finditer(r"\\[A-Za-z]+|\\.|[{}()\[\]]", text):
        mark = found.group()
        depth += (mark in ("\\{", "\\lbrace", "{", "(", "[")) - (mark in ("\\}", "\\rbrace", "}", ")", "]"))
        if depth == 0:
            return None if found.end() < len(text) else "{" if opening.group().startswith("\\") else "("
    return None

"""Finding the answer to a mathematical question in a text: pure functions, which compute nothing.

Their time is linear in the length of the text; patterns that are not linear see at most 2,000 characters of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain

from lyceum.reward._mathematics.notation import LONGEST, TEXT, WORD

_BRACE = re.compile(r"\\{1,2}(?:boxed|fbox)\s*\{|\\.|[{}]", re.DOTALL)  # escaped backslashes occur in data


def answer_of(text: str, *, parts: bool = False) -> str | None:
    """The text's last box; without one, the whole text if it is a formula, or the value that it states in words.

    ``parts``: see ``boxes``.
    """
    inside = boxes(text, parts=parts)
    if inside is not None:
        return inside
    text = text.strip()
    return (text or None) if _is_formula(text) else stated(text[-LONGEST:])


def right_answer_of(text: str) -> str:
    """The value of a task's answer: its boxes, the value that it states in words, else all of it as a formula."""
    found = boxes(text, parts=True)
    if not found and re.search(r"\$|\\\(|\\\[", text) and not _is_formula(text):
        found = stated(text[-LONGEST:])
    return found or text


def _is_formula(text: str) -> bool:
    return len(text) <= LONGEST and not _PROSE.search(re.sub(rf"{TEXT}\{{[^{{}}]*\}}", " ", text))


def boxes(text: str, *, parts: bool = False) -> str | None:
    """The inside of the last outermost box, joined with those before it that belong to it; None without any box.

    Boxes with nothing between them but ``,``, ``;``, "and" or "or" are one answer, which names several values; with
    ``parts`` also those with nothing at all between them, or with "and" and a few words, as in an answer of several
    parts. A last box that is not closed is not an answer (""), and neither is one before it.
    """
    opened: list[tuple[int, int] | None] = []
    closed: list[tuple[int, int, int]] = []  # start of \boxed, start and end of its inside
    for found in _BRACE.finditer(text):
        mark = found.group()
        if mark == "{":
            opened.append(None)
        elif mark == "}":
            if opened and (box := opened.pop()) is not None:
                while closed and closed[-1][0] > box[0]:
                    closed.pop()  # nested in this one
                closed.append((*box, found.start()))
        elif mark.endswith("{") and len(mark) > 2:
            opened.append((found.start(), found.end()))
    last_open = max((box[0] for box in opened if box is not None), default=-1)
    if not closed:
        return "" if last_open >= 0 else None
    if last_open > closed[-1][0]:
        return ""
    answer, begin = [text[closed[-1][1] : closed[-1][2]]], closed[-1][0]
    for start, inner, end in reversed(closed[:-1]):
        if (gap := _between_boxes(text[end + 1 : begin], parts)) is None:
            break
        answer += [gap, text[inner:end]]
        begin = start
    return "".join(reversed(answer)).strip()


def _between_boxes(gap: str, parts: bool) -> str | None:
    """The separator where the text between two boxes makes them one answer, else None."""
    if len(gap) > 60:
        return None
    gap = re.sub(rf"\\[()\[\]]|{TEXT}|\\q?quad(?![A-Za-z])|[\\$*{{}}\s.]", " ", gap)
    words = [word.lower() for word in re.findall(r"[A-Za-z]+|[^A-Za-z\s]", gap)]
    if words and all(word in _JOINERS for word in words):
        return " or " if "or" in words else " , "
    if parts and (not words or ("and" in words and len(words) <= 8 and _CORRECTIONS.isdisjoint(words))):
        return " , "
    return None


_JOINERS = frozenset(("and", "or", ",", ";", "&"))
_CORRECTIONS = frozenset(
    ("no", "not", "wait", "wrong", "then", "actually", "but", "rather", "instead", "however", "hmm", "so", "again")
)
_PROSE = re.compile(
    r"(?<![\\A-Za-z{])(?!(?:and|or|sqrt|pi|inf|sin|cos|tan|log|ln|exp)\b)[A-Za-z]{2,}(?![A-Za-z}])|[#\n]|^\*\*"
)
"""Marks a sentence and not a formula: a word that is not a function's name, outside LaTeX braces."""

_NUMBER = r"[-+\u2212]?[$€£¥₹]?(?:\d+(?:[ ,]\d{3})+(?!\d)(?:\.\d+)?|\d+,\d{1,2}(?![\d,])|\d+(?:\.\d+)?|\.\d+)"
_FURTHER = rf"\s*(?:\*\*|[-+*/^×÷=()\u2212])[-+*/^×÷=()\s\u2212]*(?:{_NUMBER}|\w(?!\w))\)*"
_INLINE = (
    r"\$\$[^$]+\$\$|\\\[(?:[^\\]|\\(?!\]))+\\\]|\\\((?:[^\\]|\\(?!\)))+\\\)"
    # A closing dollar after a space where the opening one is not followed by one, or before a digit, is a price.
    r"|\$(?=\S)[^$\n]*[^$\s]\$(?!\d)|\$\s[^$\n]+\s\$(?!\d)"
)
_VALUE = re.compile(
    rf"(?P<latex>{_INLINE}|-?\\frac\{{[^{{}}]+\}}\{{[^{{}}]+\}})(?:\s*(?:\\?%|percent\b))?"
    rf"|(?<![\w.])(?:\w\s*=\s*)?\(?{_NUMBER}(?:{_FURTHER})*[A-Za-z]*"
    r"(?:\s*(?:\\?%|(?:percent|hundred|thousand|million|billion|trillion|dozen)\b))?",
    re.IGNORECASE,
)
_ANSWER = re.compile(r"answer", re.IGNORECASE)
_REFUSED_BEFORE = re.compile(r"\b(?:not|minus|negative|never|except|than)\b|n't\b", re.IGNORECASE)
_EXPLAINS = re.compile(
    r"\b(?:since|because|as|for|so|thus|hence|therefore|then|which|that|where|when|with)\b", re.IGNORECASE
)
_IS = re.compile(r"\W*(?:is|are|equals?|to be|=)\W*")


def stated(text: str) -> str | None:
    """The values that follow the last "answer ...", else the last value of the last line that has any.

    A value is a formula between dollars or an expression of digits. Several, joined by "or", "and", "," or ";" with
    hardly a word between them, are one answer.
    """
    for mark in list(_ANSWER.finditer(text))[:-20:-1]:
        after = text[mark.end() : mark.end() + 2000]
        values = _VALUE.finditer(after)
        first = next(values, None)
        if first is None or first.start() > 100:
            continue
        if _REFUSED_BEFORE.search(after[: first.start()]):
            return None
        return _joined(after, *_said_of(after, first, values))
    for line in reversed(text.splitlines()):
        line = line[-2000:]
        values = list(_VALUE.finditer(line))
        if values:
            begin = len(values) - 1
            while begin and _separator(line[values[begin - 1].end() : values[begin].start()]):
                begin -= 1
            before = line[values[begin - 1].end() if begin else 0 : values[begin].start()]
            if _REFUSED_BEFORE.search(before):
                return None
            return _joined(line, values[begin], iter(values[begin + 1 :]))
    return None


def _said_of(
    text: str, first: re.Match[str], rest: Iterator[re.Match[str]]
) -> tuple[re.Match[str], Iterator[re.Match[str]]]:
    """In "$n$ is 34", the value of n."""
    for value in rest:
        if not _IS.fullmatch(text[first.end() : value.start()]):
            return first, chain((value,), rest)
        first = value
    return first, rest


def _joined(text: str, first: re.Match[str], rest: Iterator[re.Match[str]]) -> str:
    parts, end = [_formula(first)], first.end()
    for value in rest:
        separator = _separator(text[end : value.start()])
        if separator is None:
            break
        parts += [separator, _formula(value)]
        end = value.end()
    return "".join(parts)


def _formula(value: re.Match[str]) -> str:
    """A value with a decimal point instead of the comma of ``2,74``, which would be a list in LaTeX."""
    return value.group() if value["latex"] else re.sub(r"(?<=\d),(?=\d{1,2}(?!\d))", ".", value.group())


def _separator(gap: str) -> str | None:
    """ " or " or " , " where the text between two values makes the second a further answer, else None."""
    if _EXPLAINS.search(gap):
        return None
    words = [word.lower() for word in WORD.findall(gap)]
    others = [word for word in words if word not in ("or", "and")]
    if "or" in words and len(others) <= 3:
        return " or "
    if ("and" in words or any(mark in gap for mark in ",;&")) and len(others) <= 1:
        return " , "
    return None

"""The command that a shell script would start, with its variables filled in. The script is read and never run."""

from __future__ import annotations

import ast
import operator
import re
import shlex
from collections.abc import Mapping
from typing import Any

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=", re.DOTALL)
_VARIABLE = re.compile(r"\$\{(\w+)(?::?-((?:[^{}]|\{[^{}]*\})*))?\}|\$(\w+)")
_ARITHMETIC = re.compile(r"\$\(\(([^()]*(?:\([^()]*\)[^()]*)*)\)\)")
_OPERATORS: Mapping[type, Any] = {
    **{ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.floordiv},
    **{ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod},
}
_LARGEST = 10**12
_LONGEST = 10_000
"""Characters of a variable: one that holds another two times, which does so too, would fill the memory."""
_ALL_ARGUMENTS = ("$@", "$*", "${@:1}", "${@}")


def commands(text: str) -> list[list[str]]:
    """The words of each command of a script, in order, variables that it sets itself filled in.

    A variable that it does not set stays as it is written, ``$HOME`` as ``~``. Lines that are no command of one line
    (loops, functions, here-documents) come as words all the same.
    """
    known: dict[str, str] = {"HOME": "~"}
    found = []
    for line in _lines(text):
        words = _words(_with_arithmetic(line, known))
        if words and words[0] == "export":
            words = words[1:]
        while words and _ASSIGNMENT.match(words[0]):
            name, _, value = words.pop(0).partition("=")
            known[name] = _filled(value, known)[:_LONGEST]
        filled = [_filled(word, known) for word in words if word not in _ALL_ARGUMENTS]
        if filled:
            found.append(filled)
    return found


def _lines(text: str) -> list[str]:
    """Lines without comments, those that are continued joined, and those within an open quote."""
    whole, open_ = [], ""
    for line in text.splitlines():
        if not open_ and line.lstrip().startswith("#"):
            continue
        joined = open_ + line
        if joined.endswith("\\"):
            open_ = joined[:-1] + " "
        elif not _closed(joined) and len(joined) < 10_000:
            open_ = joined + "\n"
        else:
            whole.append(joined)
            open_ = ""
    return [*whole, *([open_] if open_ else [])]


def _closed(line: str) -> bool:
    try:
        shlex.split(line, comments=True)
    except ValueError:
        return False
    return True


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError:  # a quote that never ends
        return []


def _filled(word: str, known: Mapping[str, str], depth: int = 0) -> str:
    def value(match: re.Match[str]) -> str:
        name, default = match[1] or match[3], match[2]
        if name in known:
            return known[name]
        return match[0] if default is None or depth > 8 else _filled(default, known, depth + 1)

    return _VARIABLE.sub(value, word)


def _with_arithmetic(line: str, known: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        number = _computed(_filled(re.sub(r"\b([A-Za-z_]\w*)\b", r"${\1}", match[1].replace("$", "")), known))
        # Its blanks would end the word.
        return re.sub(r"\s", "", match[0]) if number is None else str(number)

    return _ARITHMETIC.sub(value, line)


def _computed(text: str) -> int | None:
    """The value of whole numbers with + - * / %; None of anything else."""

    def of(node: ast.expr) -> int:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -of(node.operand)
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            result = _OPERATORS[type(node.op)](of(node.left), of(node.right))
            if abs(result) <= _LARGEST:
                return result
        raise ValueError

    try:
        return of(ast.parse(text.strip(), mode="eval").body)
    except (ValueError, SyntaxError, ZeroDivisionError, RecursionError, MemoryError):
        return None

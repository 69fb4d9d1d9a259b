"""Safe printing: external text without terminal control characters, and values quoted at a bounded length."""

from __future__ import annotations

import reprlib
from typing import Any

QUOTED = 200
"""Maximum characters of a value that a message quotes."""


def printable(text: str) -> str:
    """Text without control characters (escape sequences, carriage returns, direction marks, halves of surrogate pairs):
    each is replaced by its code, ``\\x1b``. Newlines and tabs stay."""
    return text if text.isascii() and text.isprintable() else "".join(map(_told, text))


def _told(character: str) -> str:
    if character in "\n\t" or character.isprintable():
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def quoted(value: Any) -> str:
    """``repr`` for a message: printable, of bounded length and depth, whatever the value is."""
    text = printable(_repr.repr(value))
    return text if len(text) <= QUOTED else f"{text[: QUOTED - 30]}... ({len(text)} characters)"


class _Bounded(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 4
        self.maxlist = self.maxtuple = self.maxdict = self.maxset = 8
        self.maxstring = self.maxother = self.maxlong = QUOTED - 50

    def repr_int(self, x: int, level: int) -> str:
        # Python itself refuses to print an integer of more than 4,300 digits.
        return repr(x) if x.bit_length() < 1000 else f"an integer of {x.bit_length()} bits"


_repr = _Bounded()

"""What goes between the judge and a program: plain data as JSON, and references to objects that stay where they are."""

from __future__ import annotations

import itertools
import json
import os
import struct

TYPE_CHECKING = False  # as typing has it, which takes milliseconds to import
if TYPE_CHECKING:
    from typing import Any

LENGTH = struct.Struct(">I")
MOST_ITEMS = 100_000
"""Maximum items taken from an iterator that a program returns."""
NOTE = 300
"""Maximum characters of a note on a test."""
MOST_EQUAL_HASHES = 100
"""Maximum different values of one hash in a reply. Sets and dicts of n such values take n * n comparisons, all of them
in C, where no alarm ends them."""


class Unsupported(BaseException):
    """The tests ask what cannot be asked here: not the program's fault. ``passed``: what they pass to the program."""

    def __init__(self, why, passed=None):
        super().__init__(why)
        self.passed = passed


class Limit(BaseException):
    """The program exceeded a limit."""


class Untrusted(BaseException):
    """A test would have to believe the program about its own object."""


class Ended(BaseException):
    """The program's process has ended."""


class Reference:
    """An object of the program, such as a function. It can be called and its attributes read, not compared."""

    def __init__(self, program, number):
        self.program_, self.number_ = program, number

    def __call__(self, *arguments, **keywords):
        message = {
            "op": "call",
            "object": self.number_,
            "arguments": encode(list(arguments), None),
            "keywords": encode(keywords, None),
            "metered": self.program_.metered,
        }
        return self.program_.ask(message, arguments)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self.program_.ask({"op": "attribute", "object": self.number_, "name": name})


def _untrusted(self, *_):
    raise Untrusted("a test compares or reads an object of the program's own class; allowed: plain data")


_REFUSED = (
    "eq ne lt le gt ge bool len iter next contains getitem setitem delitem hash int float index str repr format bytes "
    "complex add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow and rand or ror xor rxor "
    "lshift rshift neg pos abs round enter exit"
)
for _name in _REFUSED.split():
    setattr(Reference, f"__{_name}__", _untrusted)


def encode(value, objects):
    """Plain data as JSON types; anything else as a reference that only the program itself can resolve."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, Reference):
        return {"object": value.number_}
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    for kind, name in ((list, "list"), (tuple, "tuple"), (set, "set"), (frozenset, "frozenset")):
        if isinstance(value, kind):
            return {name: [encode(item, objects) for item in value]}
    if isinstance(value, dict):
        return {"dict": [[encode(key, objects), encode(item, objects)] for key, item in value.items()]}
    if isinstance(value, (bytes, bytearray)):
        return {"bytes": bytes(value).hex()}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if hasattr(value, "__next__"):
        return {"iterator": [encode(item, objects) for item in itertools.islice(value, MOST_ITEMS)]}
    if objects is None:
        raise Unsupported(f"a test passes a {type(value).__name__} to the program; allowed: plain data", value)
    objects.append(value)
    return {"object": len(objects) - 1}


PLAIN = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}


class EqualHashes:
    """Counts different values of one hash; gives back each value. Raises ValueError above ``MOST_EQUAL_HASHES``."""

    def __init__(self):
        self.values = {}

    def __call__(self, value):
        try:
            same = self.values.setdefault(hash(value), [])
        except (TypeError, Untrusted):  # unhashable: a container that needs hashes raises it again
            return value
        if value not in same:
            same.append(value)
            if len(same) > MOST_EQUAL_HASHES:
                raise ValueError(f"more than {MOST_EQUAL_HASHES} values of one hash")
        return value


def decode(value: Any, reference: Any) -> Any:
    """The value of a reply. Raises ValueError and other errors where no honest program sent it."""
    counted = EqualHashes()

    def read(value):
        if not isinstance(value, dict):
            if isinstance(value, list):
                raise ValueError("a reply is malformed")
            return counted(value)
        ((kind, inner),) = value.items()
        if kind == "iterator":  # its hash is its address
            return iter([read(item) for item in inner])
        if kind in PLAIN:
            return counted(PLAIN[kind]([read(item) for item in inner]))
        if kind == "dict":
            return {read(key): read(item) for key, item in inner}
        if kind == "bytes":
            return counted(bytes.fromhex(inner))
        if kind == "complex":
            return counted(complex(*map(float, inner)))
        if kind == "object" and type(inner) is int:
            return reference(inner)
        raise ValueError("a reply is malformed")

    return read(value)


def send(pipe, message):
    body = json.dumps(message).encode()
    view = memoryview(LENGTH.pack(len(body)) + body)
    while view:
        view = view[os.write(pipe, view) :]


def read_exactly(pipe, count):
    parts = []
    while count:
        part = os.read(pipe, min(count, 1 << 16))
        if not part:
            raise EOFError
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def receive(pipe, most):
    (size,) = LENGTH.unpack(read_exactly(pipe, LENGTH.size))
    if size > most:
        raise Limit(f"a reply of {size} bytes; allowed: {most}")
    return json.loads(read_exactly(pipe, size))

"""YAML and JSON from outside as plain values, read in one place: the limits are the same wherever text comes in.

A document is what people write by hand (a recipe, an override, a configuration) or what a process sends. Five hundred
bytes of nested aliases can stand for gigabytes, three thousand brackets end an interpreter's stack, and an integer of
five thousand digits cannot even be printed: all of them are refused with a line, in milliseconds.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any, ClassVar

import yaml


@dataclass(frozen=True)
class Limits:
    """What a document may hold.

    Attributes:
        characters: of its text.
        depth: lists and mappings inside one another.
        values: keys, numbers, texts, lists and mappings, each alias counted as often as it is used.
        digits: of one number.
    """

    characters: int = 1_000_000
    depth: int = 50
    values: int = 100_000
    digits: int = 100


DOCUMENT = Limits()
"""Of what people write: the largest recipe of the package has a hundredth of it."""

DATA = Limits(characters=1 << 30, depth=200, values=1 << 27, digits=1000)
"""Of what programs write: rows, messages, metrics."""


class DocumentError(ValueError):
    """A text that cannot be read; says what is wrong and where, never the text itself at length."""


def read_yaml(text: str, *, limits: Limits = DOCUMENT) -> Any:
    """The plain values (None, bool, int, float, str, list, dict with str keys) of one YAML document.

    Numbers are those of YAML 1.2, with ``_`` between digits as in Python: ``1e-4`` is a number, ``010`` is ten,
    ``1:30`` and ``2026-01-31`` are texts. Keys are texts: ``1: x`` has the key ``"1"``.

    Raises:
        DocumentError: it is no YAML, a key stands twice, a tag asks for something else than plain values, or a limit is
            passed.
    """
    _check_characters(text, limits)
    try:
        return _Loader(text, limits).get_single_data()
    except DocumentError:
        raise
    except yaml.YAMLError as error:
        raise DocumentError(_line(error)) from error
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        raise DocumentError(f"{type(error).__name__}: {_line(error)}") from error


def read_json(text: str | bytes, *, limits: Limits = DOCUMENT, finite: bool = True) -> Any:
    """The plain values of one JSON document.

    Args:
        finite: refuse ``NaN``, ``Infinity`` and numbers beyond a float's range, which are not JSON; else they are read
            as Python writes them.
    Raises:
        DocumentError: it is no JSON, no UTF-8, or a limit is passed.
    """
    _check_characters(text, limits)
    try:
        checks = {"parse_constant": _no_number, "parse_float": _finite} if finite else {}
        value: Any = json.loads(text, parse_int=_integer(limits), **checks)
    except RecursionError:
        raise DocumentError(f"lists and objects more than {limits.depth} deep") from None
    except UnicodeDecodeError as error:
        raise DocumentError(f"not UTF-8: {error}") from None
    except json.JSONDecodeError as error:
        raise DocumentError(f"{error.msg}, line {error.lineno}, character {error.colno}") from None
    _check_depth(value, limits)
    return value


def _check_characters(text: str | bytes, limits: Limits) -> None:
    if len(text) > limits.characters:
        raise DocumentError(f"{len(text)} characters; allowed: at most {limits.characters}")


def _check_depth(value: Any, limits: Limits) -> None:
    """By layers and not by recursion: what was read may be as deep as the stack."""
    layer = [value]
    for _ in range(limits.depth + 1):
        layer = [
            inner
            for outer in layer
            if isinstance(outer, list | dict)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not layer:
            return
    raise DocumentError(f"lists and objects more than {limits.depth} deep")


def _no_number(name: str) -> Any:
    raise DocumentError(f"{name} is not a JSON number")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise DocumentError(f"{digits[:40]} is too large for a number")
    return number


def _integer(limits: Limits) -> Any:
    def parse(digits: str) -> int:
        _check_digits(digits, limits)
        return int(digits)

    return parse


def _check_digits(digits: str, limits: Limits) -> None:
    if len(digits) > limits.digits:
        raise DocumentError(f"a number of {len(digits)} digits; allowed: at most {limits.digits}")


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]


_INT = re.compile(r"[-+]?[0-9][0-9_]*|0x[0-9a-fA-F]+")
_FLOAT = re.compile(
    r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?|[0-9][0-9_]*[eE][-+]?[0-9]+|\.[0-9]+(?:[eE][-+]?[0-9]+)?)"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
_PLAIN_TAGS = ("str", "int", "float", "bool", "null", "seq", "map", "merge")


class _Loader(yaml.SafeLoader):
    """Plain values only, within limits that hold before anything is built from an alias."""

    # YAML 1.1 reads 1:30 as ninety and a date as an object: its rules for numbers and dates are replaced.
    yaml_implicit_resolvers: ClassVar[Any] = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag.rpartition(":")[2] in ("bool", "null", "merge")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, text: str, limits: Limits) -> None:
        super().__init__(text)
        self.limits = limits
        self.depth = 0
        self.values: dict[int, int] = {}

    def compose_node(self, parent: Any, index: Any) -> Any:
        # Every node passes here before anything is built: its depth is counted on the way down, and how many values
        # it stands for on the way up, an alias as many as what it points to.
        if self.depth > self.limits.depth:
            raise DocumentError(f"lists and mappings more than {self.limits.depth} deep")
        is_alias = self.check_event(yaml.AliasEvent)
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        if is_alias:
            if id(node) not in self.values:
                raise DocumentError("an alias stands inside what it names")
            return node
        inner: list[Any] = []
        if isinstance(node, yaml.MappingNode):
            inner = [part for pair in node.value for part in pair]
        elif isinstance(node, yaml.SequenceNode):
            inner = node.value
        self.values[id(node)] = 1 + sum(self.values[id(part)] for part in inner)
        if self.values[id(node)] > self.limits.values:
            raise DocumentError(f"more than {self.limits.values} values, aliases counted as often as used")
        self._check_tag(node)
        return node

    def _check_tag(self, node: Any) -> None:
        if node.tag not in [f"tag:yaml.org,2002:{name}" for name in _PLAIN_TAGS]:
            raise DocumentError(f"the tag {node.tag[:80]!r} stands for no plain value")

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        # Twice the same key: YAML would silently take the last. Of keys that << merges in, the nearest counts.
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise DocumentError(f"a key is a list or a mapping, line {key.start_mark.line + 1}; allowed: a text")
            if key.value in seen:
                raise DocumentError(f"key {key.value[:80]!r} stands twice, line {key.start_mark.line + 1}")
            seen.add(key.value)
            if key.tag != "tag:yaml.org,2002:merge":
                key.tag = "tag:yaml.org,2002:str"
        return super().construct_mapping(node, deep)

    def construct_yaml_int(self, node: Any) -> int:
        text = self.construct_scalar(node).replace("_", "")
        _check_digits(text, self.limits)
        return int(text, 16) if text[:2] == "0x" else int(text)

    def construct_yaml_float(self, node: Any) -> float:
        text = self.construct_scalar(node).replace("_", "").lower()
        _check_digits(text, self.limits)
        return float(text.replace(".inf", "inf").replace(".nan", "nan"))


for _tag, _pattern in (("float", _FLOAT), ("int", _INT)):
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(f"(?:{_pattern.pattern})$"), list("-+.0123456789")
    )
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)
_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.construct_yaml_float)

"""External YAML and JSON as plain values, read in one place: the limits are the same wherever text comes in.

A document is what people write by hand (a recipe, an override, a configuration) or what a process sends. Five hundred
bytes of nested aliases can expand to gigabytes, three thousand brackets overflow an interpreter's stack, and an integer
of five thousand digits cannot even be printed: all of them are refused with one line, in milliseconds.
"""

from __future__ import annotations

import codecs
import json
import math
import re
from collections import Counter
from collections.abc import Set
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, cast

import yaml


@dataclass(frozen=True)
class DocumentLimits:
    """What a document may hold.

    Attributes:
        characters: maximum length of its text, and of its expansion: each YAML alias counts as often as it is used.
        depth: maximum nesting of lists and mappings.
        values: maximum number of YAML keys, numbers, texts, lists and mappings, aliases as above.
        digits: maximum digits of one number.
    """

    characters: int = 200_000
    depth: int = 50
    values: int = 10_000
    digits: int = 100


DOCUMENT = DocumentLimits()
"""Limits for hand-written documents: the largest recipe of the package uses a hundredth. It takes half a second."""

DATA = DocumentLimits(characters=1 << 30, depth=200, values=1 << 27, digits=300)
"""Limits for program output: rows, messages, metrics. No number is larger than a float can be."""

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
"""Half of a surrogate pair, escaped."""


class DocumentError(ValueError):
    """A text that cannot be read; says what is wrong and where, without quoting the text at length."""


def read_yaml(text: str, *, limits: DocumentLimits = DOCUMENT) -> Any:
    """The plain values (None, bool, int, float, str, list, dict with str keys) of one YAML document.

    Numbers are those of YAML 1.2, with ``_`` between digits as in Python: ``1e-4`` is a number, ``010`` is ten,
    ``1:30`` and ``2026-01-31`` are texts. Keys are texts: ``1: x`` has the key ``"1"``. An alias is a copy.

    Raises:
        DocumentError: it is not YAML, a key appears twice, a tag asks for something other than plain values, a text is
            not Unicode (half of a surrogate pair), or a limit is exceeded.
    """
    return _apart(_read_yaml(text, limits))


@lru_cache(maxsize=256)  # every recipe extends others, and a run reads its own again
def _read_yaml(text: str, limits: DocumentLimits) -> Any:
    _check_characters(text, limits)
    try:
        return _Loader(text, limits).get_single_data()
    except DocumentError:
        raise
    except yaml.YAMLError as error:
        raise DocumentError(_line(error)) from error
    except (ValueError, TypeError, LookupError, RecursionError, OverflowError) as error:  # !!bool maybe: a KeyError
        raise DocumentError(f"{type(error).__name__}: {_line(error)}") from error


def _apart(value: Any) -> Any:
    """The value with nothing in it twice: where an alias stands, what is set later is set there alone."""
    if isinstance(value, dict):
        return {key: _apart(item) for key, item in cast("dict[str, Any]", value).items()}
    return [_apart(item) for item in cast("list[Any]", value)] if isinstance(value, list) else value


def write_yaml(value: Any, **how: Any) -> str:
    """YAML text that :func:`read_yaml` reads as this value again, keys in order; ``how`` as yaml.dump takes it."""
    how |= {"sort_keys": False, "allow_unicode": True}
    written = yaml.dump(value, Dumper=_QuickDumper, **how)
    # The quick one escapes emoji, and breaks lines before a backslash elsewhere.
    return yaml.dump(value, Dumper=_Dumper, **how) if "\\" in written else written


def read_json(text: str | bytes, *, limits: DocumentLimits = DOCUMENT, finite: bool = True) -> Any:
    """The plain values of one JSON document.

    Args:
        finite: refuse ``NaN``, ``Infinity`` and numbers beyond a float's range, which are not JSON; else they are read
            as Python writes them.
    Raises:
        DocumentError: it is not JSON or UTF-8, a key appears twice, a text is not Unicode (half of a surrogate pair),
            or a limit is exceeded.
    """
    _check_characters(text, limits)
    try:
        if isinstance(text, bytes):
            text = text.removeprefix(codecs.BOM_UTF8).decode()
        value: Any = _decoder(limits, finite).decode(text)
    except RecursionError:
        raise DocumentError(f"lists and objects more than {limits.depth} deep") from None
    except UnicodeDecodeError as error:
        raise DocumentError(f"not UTF-8: {error}") from None
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " if error.lineno > 1 else ""
        raise DocumentError(f"{error.msg}, {line}character {error.colno}") from None
    # Looked for only where it can be: a file may have a million such texts.
    if text.count("[") + text.count("{") > limits.depth:
        _check_depth(value, limits)
    if ("\\u" in text and _SURROGATE.search(text)) or not is_unicode(text):
        _check_unicode(value)
    return value


def is_json_with(file: Path, keys: Set[str]) -> bool:
    """Whether a file is a JSON object with these keys among its own: a result that may be written anew."""
    try:
        found = read_json(file.read_bytes(), limits=DATA)
    except (DocumentError, OSError):
        return False
    return isinstance(found, dict) and keys <= found.keys()


@cache
def _decoder(limits: DocumentLimits, finite: bool) -> json.JSONDecoder:
    checks = {"parse_constant": _no_number, "parse_float": _finite} if finite else {}
    return json.JSONDecoder(parse_int=_integer(limits), object_pairs_hook=_each_key_once, **checks)


def _check_characters(text: str | bytes, limits: DocumentLimits) -> None:
    if len(text) > limits.characters:
        raise DocumentError(f"{len(text)} characters; allowed: at most {limits.characters}")


def _check_depth(value: Any, limits: DocumentLimits) -> None:
    """Layer by layer, not by recursion: what was read may be as deep as the stack."""
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


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # Duplicate key: JSON would silently take the last.
    found = dict(pairs)
    if len(found) < len(pairs):
        times = Counter(key for key, _ in pairs)
        raise DocumentError(f"key {times.most_common(1)[0][0][:80]!r} appears twice")
    return found


def _check_unicode(value: Any) -> None:
    if isinstance(value, str):
        if not is_unicode(value):
            raise DocumentError(f"half of a surrogate pair in a text, {value[:80]!r}: not Unicode")
    elif isinstance(value, dict | list):
        for inner in [*value, *value.values()] if isinstance(value, dict) else value:
            _check_unicode(inner)


def _whole_pairs(text: str) -> str:
    """A text with its surrogate pairs, as JSON escapes them, replaced by the characters that they encode."""
    if is_unicode(text):
        return text
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise DocumentError(f"half of a surrogate pair in a text, {text[:80]!r}: not Unicode") from None


def is_unicode(text: str) -> bool:
    """Whether UTF-8 can encode a text; not halves of surrogate pairs, as in an undecodable argument."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _no_number(name: str) -> Any:
    raise DocumentError(f"{name} is not a JSON number")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise DocumentError(f"{digits[:40]} is too large for a number")
    return number


def _integer(limits: DocumentLimits) -> Any:
    def parse(digits: str) -> int:
        _check_digits(digits, limits)
        return int(digits)

    return parse


def _check_digits(digits: str, limits: DocumentLimits) -> None:
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


def _is_key(parent: Any, index: Any) -> bool:
    """Whether a node is a key: PyYAML gives the place of everything else inside a list or a mapping."""
    return isinstance(parent, yaml.MappingNode) and index is None


class _Size(NamedTuple):
    """A node's size with aliases resolved; its height is the nesting depth of lists and mappings."""

    values: int
    characters: int
    height: int


class _Loader(yaml.SafeLoader):
    """Plain values only, within limits that hold before anything is built from an alias."""

    # YAML 1.1 reads 1:30 as ninety and a date as an object: its rules for numbers and dates are replaced.
    yaml_implicit_resolvers: ClassVar[Any] = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag.rpartition(":")[2] in ("bool", "null", "merge")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, text: str, limits: DocumentLimits) -> None:
        super().__init__(text)
        self.limits = limits
        self.depth = 0
        self.begun = 0
        self.sizes: dict[int, _Size] = {}  # by node id

    def compose_node(self, parent: Any, index: Any) -> Any:
        # Every node passes here before anything is built: its depth is counted on the way down, and its expanded size
        # on the way up; an alias counts as much as what it points to.
        is_key = _is_key(parent, index)
        if self.check_event(yaml.AliasEvent):
            return self._alias(super().compose_node(parent, index), is_key=is_key)
        self._check_depth(0)
        self.begun += 1
        self._check_size(_Size(self.begun, 0, 0))
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        self._check_tag(node, is_key=is_key)
        if isinstance(node, yaml.MappingNode):
            self._check_keys(node)
        self.sizes[id(node)] = self._size(node)
        return node

    def _alias(self, node: Any, *, is_key: bool) -> Any:
        if id(node) not in self.sizes:
            raise DocumentError("an alias is inside the value that it refers to")
        self._check_depth(self.sizes[id(node)].height)
        if is_key and isinstance(node, yaml.ScalarNode):  # a text here, whatever its type at the anchor
            size = self.sizes[id(node)]
            node = yaml.ScalarNode("tag:yaml.org,2002:str", node.value, node.start_mark, node.end_mark)
            self.sizes[id(node)] = size
        return node

    def _check_depth(self, height: int) -> None:
        if self.depth + height > self.limits.depth:
            raise DocumentError(f"lists and mappings more than {self.limits.depth} deep")

    def _size(self, node: Any) -> _Size:
        if isinstance(node, yaml.ScalarNode):
            return _Size(1, len(node.value), 0)
        inner = node.value
        if isinstance(node, yaml.MappingNode):
            inner = [part for pair in node.value for part in pair]
        sizes = [self.sizes[id(part)] for part in inner]
        found = _Size(
            1 + sum(size.values for size in sizes),
            sum(size.characters for size in sizes),
            1 + max((size.height for size in sizes), default=0),
        )
        self._check_size(found)
        return found

    def _check_size(self, size: _Size) -> None:
        for name in ("values", "characters"):
            if getattr(size, name) > (most := getattr(self.limits, name)):
                raise DocumentError(f"more than {most} {name}, aliases counted as often as used")

    def _check_tag(self, node: Any, *, is_key: bool) -> None:
        name = node.tag.removeprefix("tag:yaml.org,2002:")
        if name == node.tag or name not in _PLAIN_TAGS:
            raise DocumentError(f"the tag {node.tag[:80]!r} is not of a plain value")
        if isinstance(node, yaml.ScalarNode):
            node.value = _whole_pairs(node.value)
            if (is_key and name != "merge") or (name == "merge" and not is_key):  # stop=<< is a text
                node.tag = "tag:yaml.org,2002:str"

    def _check_keys(self, node: Any) -> None:
        # Duplicate key: YAML would silently take the last. Among keys that << merges in, the nearest wins.
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise DocumentError(f"a key is a list or a mapping, line {key.start_mark.line + 1}; allowed: a text")
            if key.value in seen:
                raise DocumentError(f"key {key.value[:80]!r} appears twice, line {key.start_mark.line + 1}")
            seen.add(key.value)

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


class _Dumper(yaml.SafeDumper):
    """Quotes the texts that the loader would read as numbers, also those that are not numbers in YAML 1.1."""


class _QuickDumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """The same by libyaml, where PyYAML has it: it takes a quarter of the time, a tenth of a tiny run's."""


for _dumper in (_Dumper, _QuickDumper):
    _dumper.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(f"(?:{_FLOAT.pattern})$"), list("-+.0123456789")
    )

"""Nested Python state as JSON text and a flat dict of tensors, and back, exactly.

JSON has no tuples, bytes, tensors, nan, or keys that are not strings: each of these becomes an object with the key
``!`` that says what it is. Subclasses (an enum, a named tuple) are refused rather than silently flattened.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from typing import Any, TypeAlias

from lyceum.utils.lazy_imports import Tensor, torch

_TAG = "!"
_STORED = frozenset(
    f"torch.{dtype}"
    for dtype in (
        *("float64", "float32", "float16", "bfloat16", "complex64", "bool"),
        *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
        *("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8"),
    )
)
_AS_IS = frozenset((type(None), bool, int, str))
"""Types that JSON holds as they are."""
_Path: TypeAlias = "tuple[_Path, Any] | None"
"""The keys that lead to a value, the last one outermost; None at the top. Not flat: few are ever read."""
_ALLOWED = "dict, list, tuple, tensor, int, float, str, bytes, bool, None"


def encode(state: Any) -> tuple[str, dict[str, Tensor]]:
    """JSON text, and each distinct tensor under a name made of the keys that lead to it.

    Raises:
        TypeError: something that could not be restored exactly; the message names the key.
    """
    encoder = _Encoder()
    return json.dumps(encoder.encode(state, None), allow_nan=False), encoder.tensors


def decode(text: str | bytes, tensors: Mapping[str, Tensor]) -> Any:
    """The input of :func:`encode`; mappings come back as dict, tensors as they are in ``tensors``."""
    return _decode(json.loads(text), tensors)


class _Encoder:
    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.name_of: dict[tuple[Any, ...], str] = {}

    def encode(self, value: Any, path: _Path) -> Any:
        kind = type(value)
        if kind in _AS_IS:
            return value
        if kind is float:
            return value if math.isfinite(value) else {_TAG: "float", "value": str(value)}
        if kind is bytes:
            return {_TAG: "bytes", "base64": base64.b64encode(value).decode()}
        if kind is list or kind is tuple:
            items = [item if type(item) in _AS_IS else self.encode(item, (path, i)) for i, item in enumerate(value)]
            return items if kind is list else {_TAG: "tuple", "items": items}
        if kind is dict or isinstance(value, Mapping):
            if _TAG not in value and all(type(key) is str for key in value):
                return {
                    key: item if type(item) in _AS_IS else self.encode(item, (path, key)) for key, item in value.items()
                }
            items = [[self.encode(key, path), self.encode(item, (path, key))] for key, item in value.items()]
            return {_TAG: "dict", "items": items}
        if isinstance(value, Tensor):
            return {_TAG: "tensor", "name": self.tensor(value, path)}
        raise TypeError(f"{_dotted(path)}: a {kind.__module__}.{kind.__qualname__}; allowed: {_ALLOWED}")

    def tensor(self, value: Tensor, path: _Path) -> str:
        if value.layout != torch.strided or str(value.dtype) not in _STORED or value.is_meta:
            raise TypeError(f"{_dotted(path)}: a {value.dtype} tensor, {value.layout}, on {value.device}; not stored")
        # A tied weight is one tensor under two names: stored once.
        same = (
            value.data_ptr(),
            value.device,
            value.dtype,
            value.shape,
            value.stride(),
            value.is_conj(),
            value.is_neg(),
        )
        if same in self.name_of:
            return self.name_of[same]
        # Dots in keys may give two paths one name, and the format reserves "__metadata__".
        name = base = _dotted(path).encode("utf-8", "backslashreplace").decode()
        count = 1
        while name in self.tensors or name == "__metadata__":
            count += 1
            name = f"{base}#{count}"
        self.tensors[name] = value
        self.name_of[same] = name
        return name


def _decode(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(value, list):
        return [_decode(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    match value.get(_TAG):
        case None:
            return {key: _decode(item, tensors) for key, item in value.items()}
        case "float":
            return float(value["value"])
        case "bytes":
            return base64.b64decode(value["base64"])
        case "tuple":
            return tuple(_decode(item, tensors) for item in value["items"])
        case "dict":
            return {_decode(key, tensors): _decode(item, tensors) for key, item in value["items"]}
        case "tensor":
            return tensors[value["name"]]
        case unknown:
            raise ValueError(f"state: unknown kind {unknown!r}")


def _dotted(path: _Path) -> str:
    keys: list[str] = []
    while path is not None:
        path, key = path
        keys.append(str(key))
    return ".".join(reversed(keys)) or "state"

"""A configuration's context length, as far as sampling and training can agree on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

UNLIMITED = 1 << 30
BY_POSITION = frozenset({"default", "linear", "llama3", "yarn", "proportional", "dynamic"})
"""Rotary embeddings whose angles depend on the position alone; dynamic ones do up to ``max_position_embeddings``."""


def context_of_config(config: Any) -> int:
    """Maximum sequence length in tokens that sampling and training can agree on.

    It is ``max_position_embeddings``; less for a rotary embedding that takes other frequencies for every position once
    the forward's longest row is beyond an original length (longrope): up to there the short ones hold for all rows.

    Args:
        config: a transformers configuration of a text model.
    """
    limit = int(getattr(config, "max_position_embeddings", None) or UNLIMITED)
    for rotary in _rotary_settings(config):
        if rotary.get("rope_type", rotary.get("type", "default")) not in BY_POSITION:
            original = rotary.get("original_max_position_embeddings")
            limit = min(limit, int(original or getattr(config, "original_max_position_embeddings", None) or limit))
    return min(limit, UNLIMITED)


def unknown_rotary(config: Any) -> str | None:
    """A rotary embedding that may depend on more than the position, from no length that is known; None without one."""
    for rotary in _rotary_settings(config):
        kind = rotary.get("rope_type", rotary.get("type", "default"))
        original = rotary.get("original_max_position_embeddings") or getattr(
            config, "original_max_position_embeddings", None
        )
        if kind not in BY_POSITION and kind != "longrope" and not original:
            return str(kind)
    return None


def _rotary_settings(config: Any) -> Iterator[Mapping[str, Any]]:
    """The configuration's rotary settings: one mapping, or one for each type of layer."""
    found = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    by_layer = [value for value in found.values() if isinstance(value, Mapping)]
    yield from by_layer or [found]

"""What a resumed run's recipe is compared with. Light: a command that is refused imports no model library for it."""

from __future__ import annotations

from typing import Any

from lyceum.recipe.schema import parse
from lyceum.utils.errors import RecipeError

MAY_DIFFER = (
    *("title", "paper", "summary", "name", "label", "output"),
    *("checkpoint_every", "checkpoint_minutes", "max_steps_without_signal", "threads"),
    *("rollouts_every", "trees_every", "digests", "keep*", "evaluate.workers", "*.runtime.devices*"),
    *("track*", "trust_code", "model.device"),
    *(f"*.engine.{key}" for key in ("urls*", "transfer", "folder", "timeout", "patience", "python", "devices")),
)
"""Keys in which a resumed run's recipe may differ from the original: none of them changes a result, but ``threads`` the
last bits, of which a warning tells."""


def with_defaults(written: dict[str, Any]) -> dict[str, Any]:
    """A resolved recipe of an earlier version as this version resolves it: new keys get their defaults."""
    try:
        return parse(written).resolved()
    except RecipeError:
        return written  # from a version whose keys this one does not know

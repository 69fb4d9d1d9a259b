"""Labels of what is compared."""

from __future__ import annotations

from collections.abc import Iterable


def by_label(named: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Label -> what it labels, from pairs of these; a second one of a label has ``LABEL-2``."""
    found: dict[str, str] = {}
    for label, what in named:
        name, number = label, 1
        while name in found:
            number += 1
            name = f"{label}-{number}"
        found[name] = what
    return found

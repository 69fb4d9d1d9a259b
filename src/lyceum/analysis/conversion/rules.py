"""What each key of another library becomes: rules of its own where arithmetic or other keys matter, the table of names
(``recipe/other_names.yaml``) for the rest."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lyceum.analysis.conversion.configuration import Configuration, Library, Unread
from lyceum.recipe.other_names import OtherName, other_names
from lyceum.utils.documents import read_yaml


@dataclass(frozen=True)
class Converted:
    """What a key becomes.

    Attributes:
        ours: keys of a recipe and their values; empty where the key has no counterpart.
        note: what differs, or why there is none.
    """

    ours: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""


Rule = Callable[[Configuration, Any], Converted]

FAR = 1_000_000
"""Steps of a run that its epochs end."""


TRUST = "a recipe cannot trust itself: model.trust_remote_code=true on the command line"


def is_so(ours: Mapping[str, Any], note: str = "") -> Converted:
    return Converted(ours, note)


def none(note: str) -> Converted:
    return Converted({}, note)


def to(*keys: str, note: str = "") -> Rule:
    """The same value under these keys."""
    return lambda of, value: Converted(dict.fromkeys(keys, value), note)


def never(note: str) -> Rule:
    return lambda of, value: Converted({}, note)


def where(values: Mapping[Any, Mapping[str, Any]], other: str) -> Rule:
    """Keys by the value; of any other value, why it has no counterpart."""

    def rule(of: Configuration, value: Any) -> Converted:
        found = values.get(value) if isinstance(value, (str, int, float, bool, type(None))) else None
        return none(other) if found is None else is_so(found)

    return rule


def asked(by: Rule, otherwise: str) -> Rule:
    """A rule for a value that is on; one that is off is what a recipe has anyway."""
    return lambda of, value: by(of, value) if value not in (False, None, "no", "none", "") else none(otherwise)


def only(where: Callable[[Configuration], Any], by: Rule, otherwise: str) -> Rule:
    """A rule for configurations of which something is so; in others the key means nothing."""
    return lambda of, value: by(of, value) if where(of) else none(otherwise)


def every(key: str) -> Rule:
    """Steps between; -1 is never."""
    return lambda of, value: is_so({key: max(0, int(value))})


def epochs(of: Configuration, value: Any) -> Converted:
    return is_so({"epochs": int(value), "steps": FAR}, "the epochs end the run")


def half_precision(of: Configuration, value: Any) -> Converted:
    return is_so({"learner.autocast": "bfloat16" if value else "none"})


def of_generalised(key: str, estimator: str) -> Rule:
    """gamma and lambda, which only generalised advantages have.

    Args:
        estimator: key of the estimator, by default gae.
    """
    name = estimator.rpartition(".")[2]
    return only(lambda of: (of[estimator] or "gae") == "gae", to(f"credit.{key}"), f"of {name}=gae alone")


def tabled(key: str) -> Rule:
    """What the table of names says of a key that it has."""

    def rule(of: Configuration, value: Any) -> Converted:
        name = by_name(of.library, key)
        assert name is not None
        return by_table(name, value)

    return rule


def converted(of: Configuration, rules: Mapping[str, Rule], key: str, value: Any) -> Converted:
    """What one key becomes."""
    if isinstance(value, Unread):
        near = by_name(of.library, key)
        told = f"; it is {near.ours} here" if near is not None and near.ours else ""
        return none(f"the file computes it{told}")
    if (rule := rules.get(key)) is not None:
        return rule(of, value)
    name = by_name(of.library, key)
    return none("lyceum has no such setting") if name is None else by_table(name, value)


def by_name(library: Library, key: str) -> OtherName | None:
    """The row of the table for a key, or the most special one of those for many keys."""
    rows = [name for name in other_names() if name.library == library]
    exact = [name for name in rows if key in name.names]
    families = [name for name in rows if name.theirs.endswith(".*") and key.startswith(name.theirs[:-1])]
    return exact[0] if exact else max(families, key=lambda name: len(name.theirs), default=None)


def by_table(name: OtherName, value: Any) -> Converted:
    """A row that says the same under another name, or what to type for this value; any other is named with its note."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    typed = {str(each).lower() if isinstance(each, bool) else str(each): what for each, what in name.values.items()}
    if text in typed:
        pairs = (assignment.partition("=") for assignment in typed[text].split())
        return is_so({_kind(key): read_yaml(what) for key, _, what in pairs})
    if name.ours and not name.note and not name.values:
        return is_so({name.ours: value})
    return none("; ".join(part for part in (name.ours, name.notes) if part))


SLOTS = ("credit", "objective", "engine", "rollout", "learner")


def _kind(key: str) -> str:
    """``objective=gspo`` sets the kind."""
    return f"{key}.kind" if key in SLOTS else key


def whole(number: float) -> int:
    return max(1, math.ceil(number - 1e-9))


def shown(number: float) -> str:
    return f"{number:.6g}"

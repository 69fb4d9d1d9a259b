"""Small tables of results, as a notebook shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, title: str = "") -> str:
    """An HTML table; every text is escaped, since names come from users and models."""
    cells = "".join(f"<th>{escape(text)}</th>" for text in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>" for row in rows)
    above = f"<p>{escape(title)}</p>" if title else ""
    return f"{above}<table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"


def share(value: Mapping[str, Any] | None) -> str:
    """``62.5 % [55.1, 69.9]``: a proportion and its 95 % interval, from its ``mean``, ``low`` and ``high``."""
    if not value:
        return "-"
    mean, low, high = (100 * value[name] for name in ("mean", "low", "high"))
    return f"{mean:.1f} % [{low:.1f}, {high:.1f}]"


def in_words(of: Mapping[str, Any]) -> str:
    """``one sample 62.5 % [55.1, 69.9], greedy ...`` of an evaluation."""
    return ", ".join(f"{name} {share(value)}" for name, value in shares(of).items())


def shares(of: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The proportions of an evaluation, by name: one sample, greedy, pass@k and maj@k."""
    greedy = of.get("greedy") or {}
    greedy = greedy.get("overall", greedy)  # a level's own has no levels in it
    found = {"one sample": of.get("overall"), "greedy": greedy}
    for key, name in (("pass_at", "pass"), ("maj_at", "maj")):
        found |= {f"{name}@{k}": value for k, value in (of.get(key) or {}).items() if k != "1"}
    return {name: value for name, value in found.items() if value}

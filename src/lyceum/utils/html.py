"""Small tables of results, as a notebook shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from lyceum.utils.numbers import shown


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
    found = {name: share(value) for name, value in shares(of).items()}
    return ", ".join(f"{name} {value}" for name, value in {**found, **mean_reward(of)}.items())


def mean_reward(of: Mapping[str, Any]) -> dict[str, str]:
    """``{"mean reward": "2.31 [1.90, 2.72]"}`` of an evaluation, with its 95 % interval; empty where that is its
    accuracy."""
    reward = of.get("reward")
    if not reward or reward_is_accuracy(of):
        return {}
    mean, low, high = (shown(reward[name], 2) for name in ("mean", "low", "high"))
    return {"mean reward": f"{mean} [{low}, {high}]"}


def reward_is_accuracy(of: Mapping[str, Any]) -> bool:
    """Whether the mean reward of an evaluation equals its accuracy."""
    overall = of.get("overall")
    return not of.get("unjudged") and bool(overall) and abs(of["reward"]["mean"] - overall["mean"]) < 1e-9


def shares(of: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The proportions of an evaluation, by name: one sample, greedy, pass@k and maj@k."""
    greedy = of.get("greedy") or {}
    greedy = greedy.get("overall", greedy)  # a level's own has no levels in it
    found = {"one sample": of.get("overall"), "greedy": greedy}
    for key, name in (("pass_at", "pass"), ("maj_at", "maj")):
        found |= {f"{name}@{k}": value for k, value in (of.get(key) or {}).items() if k != "1"}
    return {name: value for name, value in found.items() if value}

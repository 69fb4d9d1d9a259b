"""The prompt of a model that writes hints, and parsing of its answer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lyceum.analysis.hints.writers import WriterError
from lyceum.core.solution import levels_of
from lyceum.core.types import Hint, Message, Task
from lyceum.guidance.base import states_answer
from lyceum.utils.documents import is_unicode
from lyceum.utils.errors import RecipeError
from lyceum.utils.messages import text_parts
from lyceum.utils.numbers import to_json
from lyceum.utils.terminal import quoted

TIERS = {
    "knowledge": "the concepts, definitions or formulas that the problem needs, without using them on it",
    "planning": "what to do in which order, in words, without carrying any of it out",
    "solution": "the first concrete steps carried out on this problem, stopping before the last one",
}
"""Tiers from abstract to concrete, and what their hints say (Scaf-GRPO, arXiv:2510.19807, section 3)."""


@dataclass(frozen=True)
class LadderSettings:
    """Settings of the requests for hint ladders."""

    tiers: tuple[str, ...] = tuple(TIERS)
    items: int = 4
    concurrency: int = 8
    retries: int = 2

    def check(self) -> None:
        unknown = [tier for tier in self.tiers if tier not in TIERS]
        if unknown or not self.tiers or len(set(self.tiers)) < len(self.tiers):
            raise RecipeError(f"tiers: got {', '.join(self.tiers) or 'none'}; allowed: some of {', '.join(TIERS)}")
        for name, least, most in (("items", 1, 100), ("concurrency", 1, 1000), ("retries", 0, 100)):
            if not least <= getattr(self, name) <= most:
                raise RecipeError(f"{name}: got {quoted(getattr(self, name))}; allowed: {least} to {most}")


class Nonsense(WriterError):
    """An answer that contains no hint ladder."""

    def __init__(self) -> None:
        super().__init__("an answer that is no ladder of hints", again=True)


def request_for(task: Task, settings: LadderSettings) -> list[Message]:
    """The chat messages that request a task's ladder."""
    wanted = "\n".join(f"- {tier}: {TIERS[tier]}" for tier in settings.tiers)
    shape = to_json({tier: ["...", "..."] for tier in settings.tiers})
    asked = [message for message in task.messages if message["role"] != "assistant"]
    problem = "\n\n".join("\n".join(text_parts(message["content"])) for message in asked)
    parts = [f"Problem:\n{problem}"]
    solution = next((task.columns[name] for name in ("solution", "demonstration") if task.columns.get(name)), None)
    if isinstance(solution, str):
        parts.append(f"Reference solution, for you alone:\n{solution}")
    if task.answer is not None:
        answer = task.answer if isinstance(task.answer, str) else to_json(task.answer, other=str)
        parts.append(f"Final answer, which no hint may state:\n{answer}")
    parts.append(
        f"Write hints for a student who cannot solve this problem: for each kind below {settings.items}, each adding "
        f"a little to those before it in its kind.\n{wanted}\n"
        f"No hint states the final answer. Reply with one JSON object and nothing else: {shape}"
    )
    return [{"role": "user", "content": "\n\n".join(parts)}]


def read_ladder(text: str, settings: LadderSettings) -> list[Hint]:
    """The hints in a model's answer, tier by tier; text around the last matching JSON object is ignored.

    Raises:
        Nonsense: it contains none.
    """
    decoder = json.JSONDecoder()
    ladder: list[Hint] = []
    place = text.find("{")
    while place >= 0:
        try:
            found, end = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            found, end = None, place + 1
        ladder = _hints_in(found, settings) or ladder
        place = text.find("{", end)
    if not ladder:
        raise Nonsense
    return ladder


def _hints_in(found: Any, settings: LadderSettings) -> list[Hint]:
    if not isinstance(found, Mapping):
        return []
    ladder: list[Hint] = []
    for tier in settings.tiers:
        hints = found.get(tier)
        texts = [hint.strip() for hint in hints if isinstance(hint, str)] if isinstance(hints, list) else []
        # JSON can hold half a surrogate pair, a text file cannot.
        ladder += [Hint(tier, hint) for hint in texts if hint and is_unicode(hint)][: settings.items]
    return ladder


def without_leaks(task: Task, ladder: Sequence[Hint]) -> list[Hint]:
    """The hints that do not reveal the answer when given with the earlier ones of their tier."""
    kept: list[Hint] = []
    for hint in ladder:
        given = levels_of([*kept, hint], [hint.tier])
        if not states_answer(task, given[-1].text):  # what the source says is about its own hints, not these
            kept.append(hint)
    return kept

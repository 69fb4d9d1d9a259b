"""Rewards of the comparisons, as TRL calls them; lyceum takes the same functions (``reward: {kind: trl}``)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any


def text(completion: Any) -> str:
    """A completion's text, where it comes as a chat message too."""
    return completion if isinstance(completion, str) else completion[0]["content"]


def chain(
    completions: Sequence[Any], completion_ids: Sequence[Sequence[int]], answer: Sequence[str], **_: Any
) -> list[float]:
    """What lyceum's chain tasks give: 1 where all that follows ``#`` is the answer and the completion ended itself."""
    end = 1  # <eos> of the small model
    return [
        float(ids[-1] == end and text(completion).partition("#")[2].strip() == right)
        for completion, ids, right in zip(completions, completion_ids, answer, strict=True)
    ]


def last_number(completions: Sequence[Any], answer: Sequence[str], **_: Any) -> list[float]:
    """1 where the last whole number of the completion is the answer."""
    found = [re.findall(r"-?\d+", text(completion)) for completion in completions]
    return [float(bool(numbers) and numbers[-1] == right) for numbers, right in zip(found, answer, strict=True)]


def even_characters(completions: Sequence[Any], **_: Any) -> list[float]:
    """Share of characters with an even code: all completions of a group differ, so that every row has a gradient.

    No system gains by leaving rows out where nothing is to be learnt.
    """
    return [
        sum(ord(character) % 2 == 0 for character in text(completion)) / max(1, len(text(completion)))
        for completion in completions
    ]

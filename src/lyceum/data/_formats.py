"""Rows of a user's file as completions of a prompt: pairs, labelled completions and graded ones, by TRL's columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from lyceum.core.types import Message
from lyceum.tasks.prompt import answer_of, fault_of, fault_of_media, plain_messages
from lyceum.tasks.rows import kind_of

ALLOWED = (
    "prompt, chosen and rejected; chosen and rejected; prompt, completion and label; or prompt, completion and reward"
)

LABELS = {"true": 1.0, "1": 1.0, "false": 0.0, "0": 0.0}
"""Texts that are labels, in lower case."""

LONGEST_OUTCOME = 1e30
"""Largest magnitude of a reward: its square is finite in float64."""


class RowError(ValueError):
    """A row that cannot be used; says which column and what is allowed."""


@dataclass(frozen=True)
class Completed:
    """A prompt, and its completions with the outcome of each.

    Attributes:
        alone: a pair, which is compared with nothing else; other rows of one prompt make a group.
    """

    prompt: tuple[Message, ...]
    completions: tuple[tuple[str, float], ...]
    alone: bool


def completed(row: Mapping[str, Any]) -> Completed:
    """A row by its columns.

    Raises:
        RowError: a column is missing or of another type, the prompts of a pair differ, or its completions do not.
    """
    row = {name: value for name, value in row.items() if value is not None}
    if (pictures := fault_of_media(row, pictures=False)) is not None:
        raise RowError(f"it holds {pictures}; allowed: rows of text, without the column")
    if "chosen" in row or "rejected" in row:
        return _pair(row)
    if "prompt" in row and "completion" not in row:
        raise RowError(
            f"the row has no completion: to sample some, tasks=FILE instead of data=FILE; allowed: {ALLOWED}"
        )
    needed(row, "completion")
    outcome = _label(row["label"]) if "label" in row else _reward(needed(row, "reward", "'label' or 'reward'"))
    text = _completion("completion", row["completion"])
    return Completed(_prompt(needed(row, "prompt")), ((text, outcome),), alone=False)


def needed(row: Mapping[str, Any], name: str, called: str | None = None) -> Any:
    if name not in row:
        raise RowError(
            f"got no {called or repr(name)}, but {', '.join(map(repr, row)) or 'nothing'}; allowed: {ALLOWED}"
        )
    return row[name]


def _pair(row: Mapping[str, Any]) -> Completed:
    chosen, rejected = needed(row, "chosen"), needed(row, "rejected")
    if isinstance(chosen, str) != isinstance(rejected, str):
        raise RowError(
            f"chosen is {kind_of(chosen)} and rejected {kind_of(rejected)}; allowed: two texts, or two lists of "
            "messages"
        )
    if isinstance(chosen, str):
        prompt = row.get("prompt")
        if prompt is None:
            prompt = chosen[: common_text(chosen, rejected)]
            if not prompt.strip():
                raise RowError("chosen and rejected begin differently and there is no prompt; allowed: a prompt")
            chosen, rejected = chosen[len(prompt) :], rejected[len(prompt) :]
    else:
        prompt, chosen, rejected = _conversations(row.get("prompt"), chosen, rejected)
    both = _completion("chosen", chosen), _completion("rejected", rejected)
    if both[0] == both[1]:
        raise RowError("chosen and rejected are equal; allowed: two different completions")
    return Completed(_prompt(prompt), ((both[0], 1.0), (both[1], 0.0)), alone=True)


def common_text(one: str, other: str) -> int:
    """Length of what two texts begin with; a space before the completion belongs to it, as TRL has it."""
    length = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
    return length - 1 if length and one[length - 1] == " " else length


def _conversations(prompt: Any, chosen: Any, rejected: Any) -> tuple[Any, Any, Any]:
    """Two conversations without what both begin with, which is the prompt where they hold it."""
    for name, value in (("chosen", chosen), ("rejected", rejected)):
        if (fault := fault_of(value)) is not None:
            raise RowError(f"{name} holds {fault}; allowed: a text, or chat messages {{role, content}} of text")
    common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(chosen, rejected, strict=False)))
    common = min(common, len(chosen) - 1, len(rejected) - 1)
    if prompt is None and not common:
        raise RowError("chosen and rejected begin with different messages and there is no prompt; allowed: one prompt")
    if max(len(chosen), len(rejected)) - common > 1:
        raise RowError(
            f"the prompts of chosen and rejected differ at message {common}; allowed: two conversations that differ in "
            "their last message alone"
        )
    if common and prompt is not None and not isinstance(prompt, str) and plain(prompt) != plain(chosen[:common]):
        raise RowError("prompt is not what chosen and rejected begin with; allowed: the same messages, or no prompt")
    return chosen[:common] if common else prompt, chosen[common:], rejected[common:]


def plain(messages: Any) -> Any:
    return plain_messages(messages) if fault_of(messages) is None else messages


def _prompt(value: Any) -> tuple[Message, ...]:
    if isinstance(value, str):
        if not value:
            raise RowError("prompt is an empty text; allowed: a text, or chat messages {role, content} of text")
        return ({"role": "user", "content": value},)
    if (fault := fault_of(value)) is not None:
        raise RowError(f"prompt holds {fault}; allowed: a text, or chat messages {{role, content}} of text")
    return tuple(plain_messages(value))


def _completion(name: str, value: Any) -> str:
    allowed = "allowed: a text that is not empty, or one message {role: assistant, content: TEXT}"
    if isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 1:
        (message,) = value
        if isinstance(message, Mapping):
            if message.get("role") != "assistant":
                raise RowError(f"{name} has a message of the role {message.get('role')!r}; {allowed}")
            value = answer_of(value)
    elif isinstance(value, Sequence) and not isinstance(value, str) and value:
        raise RowError(f"{name} has {len(value)} messages; {allowed}")
    if not isinstance(value, str) or not value:
        raise RowError(f"{name} is {kind_of(value)}; {allowed}")
    return value


def _label(value: Any) -> float:
    if isinstance(value, bool) or (isinstance(value, int | float) and value in (0, 1)):
        return float(value)
    if isinstance(value, str) and value.lower() in LABELS:  # of a CSV file, which has texts alone
        return LABELS[value.lower()]
    raise RowError(f"label is {kind_of(value)}; allowed: true or false")


def _reward(value: Any) -> float:
    if isinstance(value, str):  # of a CSV file
        with suppress(ValueError):
            value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RowError(f"reward is {kind_of(value)}; allowed: a number")
    if not (math.isfinite(value) and abs(value) <= LONGEST_OUTCOME):
        raise RowError(f"reward is {value:g}; allowed: a number of at most {LONGEST_OUTCOME:g} in magnitude")
    return float(value)

"""A trace: what the model should have said to a prompt, as fine-tuning takes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lyceum.component import require_keys
from lyceum.tree import Tree
from lyceum.types import Message


@dataclass(frozen=True)
class Trace:
    """One completion of one prompt.

    Attributes:
        task: id of the task that it solves.
        messages: the prompt, as chat messages.
        text: the completion.
        tokens: of the completion, its end of sequence included; None where nobody wrote it token by token: it is then
            encoded as the tokenizer does.
    """

    task: str
    messages: tuple[Message, ...]
    text: str
    tokens: tuple[int, ...] | None = None

    def state_dict(self) -> dict[str, Any]:
        return {
            "task": self.task,
            "messages": [dict(message) for message in self.messages],
            "text": self.text,
            "tokens": None if self.tokens is None else list(self.tokens),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Trace:
        require_keys("trace", given=state, needed=("task", "messages", "text", "tokens"))
        tokens = state["tokens"]
        return cls(state["task"], tuple(state["messages"]), state["text"], None if tokens is None else tuple(tokens))


Decode = Callable[[Sequence[int]], str]
Traces = Callable[[Sequence[Tree], Decode], list[Trace]]
"""Finished trees in, and what a tokenizer makes of tokens; traces out, in the order of the trees."""

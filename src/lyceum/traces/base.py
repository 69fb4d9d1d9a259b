"""A trace: what the model should have said to a prompt, as fine-tuning takes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lyceum.component import require_keys
from lyceum.policy import Policy
from lyceum.tree import Node, Tree
from lyceum.types import Grade, Message, Origin, Task


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


def as_tree(trace: Trace, policy: Policy) -> Tree:
    """The trace as a teacher's trajectory below its prompt, for fine-tuning, which asks for no reward."""
    tree = Tree(Task(trace.task, trace.messages), [Node(None, policy.render(trace.messages), Origin.PROMPT)])
    tokens = policy.encode(trace.text) if trace.tokens is None else list(trace.tokens)
    leaf = tree.root.add(tokens, Origin.TEACHER, trace.text)
    leaf.grade, leaf.finish = Grade(outcome=0.0), "stop"
    tree.chosen = [leaf]
    return tree

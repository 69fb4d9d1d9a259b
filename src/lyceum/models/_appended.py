"""What a chat template writes after an answer that stands: found on a turn that is put in its place.

Templates rewrite turns that are not the last (they take thoughts out) or write more than the answer (an empty place for
thoughts), and some take a tool's result only after a call. So the answer itself is not shown to the template: a turn
with a word in it is, and what comes after the word is what follows the answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from lyceum.core.types import Message
from lyceum.core.user_files import describe
from lyceum.utils.errors import RecipeError
from lyceum.utils.messages import text_of

Write = Callable[[Sequence[Message], bool], str]
"""The template: messages, and whether it ends where the next answer begins."""


class StandIn(NamedTuple):
    """A turn that is put in an answer's place.

    Attributes:
        calls: how many tools it calls; 0: it says the word.
    """

    calls: int

    def turn(self, word: str, tool: str) -> Message:
        call = {"name": tool, "arguments": {"query": word}}
        calls = [{"id": identity(i), "type": "function", "function": call} for i in range(self.calls)]
        return {"role": "assistant", "content": "", "tool_calls": calls} if calls else _said(word)

    def answered(self, messages: Sequence[Message], tool: str) -> list[Message]:
        """The messages, results as those of the turn's calls."""
        if not self.calls:
            return list(messages)
        found: list[Message] = []
        for i, message in enumerate(messages):
            ids = {"name": tool, "tool_call_id": identity(min(i, self.calls - 1))} if message["role"] == "tool" else {}
            found.append({**ids, **message})
        return found


def identity(number: int) -> str:
    """A call's id; nine letters and digits, as some templates ask for."""
    return f"call{number:05}"


def stand_in(write: Write, asked: Sequence[Message], messages: Sequence[Message], tool: str) -> StandIn:
    """The turn after which a template writes messages of these roles, in an answer's place.

    Raises:
        RecipeError: it refuses them after each, or leaves one of them out.
    """
    refused: RecipeError | None = None
    words = [f"nightingale{i}" for i, _ in enumerate(messages)]
    marked = [{**message, "content": word} for message, word in zip(messages, words, strict=True)]
    results = sum(message["role"] == "tool" for message in messages)
    for found in (StandIn(0), *(StandIn(calls) for calls in dict.fromkeys((results, 1)) if calls and results)):
        try:
            shown = write([*asked, found.turn("blackbird", tool), *found.answered(marked, tool)], True)
        except RecipeError as error:
            refused = refused or error
            continue
        after = shown.rpartition("blackbird")[2] if "blackbird" in shown else ""
        if all(word in after for word in words):
            return found
    roles = ", ".join(dict.fromkeys(repr(message["role"]) for message in messages))
    if refused is not None:
        why = describe(refused.__cause__ or refused)
        raise RecipeError(f"refuses messages of role {roles} after an answer ({why})")
    raise RecipeError(f"leaves out messages of role {roles} after an answer")


def appended(
    write: Write,
    asked: Sequence[Message],
    messages: Sequence[Message],
    tool: str,
    found: StandIn,
    last: str,
    controls: re.Pattern[str],
) -> str:
    """What the template writes after an answer that ends in a control token, or in none.

    Args:
        asked: what stands before the answer, or enough of it.
        tool: name of a tool.
        found: of :func:`stand_in`.
        last: the control token that the answer ends with; empty without one.
    """
    texts = [tool, *(text_of(message["content"]) for message in messages)]
    word = next(word for word in _words() if all(word not in text for text in texts))
    turn = found.turn(word, tool)
    alone = write([*asked, turn], False).rpartition(word)[2]
    after = write([*asked, turn, *found.answered(messages, tool)], True).rpartition(word)[2]
    rest = _shared(alone, after, controls)
    if last and 0 <= (at := after.find(last)) <= len(rest):
        return after[at + len(last) :]
    if not found.calls:
        return after
    # The rest of the call is not the answer's: the last control token is what ends the turn.
    ends = [found.start() for found in controls.finditer(rest)]
    return after[ends[-1] if ends else len(rest) :]


def question(messages: Sequence[Message]) -> list[Message]:
    """What a template has to see before a turn: the system's message and the last question."""
    asked = [i for i, message in enumerate(messages) if message["role"] == "user"]
    if not asked:
        return list(messages)
    return [*(message for message in messages[:1] if asked[-1] and message["role"] != "user"), messages[asked[-1]]]


def _said(word: str) -> Mapping[str, Any]:
    return {"role": "assistant", "content": word}


def _words() -> Iterator[str]:
    yield "blackbird"
    number = 0
    while True:
        yield f"blackbird{(number := number + 1)}"


def beginning(one: str, other: str) -> str:
    """What two texts both begin with."""
    apart = (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return one[: next(apart, min(len(one), len(other)))]


def _shared(one: str, other: str, controls: re.Pattern[str]) -> str:
    """What both begin with, ending in no control token's middle."""
    shared = beginning(one, other)
    inside = (found.start() for found in controls.finditer(other) if found.start() < len(shared) < found.end())
    return shared[: next(inside, len(shared))]

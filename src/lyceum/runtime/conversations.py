"""Requests that resend their history, as paths of a token tree: where in it each one goes on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lyceum.core.tree import Node, Tree
from lyceum.core.types import Message, Origin
from lyceum.models.renderer import RenderedPrompt, Renderer
from lyceum.utils.documents import DocumentError, read_json
from lyceum.utils.messages import text_of
from lyceum.utils.numbers import plain, to_json
from lyceum.utils.seeds import counter_seed

Said = tuple[str, str, tuple[tuple[str, str], ...]]
"""What two messages are compared by: role, text, and calls as (name, arguments)."""


@dataclass(frozen=True)
class Reply:
    """What an episode was answered.

    Attributes:
        conversation: the messages asked with, and the reply.
        tools: that they were asked with, as one text.
        prompt: what it was sampled after.
        node: in which it ends.
    """

    conversation: tuple[Said, ...]
    tools: str
    prompt: RenderedPrompt
    node: Node

    @property
    def answer(self) -> list[int]:
        return self.node.path_tokens()[len(self.prompt.tokens) :]


@dataclass(frozen=True)
class Place:
    """Where a request goes on.

    Attributes:
        asked, tools: its messages as they are compared, and its tools as one text.
        after: the reply that it follows, all of which stands; None: it begins anew, perhaps after some of its tokens.
        keep: how many tokens of earlier ones stand.
    """

    asked: tuple[Said, ...]
    tools: str
    prompt: RenderedPrompt
    after: Reply | None
    keep: int


class Conversations:
    """The requests and replies of one episode.

    A request goes on after the reply whose conversation it repeats, and what was sampled stays as it was sampled: ids
    of calls, white space around a reply and thoughts that were left out do not matter. Where it repeats none, its text
    is compared with theirs; what was resent otherwise is another prompt. Nothing that was sampled is lost by that: each
    reply that no other one follows is a leaf.
    """

    def __init__(self, renderer: Renderer, tree: Tree) -> None:
        self.renderer, self.tree = renderer, tree
        self.replies: list[Reply] = []

    def place(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> Place:
        """Raises RecipeError where the chat template refuses the messages."""
        asked, listed = tuple(map(said, messages)), to_json(tools)
        # The longest first: in a long conversation it is the last one, and the others are not compared.
        for after in sorted(self.replies, key=lambda reply: -len(reply.conversation)):
            length = len(after.conversation)
            if after.tools != listed or length >= len(asked) or asked[:length] != after.conversation:
                continue
            found = self.renderer.follow(after.prompt, after.answer, messages[length:])
            whole = found.keep == len(after.prompt.tokens) + len(after.answer)
            return Place(asked, listed, found.prompt, after if whole else None, found.keep)
        prompt = self.renderer.render(messages, tools)
        best = Place(asked, listed, prompt, None, 0)
        before = [reply for reply in self.replies if prompt.text.startswith(reply.prompt.text)]
        longest = max((len(reply.prompt.text) for reply in before), default=0)
        for reply in (reply for reply in before if len(reply.prompt.text) == longest):
            found = self.renderer.standing(reply.prompt, reply.answer, prompt)
            if found.keep > best.keep:
                whole = found.keep == len(reply.prompt.tokens) + len(reply.answer)
                best = Place(asked, listed, found.prompt, reply if whole else None, found.keep)
        return best

    def node(self, place: Place, messages: Sequence[Message]) -> Node:
        """The tree's node below which the reply is drawn; the same one for the same request."""
        tokens = place.prompt.tokens
        if place.after is None:
            return self.tree.add_prompt(list(tokens), self.renderer.decode(tokens))
        above, new = place.after.node, list(tokens[place.keep :])
        for child in above.children:
            if child.tokens == new and child.origin is not Origin.POLICY:
                return child
        further = messages[len(place.after.conversation) :]
        tool = bool(further) and all(message["role"] == "tool" for message in further)
        child = above.add(new, Origin.TOOL if tool else Origin.PROMPT, self.renderer.decode(new))
        child.address = counter_seed(above.address, child.address)
        return child

    def add(self, place: Place, reply: Message, node: Node) -> Reply:
        """Note a reply, which later requests may go on after."""
        self.replies.append(Reply((*place.asked, said(reply)), place.tools, place.prompt, node))
        return self.replies[-1]

    @property
    def leaves(self) -> list[Node]:
        """The replies that no other one follows, in order."""
        passed = {id(above) for reply in self.replies for above in reply.node.path()[:-1]}
        return [reply.node for reply in self.replies if id(reply.node) not in passed]


def said(message: Message) -> Said:
    """A message as it is compared: by what frameworks keep of it."""
    content = message.get("content")
    text = "" if content is None else text_of(content)
    calls = message.get("tool_calls") or ()
    named = tuple((call["function"]["name"], _arguments(call["function"].get("arguments"))) for call in calls)
    role = message["role"]
    return role, text.strip() if role == "assistant" else text, named


def _arguments(given: Any) -> str:
    """Arguments of a call as one text, the same however its JSON was spaced or ordered."""
    if isinstance(given, str):
        try:
            given = read_json(given)
        except DocumentError:
            return given
    return json.dumps(plain(given), sort_keys=True, ensure_ascii=False, allow_nan=False)

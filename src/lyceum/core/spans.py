"""Spans of a completion's text as spans of its tokens, for any tokenizer.

A token belongs to the step in which it ends. A token without text of its own (a special token that decoding leaves out,
the first bytes of a character, what a tool wrote) belongs to the text that comes after it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate, takewhile
from operator import eq

from lyceum.core.tree import Node
from lyceum.core.types import ASSISTANT

Decode = Callable[[Sequence[int]], str]

NEAR = 8
"""Tokens before a piece of text that it may be decoded after: a decoder may drop the space before its first token, and
a character may begin in them (at most four bytes)."""


class TokenEnds:
    """Where tokens end in the texts of completions. Nodes that several trajectories share are decoded once.

    Args:
        decode: of the tokenizer that the texts were decoded with.
    """

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._piece: dict[int, str] = {}
        self._of_node: dict[int, tuple[Node, list[int]]] = {}

    def of(self, leaf: Node) -> list[int]:
        """Characters of ``leaf.completion`` that are complete after the first k tokens below the prompt, k = 0, 1, ...

        Never decreasing; the first is 0.
        """
        ends, before = [0], []
        for node in leaf.path()[1:]:
            done = ends[-1]
            own = self._below(node, before) if node.origin in ASSISTANT else [0] * len(node.tokens)
            ends += [done + end for end in own]
            before = [*before, *node.tokens][-NEAR:]
        return ends

    def _below(self, node: Node, before: Sequence[int]) -> list[int]:
        # The node is kept beside its ends: the id of one that is gone may be another's.
        known = self._of_node.get(id(node))
        if known is None:
            known = self._of_node[id(node)] = (node, self._ends(node, before))
        return known[1]

    def _ends(self, node: Node, before: Sequence[int]) -> list[int]:
        pieces = [self._text(token) for token in node.tokens]
        if "".join(pieces) == node.text:
            return list(accumulate(map(len, pieces)))
        return text_ends(node.tokens, node.text, self._decode, before)

    def _text(self, token: int) -> str:
        if token not in self._piece:
            self._piece[token] = self._decode([token])
        return self._piece[token]


def text_ends(tokens: Sequence[int], text: str, decode: Decode, before: Sequence[int] = ()) -> list[int]:
    """Characters of a text that are complete after each of the tokens that it was decoded from.

    Args:
        before: tokens in front of them, which the text may have been decoded after.
    """
    for context in (before[-NEAR:], ()) if before else ((),):
        found = _by_window(tokens, text, decode, context)
        if found is not None:
            return found
    # A decoder whose earlier text changes with later tokens: whole beginnings, in quadratic time.
    shared = [_shared(decode(tokens[:k]), text) for k in range(1, len(tokens) + 1)]
    return [*accumulate(shared[:-1], max), len(text)] if shared else []


def _by_window(tokens: Sequence[int], text: str, decode: Decode, before: Sequence[int]) -> list[int] | None:
    """The same in linear time, a few tokens at once; None where the pieces found so are not the text."""
    tokens = [*before, *tokens]
    # [start, read) was decoded already; what follows is decoded together with it, since it may depend on it.
    start, read, done = 0, len(before), 0
    known = decode(tokens[start:read])
    inside = known.endswith("\ufffd")  # the tokens in front end inside a character: none is decoded from there
    known = known.rstrip("\ufffd")
    ends: list[int] = []
    for end in range(len(before) + 1, len(tokens) + 1):
        now = decode(tokens[start:end])
        new, left = now[len(known) :], text[done : done + len(now)]
        shared = _shared(new, left)
        ends.append(done + shared)
        if new and shared == len(new):
            start, read, done, inside = start if inside else read, end, done + shared, False
            known = decode(tokens[start:read])
        elif end - read > NEAR and new:
            return None
    return list(accumulate(ends, max)) if not ends or ends[-1] == len(text) else None


def _shared(a: str, b: str) -> int:
    """Characters with which both begin."""
    return sum(takewhile(bool, map(eq, a, b)))


def token_span(ends: Sequence[int], start: int, stop: int) -> slice:
    """The tokens that end in ``text[start:stop]``; empty where no token does.

    Args:
        ends: of :meth:`TokenEnds.of`.
    Returns:
        Positions below the prompt. Spans that follow each other have slices that do.
    """
    return slice(_tokens_before(ends, start), _tokens_before(ends, stop))


def earned_at(ends: Sequence[int], own: slice, stop: int) -> int:
    """Tokens below the prompt up to the last one of a step, whose reward it gets.

    A step inside a token, where another one ends, is judged with that token.

    Args:
        own: the step's :func:`token_span`.
        stop: the character after it.
    """
    return own.stop if own.stop > own.start else min(bisect_left(ends, stop), len(ends) - 1)


def _tokens_before(ends: Sequence[int], at: int) -> int:
    """Tokens that end at or before a character, without those after them that have no text of their own."""
    return bisect_left(ends, ends[bisect_right(ends, at) - 1])

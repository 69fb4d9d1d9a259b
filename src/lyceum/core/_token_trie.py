"""Nodes' tokens in, unique tokens out: a radix trie, whose tokens become arrays at the end."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lyceum.core.tree import Node
from lyceum.core.types import Origin

ROOT = -1
NO_VERSION = -1

Kind = tuple[Origin, bool, int]
"""What all tokens of a node have in common: who wrote them, whether under another prompt, and which model it was."""


class TokenTrie:
    """The unique tokens of one tree after another, in runs: spans in which each token's parent is the previous token.

    A node is compared with a run span by span, and what a run's tokens have in common is stored once per run, so the
    cost per token is copying and comparing lists, in C. Lists until the end, because nodes come as lists and most are
    too short for arrays to pay off.
    """

    def __init__(self) -> None:
        self._token: list[int] = []
        self._logprob: list[float] = []
        self._version: list[int] = []
        # Per run: its first token, that token's parent, how many tokens are above it, ...
        self._start: list[int] = []
        self._parent: list[int] = []
        self._position: list[int] = []
        self._tree: list[int] = []
        self._kind: list[Kind] = []
        self._drawn: list[bool] = []
        # (token above, or tree; what the first token is) -> first token of each run
        self._below: dict[tuple[int, Kind, int, float, int], int] = {}

    def insert(self, tree: int, parent: int, position: int, node: Node) -> int:
        """Walk or grow the trie by one node's tokens.

        Args:
            tree: number of the node's tree.
            parent: index of the token that the node's first one follows; ROOT for a prompt.
            position: position of the node's first token.
        Returns:
            Index of the node's last token; ``parent`` where it has none.
        Raises:
            ValueError: the policy wrote the node, and not every token has a log-probability and a version.
        """
        token, end = node.tokens, len(node.tokens)
        drawn = node.origin == Origin.POLICY and bool(node.behaviour_logprob)
        logprob = node.behaviour_logprob if drawn else [0.0] * end
        version = node.version if drawn else [NO_VERSION] * end
        if not end == len(logprob) == len(version):
            raise ValueError(f"a node of {end} tokens has {len(logprob)} log-probabilities and {len(version)} versions")
        # Tokens are shared only where everything about them is equal. An engine that computes samples separately gives
        # log-probabilities that differ in the last bits: those tokens stay separate here too.
        kind, at = (node.origin, node.grafted, node.model), 0
        while True:
            alike = self._alike(parent, kind, token, logprob, version, at)
            at, parent = at + alike, parent + alike
            if at == end:
                return parent
            key = (parent if parent >= 0 else -1 - tree, kind, token[at], logprob[at], version[at])
            first = self._below.setdefault(key, len(self._token))
            if first == len(self._token):
                break
            at, parent = at + 1, first
        self._start.append(first)
        self._parent.append(parent)
        self._position.append(position + at)
        self._tree.append(tree)
        self._kind.append(kind)
        self._drawn.append(drawn)
        self._token += token[at:]
        self._logprob += logprob[at:]
        self._version += version[at:]
        return len(self._token) - 1

    def _alike(
        self, parent: int, kind: Kind, token: list[int], logprob: list[float], version: list[int], at: int
    ) -> int:
        """How many of a node's tokens from ``at`` on equal those that follow ``parent`` in its own run."""
        run = bisect_right(self._start, parent) - 1
        if parent == ROOT or kind != self._kind[run]:
            return 0
        after = parent + 1
        run_end = self._start[run + 1] if run + 1 < len(self._start) else len(self._token)
        most = min(run_end - after, len(token) - at)
        # Galloping search: twice as many each time until some differ, then half as many. So the tokens compared are at
        # most a few times the equal ones, however much is left of the node and of the run.
        alike, size, apart = 0, 4, False
        while alike < most and size:
            size = min(size, most - alike)
            a, b = at + alike, after + alike
            here, there = slice(a, a + size), slice(b, b + size)
            if (
                token[here] == self._token[there]
                and logprob[here] == self._logprob[there]
                and version[here] == self._version[there]
            ):
                alike += size
                size *= 1 if apart else 2
            else:
                apart, size = True, size // 2
        return alike

    def columns(self) -> Mapping[str, NDArray[Any]]:
        """Per-token arrays, (T,) each: the columns of ``Forest``, ``grafted`` and ``model``."""
        start, place = np.array(self._start, np.int64), np.arange(len(self._token))
        length = np.diff(start, append=len(place))

        def of_run(values: Sequence[Any], dtype: type) -> NDArray[Any]:
            return np.repeat(np.array(values, dtype), length)

        parent = place - 1
        parent[start] = self._parent
        logprob = np.array(self._logprob, np.float32)
        logprob[~of_run(self._drawn, bool)] = np.nan
        return {
            "token": np.array(self._token, np.int64),
            "parent": parent,
            "position": place - of_run(self._start, np.int64) + of_run(self._position, np.int64),
            "tree": of_run(self._tree, np.int64),
            "origin": of_run([origin for origin, _, _ in self._kind], np.int64),
            "behaviour_logprob": logprob,
            "version": np.array(self._version, np.int64),
            "grafted": of_run([grafted for _, grafted, _ in self._kind], bool),
            "model": of_run([model for _, _, model in self._kind], np.int64),
        }

"""The token tree of one task, rebuilt from its trajectories for drawing: shared prefixes once, one run per branch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class _Piece:
    """A token in the trie; ``starts_node`` if a node of the original tree begins there, which the drawing must show.
    ``stats`` are of the nodes that begin there, by their numbers."""

    text: str
    starts_node: bool
    through: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    below: dict[str, _Piece] = field(default_factory=dict)
    stats: dict[int, dict[str, Any]] = field(default_factory=dict)


def token_tree(rows: Sequence[Mapping[str, Any]], *, most: int = 600) -> list[dict[str, Any]]:
    """Merge the trajectories of one task by their common prefixes, token by token.

    The trajectories of a flat group are siblings below the prompt; what they share beyond it shows only token by token.
    Runs end where trajectories diverge and where a node of the tree begins.

    Args:
        rows: trajectories with ``node_texts`` (the prompt's first) and ``token_texts`` (of the completion); with
            ``nodes`` and ``node_stats`` if a rollout stored statistics on its nodes.
        most: maximum tokens per completion; nodes if the tokens do not spell the text.
    Returns:
        Runs ``{"text", "parent", "rows", "ends"}``, a parent before its children: a flat list, since nested lists of a
        long search are too deep for JSON writers. ``rows`` index the trajectories that pass, ``ends`` those that
        end there. Prompts (several if guidance changed the prompt) have parent -1. ``stats``, if any, are of the nodes
        that begin with the run.
    """
    top = _Piece("", True)
    for i, row in enumerate(rows):
        place = top
        place.through.append(i)
        kept = [json.loads(stats) for stats in row.get("node_stats") or ()]
        for text, nodes in _pieces(row)[: most + 1]:
            key = f"{'|' if place is top else ''}{text}"
            below = place.below.setdefault(key, _Piece(text, bool(nodes)))
            below.starts_node |= bool(nodes)
            below.stats |= {row["nodes"][n]: kept[n] for n in nodes if n < len(kept) and kept[n]}
            below.through.append(i)
            place = below
        place.ends.append(i)
    return _runs(top)


def _pieces(row: Mapping[str, Any]) -> list[tuple[str, list[int]]]:
    """Each piece of text, with the nodes (their indices on the path) that begin in it."""
    nodes, tokens = (
        list(row.get("node_texts") or [row["prompt"], row["completion"]]),
        list(row.get("token_texts") or []),
    )
    found = [(nodes[0], [0])]
    # Tokens that are part of a character decode differently on their own: then only nodes can be drawn.
    # (An end-of-sequence token may be spelled out although the text omits it: it comes last and does no harm.)
    if not tokens or not "".join(tokens).startswith("".join(nodes[1:])):
        return found + [(text, [n]) for n, text in enumerate(nodes[1:], 1)]
    starts, at = list[int](), 0
    for text in nodes[1:]:
        starts.append(at)
        at += len(text)
    at = 0
    for text in tokens:
        found.append((text, [n for n, start in enumerate(starts, 1) if at <= start < at + len(text)]))
        at += len(text)
    return found


def _runs(top: _Piece) -> list[dict[str, Any]]:
    """Join chains of pieces into runs, without recursion: a long search exceeds Python's recursion limit."""
    found: list[dict[str, Any]] = []
    waiting = [(child, -1) for child in reversed(top.below.values())]
    while waiting:
        piece, parent = waiting.pop()
        text, stats = [piece.text], list(piece.stats.values())
        while len(piece.below) == 1 and not piece.ends and not _only(piece).starts_node:
            piece = _only(piece)
            text.append(piece.text)
        found.append({"text": "".join(text), "parent": parent, "rows": piece.through, "ends": piece.ends})
        if stats:
            found[-1]["stats"] = stats
        waiting += [(child, len(found) - 1) for child in reversed(piece.below.values())]
    return found


def _only(piece: _Piece) -> _Piece:
    return next(iter(piece.below.values()))

"""How a trajectory is split into steps: at a separator, after n tokens, or where the policy was uncertain.

A step is the unit of a tree search: one node of the tree, or a chain of nodes where one draw is split at several
points. Every step has a maximum length in tokens, so that a missing separator cannot stall the search.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from lyceum.core.component import Settings
from lyceum.core.needs import Need
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Context, Sampling
from lyceum.utils.seeds import counter_seed
from lyceum.utils.stop_strings import ends_in_new

PARTIAL = "\ufffd"
"""What a decoder writes for a character whose bytes are incomplete."""

RUNS = ("tokens", "behaviour_logprob", "model_logprob", "version", "top", "entropy", "experts")
"""A node's per-token fields; empty where the policy did not write, the last three where nothing asked for them."""


class Steps(Settings):
    """Where one step ends and the next begins."""

    requires: ClassVar = (Need("model_logprob", when=lambda own: own.by == "entropy"),)

    by: Literal["tokens", "lines", "marker", "entropy"] = "tokens"
    """``tokens``: after a fixed number of tokens; ``lines``: at each line's end; ``marker``: after one of the markers;
    ``entropy``: before each token that was drawn with low probability."""
    tokens: int = Field(default=256, ge=1)
    """Maximum tokens per step; with ``tokens`` the length of every step but the last."""
    markers: tuple[str, ...] = ()
    """For ``marker``: texts that end a step; they stay part of it."""
    nats: float = Field(default=1.0, gt=0)
    """For ``entropy``: surprisal threshold (nats): a token with -log p >= this, untempered model, begins a step."""
    shortest: int = Field(default=1, ge=1)
    """For ``entropy``: minimum tokens per step, except the last one of a draw."""

    @model_validator(mode="after")
    def _markers_where_used(self) -> Steps:
        if (self.by == "marker") != bool(self.markers):
            raise ValueError(
                f"markers: got {list(self.markers)} with by '{self.by}'; allowed: one or more texts with by 'marker', "
                "none with the others"
            )
        if "" in self.markers:
            raise ValueError("markers: got an empty text; allowed: texts with at least one character")
        return self

    @property
    def separators(self) -> tuple[str, ...]:
        return ("\n",) if self.by == "lines" else self.markers

    def unseen_in(self, trees: Sequence[Tree]) -> str | None:
        """A warning where none of the chosen separators ever occurred; None otherwise."""
        texts = (leaf.completion for tree in trees for leaf in tree.trajectories)
        if not self.separators or any(separator in text for text in texts for separator in self.separators):
            return None
        names = ", ".join(map(repr, self.separators))
        return f"no trajectory has {names} in it: every step but the last is {self.tokens} tokens long"

    def longest_path(self, sampling: Sampling, depth: int) -> int:
        """Maximum steps per path: ``depth``, or fewer where steps of a fixed length use up all tokens before."""
        return min(depth, -(-sampling.max_completion_tokens // self.tokens)) if self.by == "tokens" else depth

    def cuts(self, model_logprob: Sequence[float]) -> list[int]:
        """Positions inside a draw where it is split, in tokens from its beginning."""
        if self.by != "entropy":
            return []
        found = [0]
        for at, logprob in enumerate(model_logprob):
            if -logprob >= self.nats and at - found[-1] >= self.shortest:
                found.append(at)
        return found[1:]


@dataclass(frozen=True)
class GrownStep:
    """One draw, as the nodes it was split into; ``terminal`` where the trajectory ends with the last of them."""

    nodes: list[Node]
    terminal: bool


async def grow(
    context: Context, node: Node, n: int, steps: Steps, sampling: Sampling, *, depth_left: int
) -> list[GrownStep]:
    """``n`` further steps below a node; the policy writes at most ``sampling.max_completion_tokens`` tokens of a path.

    A trajectory ends at its end of sequence, at one of the sampling's own stops, at its maximum length, and after
    ``depth_left`` nodes. One that runs out of tokens or depth has the finish ``length``, as a whole completion would
    have: a step that ends at a separator there is not a finished answer.
    """
    before, text = node.completion_tokens, node.completion
    left = min(sampling.max_completion_tokens - node.policy_tokens, context.tokens_left(node))
    limit = min(steps.tokens, left)
    separators = tuple(text for text in steps.separators if text not in sampling.stop)
    bounded = sampling.model_copy(update={"max_completion_tokens": limit, "stop": (*sampling.stop, *separators)})
    grown: list[GrownStep] = []
    for drawn in await context.extend(node, n, bounded, keep=True):
        # Where a separator ends in it the engine stopped there, unless the sampling's own stop came in the same token.
        # Either may have begun in the step above, which was truncated.
        now = context.decode([*before, *drawn.tokens])
        at_separator = ends_in_new(text, now, separators) and not ends_in_new(text, now, sampling.stop)
        stopped = drawn.finish == "stop" and not at_separator
        full = len(drawn.tokens) >= left or (drawn.finish == "length" and len(drawn.tokens) < limit)
        nodes = split(drawn, steps.cuts(drawn.model_logprob)[: depth_left - 1])
        out_of_depth = len(nodes) >= depth_left
        terminal = stopped or full or out_of_depth
        if terminal and not stopped:
            nodes[-1].finish = "length"
        write_texts(nodes, context.decode, terminal=terminal)
        grown.append(GrownStep(nodes, terminal))
    return grown


def split(node: Node, cuts: Sequence[int]) -> list[Node]:
    """Split a drawn node into a chain, whose last part is the node itself. The caller sets the texts.

    Args:
        cuts: increasing positions inside the node, in tokens.
    """
    chain: list[Node] = []
    for start, end in pairwise([0, *cuts]):
        chain.append(cut_off(node, end - start))
    return [*chain, node]


def cut_off(node: Node, tokens: int) -> Node:
    """Split a node's first tokens off as its parent, which is returned.

    The node stays the same object with the rest of its tokens, its children and its grade: paths that end in it do not
    change.
    """
    above = node.parent
    if not 0 < tokens < len(node.tokens) or above is None:
        raise ValueError(f"got a cut before token {tokens} of a node of {len(node.tokens)}; allowed: inside, no prompt")
    head = replace(
        node,
        finish=None if node.finish is None else "length",
        children=[node],
        grade=None,
        key=None,
        reward=0.0,
        value=None,
        stats={},
        others=[],
        address=counter_seed(node.address, "head", len(node.path_tokens()) - len(node.tokens) + tokens),
        draws=0,
        **{run: getattr(node, run)[:tokens] for run in RUNS},
    )
    above.children[above.children.index(node)] = head
    node.parent = head
    for run in RUNS:
        setattr(node, run, getattr(node, run)[tokens:])
    return head


def write_texts(chain: Sequence[Node], decode: Callable[[Sequence[int]], str], *, terminal: bool) -> None:
    """Give each node of a chain the text that it adds to the text above it.

    Decoding a step's tokens alone is not enough: some tokenizers drop a space before the first, and a step may end
    inside a character. Such a character is written where it is complete, or at the end of the trajectory.
    """
    tokens = chain[0].parent.completion_tokens if chain[0].parent is not None else []
    done = chain[0].parent.completion if chain[0].parent is not None else ""
    for node in chain:
        tokens = [*tokens, *node.tokens]
        text = decode(tokens)
        if not (terminal and node is chain[-1]):
            text = text.rstrip(PARTIAL)
        node.text = text[len(done) :]
        done += node.text


def step_ends(
    tokens: Sequence[int], model_logprob: Sequence[float], steps: Steps, decode: Callable[[Sequence[int]], str]
) -> list[int]:
    """Ends of a completion's steps, in tokens from its beginning; the last is the completion's own end.

    A step ends where a search that draws step by step would have ended it: at its separator, at its maximum length, or
    before a token that the policy was uncertain of.

    Args:
        model_logprob: log-probability of each token, in nats, untempered model; used only for steps by ``entropy``.
    """
    if not tokens:
        return []
    if steps.by == "entropy":
        return [*steps.cuts(model_logprob), len(tokens)]
    ends: list[int] = []
    start, text = 0, ""
    for end in range(1, len(tokens) + 1):
        now = decode(tokens[:end]) if steps.separators else ""
        if end - start == steps.tokens or ends_in_new(text, now, steps.separators):
            ends.append(end)
            start = end
        text = now
    return ends if ends[-1:] == [len(tokens)] else [*ends, len(tokens)]

"""How a trajectory is cut into steps: at a separator, after so many tokens, or where the policy was unsure.

A step is what a tree search decides about: one node of the tree, or a chain of nodes where one draw is cut at several
points. Every step has a limit in tokens, so that a separator that never comes holds nothing up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from pydantic import Field, model_validator

from lyceum.core.component import Settings
from lyceum.core.settings import Composition
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Context, Sampling
from lyceum.utils.stop_strings import ends_in_new

PARTIAL = "\ufffd"
"""What a decoder writes for a character of which some bytes are still to come."""

RUNS = ("tokens", "behaviour_logprob", "model_logprob", "version")
"""What a node holds one of for each token, or nothing where the policy did not write."""


class Steps(Settings):
    """Where one step ends and the next begins."""

    by: Literal["tokens", "lines", "marker", "entropy"] = "tokens"
    """``tokens``: after so many tokens; ``lines``: at each line's end; ``marker``: behind one of the markers;
    ``entropy``: before each token that was drawn with little probability, where another one might have been."""
    tokens: int = Field(default=256, ge=1)
    """Longest step, in tokens; with ``tokens`` the length of every step but the last."""
    markers: tuple[str, ...] = ()
    """Texts that end a step, which keeps them, for ``marker``."""
    nats: float = Field(default=1.0, gt=0)
    """For ``entropy``: a token whose -log p (nats, of the untempered model) is at least this begins a step."""
    shortest: int = Field(default=1, ge=1)
    """For ``entropy``: fewest tokens of a step, but for the last one of a draw."""

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
        """What to tell whoever chose separators of which none ever occurred; None where all is well."""
        texts = (leaf.completion for tree in trees for leaf in tree.trajectories)
        if not self.separators or any(separator in text for text in texts for separator in self.separators):
            return None
        names = ", ".join(map(repr, self.separators))
        return f"no trajectory has {names} in it: every step but the last is {self.tokens} tokens long"

    def longest_path(self, sampling: Sampling, depth: int) -> int:
        """Most steps of a path: ``depth``, or fewer where steps of a fixed length use all tokens up before."""
        return min(depth, -(-sampling.max_completion_tokens // self.tokens)) if self.by == "tokens" else depth

    def too_small_for_a_path(
        self, kind: str, stage: Composition, sampling: Sampling, depth: int, max_nodes: int | None = None
    ) -> list[str]:
        """A line for each budget of a search that does not hold one path of full length."""
        steps = self.longest_path(sampling, depth)
        tokens = min(sampling.max_completion_tokens, steps * self.tokens)
        limit = stage.max_tokens_per_task
        lines: list[str] = []
        if limit is not None and limit < tokens:
            lines.append(
                f"max_tokens_per_task: got {limit}, but one path of rollout.kind '{kind}' may be {tokens} tokens long; "
                f"allowed: {tokens} or more, or a smaller rollout.sampling.max_completion_tokens"
            )
        if max_nodes is not None and max_nodes < steps:
            lines.append(
                f"rollout.max_nodes: got {max_nodes}, but one path may have {steps} nodes; "
                f"allowed: {steps} or more, or a smaller rollout.depth"
            )
        return lines

    def cuts(self, model_logprob: Sequence[float]) -> list[int]:
        """Places inside a draw where it is cut, in tokens from its beginning."""
        if self.by != "entropy":
            return []
        found = [0]
        for at, logprob in enumerate(model_logprob):
            if -logprob >= self.nats and at - found[-1] >= self.shortest:
                found.append(at)
        return found[1:]


@dataclass(frozen=True)
class Grown:
    """One draw, as the nodes it was cut into; ``terminal`` where the trajectory is over at the last of them."""

    nodes: list[Node]
    terminal: bool


async def grow(
    context: Context, node: Node, n: int, steps: Steps, sampling: Sampling, *, depth_left: int
) -> list[Grown]:
    """``n`` further steps below a node, each of a trajectory of at most ``sampling.max_completion_tokens`` in all.

    A trajectory is over at its end of sequence, at a stop of the sampling's own, at the last token that it may have,
    and after ``depth_left`` nodes. What ends for want of tokens or depth has the finish ``length``, as a whole
    completion would have: a step that ends at a separator there is no finished answer.
    """
    before, text = node.completion_tokens, node.completion
    left = min(sampling.max_completion_tokens - len(before), context.tokens_left(node))
    limit = min(steps.tokens, left)
    separators = tuple(text for text in steps.separators if text not in sampling.stop)
    asked = sampling.model_copy(update={"max_completion_tokens": limit, "stop": (*sampling.stop, *separators)})
    grown: list[Grown] = []
    for drawn in await context.extend(node, n, asked, keep=True):
        # Where a separator ends in it the engine ended it there, unless the sampling's own stop came in the same token.
        # Either may have begun in the step above, which a limit cut off.
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
        grown.append(Grown(nodes, terminal))
    return grown


def split(node: Node, cuts: Sequence[int]) -> list[Node]:
    """Cut a drawn node into a chain, whose last part is the node itself. Texts are written by who cuts.

    Args:
        cuts: rising places inside the node, in tokens.
    """
    chain: list[Node] = []
    for start, end in pairwise([0, *cuts]):
        chain.append(cut_off(node, end - start))
    return [*chain, node]


def cut_off(node: Node, tokens: int) -> Node:
    """Make a node's first tokens its parent, which is returned.

    The node stays the same object with the rest of its tokens, its children and its grade: paths that end in it stay
    what they were.
    """
    above = node.parent
    if not 0 < tokens < len(node.tokens) or above is None:
        raise ValueError(f"got a cut before token {tokens} of a node of {len(node.tokens)}; allowed: inside, no prompt")
    head = replace(
        node,
        finish=None if node.finish is None else "length",
        children=[node],
        grade=None,
        value=None,
        stats={},
        **{run: getattr(node, run)[:tokens] for run in RUNS},
    )
    above.children[above.children.index(node)] = head
    node.parent = head
    for run in RUNS:
        setattr(node, run, getattr(node, run)[tokens:])
    return head


def write_texts(chain: Sequence[Node], decode: Callable[[Sequence[int]], str], *, terminal: bool) -> None:
    """Give nodes below one another the text that they add to what stands above them.

    A step's tokens decoded alone are not that: some tokenizers leave out a space before the first, and a step may end
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

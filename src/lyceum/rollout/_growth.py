"""What rollouts that branch share: continuing many nodes at once, branching inside a node, seeded random numbers,
measures of text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise, takewhile
from random import Random

from lyceum.core.steps import cut_off, write_texts
from lyceum.core.tree import Node
from lyceum.core.types import Context, Sampling
from lyceum.utils.aio import gather
from lyceum.utils.seeds import SeedKey


async def extend_all(
    context: Context,
    requests: Iterable[tuple[Node, int, Sampling]],
    *,
    keep: bool | Callable[[Node, Sampling], bool] = True,
    top: int = 0,
) -> list[list[Node]]:
    """Continue many nodes at once, ``(node, continuations, sampling)`` each, so that they share the engine's batch.

    Args:
        keep: whether the new children will be continued in turn, of all or of each node.
        top: number of most likely tokens to report with each drawn one.
    Returns:
        The new children of each node, in the order of the requests.
    """
    return await gather(
        context.extend(node, n, sampling, keep=keep if isinstance(keep, bool) else keep(node, sampling), top=top)
        for node, n, sampling in requests
    )


async def extend_to_end(context: Context, requests: Iterable[tuple[Node, int, Sampling]]) -> list[Node]:
    """Continue many nodes at once to the ends of their trajectories; requests as above."""
    return [end for ends in await extend_all(context, requests, keep=False) for end in ends]


def together(requests: Iterable[tuple[Node, int]]) -> list[tuple[Node, int]]:
    """Merge the ``(node, continuations)`` requests of nodes with the same tokens into one at the first of them.

    The engine computes tokens shared by the samples of one request only once, but does not share across requests. Other
    nodes with the same tokens are removed unless something hangs below them.
    """
    first: dict[tuple[int, ...], Node] = {}
    count: dict[tuple[int, ...], int] = {}
    for node, n in requests:
        path = tuple(node.path_tokens())
        count[path] = count.get(path, 0) + n
        if first.setdefault(path, node) is not node and not node.children and node.parent is not None:
            node.detach()
    return [(node, count[path]) for path, node in first.items()]


def model_logprobs(leaf: Node) -> list[float]:
    """Model log-probability (nats) of every token below the prompt; 0 where the policy did not write."""
    return [
        logprob
        for node in leaf.path()[1:]
        for logprob in (node.model_logprob if node.model_logprob else [0.0] * len(node.tokens))
    ]


def entropies(leaf: Node) -> list[float]:
    """Entropy (nats) of every token's distribution below the prompt; 0 where the policy did not write."""
    return [nats for node in leaf.path()[1:] for nats in (node.entropy if node.entropy else [0.0] * len(node.tokens))]


def end_before(leaf: Node, place: int, decode: Callable[[Sequence[int]], str]) -> Node:
    """The node on the leaf's path that ends right before its completion's token ``place``, split off where none does.

    Args:
        leaf: a node below a prompt; it keeps its tokens from ``place`` on where it is the one that is split.
        place: 0 is the first token below the prompt, whose node before is the prompt.
        decode: tokens to text.
    Raises:
        ValueError: the completion has no token ``place``.
    """
    path = leaf.path()
    at = place
    for above, node in pairwise(path):
        if at == 0:
            return above
        if at < len(node.tokens):
            return split(node, at, decode)
        at -= len(node.tokens)
    raise ValueError(f"no token {place} in a completion of {len(leaf.completion_tokens)} tokens")


def split(node: Node, at: int, decode: Callable[[Sequence[int]], str]) -> Node:
    """Cut a finished node before its token ``at``: what comes before becomes its parent, which is returned.

    The two texts together are the old text, even where a half decodes differently on its own.
    """
    head = cut_off(node, at)
    write_texts([head], decode, terminal=False)
    same = (a == b for a, b in zip(head.text, node.text, strict=False))
    head.text = head.text[: sum(takewhile(bool, same))]
    node.text = node.text[len(head.text) :]
    return head


def by_counter(context: Context, *key: SeedKey) -> Random:
    """Random numbers that depend on the task's seed and the key only."""
    return Random(context.seed(*key))


def repeats(text: str, characters: int, times: int) -> bool:
    """Whether some substring of ``characters`` characters occurs at least ``times`` times, overlaps counted."""
    seen: dict[str, int] = {}
    for begin in range(len(text) - characters + 1):
        part = text[begin : begin + characters]
        seen[part] = seen.get(part, 0) + 1
        if seen[part] >= times:
            return True
    return False

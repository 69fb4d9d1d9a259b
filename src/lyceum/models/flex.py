"""Attention over packed token trees by torch's ``flex_attention``, for GPUs: no mask as large as the scores.

Numbered depth first, the tokens below a token are an interval: it begins with the token itself, and a token attends to
those whose interval it is in. Blocks of the scores that have no such pair are left out, and those that have only such
pairs need no mask; both are known from the intervals' ends in each block of tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Self, Unpack

from jaxtyping import Bool, Int

from lyceum.models.tree_attention import Scoring
from lyceum.utils.lazy_imports import F, Tensor, torch

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

BLOCK = 128
"""Tokens of a block: what the kernels of torch take at the least."""


class FlexPlan:
    """Attention of every packed token to its own path: implements :class:`~lyceum.models.tree_attention.PathsPlan`.

    The same as :class:`~lyceum.models.tree_attention.TreePlan` to rounding. On a CPU torch has no backward pass of it.

    Args:
        paths, owned_from: as of ``TreePlan``.
    """

    def __init__(self, paths: Sequence[Tensor], owned_from: Sequence[int]) -> None:
        self.paths, self.owned_from = paths, owned_from
        self.order, end, depth = depth_first(paths, owned_from)
        tokens = len(self.order)
        self.size = padded(tokens)
        filled = torch.arange(tokens, self.size)
        # What fills the last block is under itself alone.
        self.end = torch.cat((end, filled + 1))
        self.depth = torch.cat((depth, torch.zeros_like(filled)))
        self.back = torch.empty_like(self.order)
        self.back[self.order] = torch.arange(tokens)
        self._masks: dict[tuple[int | None, int | None], BlockMask] = {}

    def to(self, device: torch.device) -> Self:
        self.order, self.back = self.order.to(device), self.back.to(device)
        self.end, self.depth = self.end.to(device), self.depth.to(device)
        self._masks.clear()
        return self

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, **how: Unpack[Scoring]) -> Tensor:
        q, k, v = (self._sorted(x) for x in (query, key, value))
        cap, sinks = how.get("softcap"), how.get("sinks")
        attended, lse = _attended(
            q,
            k,
            v,
            score_mod=None if cap is None else _capped(cap),
            block_mask=self.mask(how["window"], how.get("chunk")),
            scale=how["scale"],
            enable_gqa=query.shape[1] != key.shape[1],
        )
        if sinks is not None:
            # The sink's share of the softmax is 1 / (1 + exp(lse - sink)), and its value is 0.
            attended = attended * torch.sigmoid(lse - sinks.to(lse)[None, :, None]).unsqueeze(-1).to(attended.dtype)
        packed = attended[0].transpose(0, 1)
        return F.embedding(self.back, packed.flatten(1)).view(len(query), *packed.shape[1:])

    def _sorted(self, x: Tensor) -> Tensor:
        """(T, H, D), packed -> (1, H, size, D), depth first."""
        first = F.embedding(self.order, x.flatten(1)).view(len(self.order), *x.shape[1:])
        return F.pad(first, (0, 0, 0, 0, 0, self.size - len(first))).transpose(0, 1).unsqueeze(0)

    def mask(self, window: int | None, chunk: int | None) -> BlockMask:
        """Which blocks of the scores are computed, and which pairs of tokens in them."""
        wanted = (window, chunk)
        if wanted not in self._masks:
            self._masks[wanted] = self._blocks(window, chunk)
        return self._masks[wanted]

    def _blocks(self, window: int | None, chunk: int | None) -> BlockMask:
        from torch.nn.attention.flex_attention import BlockMask

        end, depth = self.end, self.depth
        begin = torch.arange(self.size, device=end.device)

        def sees(batch: Tensor, head: Tensor, q: Tensor, k: Tensor) -> Tensor:
            seen = (k <= q) & (q < end[k])
            if window is not None:
                seen = seen & (depth[q] - depth[k] < window)
            if chunk is not None:
                seen = seen & (depth[q] // chunk == depth[k] // chunk)
            return seen

        (first, last), (_, ends), (low, high) = (_extremes(x) for x in (begin, end, depth))
        sooner, _ = _extremes(end)
        some: Bool[Tensor, "q k"] = (first[None] <= last[:, None]) & (ends[None] > first[:, None])
        every: Bool[Tensor, "q k"] = (last[None] <= first[:, None]) & (sooner[None] > last[:, None])
        if window is not None:
            some &= low[:, None] - high[None] < window
            every &= high[:, None] - low[None] < window
        if chunk is not None:
            part = low // chunk, high // chunk
            some &= (part[0][:, None] <= part[1][None]) & (part[0][None] <= part[1][:, None])
            every &= (part[0][:, None] == part[1][None]) & (part[0][None] == part[1][:, None])
        lists = [each for blocks in (some & ~every, every) for each in _listed(blocks)]
        return BlockMask.from_kv_blocks(*lists, BLOCK_SIZE=BLOCK, mask_mod=sees)


def depth_first(
    paths: Sequence[Tensor], owned_from: Sequence[int]
) -> tuple[Int[Tensor, " T"], Int[Tensor, " T"], Int[Tensor, " T"]]:
    """A forest's tokens, numbered depth first.

    Args:
        paths, owned_from: as of ``TreePlan``.
    Returns:
        Of each number its packed token, the number after the last token below it, and its place in its paths.
    """
    chains = [row for row, (path, start) in enumerate(zip(paths, owned_from, strict=True)) if start < len(path)]
    owner: dict[int, tuple[int, int]] = {}  # packed token that chains branch off below -> the chain that owns it, where
    branching = {int(paths[row][owned_from[row] - 1]) for row in chains if owned_from[row]}
    below: dict[int, list[tuple[int, int]]] = {row: [] for row in chains}
    roots: list[int] = []
    for row in chains:
        path, start = paths[row], owned_from[row]
        if start:
            above, place = owner[int(path[start - 1])]
            below[above].append((place, row))
        else:
            roots.append(row)
        for place, token in enumerate(path[start:].tolist(), start):
            if token in branching:
                owner[token] = row, place
    # A chain to its end, then what branches off, the deepest first: so each token's own follow it without a gap.
    begins: dict[int, int] = {}
    order: list[int] = []
    count, left = 0, roots[::-1]
    while left:
        row = left.pop()
        begins[row], count = count, count + len(paths[row]) - owned_from[row]
        order.append(row)
        left += [branch for _, branch in sorted(below[row], key=lambda each: each[0])]
    ends: dict[int, int] = {}
    end = torch.empty(count, dtype=torch.long)
    for row in reversed(order):  # what is below a chain comes after it
        start, length = owned_from[row], len(paths[row])
        of_place = torch.full((length - start,), begins[row] + length - start)
        for place, branch in below[row]:
            of_place[: place - start + 1].clamp_(min=ends[branch])
        end[begins[row] : begins[row] + length - start] = of_place
        ends[row] = int(of_place[0])
    tokens = torch.cat([paths[row][owned_from[row] :] for row in order])
    depth = torch.cat([torch.arange(owned_from[row], len(paths[row])) for row in order])
    return tokens, end, depth


def padded(tokens: int) -> int:
    """So many tokens, rounded up to one of few sizes: a kernel is compiled for each."""
    step = BLOCK
    while tokens > 8 * step:
        step *= 2
    return -(-tokens // step) * step


def _extremes(x: Int[Tensor, " T"]) -> tuple[Int[Tensor, " blocks"], Int[Tensor, " blocks"]]:
    of_block = x.view(-1, BLOCK)
    return of_block.amin(1), of_block.amax(1)


def _listed(blocks: Bool[Tensor, "q k"]) -> tuple[Int[Tensor, "1 1 q"], Int[Tensor, "1 1 q k"]]:
    """How many key blocks each query block has, and which, these first."""
    which = blocks.int().argsort(dim=-1, descending=True, stable=True)
    return blocks.sum(-1, dtype=torch.int32)[None, None], which.int()[None, None]


def _capped(cap: float) -> Callable[..., Tensor]:
    def capped(score: Tensor, batch: Tensor, head: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return torch.tanh(score / cap) * cap

    return capped


def _attended(q: Tensor, k: Tensor, v: Tensor, **how: Any) -> tuple[Tensor, Tensor]:
    """Values, weighted, and the logarithm of each query's sum of weights."""
    from torch.nn.attention.flex_attention import AuxRequest

    out, aux = _flex(q.device.type)(q, k, v, **how, return_aux=AuxRequest(lse=True))
    return out, aux.lse


@cache
def _flex(device: str) -> Any:
    """On a GPU it has to be compiled, or it computes all scores; on a CPU that is what it is tested by."""
    from torch.nn.attention.flex_attention import flex_attention

    return flex_attention if device == "cpu" else torch.compile(flex_attention, dynamic=False)

"""A model over plain rows, by transformers' own forward and cache, where branches cannot share what it computes.

Each row is forwarded whole, so nothing is assumed of the layers but that no token depends on those after it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float, Int

from lyceum.models.routers import forwarding
from lyceum.utils.lazy_imports import Tensor, nn, torch

_PADDED_TOKENS = 1 << 14
"""Maximum tokens of padded rows per forward; a longer row goes alone."""


@dataclass(frozen=True)
class ByRows:
    """How a model runs that does not run over token trees.

    Attributes:
        why: why it does not.
        caches: whether its cache gives what the whole row would; else each new token computes its row again.
        pads: whether prompts of several lengths can be in one cache, padded on the left.
        attention: transformers' attention that it samples with, where it is trained over token trees all the same;
            None where it is trained over rows too.
    """

    why: str
    caches: bool = False
    pads: bool = False
    attention: str | None = None


def rows_hidden(
    body: nn.Module, tokens: Int[Tensor, " T"], paths: Sequence[Tensor], owned_from: Sequence[int]
) -> Float[Tensor, "T width"]:
    """Last hidden state of each packed token, by forwarding every path whole, padded on the right.

    Args:
        paths, owned_from: of the plan, see :class:`~lyceum.models.tree_attention.TreePlan`; rows that own nothing are
            left out.
    """
    owning = [row for row, path in enumerate(paths) if owned_from[row] < len(path)]
    found: list[Tensor] = []
    piece: list[int] = []
    for row in owning:
        longest = max(len(paths[other]) for other in (*piece, row))
        if piece and (len(piece) + 1) * longest > _PADDED_TOKENS:
            found += _forwarded(body, tokens, paths, owned_from, piece)
            piece = []
        piece.append(row)
    found += _forwarded(body, tokens, paths, owned_from, piece)
    order = torch.cat([paths[row][owned_from[row] :] for row in owning]).to(tokens.device)
    return torch.cat(found)[torch.empty_like(order).scatter_(0, order, torch.arange(len(order)).to(order))]


def _forwarded(
    body: nn.Module, tokens: Tensor, paths: Sequence[Tensor], owned_from: Sequence[int], rows: Sequence[int]
) -> list[Float[Tensor, "owned width"]]:
    """Hidden states of the tokens that each of these rows owns."""
    # Right padding is after every token that is read, and no token depends on those after it: it needs no mask.
    index = nn.utils.rnn.pad_sequence([paths[row] for row in rows], batch_first=True)
    index = index.to(tokens.device)
    with forwarding(index):
        hidden = body(input_ids=tokens[index], use_cache=False).last_hidden_state
    return [hidden[n, owned_from[row] : len(paths[row])] for n, row in enumerate(rows)]


class RowCache:
    """Rows, and what the model keeps of them, to which each call adds one token per row.

    Args:
        rows: tokens of each; of one length, unless ``how`` pads.
    """

    def __init__(self, body: nn.Module, rows: Sequence[Sequence[int]], how: ByRows, device: torch.device) -> None:
        self.body, self.caches, self._attention = body, how.caches, how.attention
        longest = max(map(len, rows))
        padding = [longest - len(row) for row in rows]
        if any(padding) and not how.pads:
            raise ValueError("rows of several lengths, and padding changes what this model computes")
        filled = [[0] * pads + list(row) for pads, row in zip(padding, rows, strict=True)]
        self.tokens = torch.tensor(filled, dtype=torch.long, device=device).view(len(rows), longest)
        self._padding = torch.tensor(padding, device=device)
        self._cache: dict[str, Any] = {}
        if how.caches and longest:
            self._forward(self.tokens)

    def __len__(self) -> int:
        return len(self.tokens)

    def select(self, rows: Int[Tensor, " r"]) -> None:
        """Keep these rows, in this order; one may be taken more than once."""
        self.tokens, self._padding = self.tokens[rows], self._padding[rows]
        for cache in self._cache.values():
            cache.reorder_cache(rows)

    def feed(self, token: Int[Tensor, " R"]) -> Float[Tensor, "R width"]:
        """Append a token to each row; returns its last hidden state."""
        self.tokens = torch.cat([self.tokens, token[:, None]], 1)
        return self._forward(token[:, None] if self.caches else self.tokens)[:, -1]

    def _forward(self, tokens: Int[Tensor, "R l"]) -> Float[Tensor, "R l width"]:
        with _attending(self.body, self._attention):
            out = self.body(input_ids=tokens, use_cache=self.caches, **self._cache, **self._placed(tokens.shape[1]))
        if self.caches:
            # Models without attention call theirs by another name.
            names = ("past_key_values", "cache_params")
            self._cache = {name: out[name] for name in names if out.get(name) is not None}
            if not self._cache:
                raise NotImplementedError(f"{type(self.body).__name__} returns no cache")
        return out.last_hidden_state

    def _placed(self, new: int) -> dict[str, Tensor]:
        """Which tokens are padding, and the positions of the new ones; nothing where there is none."""
        if not self._padding.any():
            return {}
        at = torch.arange(self.tokens.shape[1], device=self.tokens.device) - self._padding[:, None]
        placed = {"attention_mask": (at >= 0).long()}
        if "position_ids" in inspect.signature(self.body.forward).parameters:
            placed["position_ids"] = at[:, -new:].clamp(min=0)
        return placed


@contextmanager
def _attending(body: Any, attention: str | None) -> Iterator[None]:
    """With this attention of transformers; None: with the one that the model has."""
    if attention is None:
        yield
        return
    config = body.config.get_text_config()
    own = config._attn_implementation
    config._attn_implementation = attention
    try:
        yield
    finally:
        config._attn_implementation = own

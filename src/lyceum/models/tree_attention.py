"""Attention over packed token trees, plugged into any Hugging Face model that supports attention back ends.

A forest is forwarded as one packed sequence of unique tokens: projections, norms and feed-forward layers see each token
once. Only attention needs the tree, and it is done here: each token attends to the tokens on its own path.

The tree is split into *chains*: every row owns the tokens that no earlier row has passed. Earlier rows cover a prefix
of its path, so what it owns is a suffix of its path, and its queries attend causally to the keys of the whole path.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from jaxtyping import Float, Int

from lyceum.models.rows import rows_hidden
from lyceum.utils.lazy_imports import F, Tensor, nn, torch, transformers

IMPLEMENTATION = "lyceum"


class NotOverTrees(NotImplementedError):
    """A model has layers that branches of a token tree cannot share."""


class AttentionPlan(Protocol):
    """How packed tokens attend. One plan serves all layers of one forward."""

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, *, scale: float, window: int | None
    ) -> Tensor:
        """(T, H, D) queries, (T, Hkv, D) keys and values of the packed tokens -> (T, H, D)."""
        ...


class PathsPlan(AttentionPlan, Protocol):
    """A plan that knows the rows it stands for: see :class:`TreePlan`."""

    @property
    def paths(self) -> Sequence[Tensor]: ...

    @property
    def owned_from(self) -> Sequence[int]: ...


def _attention(
    module: nn.Module,
    query: Float[Tensor, "1 H T D"],
    key: Float[Tensor, "1 K T D"],
    value: Float[Tensor, "1 K T E"],
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    lyceum_plan: AttentionPlan | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Float[Tensor, "1 T H D"], None]:
    """The function that transformers calls in each layer; the plan is passed through the model as a keyword."""
    if lyceum_plan is None:
        raise ValueError(
            "this model has lyceum's attention, which needs a plan of its rows (models.policy); to generate with "
            "transformers: AutoModelForCausalLM.from_pretrained(run.model), or save_pretrained and load again"
        )
    if softcap is not None or s_aux is not None or dropout:
        raise NotOverTrees(f"{type(module).__name__}: the tree attention has no soft-capping, no sinks and no dropout")
    if value.shape[-1] != key.shape[-1]:
        raise NotOverTrees(
            f"{type(module).__name__}: keys of width {key.shape[-1]} and values of width {value.shape[-1]}; "
            "the tree attention takes one width for both"
        )
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    packed = (x.squeeze(0).transpose(0, 1) for x in (query, key, value))
    layer = int(module.layer_idx)  # pyright: ignore[reportArgumentType]
    out = lyceum_plan.attend(layer, *packed, scale=scale, window=sliding_window)
    return out.unsqueeze(0), None


def take_over(model: transformers.PreTrainedModel) -> None:
    """Make a model's layers call this module's attention."""
    transformers.AttentionInterface.register(IMPLEMENTATION, _attention)
    text, parts = model.config.get_text_config(), model.config.sub_configs
    if text is model.config:
        model.set_attn_implementation(IMPLEMENTATION)
        return
    # A vision tower, which has no plan, keeps transformers' own.
    own = {name: IMPLEMENTATION if getattr(model.config, name) is text else "sdpa" for name in parts}
    model.set_attn_implementation(own)


def implementations(model: transformers.PreTrainedModel) -> str | dict[str, str] | None:
    """A model's attention as its configuration names it, and that of each of its parts, to be set again."""
    config: Any = model.config
    parts = {name: getattr(config, name)._attn_implementation for name in config.sub_configs if hasattr(config, name)}
    return {"": config._attn_implementation, **parts} if parts else config._attn_implementation


def packed_hidden(
    body: Any, tokens: Int[Tensor, " T"], position: Int[Tensor, " T"], plan: AttentionPlan, **seen: Any
) -> Float[Tensor, "T width"]:
    """Last hidden state of each packed token, of a transformer without its head.

    One whose attention was not replaced forwards the plan's paths as rows instead.

    Args:
        seen: what a :class:`~lyceum.models.sight.Sight`, in the place of a transformer, is told beside the tokens.
    """
    if body.config._attn_implementation != IMPLEMENTATION:
        rows = cast(PathsPlan, plan)  # the engine's plans, which hold keys, are made for models with this attention
        return rows_hidden(body, tokens, rows.paths, rows.owned_from)
    output = body(
        input_ids=tokens.unsqueeze(0), position_ids=position.unsqueeze(0), use_cache=False, lyceum_plan=plan, **seen
    )
    return output.last_hidden_state.squeeze(0)


@dataclass
class _Chains:
    """Chains of similar size, padded to one shape: C chains, Lq queries and Lk keys each."""

    query: Int[Tensor, "C Lq"]
    key: Int[Tensor, "C Lk"]
    query_position: Int[Tensor, "C Lq"]
    square: bool
    ahead: Int[Tensor, "C Lq"] | None = None
    """How many tokens after each query it sees; None: none."""
    masks: dict[tuple[int | None, int, torch.dtype], Tensor] = field(default_factory=dict)

    def mask(self, window: int | None, repeat: int, dtype: torch.dtype) -> Tensor | None:
        """Additive causal mask (C, 1, repeat * Lq, Lk); None where plain causal attention suffices."""
        if self.square and window is None and repeat == 1 and self.ahead is None:
            return None
        wanted = (window, repeat, dtype)
        if wanted not in self.masks:
            at = torch.arange(self.key.shape[1], device=self.key.device)
            distance = self.query_position[:, :, None] - at
            visible = distance >= (0 if self.ahead is None else -self.ahead[:, :, None])
            if window is not None:
                visible &= distance < window
            additive = torch.zeros(visible.shape, dtype=dtype, device=self.key.device)
            additive.masked_fill_(~visible, float("-inf"))
            self.masks[wanted] = additive.repeat(1, repeat, 1).unsqueeze(1)
        return self.masks[wanted]


class TreePlan:
    """Attention of every packed token to its own path.

    Args:
        paths: for each row, the packed index of each token from the root to its leaf.
        cached: for each row, how many leading tokens of the path belong to rows before it (0 computes all).
    """

    def __init__(self, paths: Sequence[Tensor], owned_from: Sequence[int]) -> None:
        self.paths, self.owned_from = paths, owned_from
        chains = [(path, start) for path, start in zip(paths, owned_from, strict=True) if start < len(path)]
        self.buckets: list[_Chains] = []
        order: list[Tensor] = []
        for bucket in _similar(chains):
            self.buckets.append(_pad(bucket))
            own = [path[start:] for path, start in bucket]
            width = self.buckets[-1].query.shape[1]
            order.append(torch.cat([F.pad(x, (0, width - len(x)), value=-1) for x in own]))
        placed = torch.cat(order)
        # Index of each packed token's own output among all padded outputs.
        self.place = torch.empty(int((placed >= 0).sum()), dtype=torch.long)
        self.place[placed[placed >= 0]] = (placed >= 0).nonzero().squeeze(1)

    def to(self, device: torch.device) -> TreePlan:
        self.place = self.place.to(device)
        for chains in self.buckets:
            chains.query, chains.key = chains.query.to(device), chains.key.to(device)
            chains.query_position = chains.query_position.to(device)
        return self

    def two_way(self, ahead: Int[Tensor, " T"]) -> None:
        """Let each token see so many of those after it on its path, too; 0 of text."""
        for chains in self.buckets:
            chains.ahead = ahead[chains.query]
            chains.masks.clear()

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, *, scale: float, window: int | None
    ) -> Tensor:
        heads, dim = query.shape[1:]
        kv_heads = key.shape[1]
        repeat = heads // kv_heads
        outputs = []
        for chains in self.buckets:
            count, length = chains.query.shape
            # embedding and not index_select: the same gather, with a backward that sums in parallel.
            q = F.embedding(chains.query, query.flatten(1)).view(count, length, kv_heads, repeat, dim)
            k = F.embedding(chains.key, key.flatten(1)).view(count, -1, kv_heads, dim).transpose(1, 2)
            v = F.embedding(chains.key, value.flatten(1)).view(count, -1, kv_heads, dim).transpose(1, 2)
            # Query heads that share a key head are stacked along the query axis, so that keys are not repeated.
            q = q.permute(0, 2, 3, 1, 4).reshape(count, kv_heads, repeat * length, dim)
            mask = chains.mask(window, repeat, q.dtype)
            o = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None, scale=scale)
            o = o.view(count, kv_heads, repeat, length, dim).permute(0, 3, 1, 2, 4)
            outputs.append(o.reshape(count * length, heads * dim))
        packed = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
        return packed[self.place].view(-1, heads, dim)


def _similar(chains: list[tuple[Tensor, int]]) -> list[list[tuple[Tensor, int]]]:
    """Group chains so that padding wastes less than another group would cost.

    Chains that start at the root are grouped separately: they need no mask.
    """
    groups: list[list[tuple[Tensor, int]]] = []
    for at_root in (True, False):
        some = sorted((c for c in chains if (c[1] == 0) == at_root), key=lambda c: (len(c[0]) - c[1], len(c[0])))
        group: list[tuple[Tensor, int]] = []
        for chain in reversed(some):
            own = len(chain[0]) - chain[1]
            if group and own < 0.5 * (len(group[0][0]) - group[0][1]) and len(group) * len(group[0][0]) >= 512:
                groups.append(group)
                group = []
            group.append(chain)
        if group:
            groups.append(group)
    return groups


def _pad(chains: list[tuple[Tensor, int]]) -> _Chains:
    lengths = torch.tensor([len(path) for path, _ in chains])
    starts = torch.tensor([start for _, start in chains])
    key = torch.nn.utils.rnn.pad_sequence([path for path, _ in chains], batch_first=True)
    query = torch.nn.utils.rnn.pad_sequence([path[start:] for path, start in chains], batch_first=True)
    at = torch.arange(query.shape[1])
    # A padded query has position 0, where it sees one key: its output is finite and never read.
    position = torch.where(at < (lengths - starts)[:, None], starts[:, None] + at, 0)
    return _Chains(query, key, position, square=bool((starts == 0).all()))

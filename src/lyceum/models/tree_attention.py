"""Attention over packed token trees, plugged into any Hugging Face model that supports attention back ends.

A forest is forwarded as one packed sequence of unique tokens: projections, norms and feed-forward layers see each token
once. Only attention needs the tree, and it is done here: each token attends to the tokens on its own path.

The tree is split into *chains*: every row owns the tokens that no earlier row has passed. Earlier rows cover a prefix
of its path, so what it owns is a suffix of its path, and its queries attend causally to the keys of the whole path.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol, Required, Self, TypedDict, Unpack, cast

from jaxtyping import Float, Int

from lyceum.models.rows import rows_hidden
from lyceum.models.tree_states import BRANCHED, branching
from lyceum.utils.lazy_imports import F, Tensor, nn, torch, transformers

IMPLEMENTATION = "lyceum"
SLIDING, CHUNKED = "sliding_attention", "chunked_attention"
"""Configurations' names of layers that attend within a window, and within chunks."""

MASK_ELEMENTS, BLOCK_ELEMENTS = 1 << 24, 1 << 22
"""The largest mask of whole chains, beyond which queries are taken in blocks, and that of a block: 64 and 16 MiB of
float32."""


class NotOverTrees(NotImplementedError):
    """A model has layers that branches of a token tree cannot share."""


class Scoring(TypedDict, total=False):
    """How a layer weighs the keys of a path, at distance d of the query at position t.

        w = softmax over s = cap(scale * q.k), cap(x) = softcap * tanh(x / softcap)
        of the keys with 0 <= d < window, and t // chunk == (t - d) // chunk

    ``sinks`` (H,) is the score of one more key per query head, whose value is 0.
    """

    scale: Required[float]
    window: Required[int | None]
    chunk: int | None
    softcap: float | None
    sinks: Tensor | None


class AttentionPlan(Protocol):
    """How packed tokens attend. One plan serves all layers of one forward."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, **how: Unpack[Scoring]) -> Tensor:
        """(T, H, D) queries, (N, Hkv, D) keys and (N, Hkv, E) values of the packed tokens -> (T, H, E)."""
        ...


class PathsPlan(AttentionPlan, Protocol):
    """A plan that knows the rows it stands for: see :class:`TreePlan`."""

    @property
    def paths(self) -> Sequence[Tensor]: ...

    @property
    def owned_from(self) -> Sequence[int]: ...


_current: ContextVar[AttentionPlan | None] = ContextVar("plan", default=None)
"""The plan of the forward in progress, for models that do not hand keywords on to their layers."""


def _attention(
    module: nn.Module,
    query: Float[Tensor, "1 H T D"],
    key: Float[Tensor, "1 K N D"],
    value: Float[Tensor, "1 K N E"],
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    lyceum_plan: AttentionPlan | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Float[Tensor, "1 T H E"], None]:
    """The function that transformers calls in each layer; the plan is passed through the model as a keyword."""
    plan = lyceum_plan or _current.get()
    if plan is None:
        raise ValueError(
            "this model has lyceum's attention, which needs a plan of its rows (models.policy); to generate with "
            "transformers: AutoModelForCausalLM.from_pretrained(run.model), or save_pretrained and load again"
        )
    if dropout:
        raise NotOverTrees(f"{type(module).__name__}: the tree attention has no dropout")
    window, chunk = _limits(module)
    how: Scoring = {
        "scale": scaling if scaling is not None else query.shape[-1] ** -0.5,
        "window": window if sliding_window is None else sliding_window,
    }
    if chunk is not None:
        how["chunk"] = chunk
    if softcap is not None:
        how["softcap"] = softcap
    if s_aux is not None:
        how["sinks"] = s_aux
    packed = (x.squeeze(0).transpose(0, 1) for x in (query, key, value))
    # Zamba's layers share one, which has no number.
    layer = -1 if module.layer_idx is None else int(module.layer_idx)  # pyright: ignore[reportArgumentType]
    out = plan.attend(layer, *packed, **how)
    return out.unsqueeze(0), None


def _limits(module: Any) -> tuple[int | None, int | None]:
    """Window and chunk that a layer attends within by its configuration: transformers may put them in a mask alone."""
    kinds = getattr(module.config, "layer_types", None) or ()
    kind = kinds[module.layer_idx] if SLIDING in kinds or CHUNKED in kinds else None
    window = module.config.sliding_window if kind == SLIDING else None
    return window, module.config.attention_chunk_size if kind == CHUNKED else None


def take_over(model: transformers.PreTrainedModel) -> bool:
    """Make a model's layers call this module's attention; returns whether transformers can."""
    transformers.AttentionInterface.register(IMPLEMENTATION, _attention)
    text, parts = model.config.get_text_config(), model.config.sub_configs
    if text is model.config:
        model.set_attn_implementation(IMPLEMENTATION)
        return text._attn_implementation == IMPLEMENTATION
    # A vision tower, which has no plan, keeps transformers' own.
    own = {name: IMPLEMENTATION if getattr(model.config, name) is text else "sdpa" for name in parts}
    model.set_attn_implementation(own)
    return text._attn_implementation == IMPLEMENTATION


def implementations(model: transformers.PreTrainedModel) -> str | dict[str, str] | None:
    """A model's attention as its configuration names it, and that of each of its parts, to be set again."""
    config: Any = model.config
    # Gemma 4 has none for a tower that it was loaded without.
    parts = {name: part for name in config.sub_configs if (part := getattr(config, name, None)) is not None}
    own = config._attn_implementation
    return {"": own, **{name: part._attn_implementation for name, part in parts.items()}} if parts else own


class PackedCache:
    """In the place of transformers' cache: it keeps nothing, and says how many tokens come before each packed one.

    Where layers count positions by the length of the cache and a range over the tokens, the sum is right.
    """

    layers, is_initialized, is_compileable = (), True, False

    def __init__(self, position: Int[Tensor, " T"]) -> None:
        self._before = position - torch.arange(len(position), device=position.device)

    def get_seq_length(self, layer_idx: int = 0) -> Int[Tensor, " T"]:
        return self._before

    def update(self, key: Tensor, value: Tensor, layer_idx: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        return key, value


def packed_hidden(
    body: Any, tokens: Int[Tensor, " T"], position: Int[Tensor, " T"], plan: AttentionPlan, **seen: Any
) -> Float[Tensor, "T width"]:
    """Last hidden state of each packed token, of a transformer without its head.

    One whose attention was not replaced forwards the plan's paths as rows instead.

    Args:
        seen: what a :class:`~lyceum.models.sight.Sight`, in the place of a transformer, is told beside the tokens; and
            the cache, where it is not the plan alone that keeps tokens.
    """
    config = body.config.get_text_config()
    if config._attn_implementation != IMPLEMENTATION:
        rows = cast(PathsPlan, plan)  # the engine's plans, which hold keys, are made for models with this attention
        return rows_hidden(body, tokens, rows.paths, rows.owned_from)
    if getattr(config, "attn_temperature_tuning", None):  # by positions that the layer counts itself
        seen.setdefault("past_key_values", PackedCache(position))
    with _under(plan), branching(plan, tokens.device) if getattr(body, BRANCHED, False) else nullcontext():
        output = body(
            input_ids=tokens.unsqueeze(0), position_ids=position.unsqueeze(0), use_cache=False, lyceum_plan=plan, **seen
        )
    return output.last_hidden_state.squeeze(0)


@contextmanager
def _under(plan: AttentionPlan) -> Iterator[None]:
    token = _current.set(plan)
    try:
        yield
    finally:
        _current.reset(token)


@dataclass
class _Chains:
    """Chains of similar size, padded to one shape: C chains, Lq queries and Lk keys each."""

    query: Int[Tensor, "C Lq"]
    key: Int[Tensor, "C Lk"]
    query_position: Int[Tensor, "C Lq"]
    starts: Sequence[int]
    lengths: Sequence[int]
    """Where each chain begins in its path, and how many tokens it has."""
    ahead: Int[Tensor, "C Lq"] | None = None
    """How many tokens after each query it sees; None: none."""
    masks: dict[tuple[int | None, int | None, int, int, torch.dtype], Tensor] = field(default_factory=dict)

    def mask(
        self,
        window: int | None,
        repeat: int,
        dtype: torch.dtype,
        chunk: int | None = None,
        *,
        always: bool = False,
        sinks: int = 0,
    ) -> Tensor | None:
        """Additive causal mask (C, 1, repeat * Lq, Lk + sinks); None where plain causal attention suffices.

        Args:
            always: whether there is a mask even then.
            sinks: keys behind the others that every query sees.
        """
        if repeat == 1 and self.causal(window, chunk) and not always:
            return None
        wanted = (window, chunk, repeat, sinks, dtype)
        if wanted not in self.masks:
            at = torch.arange(self.key.shape[1], device=self.key.device)
            distance = self.query_position[:, :, None] - at
            visible = distance >= (0 if self.ahead is None else -self.ahead[:, :, None])
            if window is not None:
                visible &= distance < window
            if chunk is not None:
                visible &= (self.query_position // chunk)[:, :, None] == at // chunk
            additive = torch.zeros(visible.shape, dtype=dtype, device=self.key.device)
            additive.masked_fill_(~visible, float("-inf"))
            self.masks[wanted] = F.pad(additive, (0, sinks)).repeat(1, repeat, 1).unsqueeze(1)
        return self.masks[wanted]

    def causal(self, window: int | None, chunk: int | None) -> bool:
        """Whether each query sees all keys up to its own, and their first is the path's."""
        return not any(self.starts) and window is None and chunk is None and self.ahead is None

    def block(self, chain: int, queries: slice, window: int | None, chunk: int | None) -> tuple[_Chains, slice]:
        """A run of a chain's queries as a chain of its own, and the keys of the path that they see."""
        first, last = self.starts[chain] + queries.start, self.starts[chain] + queries.stop
        begin = 0 if window is None else max(0, first - window + 1)
        if chunk is not None:
            begin = max(begin, first // chunk * chunk)
        end = last if self.ahead is None else self.starts[chain] + self.lengths[chain]
        keys, of_chain = slice(begin, end), slice(chain, chain + 1)
        ahead = None if self.ahead is None else self.ahead[of_chain, queries]
        at = self.query_position[of_chain, queries] - begin
        query, key = self.query[of_chain, queries], self.key[of_chain, keys]
        return _Chains(query, key, at, [first], [last - first], ahead), keys


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

    def to(self, device: torch.device) -> Self:
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

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, **how: Unpack[Scoring]) -> Tensor:
        heads, dim = query.shape[1:]
        kv_heads, wide = key.shape[1], value.shape[2]
        repeat = heads // kv_heads
        outputs = []
        for chains in self.buckets:
            count, length = chains.query.shape
            # embedding and not index_select: the same gather, with a backward that sums in parallel.
            q = F.embedding(chains.query, query.flatten(1)).view(count, length, kv_heads, repeat, dim)
            k = F.embedding(chains.key, key.flatten(1)).view(count, -1, kv_heads, dim).transpose(1, 2)
            v = F.embedding(chains.key, value.flatten(1)).view(count, -1, kv_heads, wide).transpose(1, 2)
            q = q.permute(0, 2, 3, 1, 4)
            large = repeat * chains.query.numel() * chains.key.shape[1] > MASK_ELEMENTS
            o = (_in_blocks if large else _of_chains)(chains, q, k, v, how)
            outputs.append(o.permute(0, 3, 1, 2, 4).reshape(count * length, heads * wide))
        packed = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
        return packed[self.place].view(-1, heads, wide)


def _of_chains(
    chains: _Chains,
    q: Float[Tensor, "C K R q D"],
    k: Float[Tensor, "C K k D"],
    v: Float[Tensor, "C K k E"],
    how: Scoring,
) -> Float[Tensor, "C K R q E"]:
    """Each of R query heads that share a key head, under one mask of all queries and keys."""
    count, kv_heads, repeat, length, dim = q.shape
    softcap, sinks = how.get("softcap"), how.get("sinks")
    # Query heads that share a key head are stacked along the query axis, so that keys are not repeated.
    q = q.reshape(count, kv_heads, repeat * length, dim)
    of_query = None if sinks is None else sinks.view(kv_heads, repeat).repeat_interleave(length, 1)
    seen = int(sinks is not None and softcap is None)
    always = softcap is not None or sinks is not None
    mask = chains.mask(how["window"], repeat, q.dtype, how.get("chunk"), always=always, sinks=seen)
    if softcap is not None and mask is not None:
        o = _capped(q, k, v, mask, how["scale"], softcap, of_query)
    else:
        o = _fused(q, k, v, mask, how["scale"], of_query)
    return o.view(count, kv_heads, repeat, length, -1)


def _in_blocks(
    chains: _Chains,
    q: Float[Tensor, "C K R q D"],
    k: Float[Tensor, "C K k D"],
    v: Float[Tensor, "C K k E"],
    how: Scoring,
) -> Float[Tensor, "C K R q E"]:
    """The same without a mask that grows with the square of the length: causal where that is all, and else a block of a
    chain's queries at a time over the keys that these see, computed again in the backward pass.
    """
    from torch.utils.checkpoint import checkpoint

    length, (repeat, own) = k.shape[2], q.shape[2:4]
    if how["window"] is not None and how["window"] >= length:
        how = {**how, "window": None}
    bare = how.get("softcap") is None and how.get("sinks") is None
    if bare and chains.causal(how["window"], how.get("chunk")):
        return _fused(q.flatten(1, 2), k, v, None, how["scale"], None).unflatten(1, (-1, repeat))
    size = max(16, BLOCK_ELEMENTS // (repeat * length))
    found: list[Tensor] = []
    # Parted once, and not a slice at a time, whose gradient would be as large as the whole.
    for chain, (queries, keys, values) in enumerate(zip(q.unbind(), k.unbind(), v.unbind(), strict=True)):
        there = chains.lengths[chain]
        done: list[Tensor] = []
        for first, block in zip(range(0, there, size), queries[:, :, :there].split(size, 2), strict=True):
            of = (chains, chain, first, block, keys, values, how)
            part = checkpoint(_of_block, *of, use_reentrant=False) if torch.is_grad_enabled() else _of_block(*of)
            done.append(cast(Tensor, part))
        found.append(F.pad(torch.cat(done, 2), (0, 0, 0, own - there)))
    return torch.stack(found)


def _of_block(
    chains: _Chains,
    chain: int,
    first: int,
    q: Float[Tensor, "K R q D"],
    k: Float[Tensor, "K k D"],
    v: Float[Tensor, "K k E"],
    how: Scoring,
) -> Float[Tensor, "K R q E"]:
    """A run of a chain's queries from ``first`` on, over the path's keys."""
    part, keys = chains.block(chain, slice(first, first + q.shape[2]), how["window"], how.get("chunk"))
    return _of_chains(part, q[None], k[None, :, keys], v[None, :, keys], how)[0]


def _fused(
    q: Float[Tensor, "C H q D"],
    k: Float[Tensor, "C K k D"],
    v: Float[Tensor, "C K k E"],
    mask: Float[Tensor, "C 1 q keys"] | None,
    scale: float,
    sinks: Float[Tensor, "H q"] | None,
) -> Float[Tensor, "C H q E"]:
    """By torch's own kernels, which hold no scores; they take one width for keys and values.

    Args:
        mask: over the sink, too, where there is one.
    """
    wide = v.shape[-1]
    if sinks is not None:
        # One key more, and one dimension: the queries' is the sink's score, the keys' 0, and 1 of that key. Dimensions
        # are added by eight, since the kernels of GPUs take widths of that alone.
        score = (sinks / scale).to(q)[None, :, :, None].expand(len(q), -1, -1, -1)
        q, k = torch.cat((q, F.pad(score, (0, 7))), -1), F.pad(k, (0, 8, 0, 1))
        k[..., -1, -8] = 1
        v = F.pad(v, (0, 0, 0, 1))
    if (width := q.shape[-1]) < v.shape[-1]:
        q, k = F.pad(q, (0, v.shape[-1] - width)), F.pad(k, (0, v.shape[-1] - width))
    elif width > wide:
        v = F.pad(v, (0, width - wide))
    grouped = q.shape[1] != k.shape[1]
    o = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None, scale=scale, enable_gqa=grouped)
    return o[..., :wide]


def _capped(
    q: Float[Tensor, "C K q D"],
    k: Float[Tensor, "C K k D"],
    v: Float[Tensor, "C K k E"],
    mask: Float[Tensor, "C 1 q k"],
    scale: float,
    softcap: float,
    sinks: Float[Tensor, "K q"] | None,
) -> Float[Tensor, "C K q E"]:
    """Scores that are capped, which no kernel of torch's computes."""
    scores = torch.tanh(q @ k.transpose(2, 3) * scale / softcap) * softcap + mask
    return weights_of(scores, None if sinks is None else sinks[None, :, :, None]) @ v


def weights_of(scores: Float[Tensor, "*B q k"], sinks: Tensor | None) -> Float[Tensor, "*B q k"]:
    """Softmax over keys, and over the sink where there is one, in float32 at least.

    Args:
        sinks: its score, to be expanded to (..., q, 1).
    """
    if sinks is not None:
        scores = torch.cat((scores, sinks.to(scores).expand(*scores.shape[:-1], 1)), -1)
    weights = torch.softmax(scores, -1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(scores.dtype)
    return weights if sinks is None else weights[..., :-1]


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
    return _Chains(query, key, position, starts.tolist(), (lengths - starts).tolist())

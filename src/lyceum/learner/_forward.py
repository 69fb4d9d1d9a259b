"""The learner's forward passes over a forest, in one of two layouts that agree to rounding.

``tree``: every unique token goes through the model once, and its outputs are gathered to each row that passes it.
``rows``: every row is forwarded whole, padded on the right, as in other trainers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Unpack

import numpy as np
from jaxtyping import Bool, Float, Int

from lyceum.core.forest import Forest
from lyceum.core.types import ASSISTANT, FrozenName, Origin, Reduction, ViewedReduction
from lyceum.models.frozen import FrozenModel
from lyceum.models.packed_paths import PackedPaths
from lyceum.models.policy import Beside, Policy, token_outputs
from lyceum.models.routers import Routing, routed
from lyceum.models.tree_attention import MASK_ELEMENTS, Scoring, TreePlan
from lyceum.utils.lazy_imports import F, Tensor, nn, torch

Layout = Literal["tree", "rows"]


class RowsPlan:
    """Attention of (R, L) padded rows, flattened: plain causal attention, since padding is on the right."""

    def __init__(self, rows: int, length: int) -> None:
        self.rows, self.length = rows, length
        self.ahead: Tensor | None = None

    @property
    def paths(self) -> Sequence[Tensor]:
        return torch.arange(self.rows * self.length).split(self.length)

    @property
    def owned_from(self) -> Sequence[int]:
        return [0] * self.rows

    @cached_property
    def _tree(self) -> TreePlan:
        tree = TreePlan(self.paths, self.owned_from)
        if self.ahead is not None:
            tree.two_way(self.ahead.flatten())
        return tree

    def two_way(self, ahead: Int[Tensor, " T"]) -> None:
        """As in :class:`~lyceum.models.tree_attention.TreePlan`."""
        self.ahead = ahead.view(self.rows, 1, self.length, 1)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, **how: Unpack[Scoring]) -> Tensor:
        scale, window = how["scale"], how["window"]
        masked = self.ahead is not None or (window is not None and window < self.length)
        # What the tree attention alone has, of which rows are one case.
        if len(how) > 2 or value.shape != key.shape or (masked and self.length**2 > MASK_ELEMENTS):
            return self._tree.to(query.device).attend(layer, query, key, value, **how)
        q, k, v = (x.view(self.rows, self.length, *x.shape[1:]).transpose(1, 2) for x in (query, key, value))
        mask = None
        if masked:
            at = torch.arange(self.length, device=q.device)
            distance = at[:, None] - at
            mask = distance >= (0 if self.ahead is None else -self.ahead)
            if window is not None:
                mask &= distance < window
        grouped = q.shape[1] != k.shape[1]
        o = F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=mask is None, scale=scale, enable_gqa=grouped
        )
        return o.transpose(1, 2).reshape(-1, *query.shape[1:])


@dataclass(frozen=True)
class RowOutputs:
    """(R, L) each, 0 outside the wanted tokens; None where not requested. ``excluded``: see ``TokenOutputs``, without
    gradient. ``columns``: results of the reductions by name, (R, L) or (R, L, n). ``auxiliary``: what the forward adds
    to the loss."""

    logprob: Tensor
    entropy: Tensor | None = None
    value: Tensor | None = None
    excluded: Tensor | None = None
    columns: Mapping[str, Tensor] = field(default_factory=dict)
    auxiliary: Tensor | None = None

    def tensors(self) -> dict[str, Tensor]:
        """All that may have a gradient, by name."""
        of_rows = {"logprob": self.logprob, "entropy": self.entropy, "value": self.value, **self.columns}
        return {name: x for name, x in of_rows.items() if x is not None}

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> RowOutputs:
        """The inverse of :meth:`tensors`."""
        columns = dict(tensors)
        logprob = columns.pop("logprob")
        return cls(logprob, columns.pop("entropy", None), columns.pop("value", None), columns=columns)


def row_outputs(
    policy: Policy,
    forest: Forest,
    wanted: Bool[Tensor, "R L"],
    *,
    layout: Layout,
    needs: frozenset[str] = frozenset(),
    value_head: nn.Module | None = None,
    reductions: Sequence[Reduction] = (),
    frozen: Mapping[FrozenName, FrozenModel] | None = None,
    routing: Routing | None = None,
) -> RowOutputs:
    """Forward a forest and lay the outputs of the wanted tokens out as rows.

    Args:
        wanted: tokens whose outputs are needed; never a row's first token, which nothing predicts.
        needs: any of ``entropy``, ``value``; log-probabilities always. Those are of logits divided by the forest's
            temperature.
        value_head: hidden state -> one value; needed for ``value``.
        reductions: what else is made of whole distributions.
        frozen: the models that the reductions read, by name.
        routing: where the policy's routers send tokens.
    """
    place, token, before, index = _tree_places(forest, wanted) if layout == "tree" else _row_places(forest, wanted)

    def hidden_before(policy: Policy) -> Tensor:
        if policy.shown is not None:
            return _shown_hidden(policy, forest, index)
        hidden = packed_hidden(policy, forest, layout)
        return hidden[before.to(hidden.device)]

    viewed: dict[str, Tensor] = {}
    direct: list[Reduction] = []
    allowed = None if forest.constraint is None else allowed_bits(forest, wanted, index)
    for reduction in reductions:
        if not isinstance(reduction, ViewedReduction):
            direct.append(reduction)
            continue
        with torch.set_grad_enabled(torch.is_grad_enabled() and not reduction.once):
            with policy.showing(reduction.view(policy)):
                hidden = hidden_before(policy)
            bits = None if allowed is None else allowed.to(hidden.device)
            at = {"temperature": forest.temperature, "reductions": [reduction], "allowed": bits}
            viewed |= token_outputs(policy, hidden, token.to(hidden.device), **at).columns
    beside: dict[FrozenName, Beside] = {}
    read = {name for reduction in direct for name in reduction.models}
    for name, model in (frozen or {}).items():
        if name in read:
            with torch.no_grad(), model.loaded() as other:
                beside[name] = Beside(hidden_before(other), model.head)
    with nullcontext() if routing is None else routed(routing):
        before_hidden = hidden_before(policy)  # after theirs: a frozen model may borrow the policy's adapters
    device = before_hidden.device
    out = token_outputs(
        policy,
        before_hidden,
        token.to(device),
        temperature=forest.temperature,
        entropy="entropy" in needs,
        reductions=direct,
        frozen=beside,
        allowed=None if allowed is None else allowed.to(device),
    )
    value = None
    if "value" in needs:
        if value_head is None:
            raise ValueError("values are needed, and there is no value head")
        # The head is in float32 whatever the model's dtype, so that small updates are not lost.
        value = value_head(before_hidden.float()).squeeze(-1).float()
    row, position = (index.to(device) for index in wanted.nonzero(as_tuple=True))  # a mask there would be waited for
    spread = place[wanted].to(device)

    def rows_of(x: Tensor) -> Tensor:
        return x.new_zeros(*wanted.shape, *x.shape[1:]).index_put((row, position), x[spread])

    return RowOutputs(
        rows_of(out.logprob),
        None if out.entropy is None else rows_of(out.entropy),
        None if value is None else rows_of(value),
        None if out.excluded is None else rows_of(out.excluded),
        {name: rows_of(column) for name, column in {**viewed, **out.columns}.items()},
    )


def packed_hidden(policy: Policy, forest: Forest, layout: Layout) -> Float[Tensor, "T width"]:
    """Last hidden states of the tokens, packed as the layout has them."""
    return policy.forest_hidden(forest) if layout == "tree" else _rows_hidden(policy, forest)


def still_needed(reductions: Iterable[Reduction], forest: Forest) -> list[Reduction]:
    """Those that an update computes: not those whose results are needed once, and are there."""
    there = forest.columns.keys()
    return [each for each in reductions if not each.once or not {f"old_{name}" for name in each.once} <= there]


def joined(pieces: Iterable[RowOutputs]) -> RowOutputs:
    """The outputs of several pieces as one, padded on the right: leaves, whose gradient is that of the loss."""
    parts = [piece.tensors() for piece in pieces]
    width = max(part["logprob"].shape[1] for part in parts)

    def of(name: str) -> Tensor:
        found = [part[name] for part in parts]
        ends = ((0, 0) * (x.dim() - 2) + (0, width - x.shape[1]) for x in found)
        return torch.cat([F.pad(x, end) for x, end in zip(found, ends, strict=True)]).requires_grad_()

    whole = {name: of(name) for name in parts[0]}
    logprob, entropy, value = whole.pop("logprob"), whole.pop("entropy", None), whole.pop("value", None)
    return RowOutputs(logprob, entropy, value, columns=whole)


def send_back(out: RowOutputs, whole: RowOutputs, first: int) -> None:
    """Send the gradient that a loss left on ``whole`` back through a piece, whose rows begin there with ``first``, and
    that of what the piece itself adds to the loss."""
    outputs: list[Tensor] = []
    gradients: list[Tensor | None] = []
    leaves = whole.tensors()
    for name, output in out.tensors().items():
        gradient = leaves[name].grad
        if gradient is not None:
            outputs.append(output)
            gradients.append(gradient[first : first + output.shape[0], : output.shape[1]])
    if out.auxiliary is not None:
        outputs.append(out.auxiliary)
        gradients.append(None)
    torch.autograd.backward(outputs, gradients)


Places = tuple[Int[Tensor, "R L"], Int[Tensor, " k"], Int[Tensor, " k"], Int[Tensor, " k"]]
"""(index of the computed token (of k) at each position of the rows; their ids; packed index of the token before; their
index in the forest)."""


def _tree_places(forest: Forest, wanted: Bool[Tensor, "R L"]) -> Places:
    rows = forest.rows()
    needed = torch.zeros(forest.n_tokens, dtype=torch.bool)
    needed[rows.index[wanted]] = True
    tokens = needed.nonzero().squeeze(1)
    number = needed.cumsum(0) - 1
    return number[rows.index], forest.token[tokens], forest.parent[tokens], tokens


def _row_places(forest: Forest, wanted: Bool[Tensor, "R L"]) -> Places:
    number = wanted.flatten().cumsum(0).view_as(wanted) - 1
    flat = wanted.flatten().nonzero().squeeze(1)
    tokens = forest.rows().index[wanted]
    return number, forest.token[tokens], flat - 1, tokens


def allowed_bits(forest: Forest, wanted: Bool[Tensor, "R L"], index: Int[Tensor, " k"]) -> Int[Tensor, "k words"]:
    """The tokens that the forest's constraint allowed where each was written, as packed bits; all of them where the
    policy did not write it.

    The states are rebuilt from the tokens that the assistant wrote since anyone else did, once for each token that
    several rows share.

    Raises:
        ValueError: the policy wrote one that is not allowed.
    """
    assert forest.constraint is not None
    rows, first_row = forest.rows(), forest.first_row
    length, words = forest.row_length.tolist(), len(forest.constraint.begin().allowed())
    bits = np.full((forest.n_tokens, words), -1, np.int32)
    assistant = torch.isin(forest.origin, torch.tensor([int(origin) for origin in ASSISTANT]))
    policy = forest.origin == int(Origin.POLICY)
    for row in range(forest.n_rows):
        path = rows.index[row, : length[row]]
        needed = wanted[row, : length[row]] & policy[path] & (first_row[path] == row)
        state, behind = forest.constraint.begin(), list[int]()  # tokens that the state has yet to take
        columns = (path, forest.token[path], assistant[path], needed)
        for t, token, written, need in zip(*(column.tolist() for column in columns), strict=True):
            if not written:
                state, behind = forest.constraint.begin(), []
                continue
            if need:
                fits = state.advance(behind)
                bits[t] = state.allowed() if fits else 0
                if not bits[t, token // 32] >> (token % 32) & 1:
                    raise ValueError(f"the policy wrote token {token} of a path, which the constraint does not allow")
                behind = []
            behind.append(token)
    return torch.from_numpy(bits)[index]


def _rows_hidden(policy: Policy, forest: Forest) -> Tensor:
    rows = forest.rows()
    count, length = rows.index.shape
    tokens = rows.gather(forest.token)
    position = torch.arange(length, device=policy.device).repeat(count)
    seen: dict[str, Any] = {}
    if policy.sight is not None and (shift := policy.sight.rows_shift(tokens)) is not None:
        seen["shift"] = shift.flatten().to(policy.device)
    return policy.hidden(tokens.flatten().to(policy.device), position, RowsPlan(count, length), **seen)


def _shown_hidden(policy: Policy, forest: Forest, index: Int[Tensor, " k"]) -> Float[Tensor, "k width"]:
    """Hidden state before each of these tokens, of a policy that is shown others before the completions.

    A token keeps its distance from its row's end: what is shown differs before it alone.
    """
    assert policy.shown is not None
    rows, in_row = forest.rows(), forest.first_row[index]
    trie, start, lengths = PackedPaths(), dict[int, Tensor](), dict[int, int]()
    for row in in_row.unique().tolist():
        length = int(forest.row_length[row])
        trie.add(policy.shown(forest.token[rows.index[row, :length]].tolist()))
        start[row], lengths[row] = torch.tensor(trie.rows[-1]), length
    places = zip(in_row.tolist(), forest.position[index].tolist(), strict=True)
    before = torch.stack([start[row][at - lengths[row] - 1] for row, at in places])
    return trie.hidden(policy.backbone, policy.device)[before.to(policy.device)]


def choose_layout(forest: Forest) -> Layout:
    """The cheaper layout, by tokens through the model.

    The tree costs a tenth more per token (gathering keys along paths): measured in ``benchmarks/layout.py``.
    """
    rows = forest.rows()
    return "tree" if 1.1 * forest.n_tokens <= rows.index.numel() else "rows"


def micro_batches(
    forest: Forest, rows: Int[Tensor, " r"], max_tokens: int, *, shared: bool = True
) -> Iterator[Int[Tensor, " m"]]:
    """Split rows into runs whose unique tokens fit a budget; a row longer than it goes alone.

    Rows of one tree stay together where they fit, so that shared tokens are computed once.

    Args:
        shared: whether they are; a model over rows computes each row whole, and its tokens count for each.
    """
    for run in _runs(forest, [[row] for row in rows.tolist()], max_tokens, shared):
        yield torch.tensor(run)


def coupled_micro_batches(
    forest: Forest, rows: Int[Tensor, " r"], couple: Int[Tensor, " R"], max_tokens: int, *, shared: bool = True
) -> Iterator[list[Int[Tensor, " m"]]]:
    """Split rows into runs of whole couples, each in pieces that fit a budget: one, or more where a couple is larger.

    Args:
        couple: rows of one number stay in one run.
        shared: see :func:`micro_batches`.
    """
    of_couple: dict[int, list[int]] = {}
    for row, number in zip(rows.tolist(), couple[rows].tolist(), strict=True):
        of_couple.setdefault(number, []).append(row)
    for run in _runs(forest, of_couple.values(), max_tokens, shared):
        yield list(micro_batches(forest, torch.tensor(run), max_tokens, shared=shared))


def _runs(forest: Forest, units: Iterable[Sequence[int]], max_tokens: int, shared: bool) -> Iterator[list[int]]:
    """Rows of whole units, in runs whose tokens fit a budget; a larger unit goes alone."""
    # Counted again in each run: what a row shares with rows of other runs, or with rows left out, is not shared here.
    index, length = forest.rows().index, forest.row_length.tolist()
    there = torch.zeros(forest.n_tokens, dtype=torch.bool)
    run: list[int] = []
    tokens = 0
    for unit in units:
        paths = [index[row, : length[row]] for row in unit]
        path = paths[0] if len(paths) == 1 else torch.cat(paths)
        if shared and len(paths) > 1:
            path = path.unique()
        adds = len(path) - (int(there[path].sum()) if shared else 0)
        if run and tokens + adds > max_tokens:
            yield run
            run, tokens, adds = [], 0, len(path)
            there.zero_()
        there[path] = True
        run += unit
        tokens += adds
    if run:
        yield run

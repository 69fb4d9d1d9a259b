"""The learner's forward passes over a forest, in one of two layouts that agree to rounding.

``tree``: every unique token goes through the model once, and its outputs are gathered to each row that passes it.
``rows``: every row is forwarded whole, padded on the right, as in other trainers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Literal

from jaxtyping import Bool, Int

from lyceum.core.forest import Forest
from lyceum.models.policy import Policy, token_outputs
from lyceum.utils.lazy_imports import F, Tensor, nn, torch

Layout = Literal["tree", "rows"]


class RowsPlan:
    """Attention of (R, L) padded rows, flattened: plain causal attention, since padding is on the right."""

    def __init__(self, rows: int, length: int) -> None:
        self.rows, self.length = rows, length

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, *, scale: float, window: int | None
    ) -> Tensor:
        q, k, v = (x.view(self.rows, self.length, *x.shape[1:]).transpose(1, 2) for x in (query, key, value))
        mask = None
        if window is not None and window < self.length:
            at = torch.arange(self.length, device=q.device)
            distance = at[:, None] - at
            mask = (distance >= 0) & (distance < window)
        grouped = q.shape[1] != k.shape[1]
        o = F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=mask is None, scale=scale, enable_gqa=grouped
        )
        return o.transpose(1, 2).reshape(-1, *query.shape[1:])


@dataclass(frozen=True)
class RowOutputs:
    """(R, L) each, 0 outside the wanted tokens; None where not requested. ``logits`` has a vocabulary axis."""

    logprob: Tensor
    entropy: Tensor | None = None
    value: Tensor | None = None
    logits: Tensor | None = None


def row_outputs(
    policy: Policy,
    forest: Forest,
    wanted: Bool[Tensor, "R L"],
    *,
    layout: Layout,
    needs: frozenset[str] = frozenset(),
    value_head: nn.Module | None = None,
) -> RowOutputs:
    """Forward a forest and lay the outputs of the wanted tokens out as rows.

    Args:
        wanted: tokens whose outputs are needed; never a row's first token, which nothing predicts.
        needs: any of ``entropy``, ``value``, ``logits``; log-probabilities always. Those are of logits divided by the
            forest's temperature.
        value_head: hidden state -> one value; needed for ``value``.
    """
    place, token, before = _tree_places(forest, wanted) if layout == "tree" else _row_places(forest, wanted)
    hidden = policy.forest_hidden(forest) if layout == "tree" else _rows_hidden(policy, forest)
    device = hidden.device
    before_hidden = hidden[before.to(device)]
    out = token_outputs(
        policy,
        before_hidden,
        token.to(device),
        temperature=forest.temperature,
        entropy="entropy" in needs,
        logits="logits" in needs,
    )
    value = None
    if "value" in needs:
        if value_head is None:
            raise ValueError("values are needed, and there is no value head")
        # The head is in float32 whatever the model's dtype, so that small updates are not lost.
        value = value_head(before_hidden.float()).squeeze(-1).float()
    where = wanted.to(device)
    spread = place[wanted].to(device)

    def rows_of(x: Tensor | None) -> Tensor | None:
        if x is None:
            return None
        return x.new_zeros(*wanted.shape, *x.shape[1:]).index_put((where,), x[spread])

    logprob = rows_of(out.logprob)
    assert logprob is not None
    return RowOutputs(logprob, rows_of(out.entropy), rows_of(value), rows_of(out.logits))


def joined(pieces: Iterable[RowOutputs]) -> RowOutputs:
    """The outputs of several pieces as one, padded on the right: leaves, whose gradient is that of the loss."""
    parts = list(pieces)
    width = max(part.logprob.shape[1] for part in parts)

    def of(name: str) -> Tensor | None:
        found = [getattr(part, name) for part in parts]
        if found[0] is None:
            return None
        ends = ((0, 0) * (x.dim() - 2) + (0, width - x.shape[1]) for x in found)
        return torch.cat([F.pad(x, end) for x, end in zip(found, ends, strict=True)]).requires_grad_()

    logprob = of("logprob")
    assert logprob is not None
    return RowOutputs(logprob, of("entropy"), of("value"), of("logits"))


def send_back(out: RowOutputs, whole: RowOutputs, first: int) -> None:
    """Send the gradient that a loss left on ``whole`` back through a piece, whose rows begin there with ``first``."""
    outputs: list[Tensor] = []
    gradients: list[Tensor] = []
    for each in fields(RowOutputs):
        output, leaf = getattr(out, each.name), getattr(whole, each.name)
        if output is not None and leaf.grad is not None:
            outputs.append(output)
            gradients.append(leaf.grad[first : first + output.shape[0], : output.shape[1]])
    torch.autograd.backward(outputs, gradients)


Places = tuple[Int[Tensor, "R L"], Int[Tensor, " k"], Int[Tensor, " k"]]
"""(index of the computed token (of k) at each position of the rows; their ids; packed index of the token before)."""


def _tree_places(forest: Forest, wanted: Bool[Tensor, "R L"]) -> Places:
    rows = forest.rows()
    needed = torch.zeros(forest.n_tokens, dtype=torch.bool)
    needed[rows.index[wanted]] = True
    tokens = needed.nonzero().squeeze(1)
    number = needed.cumsum(0) - 1
    return number[rows.index], forest.token[tokens], forest.parent[tokens]


def _row_places(forest: Forest, wanted: Bool[Tensor, "R L"]) -> Places:
    number = wanted.flatten().cumsum(0).view_as(wanted) - 1
    flat = wanted.flatten().nonzero().squeeze(1)
    return number, forest.token[forest.rows().index[wanted]], flat - 1


def _rows_hidden(policy: Policy, forest: Forest) -> Tensor:
    rows = forest.rows()
    count, length = rows.index.shape
    tokens = rows.gather(forest.token).flatten().to(policy.device)
    position = torch.arange(length, device=policy.device).repeat(count)
    return policy.hidden(tokens, position, RowsPlan(count, length))


def choose_layout(forest: Forest) -> Layout:
    """The cheaper layout, by tokens through the model.

    The tree costs a tenth more per token (gathering keys along paths): measured in ``benchmarks/layout.py``.
    """
    rows = forest.rows()
    return "tree" if 1.1 * forest.n_tokens <= rows.index.numel() else "rows"


def micro_batches(forest: Forest, rows: Int[Tensor, " r"], max_tokens: int) -> Iterator[Int[Tensor, " m"]]:
    """Split rows into runs whose unique tokens fit a budget; a row longer than it goes alone.

    Rows of one tree stay together where they fit, so that shared tokens are computed once.
    """
    for run in _runs(forest, [[row] for row in rows.tolist()], max_tokens):
        yield torch.tensor(run)


def coupled_micro_batches(
    forest: Forest, rows: Int[Tensor, " r"], couple: Int[Tensor, " R"], max_tokens: int
) -> Iterator[list[Int[Tensor, " m"]]]:
    """Split rows into runs of whole couples, each in pieces that fit a budget: one, or more where a couple is larger.

    Args:
        couple: rows of one number stay in one run.
    """
    of_couple: dict[int, list[int]] = {}
    for row, number in zip(rows.tolist(), couple[rows].tolist(), strict=True):
        of_couple.setdefault(number, []).append(row)
    for run in _runs(forest, of_couple.values(), max_tokens):
        yield list(micro_batches(forest, torch.tensor(run), max_tokens))


def _runs(forest: Forest, units: Iterable[Sequence[int]], max_tokens: int) -> Iterator[list[int]]:
    """Rows of whole units, in runs whose unique tokens fit a budget; a larger unit goes alone."""
    # Counted again in each run: what a row shares with rows of other runs, or with rows left out, is not shared here.
    index, length = forest.rows().index, forest.row_length.tolist()
    there = torch.zeros(forest.n_tokens, dtype=torch.bool)
    run: list[int] = []
    tokens = 0
    for unit in units:
        paths = [index[row, : length[row]] for row in unit]
        path = paths[0] if len(paths) == 1 else torch.cat(paths).unique()
        adds = len(path) - int(there[path].sum())
        if run and tokens + adds > max_tokens:
            yield run
            run, tokens, adds = [], 0, len(path)
            there.zero_()
        there[path] = True
        run += unit
        tokens += adds
    if run:
        yield run

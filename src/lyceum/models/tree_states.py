"""Layers that carry a state along the sequence, over packed token trees: each chain begins from its parent's end.

Gated delta nets, state spaces and causal convolutions need of the tokens before them only a state of fixed size. A
forest is cut where it branches into *runs*; those of one depth are one padded batch, which begins from the states at
the ends of the runs above. The layer's own forward computes each batch, through transformers' interface of a cache, and
gradients go back through the states.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from jaxtyping import Float, Int

from lyceum.models.selective_scan import scanning_from, with_scan
from lyceum.utils.lazy_imports import Tensor, nn, torch, transformers

if TYPE_CHECKING:
    from lyceum.models.tree_attention import AttentionPlan, PathsPlan

SHORT = 16
"""Tokens below which a run's end is not kept: those below it compute it again, in the same forward. At least 2:
layers have another, in-place path for one token that follows a state."""
_CACHES = ("past_key_values", "cache_params")
"""Names that transformers has for a layer's cache."""
_MARK = "lyceum_states_branch"
"""Attribute of a transformer some of whose layers have states that branch."""
_UPDATES = frozenset({"update_conv_state", "update_recurrent_state"})

StateName = tuple[str, int]
"""Convolution or recurrent, and which of a layer's several."""
_CONVOLUTION, _RECURRENT = "convolution", "recurrent"


@dataclass
class _Run:
    """Tokens ``begin`` to ``stop`` of a path, of which those before ``own`` are computed again."""

    path: Tensor
    begin: int
    own: int
    stop: int
    above: int | None
    """The kept run at whose end it begins."""
    depth: int
    kept: bool

    @property
    def length(self) -> int:
        return self.stop - self.begin


@dataclass
class _Batch:
    """Runs of one depth, padded on the right to one length."""

    index: Int[Tensor, "run length"]
    """Packed index of each token; 0 in padding."""
    above: Int[Tensor, " run"] | None
    """Where among the states kept one level above each run begins; None at the root."""
    own: Int[Tensor, " n"]
    """Which of the flattened outputs are of the runs' own tokens."""
    kept: bool
    """Whether the states at the runs' ends are kept: they are of one length then."""


class StateRuns:
    """The runs of a forest, level by level. One serves all layers of a forward.

    Args:
        paths, owned_from: see :class:`~lyceum.models.tree_attention.TreePlan`.
    """

    def __init__(self, paths: Sequence[Tensor], owned_from: Sequence[int], device: torch.device) -> None:
        runs = _runs([path.cpu() for path in paths], owned_from)
        self.levels: list[list[_Batch]] = []
        order: list[Tensor] = []
        place: dict[int, int] = {}
        for depth in range(max(run.depth for run in runs) + 1):
            batches, kept = list[_Batch](), dict[int, int]()
            for group in _batched([n for n, run in enumerate(runs) if run.depth == depth], runs):
                batches.append(_padded([runs[n] for n in group], place, device))
                order += [runs[n].path[runs[n].own : runs[n].stop] for n in group]
                if batches[-1].kept:
                    kept |= {n: len(kept) + row for row, n in enumerate(group)}
            self.levels.append(batches)
            place = kept
        packed = torch.cat(order)
        self.place = torch.empty_like(packed).scatter_(0, packed, torch.arange(len(packed))).to(device)

    def forward(
        self, layer: Callable[..., Any], hidden: Float[Tensor, "1 T width"], cache: str
    ) -> Float[Tensor, "1 T width"]:
        """What a layer makes of the packed tokens.

        Args:
            layer: its own forward.
            cache: name of the argument in which it takes states.
        """
        packed, outputs, above = hidden.squeeze(0), list[Tensor](), dict[StateName, Tensor]()
        for batches in self.levels:
            ends: dict[StateName, list[Tensor]] = defaultdict(list)
            for batch in batches:
                begun = {} if batch.above is None else {name: x[batch.above] for name, x in above.items()}
                states = _States(begun)
                with scanning_from(begun.get((_RECURRENT, 0))):
                    out = layer(hidden_states=packed[batch.index], **{cache: states})
                outputs.append((out if isinstance(out, Tensor) else out[0]).flatten(0, 1)[batch.own])
                for name, x in states.ends.items() if batch.kept else ():
                    ends[name].append(x)
            above = {name: torch.cat(parts) for name, parts in ends.items()}
        return torch.cat(outputs)[self.place].unsqueeze(0)


def _runs(paths: Sequence[Tensor], owned_from: Sequence[int]) -> list[_Run]:
    """Runs of the forest; one stands after the one it begins from."""
    owned = [(path, start) for path, start in zip(paths, owned_from, strict=True) if start < len(path)]
    branches = torch.zeros(1 + max(int(path.max()) for path, _ in owned), dtype=torch.bool)
    for path, start in owned:
        if start:
            branches[path[start - 1]] = True
    runs: list[_Run] = []
    ending: dict[int, int] = {}  # runs by the packed index of their last token
    for path, start in owned:
        cuts = (branches[path[start:]].nonzero().squeeze(1) + start + 1).tolist()
        own = start
        for stop in dict.fromkeys([*cuts, len(path)]):
            begin, source = own, None
            if own:
                before = ending[int(path[own - 1])]
                # Begins at its end, or where that one begins.
                begin, source = (own, before) if runs[before].kept else (runs[before].begin, runs[before].above)
            depth = 0 if source is None else runs[source].depth + 1
            last = int(path[stop - 1])
            ending[last] = len(runs)
            kept = bool(branches[last]) and stop - begin >= SHORT
            runs.append(_Run(path, begin, own, stop, source, depth, kept))
            own = stop
    return runs


def _batched(some: Sequence[int], runs: Sequence[_Run]) -> Iterator[list[int]]:
    """Runs to be computed together: of one length where their ends are kept, else of similar lengths."""
    of_length: dict[int, list[int]] = defaultdict(list)
    rest: list[int] = []
    for n in some:
        (of_length[runs[n].length] if runs[n].kept else rest).append(n)
    yield from of_length.values()
    group: list[int] = []
    for n in sorted(rest, key=lambda n: -runs[n].length):
        if group and runs[n].length < 0.5 * runs[group[0]].length and len(group) * runs[group[0]].length >= 512:
            yield group
            group = []
        group.append(n)
    if group:
        yield group


def _padded(group: Sequence[_Run], place: dict[int, int], device: torch.device) -> _Batch:
    above = [run.above for run in group]
    width = max(1 if above[0] is None else 2, max(run.length for run in group))  # two tokens at least: see SHORT
    index = torch.zeros(len(group), width, dtype=torch.long)
    own = torch.zeros(len(group), width, dtype=torch.bool)
    for row, run in enumerate(group):
        index[row, : run.length] = run.path[run.begin : run.stop]
        own[row, run.own - run.begin : run.length] = True
    return _Batch(
        index.to(device),
        None if above[0] is None else torch.tensor([place[cast(int, n)] for n in above], device=device),
        own.flatten().nonzero().squeeze(1).to(device),
        group[0].kept,
    )


class _States:
    """What a layer of transformers asks a cache for: the states that its rows begin from, and those they end with.

    Nothing is changed in place, so that gradients go through.
    """

    def __init__(self, begun: dict[StateName, Tensor]) -> None:
        self.begun = begun
        self.ends: dict[StateName, Tensor] = {}

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> Tensor | None:
        return self.begun.get((_CONVOLUTION, state_idx))

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> Tensor | None:
        return self.begun.get((_RECURRENT, state_idx))

    def update_conv_state(
        self,
        conv_states: Float[Tensor, "row channel length"],
        layer_idx: int,
        state_idx: int = 0,
        conv_kernel_size: int | None = None,
        **_: Any,
    ) -> Float[Tensor, "row channel longer"]:
        """The inputs of the convolution with those that precede them."""
        kernel = conv_kernel_size or conv_states.shape[-1]
        before = self.get_conv_state(layer_idx, state_idx)
        if before is None:
            before = conv_states.new_zeros(*conv_states.shape[:-1], kernel)
        whole = torch.cat([before, conv_states], dim=-1)
        self.ends[_CONVOLUTION, state_idx] = whole[..., -kernel:]
        return whole

    def update_recurrent_state(self, recurrent_states: Tensor, layer_idx: int, state_idx: int = 0, **_: Any) -> Tensor:
        self.ends[_RECURRENT, state_idx] = recurrent_states
        return recurrent_states

    def is_recording_past(self, layer_idx: int) -> bool:
        """Says that one token, too, is computed out of place."""
        return True


_running: ContextVar[StateRuns | None] = ContextVar("runs of the forward in progress", default=None)


@contextmanager
def state_runs(runs: StateRuns | None) -> Iterator[None]:
    """Layers whose states branch compute these runs; None for rows, each of which has its own state."""
    token = _running.set(runs)
    try:
        yield
    finally:
        _running.reset(token)


def branching(plan: AttentionPlan, body: nn.Module, device: torch.device) -> AbstractContextManager[None]:
    """The context of a forward of packed tokens: states, where the model's layers have some, branch by this plan."""
    if not getattr(body, _MARK, False):
        return nullcontext()
    of = cast("PathsPlan", plan)  # the engine's plans, which hold keys, are made for models without states
    return state_runs(StateRuns(of.paths, of.owned_from, device))


def recomputed() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Contexts of torch's activation checkpointing: a layer that is computed again computes the same runs."""
    return nullcontext(), state_runs(_running.get())


def branch_states(model: transformers.PreTrainedModel) -> list[str]:
    """Let the states of a model's layers branch; returns the names of these layers' classes.

    They are the modules whose forward hands states to a cache. Whether that is exact is for a trial to say.
    """
    found: dict[str, None] = {}
    for module in model.modules():
        kind = type(module)
        own = inspect.unwrap(kind.forward)
        if kind in _branching.values() or not _UPDATES & set(own.__code__.co_names):
            continue
        names = [name for name in _CACHES if name in inspect.signature(own).parameters]
        if len(names) == 1:
            module.__class__ = _branching_class(kind, names[0])
            found[kind.__name__] = None
    for module in model.modules() if found else ():
        if isinstance(module, transformers.PreTrainedModel):
            setattr(module, _MARK, True)
    return list(found)


def unbranch_states(model: transformers.PreTrainedModel) -> None:
    """The inverse of :func:`branch_states`."""
    own = {branching: kind for kind, branching in _branching.items()}
    for module in model.modules():
        module.__class__ = own.get(type(module), type(module))
        module.__dict__.pop(_MARK, None)


_branching: dict[type[nn.Module], type[nn.Module]] = {}
"""By the class of a layer, that of one whose states branch."""


def _branching_class(kind: type[nn.Module], cache: str) -> type[nn.Module]:
    """A layer's class whose forward computes the runs of a forest where there is one."""
    if kind not in _branching:
        from_states = with_scan(kind.forward)

        def forward(self: nn.Module, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
            runs = _running.get()
            if runs is None:
                return kind.forward(self, hidden_states, *args, **kwargs)
            return runs.forward(lambda **given: from_states(self, **given), hidden_states, cache)

        _branching[kind] = type(kind.__name__, (kind,), {"forward": forward, "__module__": kind.__module__})
    return _branching[kind]

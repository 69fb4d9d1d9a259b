"""Layers that carry a state along the sequence, over packed token trees: each chain begins from its parent's end.

Gated delta nets, state spaces and causal convolutions need of the tokens before them only a state of fixed size. A
forest is cut where it branches into *runs*; those of one depth are one padded batch, which begins from the states at
the ends of the runs above. The layer's own forward computes each batch, through transformers' interface of a cache, and
gradients go back through the states. In generation those at the ends of paths are kept, and single tokens follow them.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from jaxtyping import Float, Int

from lyceum.models.routers import routed_again
from lyceum.models.selective_scan import scanning_from, with_scan
from lyceum.utils.lazy_imports import Tensor, nn, torch, transformers

if TYPE_CHECKING:
    from lyceum.models.tree_attention import AttentionPlan, PathsPlan

SHORT = 16
"""Tokens below which a run's end is not kept: those below it compute it again, in the same forward. At least 2:
layers have another, in-place path for one token that follows a state."""
_CACHES = ("past_key_values", "cache_params")
"""Names that transformers has for a layer's cache."""
BRANCHED = "lyceum_states_branch"
"""Attribute of a transformer some of whose layers have states that branch."""
_UPDATES = frozenset({"update_conv_state", "update_recurrent_state"})

StateName = tuple[int, str, int]
"""Layer, convolution or recurrent, and which of the layer's several."""
States = Mapping[StateName, Tensor]
"""By name, one state per row."""
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


class Branching(Protocol):
    """How layers compute the packed tokens of a forward in progress."""

    def forward(self, number: int, layer: Callable[..., Any], hidden: Tensor, cache: str) -> Tensor:
        """What a layer makes of the packed tokens, (1, T, width).

        Args:
            number: the layer's.
            layer: its own forward.
            cache: name of the argument in which it takes states.
        """
        ...


class StateRuns:
    """The runs of a forest, level by level. One serves all layers of a forward.

    Args:
        paths, owned_from: see :class:`~lyceum.models.tree_attention.TreePlan`.
        begun: the states that tokens of earlier forwards ended with, and the packed index of the token of each row.
        ends: packed indices of tokens whose states are asked for.
    """

    def __init__(
        self,
        paths: Sequence[Tensor],
        owned_from: Sequence[int],
        device: torch.device,
        *,
        begun: tuple[Sequence[int], States] = ((), {}),
        ends: Sequence[int] = (),
    ) -> None:
        given, self._begun = begun
        runs, ending = _runs([path.cpu() for path in paths], owned_from, given, ends)
        self.levels: list[list[_Batch]] = []
        order: list[Tensor] = []
        place = {n: n for n in range(len(given))}
        at: dict[int, int] = {}  # among the states of all levels, by run
        for depth in range(max(run.depth for run in runs) + 1):
            batches, kept = list[_Batch](), dict[int, int]()
            of_depth = [n for n, run in enumerate(runs) if run.depth == depth]
            for group in _batched(of_depth, runs):
                batches.append(_padded([runs[n] for n in group], place, device))
                order += [runs[n].path[runs[n].own : runs[n].stop] for n in group]
                if batches[-1].kept:
                    kept |= {n: len(kept) + row for row, n in enumerate(group)}
            self.levels.append(batches)
            at |= {n: len(at) + row for n, row in kept.items()}
            place = kept
        packed = torch.cat(order)
        self.place = torch.empty_like(packed).scatter_(0, packed, torch.arange(len(packed))).to(device)
        self._asked = torch.tensor([at[ending[token]] for token in ends], dtype=torch.long, device=device)
        self.ended: dict[StateName, Tensor] = {}
        """States after the tokens asked for, of the layers that were computed."""

    def forward(
        self, number: int, layer: Callable[..., Any], hidden: Float[Tensor, "1 T width"], cache: str
    ) -> Float[Tensor, "1 T width"]:
        packed, outputs = hidden.squeeze(0), list[Tensor]()
        above = {name: x for name, x in self._begun.items() if name[0] == number}
        every: dict[StateName, list[Tensor]] = defaultdict(list)
        for batches in self.levels:
            ends: dict[StateName, list[Tensor]] = defaultdict(list)
            for batch in batches:
                begun = {} if batch.above is None else {name: x[batch.above] for name, x in above.items()}
                states = _States(begun)
                with scanning_from(begun.get((number, _RECURRENT, 0))):
                    out = layer(hidden_states=packed[batch.index], **{cache: states})
                outputs.append((out if isinstance(out, Tensor) else out[0]).flatten(0, 1)[batch.own])
                # One token may have changed the states that it began from.
                for name, x in (begun | states.ends).items() if batch.kept else ():
                    ends[name].append(x)
            above = {name: torch.cat(parts) for name, parts in ends.items()}
            for name, x in above.items() if len(self._asked) else ():
                every[name].append(x)
        for name, levels in every.items():
            self.ended[name] = torch.cat(levels)[self._asked]
        return torch.cat(outputs)[self.place].unsqueeze(0)


class StateStep:
    """One token for each row of states, which become those after it.

    Args:
        states: as many rows as there are tokens; changed in place.
    """

    def __init__(self, states: States) -> None:
        self._of: dict[int, dict[StateName, Tensor]] = defaultdict(dict)
        for name, x in states.items():
            self._of[name[0]][name] = x

    def forward(
        self, number: int, layer: Callable[..., Any], hidden: Float[Tensor, "1 T width"], cache: str
    ) -> Float[Tensor, "1 T width"]:
        out = layer(hidden_states=hidden.transpose(0, 1), **{cache: _InPlace(self._of[number])})
        return (out if isinstance(out, Tensor) else out[0]).transpose(0, 1)


def _runs(
    paths: Sequence[Tensor], owned_from: Sequence[int], given: Sequence[int] = (), ends: Sequence[int] = ()
) -> tuple[list[_Run], dict[int, int]]:
    """Runs of the forest, after those ``given`` that are not computed; one stands after the one it begins from.

    Returns:
        them, and the number of each by the packed index of its last token.
    """
    owned = [(path, start) for path, start in zip(paths, owned_from, strict=True) if start < len(path)]
    branches = torch.zeros(1 + max(int(path.max()) for path, _ in owned), dtype=torch.bool)
    for path, start in owned:
        if start:
            branches[path[start - 1]] = True
    asked = torch.zeros_like(branches)
    asked[list(ends)] = True
    runs = [_Run(owned[0][0], 0, 0, 0, None, -1, True) for _ in given]
    ending = {token: n for n, token in enumerate(given)}
    for path, start in owned:
        cuts = ((branches | asked)[path[start:]].nonzero().squeeze(1) + start + 1).tolist()
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
            kept = bool(asked[last]) or (bool(branches[last]) and stop - begin >= SHORT)
            runs.append(_Run(path, begin, own, stop, source, depth, kept))
            own = stop
    return runs, ending


def _batched(some: Sequence[int], runs: Sequence[_Run]) -> Iterator[list[int]]:
    """Runs to be computed together: of one length where their ends are kept, else of similar lengths."""
    of_length: dict[tuple[int, bool], list[int]] = defaultdict(list)
    rest: dict[bool, list[int]] = defaultdict(list)
    for n in some:
        begins = runs[n].above is None
        (of_length[runs[n].length, begins] if runs[n].kept else rest[begins]).append(n)
    yield from of_length.values()
    for alike in rest.values():
        group: list[int] = []
        for n in sorted(alike, key=lambda n: -runs[n].length):
            if group and runs[n].length < 0.5 * runs[group[0]].length and len(group) * runs[group[0]].length >= 512:
                yield group
                group = []
            group.append(n)
        yield group


def _padded(group: Sequence[_Run], place: dict[int, int], device: torch.device) -> _Batch:
    above = [run.above for run in group]
    # Two tokens at least, see SHORT; but of what is kept nothing may follow the end.
    width = max(1 if above[0] is None or group[0].kept else 2, max(run.length for run in group))
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

    def __init__(self, begun: States) -> None:
        self.begun = begun
        self.ends: dict[StateName, Tensor] = {}

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> Tensor | None:
        return self.begun.get((layer_idx, _CONVOLUTION, state_idx))

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> Tensor | None:
        return self.begun.get((layer_idx, _RECURRENT, state_idx))

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
        self._end((layer_idx, _CONVOLUTION, state_idx), whole[..., -kernel:])
        return whole

    def update_recurrent_state(self, recurrent_states: Tensor, layer_idx: int, state_idx: int = 0, **_: Any) -> Tensor:
        self._end((layer_idx, _RECURRENT, state_idx), recurrent_states)
        return recurrent_states

    def _end(self, name: StateName, state: Tensor) -> None:
        self.ends[name] = state

    def is_recording_past(self, layer_idx: int) -> bool:
        """Says that one token, too, is computed out of place."""
        return True


class _InPlace(_States):
    """The same of one token per row: its states take the place of those before it."""

    def _end(self, name: StateName, state: Tensor) -> None:
        self.begun[name].copy_(state)

    def is_recording_past(self, layer_idx: int) -> bool:
        return False


_running: ContextVar[Branching | None] = ContextVar("runs of the forward in progress", default=None)


@contextmanager
def state_runs(runs: Branching | None) -> Iterator[None]:
    """Layers whose states branch compute these runs; None for rows, each of which has its own state."""
    token = _running.set(runs)
    try:
        yield
    finally:
        _running.reset(token)


def branching(plan: AttentionPlan, device: torch.device) -> AbstractContextManager[None]:
    """The context of a forward of packed tokens through a model with ``BRANCHED``: its states branch by this plan,
    unless :func:`state_runs` says already how they do."""
    if _running.get() is not None:
        return nullcontext()
    of = cast("PathsPlan", plan)  # with the engine's plans, which hold keys, the engine says how states branch
    return state_runs(StateRuns(of.paths, of.owned_from, device))


def recomputed() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Contexts of torch's activation checkpointing: a layer that is computed again computes the same runs, and its
    tokens go to the same experts."""

    @contextmanager
    def again(runs: Branching | None, routing: AbstractContextManager[None]) -> Iterator[None]:
        with state_runs(runs), routing:
            yield

    return nullcontext(), again(_running.get(), routed_again())


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
            setattr(module, BRANCHED, True)
    return list(found)


def unbranch_states(model: transformers.PreTrainedModel) -> None:
    """The inverse of :func:`branch_states`."""
    own = {branching: kind for kind, branching in _branching.items()}
    for module in model.modules():
        module.__class__ = own.get(type(module), type(module))
        module.__dict__.pop(BRANCHED, None)


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
            number = cast(int, self.layer_idx)
            return runs.forward(number, lambda **given: from_states(self, **given), hidden_states, cache)

        _branching[kind] = type(kind.__name__, (kind,), {"forward": forward, "__module__": kind.__module__})
    return _branching[kind]

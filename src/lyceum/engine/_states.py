"""The embedded engine for a model some of whose layers carry a state along the sequence: states are kept by node.

Each slot has its states beside its keys and values, and both are copied where samples diverge. Of what callers will
continue, the states at the end are kept in the radix tree of tokens, and those where prefixes part: what continues from
there computes nothing again, and what leaves a kept path elsewhere is computed from the last state above. What was
continued least recently is evicted, with the tokens that lead to no other state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import numpy as np

from lyceum.engine._cache import Ints, Keeper, KeptTokens, TokenPool, common
from lyceum.engine._plan import DecodePlan, PrefillPlan
from lyceum.engine._slots import Job
from lyceum.engine.embedded import EmbeddedEngine
from lyceum.models.model_cache import ModelStates
from lyceum.models.tree_attention import AttentionPlan, Scoring
from lyceum.models.tree_states import SHORT, StateRuns, States, StateStep, state_runs
from lyceum.utils.lazy_imports import Tensor, torch


class StateTable:
    """States by name (entry, *state), that grow as needed."""

    def __init__(self, states: ModelStates, device: torch.device) -> None:
        self._of = {
            name: torch.zeros(0, *shape, dtype=dtype, device=device) for name, (shape, dtype) in states.shapes.items()
        }

    def reserve(self, entries: int) -> None:
        for name, x in self._of.items():
            if len(x) < entries:
                self._of[name] = x.new_zeros(max(entries, len(x) * 3 // 2), *x.shape[1:])
                self._of[name][: len(x)] = x

    def first(self, entries: int) -> States:
        """Views of these entries, which change with the table until it grows."""
        return {name: x[:entries] for name, x in self._of.items()}

    def read(self, entries: Sequence[int]) -> States:
        index = torch.tensor(entries, dtype=torch.long)
        return {name: x[index.to(x.device)] for name, x in self._of.items()}

    def write(self, entries: Sequence[int], states: States) -> None:
        """Fill entries, none of them twice."""
        index = torch.tensor(entries, dtype=torch.long)
        for name, x in states.items() if entries else ():
            self._of[name][index.to(x.device)] = x.to(self._of[name])

    def clear(self, entries: Sequence[int]) -> None:
        """Make them those before any token."""
        for x in self._of.values() if entries else ():
            x[torch.tensor(entries, device=x.device)] = 0


class StatePool(StateTable):
    """States at any free place."""

    def __init__(self, states: ModelStates, device: torch.device) -> None:
        super().__init__(states, device)
        self._places, self._free = 0, list[int]()

    def take(self) -> int:
        if not self._free:
            self._free.append(self._places)
            self._places += 1
            self.reserve(self._places)
        return self._free.pop()

    def release(self, place: int) -> None:
        self._free.append(place)


class StateKeeper(Keeper):
    """Kept tokens, and the states at the ends of paths: without one, tokens cannot be continued.

    Args:
        most: maximum states kept.
    """

    def __init__(self, capacity: int, most: int, pool: TokenPool, states: StatePool) -> None:
        self.most, self.states = most, states
        self._place: dict[KeptTokens, int] = {}
        """Of the state at the end of a run; least recently used first."""
        super().__init__(capacity, pool)

    def clear(self) -> None:
        super().clear()
        for place in self._place.values():
            self.states.release(place)
        self._place = {}

    def longest(self, tokens: Sequence[int]) -> Ints:
        """Places of the longest prefix of ``tokens`` at whose end a state is kept."""
        runs = self._to_state(tokens)
        return np.concatenate([run.place for run in runs]) if runs else self.root.place

    def matched(self, tokens: Sequence[int]) -> int:
        """How many of ``tokens`` are kept, whether or not a state is at their end."""
        return self._descend(tokens)[1]

    def state(self, tokens: Sequence[int]) -> int:
        """Place of the state at the end of what :meth:`longest` found."""
        return self._place[self._to_state(tokens)[-1]]

    def _to_state(self, tokens: Sequence[int]) -> list[KeptTokens]:
        runs, _, inside = self._descend(tokens)
        if runs and inside < len(runs[-1].tokens):
            runs.pop()
        while runs and runs[-1] not in self._place:
            runs.pop()
        if runs:
            self._place[runs[-1]] = self._place.pop(runs[-1])
        return runs

    def add_state(self, tokens: Sequence[int]) -> int | None:
        """A place for the state after kept tokens, which the caller fills.

        None where there is one, or not all of them are kept.
        """
        runs, length, inside = self._descend(tokens)
        if not runs or length < len(tokens):
            return None
        run = runs[-1] if inside == len(runs[-1].tokens) else self._split(runs[-1], inside)
        if run in self._place:
            return None
        self._place[run] = self.states.take()
        return self._place[run]

    def trim(self) -> None:
        while self._place and (self.tokens > self.capacity or len(self._place) > self.most):
            run = next(iter(self._place))
            self.states.release(self._place.pop(run))
            while run.above is not None and not run.below and run not in self._place:
                del run.above.below[run.tokens[0]]
                self.pool.release(run.place)
                self.tokens -= len(run.tokens)
                run = run.above


class PrefillStates:
    """The states at the ends of a prefill's prefixes, once it was computed."""

    def __init__(self, plan: PrefillPlan, keeper: StateKeeper, device: torch.device) -> None:
        self._plan, self._pool = plan, keeper.states
        self._kept = [
            keeper.state(prefix[: len(kept)]) if len(kept) else None
            for prefix, kept in zip(plan.prefixes, plan.kept, strict=True)
        ]
        """Place of the state that each prefix begins from."""
        ends = sorted({int(new[-1]) for new in plan.new if len(new)})
        self._row = {token: n for n, token in enumerate(ends)}
        self.runs: StateRuns | None = None
        if plan.tokens:
            begun: dict[int, int] = {}
            for (j, _), path in zip(plan.runs, plan.paths, strict=True):
                if (place := self._kept[j]) is not None:
                    begun[int(path[len(plan.kept[j]) - 1])] = place
            states = list(begun), self._pool.read(list(begun.values()))
            self.runs = StateRuns(plan.paths, plan.owned_from, device, begun=states, ends=ends)

    def fill(self, table: StateTable, into: Sequence[tuple[int, int]]) -> None:
        """Write the states after prefixes: (entry, prefix)."""
        empty, kept, ended = list[int](), dict[int, int](), dict[int, int]()
        for entry, j in into:
            new, place = self._plan.new[j], self._kept[j]
            if len(new):
                ended[entry] = self._row[int(new[-1])]
            elif place is None:
                empty.append(entry)
            else:
                kept[entry] = place
        before = self._pool.read(list(kept.values()))  # first: entries may be of the pool, too
        table.clear(empty)
        table.write(list(kept), before)
        if ended:
            assert self.runs is not None
            rows = list(ended.values())
            table.write(list(ended), {name: x[rows] for name, x in self.runs.ended.items()})


class _ByRow:
    """A plan that keeps the layers with attention alone, one after another."""

    def __init__(self, plan: AttentionPlan, row: Mapping[int, int]) -> None:
        self._plan, self._row = plan, row

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, **how: Unpack[Scoring]) -> Tensor:
        return self._plan.attend(self._row[layer], query, key, value, **how)


class StatesEngine(EmbeddedEngine):
    """Implements :class:`lyceum.core.types.Engine`: beside the embedded engine's, every slot has its states."""

    def _reset_cache(self) -> None:
        super()._reset_cache()
        states, device = self.policy.states, self.policy.device
        assert states is not None
        self._row = {layer: n for n, layer in enumerate(states.layers)}
        self._live = StateTable(states, device)
        self._pool = StatePool(states, device)
        self._keeper: StateKeeper = StateKeeper(
            self.config.keep_tokens, self.config.keep_states, self._keeper.pool, self._pool
        )
        self._of_prompt: dict[Job, int] = {}
        """Place of the states after the prompt of a request that has samples which wait."""

    def _begin(self) -> None:
        """The model is always called as it is."""

    def _prefill_plan(self, prefixes: Sequence[Sequence[int]]) -> PrefillPlan:
        # What the prefixes have in common with each other, and with kept ones, are prefixes after them.
        self._parting = [(len(prefixes) + n, path) for n, path in enumerate(self._partings(prefixes))]
        plan = super()._prefill_plan([*prefixes, *(path for _, path in self._parting)])
        self._ends = PrefillStates(plan, self._keeper, self.policy.device)
        return plan

    def _partings(self, prefixes: Sequence[Sequence[int]]) -> list[Sequence[int]]:
        """Beginnings of prefixes that end where two of them part, or one of them and kept tokens."""
        found: dict[tuple[int, ...], None] = {}
        before: tuple[int, ...] = ()
        for prefix in sorted(map(tuple, prefixes)):
            have = len(self._keeper.longest(prefix))
            for length in (common(prefix, before), self._keeper.matched(prefix)):
                if length >= have + SHORT:
                    found[prefix[:length]] = None
            before = prefix
        return list(found)

    def _hidden(self, tokens: Tensor, position: Tensor, plan: AttentionPlan, *, furthest: int, **seen: Any) -> Tensor:
        runs = StateStep(self._live.first(len(tokens))) if isinstance(plan, DecodePlan) else self._ends.runs
        of = _ByRow(plan, self._row) if self.policy.model_cache is None else plan
        with state_runs(runs):
            return super()._hidden(tokens, position, of, furthest=furthest, **seen)

    def _join(self, places: Mapping[Job, range]) -> None:
        begin, have = {job: j for j, job in enumerate(places) if not job.started}, len(self._slots)
        super()._join(places)
        joined = list(enumerate(self._slots.job[have:], have))
        self._live.reserve(len(self._slots))
        self._ends.fill(self._live, [(slot, begin[job]) for slot, job in joined if job in begin])
        go_on = {slot: self._of_prompt[job] for slot, job in joined if job not in begin}
        self._live.write(list(go_on), self._pool.read(list(go_on.values())))
        waiting = {job: self._pool.take() for job in begin if job.waits}
        paths = [(j, job.request.prefix[:-1]) for job, j in begin.items() if job.request.keep]
        added = ((self._keeper.add_state(path), j) for j, path in [*paths, *self._parting])
        kept = [(place, j) for place, j in added if place is not None]
        self._ends.fill(self._pool, [*kept, *((place, begin[job]) for job, place in waiting.items())])
        self._ends.runs = None  # it holds states
        self._of_prompt |= waiting
        self._release_prompts()
        self._keeper.trim()

    def _release_prompts(self) -> None:
        for job in [job for job in self._of_prompt if not job.waits]:
            self._pool.release(self._of_prompt.pop(job))

    def _recomputed(self, prompts: Sequence[Job], slots: Sequence[int], behind: Sequence[Sequence[int]]) -> None:
        super()._recomputed(prompts, slots, behind)
        self._ends.fill(self._live, [(slot, j) for j, slot in enumerate(slots, len(prompts))])
        waiting = [(self._of_prompt[job], j) for j, job in enumerate(prompts) if job in self._of_prompt]
        self._ends.fill(self._pool, waiting)

    def _keep(self, ended: Ints) -> None:
        super()._keep(ended)
        slots, at = self._slots, dict[int, int]()
        for slot in ended.tolist():
            request = slots.job[slot].request
            if request.keep and (place := self._keeper.add_state((*request.prefix, *slots.drawn(slot)))) is not None:
                at[place] = slot
        self._pool.write(list(at), self._live.read(list(at.values())))
        self._keeper.trim()

    def _move(self, source: Ints, target: Ints) -> None:
        super()._move(source, target)
        self._live.reserve(len(self._slots))
        if len(source):
            self._live.write(target.tolist(), self._live.read(source.tolist()))
        self._release_prompts()

"""The live prefixes of the embedded engine, as columns, so that a step over all of them is one array operation.

A *slot* is one live prefix; the samples that have drawn the same tokens so far are its *members*. Slots are dense,
0 .. n-1, and members are in the order of their slots. Python lists change only for slots that join, branch or leave.
Prompts are stored once, beside the slots: long ones while slots attend to them, any other while samples wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from lyceum.core.types import Choices, ConstraintState, Continuation, Request, TopTokens, no_choices
from lyceum.engine._cache import Ints, Store
from lyceum.engine._plan import SharedPart
from lyceum.utils.lazy_imports import Tensor, torch

Floats = NDArray[np.float32]


@dataclass(eq=False)
class Job:
    """One request in progress."""

    request: Request
    future: asyncio.Future[list[Continuation]]
    stop_ids: frozenset[int]
    results: list[Continuation | None]
    left: int
    """Samples that are not finished."""
    constraint: ConstraintState | None = None
    """At the end of the prefix."""
    shift: tuple[int, int] = (0, 0)
    """Of the prefix's last token and of what follows it, where a model counts the positions of pictures otherwise than
    their tokens (``models/sight.py``)."""
    experts: Choices = field(default_factory=no_choices)
    """Where the prefix's tokens but the last went, where that is recorded."""
    started: int = 0
    """Samples that have had a place; they get one in their order."""

    @property
    def waits(self) -> bool:
        """Whether some of its samples still need a place."""
        return self.started < len(self.request.seeds) and not self.future.done()


@dataclass
class Carried:
    """What a slot carries beside its columns, where its request asks for it.

    Attributes:
        constraint: after the tokens drawn so far; None without one.
        top, entropy: of the tokens drawn so far, where they are reported.
        experts: where the tokens that have been fed went, one row each, where that is recorded.
        top_now, entropy_now, experts_now: of the token drawn, or fed, in this step.
    """

    constraint: ConstraintState | None = None
    top: list[TopTokens] = field(default_factory=list)
    entropy: list[float] = field(default_factory=list)
    top_now: list[TopTokens] = field(default_factory=list)
    entropy_now: list[float] = field(default_factory=list)
    experts: list[Choices] = field(default_factory=list)
    experts_now: list[Choices] = field(default_factory=list)

    def copy(self) -> Carried:
        constraint = None if self.constraint is None else self.constraint.copy()
        own = {"top": list(self.top), "entropy": list(self.entropy), "experts": list(self.experts)}
        return replace(self, constraint=constraint, **own)

    def append(self, token: int) -> None:
        """The slot's token is the one drawn in this step."""
        if self.constraint is not None and not self.constraint.advance([token]):
            raise RuntimeError(f"a constraint refuses token {token}, which it allowed")
        self.top += self.top_now
        self.entropy += self.entropy_now
        self.experts += self.experts_now


@dataclass(frozen=True)
class Joining:
    """Samples of a request that become a slot."""

    job: Job
    members: range
    """Their indices in the request."""
    cached: int
    """Tokens of its prefix in the slot's own cache."""
    shared: int
    """Entry of the shared prompt, -1 for none."""
    limit: int
    """Maximum number of tokens drawn."""
    distribution: int
    """Which of the engine's distributions it draws from."""
    carried: Carried | None = None


@dataclass(frozen=True)
class MemberGroups:
    """Members by (slot, token drawn): each group that is still live becomes a slot. G groups, M members."""

    leader: Ints  # (G,) one member of each
    slot: Ints  # (G,) where it was, never decreasing
    of: Ints  # (M,) group of each member


class Slots:
    """Columns of the A live slots, and of their M members."""

    token: Ints  # to be fed next
    position: Ints  # of that token
    cached: Ints  # own tokens in the slot's cache, after those of the prompt it shares
    shared: Ints  # entry of the shared prompt, -1 for none
    count: Ints  # tokens drawn since the request's prefix
    limit: Ints  # maximum of count
    distribution: Ints
    strings: Ints  # 1 where the request has stop strings

    _COLUMNS = ("token", "position", "cached", "shared", "count", "limit", "distribution", "strings")

    def __init__(self) -> None:
        self.job: list[Job] = []
        self.carried: dict[int, Carried] = {}
        """By slot, where a request has a constraint or asks for reports."""
        self._set_columns(np.zeros((len(self._COLUMNS), 0), np.int64))
        # What each slot drew, one row per slot.
        self._drawn: Ints = np.zeros((0, 0), np.int64)
        self._logprob: Floats = np.zeros((2, 0, 0), np.float32)  # behaviour, model
        self._version: Ints = np.zeros((0, 0), np.int64)  # of the weights that each token was drawn under
        self._set_members(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.uint64))

    def __len__(self) -> int:
        return len(self.job)

    @property
    def members(self) -> int:
        return len(self.member)

    @property
    def fed(self) -> NDArray[np.int64]:
        """(2, A): tokens to be fed, and their positions."""
        return self._columns[:2]

    def _set_columns(self, columns: Ints) -> None:
        self._columns = columns
        for name, column in zip(self._COLUMNS, columns, strict=True):
            setattr(self, name, column)

    def _set_members(self, slot: Ints, member: Ints, seed: NDArray[np.uint64]) -> None:
        """(M,) each, in the order of the slots; ``member`` is a sample's index in its request."""
        self.member_slot, self.member, self.seed = slot, member, seed
        self.first: Ints = np.searchsorted(slot, np.arange(len(self)))
        self.alone = len(slot) == len(self)
        """Whether no two samples share a slot: then member m is in slot m."""
        self.distributions: list[int] = np.unique(self.distribution).tolist()
        stop_ids = sorted(frozenset[int]().union(*{job.stop_ids for job in self.job}))
        self.stop_ids: Ints = np.array(stop_ids, np.int64)

    # Joining -------------------------------------------------------------------------------------------------------

    def join(self, joining: Sequence[Joining]) -> None:
        rows = [
            (
                j.job.request.prefix[-1], len(j.job.request.prefix) - 1, j.cached, j.shared, 0, j.limit,
                j.distribution, bool(j.job.request.sampling.stop),
            )
            for j in joining
        ]  # fmt: skip
        have = len(self)
        self.job += [j.job for j in joining]
        self.carried |= {slot: j.carried for slot, j in enumerate(joining, have) if j.carried is not None}
        self._set_columns(np.concatenate([self._columns, np.array(rows, np.int64).T], 1))
        self._reserve(len(self), 1)
        count = [len(j.members) for j in joining]
        seeds = [j.job.request.seeds[j.members.start : j.members.stop] for j in joining]
        self._set_members(
            np.concatenate([self.member_slot, np.repeat(np.arange(have, len(self)), count)]),
            np.concatenate([self.member, *(np.array(j.members) for j in joining)]),
            np.concatenate([self.seed, *(np.array(part, np.uint64) for part in seeds)]),
        )

    # What was drawn ------------------------------------------------------------------------------------------------

    def grouped(self, token: Ints) -> MemberGroups:
        """Members by the token they drew, (M,)."""
        if self.alone:
            return MemberGroups(self.member_slot, self.member_slot, self.member_slot)
        if (token == token[self.first][self.member_slot]).all():
            return MemberGroups(self.first, self.member_slot[self.first], self.member_slot)
        _, leader, of = np.unique(self.member_slot << 32 | token, return_index=True, return_inverse=True)
        return MemberGroups(leader, self.member_slot[leader], of)

    def drawn(self, slot: int) -> list[int]:
        return self._drawn[slot, : self.count[slot]].tolist()

    def logprobs(self, slot: int) -> tuple[list[float], list[float]]:
        """Log-probabilities of the distributions drawn from, and of the model."""
        behaviour, model = self._logprob[:, slot, : self.count[slot]].tolist()
        return behaviour, model

    def versions(self, slot: int) -> list[int]:
        """Of the weights under which each of its tokens was drawn."""
        return self._version[slot, : self.count[slot]].tolist()

    def append(self, place: Ints, token: Ints, behaviour: Floats, model: Floats, version: int = 0) -> None:
        """Append what the slots at ``place`` drew under weights of this version, each slot once."""
        count = self.count[place]
        self._reserve(len(self), int(count.max()) + 1)
        self._drawn[place, count] = token
        self._logprob[0, place, count] = behaviour
        self._logprob[1, place, count] = model
        self._version[place, count] = version
        self.token[place] = token
        self.count[place] = count + 1
        if self.carried:
            for slot, drawn in zip(place.tolist(), token.tolist(), strict=True):
                if slot in self.carried:
                    self.carried[slot].append(drawn)

    def _reserve(self, rows: int, length: int) -> None:
        have, width = self._drawn.shape
        if have >= rows and width >= length:
            return
        rows = have if have >= rows else max(rows, 2 * have)
        length = width if width >= length else max(length, 2 * width, 32)
        (drawn, version), logprob = np.zeros((2, rows, length), np.int64), np.zeros((2, rows, length), np.float32)
        drawn[:have, :width], version[:have, :width] = self._drawn, self._version
        logprob[:, :have, :width] = self._logprob
        self._drawn, self._version, self._logprob = drawn, version, logprob

    # Branching and leaving -----------------------------------------------------------------------------------------

    def regroup(self, groups: MemberGroups, live: NDArray[np.bool_]) -> tuple[Ints, Ints, Ints]:
        """Every live group becomes a slot: one stays where its slot was, the others fill gaps or go to the end.

        Returns:
            The place of each live group, and (source, target) slots whose cache must be copied; no target is a source.
        """
        slot = groups.slot[live]
        n = len(slot)
        first = np.ones(n, bool)
        first[1:] = slot[1:] != slot[:-1]
        stays = first & (slot < n)
        free = np.ones(n, bool)
        free[slot[stays]] = False
        place = slot.copy()
        place[~stays] = np.flatnonzero(free)
        source, target = slot[~stays], place[~stays]

        origin = np.empty(n, np.int64)
        origin[place] = slot
        self._set_columns(self._columns[:, origin])
        self.job = [self.job[a] for a in origin.tolist()]
        if self.carried:
            self._regroup_carried(origin.tolist())
        if len(source):
            length = int(self.count.max())
            self._reserve(n, length)
            self._drawn[target, :length] = self._drawn[source, :length]
            self._version[target, :length] = self._version[source, :length]
            self._logprob[:, target, :length] = self._logprob[:, source, :length]

        place_of = np.full(len(live), -1)
        place_of[live] = place
        slot_of_member = place_of[groups.of]
        order = np.argsort(slot_of_member, kind="stable")
        order = order[np.count_nonzero(slot_of_member < 0) :]
        self._set_members(slot_of_member[order], self.member[order], self.seed[order])
        return place, source, target

    def _regroup_carried(self, origin: Sequence[int]) -> None:
        """Each slot carries what slot ``origin[slot]`` did, or a copy of it."""
        before, taken = self.carried, set[int]()
        self.carried = {}
        for slot, of in enumerate(origin):
            if of in before:
                self.carried[slot] = before[of].copy() if of in taken else before[of]
                taken.add(of)


class SharedPrompts:
    """Dense entries 0 .. n-1, like the slots: all tokens of a request's prefix but the last."""

    def __init__(self, shape: tuple[int, int, int], dtype: torch.dtype, device: torch.device) -> None:
        self._heads = shape[1]
        self._store = Store(shape, dtype, device)
        self._job: list[Job] = []

    def __len__(self) -> int:
        return len(self._job)

    @property
    def jobs(self) -> list[Job]:
        return list(self._job)

    def add(self, job: Job, kv: Float[Tensor, "layer 2 n head dim"]) -> None:
        self._store.put(len(self), kv)
        self._job.append(job)

    def put(self, job: Job, kv: Float[Tensor, "layer 2 n head dim"]) -> None:
        """Its prompt, computed again."""
        self._store.put(self.entry(job), kv)

    def entry(self, job: Job) -> int:
        return self._job.index(job)

    def read(self, job: Job) -> Float[Tensor, "layer 2 n head dim"]:
        return self._store.kv[:, :, self.entry(job), :, : _length(job)].transpose(2, 3)

    def release(self, slots: Slots) -> None:
        """Free prompts that no slot attends to and no sample waits for; the last ones move into their entries."""
        if not self._job:
            return
        used = np.array([job.waits for job in self._job])
        used[slots.shared[slots.shared >= 0]] = True
        for entry in np.flatnonzero(~used)[::-1].tolist():
            last, job = len(self) - 1, self._job.pop()
            if entry != last:
                self._store.copy([last], [entry], _length(job))
                self._job[entry] = job
                slots.shared[slots.shared == last] = entry

    def part(self, slots: Slots) -> SharedPart | None:
        """Which slots attend to which prompt; None where none does."""
        if not (slots.shared >= 0).any():
            return None
        return SharedPart.of(self._store, [_length(job) for job in self._job], slots.shared, self._heads)


def _length(job: Job) -> int:
    return len(job.request.prefix) - 1

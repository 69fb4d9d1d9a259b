"""The embedded engine: continuous batching over a Hugging Face model in this process, for many async callers at once.

Each step feeds one token to every live *slot*. Samples that have drawn the same tokens so far live in one slot and cost
one computation; where they part, the slot's cache is branched. Rows that finish leave, waiting requests join.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from lyceum.attention import TreePlan
from lyceum.component import Component
from lyceum.engine.cache import DecodePlan, Keeper, Kept, SharedPart, Store
from lyceum.engine.draw import draw, uniform
from lyceum.engine.prefill import PrefillPlan
from lyceum.policy import Policy, token_outputs
from lyceum.types import Continuation, Request


class EmbeddedConfig(Component, room="engine"):
    """Generate with the model that is being trained, in this process: on a CPU or one GPU, nothing to install."""

    kind: Literal["embedded"] = "embedded"
    max_sequences: int = Field(512, ge=1)
    """Samples drawn at the same time; further requests wait."""
    prefill_tokens: int = Field(16384, ge=1)
    """Prompt tokens computed in one forward, at least one request's."""
    share_prompt_tokens: int = Field(48, ge=1)
    """Prompts at least this long (tokens) are stored once for their group; shorter ones are copied, which is faster."""
    keep_tokens: int = Field(1 << 17, ge=0)
    """Tokens whose cache is kept for callers that continue from inner nodes."""

    def build(self, policy: Policy) -> EmbeddedEngine:
        return EmbeddedEngine(policy, self)


async def callers_turn() -> None:
    """Let callers that were answered come back with their next requests, before a step is taken without them.

    A few turns of the loop: through tasks and gathers, two levels of them, and new tasks below. Eight take 0.03 ms.
    """
    for _ in range(8):
        await asyncio.sleep(0)


@dataclass(eq=False)
class _Job:
    """One request under way."""

    request: Request
    future: asyncio.Future[list[Continuation]]
    stop_ids: frozenset[int]
    results: list[Continuation | None]
    left: int


@dataclass(eq=False)
class _Slot:
    """One live prefix. Its own tokens are cached behind those of the prompt it shares, if it shares one."""

    job: _Job
    token: int  # to be fed next
    position: int  # of that token
    cached: int  # own tokens in the slot's cache
    shared: int  # entry of the shared prompt, -1 for none
    members: list[int]  # indices of the job's samples that live here
    drawn: list[int] = field(default_factory=list)  # tokens drawn since the request's prefix
    behaviour: list[float] = field(default_factory=list)
    model: list[float] = field(default_factory=list)
    kept: Kept | None = None  # deepest kept run above, and
    kept_until: int = 0  # how many of the slot's own cached tokens are in it

    def branch(self, members: list[int]) -> _Slot:
        copy = _Slot(self.job, self.token, self.position, self.cached, self.shared, members)
        copy.drawn, copy.behaviour, copy.model = list(self.drawn), list(self.behaviour), list(self.model)
        copy.kept, copy.kept_until = self.kept, self.kept_until
        return copy


@dataclass
class Occupancy:
    """What the engine did since it was built. ``computed`` against ``drawn`` shows what sharing saved."""

    steps: int = 0
    computed: int = 0  # tokens fed in decoding
    drawn: int = 0  # tokens drawn, over all samples
    prefilled: int = 0  # prompt tokens computed


class EmbeddedEngine:
    """Implements :class:`lyceum.types.Engine`.

    Args:
        policy: the model. Weights are read where they are: ``load`` only drops what was computed from the old ones.
    """

    def __init__(self, policy: Policy, config: EmbeddedConfig | None = None) -> None:
        self.policy, self.config = policy, config or EmbeddedConfig.model_validate({})
        self.version = 0
        self.occupancy = Occupancy()
        self.may_step: Callable[[], Awaitable[None]] | None = None
        """Set by the runtime: awaited before each step, it holds the engine until callers it waits for are back."""
        self._waiting: list[_Job] = []
        self._scoring: list[tuple[Sequence[int], asyncio.Future[list[float]]]] = []
        self._pump: asyncio.Task[None] | None = None
        self._reset()

    def _reset(self) -> None:
        self._slots: list[_Slot] = []
        self._prompts: list[int] = []  # length of each shared prompt
        self._users: list[int] = []  # slots that use each shared prompt
        shape, dtype, device = self.policy.cache_shape, self.policy.causal.dtype, self.policy.device
        self._store, self._shared = Store(shape, dtype, device), Store(shape, dtype, device)
        self._keeper = Keeper(self.config.keep_tokens)
        self._part: SharedPart | None = None
        self._changed = True

    # What callers use ----------------------------------------------------------------------------------------------

    async def extend(self, request: Request) -> list[Continuation]:
        if not request.prefix:
            raise ValueError("an empty prefix cannot be extended: there is nothing to predict from")
        if len(request.prefix) + 1 > self.policy.context_length:
            raise ValueError(
                f"a prefix of {len(request.prefix)} tokens leaves no room in the model's context of "
                f"{self.policy.context_length}"
            )
        if not request.seeds:
            return []
        future: asyncio.Future[list[Continuation]] = asyncio.get_running_loop().create_future()
        stop_ids = self.policy.stop_ids | set(request.sampling.stop_token_ids)
        n = len(request.seeds)
        self._waiting.append(_Job(request, future, stop_ids, [None] * n, n))
        self._start()
        return await future

    async def score(self, tokens: Sequence[int]) -> list[float]:
        if not tokens:
            raise ValueError("nothing to score: got no tokens")
        if len(tokens) > self.policy.context_length:
            limit = self.policy.context_length
            raise ValueError(f"{len(tokens)} tokens to score exceed the model's context of {limit}")
        future: asyncio.Future[list[float]] = asyncio.get_running_loop().create_future()
        self._scoring.append((tokens, future))
        self._start()
        return await future

    async def load(self, weights: Any, version: int) -> None:
        """The weights in the module have changed in place (or are copied in, when ``weights`` is a state dict)."""
        if self._slots or self._waiting or self._scoring:
            raise RuntimeError("weights were loaded while requests are under way")
        if isinstance(weights, dict):
            self.policy.module.load_state_dict(weights)
        self._keeper.clear()
        self.version = version

    # The pump ------------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        if self._pump is None or self._pump.done():
            self._pump = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        """Step while there is work. Between steps the callers run: they grade, and ask for more."""
        try:
            while self._waiting or self._slots or self._scoring:
                await callers_turn()
                if self.may_step is not None:
                    await self.may_step()
                with torch.inference_mode():
                    self._drop_cancelled()
                    self._score_waiting()
                    self._admit()
                    if self._slots:
                        self._step()
        except BaseException as error:
            self._fail(error)
            if not isinstance(error, Exception):
                raise

    def _fail(self, error: BaseException) -> None:
        jobs = {id(slot.job): slot.job for slot in self._slots} | {id(job): job for job in self._waiting}
        futures = [job.future for job in jobs.values()] + [future for _, future in self._scoring]
        for future in futures:
            if not future.done():
                future.set_exception(error) if isinstance(error, Exception) else future.cancel()
        self._waiting, self._scoring = [], []
        self._reset()

    def _drop_cancelled(self) -> None:
        self._waiting = [job for job in self._waiting if not job.future.cancelled()]
        for slot in self._slots:
            if slot.job.future.cancelled():
                slot.members = []
        if any(not slot.members for slot in self._slots):
            self._settle([[slot] if slot.members else [] for slot in self._slots])

    # Joining -------------------------------------------------------------------------------------------------------

    def _admit(self) -> None:
        """Prefill waiting requests, in their order, while there is room."""
        self._waiting.sort(key=lambda job: job.request.order)
        while self._waiting:
            live = sum(len(slot.members) for slot in self._slots)
            joining: list[_Job] = []
            tokens = 0
            for job in self._waiting:
                live += job.left
                tokens += len(job.request.prefix)
                full = live > self.config.max_sequences or tokens > self.config.prefill_tokens
                if full and (joining or (self._slots and live > self.config.max_sequences)):
                    break
                joining.append(job)
            if not joining:
                return
            self._prefill(joining)
            self._waiting = self._waiting[len(joining) :]  # now, and not before: an error must find them

    def _prefill(self, jobs: list[_Job]) -> None:
        """Compute the prefixes of these requests but for their last token, which the next step feeds."""
        plan = PrefillPlan([job.request.prefix[:-1] for job in jobs], self._keeper, self.policy.cache_shape)
        if len(plan.tokens):
            device = self.policy.device
            tokens, position = torch.tensor(plan.tokens, device=device), torch.tensor(plan.position, device=device)
            self.policy.hidden(tokens, position, plan.to(device))
            self.occupancy.prefilled += len(plan.tokens)
        for j, job in enumerate(jobs):
            prefix = job.request.prefix
            key, value = plan.cache(j)
            shared = -1
            if len(prefix) > self.config.share_prompt_tokens and job.left > 1 and self._may_share():
                shared = self._add_shared(key, value)
            slot = _Slot(job, int(prefix[-1]), len(prefix) - 1, 0, shared, list(range(job.left)))
            if shared < 0:
                slot.cached = len(prefix) - 1
                self._store.put(len(self._slots), key, value)
            if job.request.keep:
                slot.kept = plan.keep_new(j, self._keeper)
                slot.kept_until = slot.cached
            self._slots.append(slot)
        self._changed = True

    def _may_share(self) -> bool:
        return getattr(self.policy.causal.config.get_text_config(), "sliding_window", None) is None

    def _add_shared(self, key: Tensor, value: Tensor) -> int:
        self._shared.put(len(self._prompts), key, value)
        self._prompts.append(key.shape[2])
        self._users.append(1)
        return len(self._prompts) - 1

    # Stepping ------------------------------------------------------------------------------------------------------

    def _step(self) -> None:
        """Feed every slot's token, draw the next for every sample, branch slots whose samples part."""
        slots, device = self._slots, self.policy.device
        length = np.array([slot.cached for slot in slots])
        self._store.reserve(len(slots), int(length.max()) + 1)
        plan = DecodePlan(self._store, length, self._shared, self._shared_part())
        fed = torch.tensor([[slot.token, slot.position] for slot in slots], device=device)
        logits = self.policy.head(self.policy.hidden(fed[:, 0], fed[:, 1], plan))
        self.occupancy.steps += 1
        self.occupancy.computed += len(slots)
        for slot in slots:
            slot.cached += 1
        self._settle(self._draw(logits))

    def _draw(self, logits: Tensor) -> list[list[_Slot]]:
        """Draw for every sample; returns what each slot becomes: nothing, itself, or itself and its branches."""
        becomes: list[list[_Slot]] = [[] for _ in self._slots]
        by_distribution: dict[tuple[float, int, float, float], list[int]] = {}
        for a, slot in enumerate(self._slots):
            s = slot.job.request.sampling
            by_distribution.setdefault((s.temperature, s.top_k, s.top_p, s.min_p), []).append(a)
        for rows in by_distribution.values():
            sampling = self._slots[rows[0]].job.request.sampling
            place = [i for i, a in enumerate(rows) for _ in self._slots[a].members]
            seeds = [self._slots[a].job.request.seeds[m] for a in rows for m in self._slots[a].members]
            count = [len(self._slots[a].drawn) for a in rows for _ in self._slots[a].members]
            u = torch.from_numpy(uniform(np.array(seeds, np.uint64), np.array(count, np.uint64)))
            chosen = logits if len(rows) == len(logits) else logits[rows]
            drawn = draw(chosen, torch.tensor(place, device=logits.device), u.to(logits.device), sampling)
            token, behaviour, model = (x.tolist() for x in (drawn.token, drawn.behaviour_logprob, drawn.model_logprob))
            self.occupancy.drawn += len(token)
            m = 0
            for a in rows:
                n = len(self._slots[a].members)
                part = slice(m, m + n)
                becomes[a] = self._split(self._slots[a], token[part], behaviour[part], model[part])
                m += n
        return becomes

    def _split(self, slot: _Slot, token: list[int], behaviour: list[float], model: list[float]) -> list[_Slot]:
        """Sort one slot's samples by the token they drew: finished ones leave, each other token is a slot."""
        slot.position += 1
        same = token.count(token[0]) == len(token)
        groups = {token[0]: slot.members} if same else {}
        if not same:
            for member, t in zip(slot.members, token, strict=True):
                groups.setdefault(t, []).append(member)
        live: list[_Slot] = []
        branches = [slot] + [slot.branch([]) for _ in range(len(groups) - 1)]
        for branch, (t, members) in zip(branches, groups.items(), strict=True):
            first = token.index(t)
            branch.token, branch.members = t, members
            branch.drawn.append(t)
            branch.behaviour.append(behaviour[first])
            branch.model.append(model[first])
            finish = self._finished(branch)
            if finish is None:
                live.append(branch)
            else:
                self._finish(branch, finish, cached_in=slot)
        return live

    def _finished(self, slot: _Slot) -> str | None:
        sampling = slot.job.request.sampling
        if slot.token in slot.job.stop_ids:
            return "stop"
        if sampling.stop:
            # A stop string may end inside a token and begin as many tokens earlier as it has bytes.
            longest = max(len(stop.encode()) for stop in sampling.stop)
            tail = self.policy.decode(slot.drawn[-(longest + 4) :])
            last = self.policy.decode(slot.drawn[-1:])
            if any(stop in tail[-(len(stop) + len(last)) :] for stop in sampling.stop):
                return "stop"
        if len(slot.drawn) >= sampling.max_completion_tokens or slot.position + 1 >= self.policy.context_length:
            return "length"
        return None

    def _finish(self, slot: _Slot, finish: str, cached_in: _Slot) -> None:
        job = slot.job
        version = [self.version] * len(slot.drawn)
        for member in slot.members:
            job.results[member] = Continuation(
                list(slot.drawn), list(slot.behaviour), list(slot.model), list(version), finish
            )
        # Without the run above it (evicted meanwhile), what was drawn would be found as the beginning of a prompt.
        findable = slot.kept is not None or len(job.request.prefix) == 1
        if job.request.keep and findable and slot.cached > slot.kept_until:
            # What is cached: the prefix's last token and all drawn ones but the last.
            run = (int(job.request.prefix[-1]), *slot.drawn[:-1])
            entry, part = self._slots.index(cached_in), slice(slot.kept_until, slot.cached)
            self._keeper.keep(slot.kept, run, self._store.key[:, entry, :, part], self._store.value[:, entry, :, part])
        job.left -= len(slot.members)
        if job.left == 0 and not job.future.done():
            job.future.set_result([result for result in job.results if result is not None])

    # Leaving and branching -----------------------------------------------------------------------------------------

    def _settle(self, becomes: list[list[_Slot]]) -> None:
        """Give every slot a place in the dense cache: survivors stay, branches fill gaps or go to the end."""
        # A lone group is a branch, and not the slot itself, where the samples that stayed in the slot have finished.
        if all(len(group) == 1 and group[0] is slot for slot, group in zip(self._slots, becomes, strict=True)):
            return
        self._changed = True
        placed: list[_Slot | None] = [group[0] if group else None for group in becomes]
        for old, group in zip(self._slots, becomes, strict=True):
            if old.shared >= 0:
                self._users[old.shared] += len(group) - 1
        gaps = [a for a, slot in enumerate(placed) if slot is None]
        source: list[int] = []
        target: list[int] = []
        for a, group in enumerate(becomes):
            for branch in group[1:]:
                place = gaps.pop(0) if gaps else len(placed)
                if place == len(placed):
                    placed.append(None)
                placed[place] = branch
                source.append(a)
                target.append(place)
        longest = max((slot.cached for slot in placed if slot is not None), default=0)
        self._store.reserve(len(placed), longest)
        self._store.copy(source, target, longest)
        source, target = [], []
        for gap in gaps:
            while placed and placed[-1] is None:
                placed.pop()
            if gap >= len(placed):
                break
            source.append(len(placed) - 1)
            target.append(gap)
            placed[gap] = placed.pop()
        self._store.copy(source, target, longest)
        self._slots = [slot for slot in placed if slot is not None]
        self._release_shared()

    def _release_shared(self) -> None:
        for entry in reversed(range(len(self._prompts))):
            if self._users[entry] > 0:
                continue
            last = len(self._prompts) - 1
            if entry != last:
                self._shared.copy([last], [entry], self._prompts[last])
                self._prompts[entry], self._users[entry] = self._prompts[last], self._users[last]
                for slot in self._slots:
                    slot.shared = entry if slot.shared == last else slot.shared
            self._prompts.pop()
            self._users.pop()

    def _shared_part(self) -> SharedPart | None:
        """Which slots attend to which shared prompt; made anew only when slots came, went or parted."""
        if not self._changed:
            return self._part
        self._changed = False
        self._part = None
        if self._prompts:
            slots_of: list[list[int]] = [[] for _ in self._prompts]
            alone = [a for a, slot in enumerate(self._slots) if slot.shared < 0]
            for a, slot in enumerate(self._slots):
                if slot.shared >= 0:
                    slots_of[slot.shared].append(a)
            lengths = list(self._prompts)
            if alone:
                # Slots without a shared prompt attend to a prompt of no tokens.
                slots_of.append(alone)
                lengths.append(0)
                self._shared.reserve(len(lengths), 1)
            width = max(map(len, slots_of))
            place = torch.empty(len(self._slots), dtype=torch.long)
            slot_index = torch.zeros(len(slots_of), width, dtype=torch.long)
            for p, members in enumerate(slots_of):
                slot_index[p, : len(members)] = torch.tensor(members)
                place[members] = p * width + torch.arange(len(members))
            length = torch.tensor(lengths)
            mask = torch.zeros(len(lengths), 1, 1, int(length.max()))
            mask.masked_fill_((torch.arange(int(length.max())) >= length[:, None])[:, None, None], float("-inf"))
            device = self.policy.device
            self._part = SharedPart(slot_index.to(device), place.to(device), mask.to(device))
        return self._part

    # Scoring -------------------------------------------------------------------------------------------------------

    def _score_waiting(self) -> None:
        if not self._scoring:
            return
        asked = self._scoring
        device = self.policy.device
        starts = np.cumsum([0] + [len(tokens) for tokens, _ in asked])
        paths = [torch.arange(a, b) for a, b in itertools.pairwise(starts)]
        token = torch.tensor([t for tokens, _ in asked for t in tokens], device=device)
        position = torch.cat([torch.arange(len(tokens)) for tokens, _ in asked]).to(device)
        hidden = self.policy.hidden(token, position, TreePlan(paths, [0] * len(paths)).to(device))
        logprob = token_outputs(self.policy, hidden[:-1], token[1:]).logprob.tolist()
        self._scoring = []
        for (_, future), a, b in zip(asked, starts[:-1], starts[1:], strict=True):
            if not future.done():
                future.set_result([0.0, *logprob[a : b - 1]])

"""The embedded engine: continuous batching over a Hugging Face model in this process, for many async callers at once.

Each step feeds one token to every live *slot*. Samples that have drawn the same tokens so far share one slot and one
computation; where they diverge, the slot's cache is branched. Finished samples leave, waiting requests join.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from lyceum.core.component import BatchTokens
from lyceum.core.pictures import FIRST, pictures_among
from lyceum.core.settings import EngineSettings
from lyceum.core.types import (
    Choices,
    Constraint,
    ConstraintSettings,
    ConstraintState,
    Continuation,
    Request,
    TemperatureRule,
    UnderWay,
    no_choices,
)
from lyceum.engine._cache import Keeper, Store, TokenPool
from lyceum.engine._draw import draw, entropies, likeliest, uniform
from lyceum.engine._encoder import EncoderSettings, PictureFeatures
from lyceum.engine._plan import DecodePlan, ModelDecodePlan, ModelPrefillPlan, PrefillPlan
from lyceum.engine._slots import Carried, Floats, Ints, Job, Joining, MemberGroups, SharedPrompts, Slots
from lyceum.engine.cpu.decode import Decoder
from lyceum.engine.cpu.weights import Packs
from lyceum.models.bits import unpacked
from lyceum.models.model_cache import KeptCache
from lyceum.models.packed_paths import logprob_of
from lyceum.models.policy import Policy
from lyceum.models.routers import Routers, routed
from lyceum.models.sight import Sight
from lyceum.models.tree_attention import AttentionPlan, TreePlan
from lyceum.utils import progress
from lyceum.utils.aio import idle
from lyceum.utils.errors import Diverged, RecipeError
from lyceum.utils.lazy_imports import Tensor, torch
from lyceum.utils.stop_strings import ends_in_drawn
from lyceum.utils.terminal import quoted


class EmbeddedConfig(EngineSettings):
    """Generate with the model that is being trained, in this process: on a CPU or one GPU, nothing to install."""

    gives: ClassVar = ("interrupt", "routing")

    kind: Literal["embedded"] = "embedded"
    max_sequences: int = Field(512, ge=1)
    """Maximum samples drawn at the same time; further ones wait and start one by one as places become free."""
    prefill_tokens: BatchTokens = 16384
    """Maximum tokens of prompts, or of scored texts, per forward pass; at least one request is computed."""
    share_prompt_tokens: int = Field(48, ge=1)
    """Minimum length (tokens) of a prompt stored once for a group of eight samples; shorter ones are copied, which is
    faster. The criterion is the tokens saved: for two samples a prompt must be seven times as long."""
    pack_weights: bool = True
    """On a CPU, keep a second copy of large float32 weights, in the fastest order for products of few rows."""
    keep_tokens: int = Field(1 << 17, ge=0, le=10**9)
    """Maximum tokens whose cache is kept for callers that continue from inner nodes."""
    keep_states: int = Field(512, ge=0)
    """Maximum states kept for them, one per path, of a model whose layers carry states along the sequence."""
    encoder: EncoderSettings = EncoderSettings.model_validate({})
    """How pictures go through the vision tower, for a model that sees."""

    def build(self, policy: Policy) -> EmbeddedEngine:
        if self.encoder.process and policy.sight is None:
            raise RecipeError("engine.encoder.process: got true, but the model takes no pictures; allowed: false")
        if policy.by_rows is not None:
            from lyceum.engine._rows import RowsEngine

            return RowsEngine(policy, self)
        if policy.states is not None:
            from lyceum.engine._states import StatesEngine

            return StatesEngine(policy, self)
        return EmbeddedEngine(policy, self)


@dataclass
class Occupancy:
    """Token counts since the engine was built. ``computed`` against ``drawn`` shows what sharing saved."""

    steps: int = 0
    computed: int = 0  # tokens fed in decoding
    drawn: int = 0  # tokens drawn, over all samples
    prefilled: int = 0  # prompt tokens computed
    recomputed: int = 0  # tokens under way, computed again under new weights


class Distribution(NamedTuple):
    """What requests have in common whose tokens are drawn together: temperature and truncation, and what else is
    computed."""

    how: tuple[float | TemperatureRule, int, float, float]
    constrained: bool
    top: int
    entropy: bool


NOTHING = Carried()


def carried_by(job: Job, *, routing: bool) -> Carried | None:
    """What the next slot of a request carries; None where nothing is asked for."""
    if job.constraint is not None:
        return Carried(job.constraint.copy())
    return Carried() if routing or job.request.top or job.request.entropy else None


class EmbeddedEngine:
    """Implements :class:`lyceum.core.types.Engine`.

    Args:
        policy: the model. Weights are read in place: ``load`` only drops what was computed from the old ones.
    """

    def __init__(self, policy: Policy, config: EmbeddedConfig | None = None) -> None:
        self.policy, self.config = policy, config or EmbeddedConfig.model_validate({})
        self.version = 0
        self.occupancy = Occupancy()
        self.may_step: Callable[[], Awaitable[None]] = idle
        self._waiting: list[Job] = []
        self._scoring: list[tuple[Sequence[int], asyncio.Future[list[float]]]] = []
        self._constraints: dict[ConstraintSettings, Constraint] = {}
        self._pump: asyncio.Task[None] | None = None
        self._routers: Routers | None = None
        self._went: Choices = no_choices()
        """Where the tokens of the last forward went, one router's experts after another's."""
        self._reset()

    def _reset(self) -> None:
        self._slots = Slots()
        self._distributions: dict[Distribution, Request] = {}
        self._cancelled = False  # whether some slot's request was cancelled
        self._reset_cache()

    def _reset_cache(self) -> None:
        shape, dtype, device = self.policy.cache_shape, self.policy.causal.dtype, self.policy.device
        self._store = Store(shape, dtype, device)
        self._prompts = SharedPrompts(shape, dtype, device)
        choices = 0 if self._routers is None else self._routers.width
        self._keeper = Keeper(self.config.keep_tokens, TokenPool(shape, dtype, device, choices))
        # What entries of the store after the live slots still hold: a path that is continued at once stays there.
        self._left: dict[tuple[int, ...], int] = {}
        self._plan: DecodePlan | None = None  # for the current slots; None once they changed
        self._decoder: Decoder | None = None
        self._packs: Packs = {}
        sight = self.policy.sight
        self._features = None if sight is None else PictureFeatures(sight, self.config.encoder)

    def record_routing(self) -> None:
        self._routers = Routers.of(self.policy, "learner.replay_routing: got true")
        self._reset()

    # For callers ---------------------------------------------------------------------------------------------------

    @property
    def tokens_computed(self) -> int:
        return self.occupancy.computed + self.occupancy.prefilled + self.occupancy.recomputed

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
        future.add_done_callback(self._notice)
        stop_ids = self.policy.stop_ids | set(request.sampling.stop_token_ids)
        n = len(request.seeds)
        job = Job(request, future, stop_ids, [None] * n, n, self._constraint(request))
        if (sight := self.policy.sight) is not None:
            job.shift = sight.shifts(request.prefix)[-1], sight.shift_after(request.prefix)
            assert self._features is not None
            self._features.expect(pictures_among(request.prefix))
        self._waiting.append(job)
        progress.sampled(sequences=n)
        self._start()
        return await future

    def _constraint(self, request: Request) -> ConstraintState | None:
        """The state of a request's constraint at the end of its prefix.

        Raises:
            RecipeError: the constraint does not allow what the prefix gives of the completion.
        """
        wanted = request.sampling.constraint
        if wanted is None:
            return None
        if wanted not in self._constraints:
            self._constraints[wanted] = wanted.build(self.policy)
        state = self._constraints[wanted].begin()
        given = request.prefix[len(request.prefix) - request.written :]
        if not state.advance(given):
            raise RecipeError(
                f"sampling.constraint: kind {wanted.kind!r} does not allow {quoted(self.policy.decode(given)[:200])}, "
                "which a completion begins with here; allowed: guidance and rollouts whose prefixes it allows"
            )
        return state

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

    async def load(
        self, weights: torch.nn.Module | Mapping[str, Tensor], version: int, *, under_way: UnderWay = "refuse"
    ) -> None:
        """The weights in the module have changed in place (or are copied in, when ``weights`` is a state dict).

        Called between two steps, as any coroutine of the engine's loop is.
        """
        in_progress = len(self._slots) or self._waiting or self._scoring
        if in_progress and under_way == "refuse":
            raise RuntimeError("weights were loaded while requests are in progress")
        if isinstance(weights, Mapping):
            self.policy.module.load_state_dict(weights)
        self._forget_cache()
        self.version = version
        if in_progress:
            self._begin()  # its copies of the weights were the old ones
            if under_way == "recompute":
                with torch.inference_mode():
                    self._recompute()

    def _recompute(self) -> None:
        """Compute the caches of what is under way again: of stored prompts, and of what each slot holds."""
        behind, stored = self._behind(), self._prompts.jobs
        of_job: dict[Job, list[int]] = {job: [] for job in stored}
        for slot, job in enumerate(self._slots.job):
            of_job.setdefault(job, []).append(slot)
        # What a job's samples have in common is computed once, so they stay together.
        while of_job:
            batch, tokens = list[Job](), 0
            for job, slots in of_job.items():
                tokens += len(job.request.prefix) + sum(len(behind[slot]) for slot in slots)
                if batch and tokens > self.config.prefill_tokens:
                    break
                batch.append(job)
            slots = [slot for job in batch for slot in of_job.pop(job)]
            self._recomputed([job for job in batch if job in stored], slots, behind)
        self._plan = None

    def _recomputed(self, prompts: Sequence[Job], slots: Sequence[int], behind: Sequence[Sequence[int]]) -> None:
        """Compute stored prompts and what slots hold in one forward pass."""
        plan = self._prefilled([*(job.request.prefix[:-1] for job in prompts), *(behind[slot] for slot in slots)])
        self.occupancy.recomputed += len(plan.tokens)
        for j, job in enumerate(prompts):
            self._prompts.put(job, plan.whole(j))
        # What is before a slot's own tokens is in a stored prompt.
        above = [len(behind[slot]) - int(self._slots.cached[slot]) for slot in slots]
        plan.fill(self._store, [(slot, j) for j, slot in enumerate(slots, len(prompts))], above)

    def _behind(self) -> list[list[int]]:
        """The tokens before the one that each slot is fed next."""
        slots = self._slots
        paths = ([*job.request.prefix, *slots.drawn(slot)] for slot, job in enumerate(slots.job))
        return [path[:at] for path, at in zip(paths, slots.position.tolist(), strict=True)]

    def _forget_cache(self) -> None:
        """Drop what was computed from the old weights."""
        self._keeper.clear()
        if self._features is not None and self.policy.sight is not None:
            self._features.forget()
            self.policy.sight.forget()
        self._left = {}
        self._packs.clear()
        self._decoder = None  # it holds the old copies

    # The pump ------------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        if self._pump is None or self._pump.done():
            self._pump = asyncio.get_running_loop().create_task(self._run())

    def _notice(self, future: asyncio.Future[list[Continuation]]) -> None:
        self._cancelled |= future.cancelled()

    async def _run(self) -> None:
        """Step while there is work. Between steps the callers run: they grade, and send new requests."""
        try:
            self._begin()
            while self._waiting or len(self._slots) or self._scoring:
                await self.may_step()
                with torch.inference_mode():
                    self._drop_cancelled()
                    self._score_waiting()
                    self._admit()
                    if len(self._slots):
                        self._step()
        except BaseException as error:
            self._fail(error)
            if not isinstance(error, Exception):
                raise

    def _begin(self) -> None:
        # The model's modules (hooks, replaced layers) may have changed while no request was in progress.
        self._decoder = Decoder.of(self.policy, self._packs if self.config.pack_weights else None)

    def _fail(self, error: BaseException) -> None:
        futures = [job.future for job in (*self._slots.job, *self._waiting)] + [future for _, future in self._scoring]
        for future in futures:
            if not future.done():
                future.set_exception(error) if isinstance(error, Exception) else future.cancel()
        self._waiting, self._scoring = [], []
        self._reset()

    def _drop_cancelled(self) -> None:
        if self._cancelled:
            self._cancelled = False
            self._waiting = [job for job in self._waiting if job.waits]
            slots = self._slots
            live = np.array([not job.future.cancelled() for job in slots.job], bool)
            # Even where no slot leaves: the prompt of samples that waited does.
            self._regroup(MemberGroups(slots.first, slots.member_slot[slots.first], slots.member_slot), live)

    # Joining -------------------------------------------------------------------------------------------------------

    def _admit(self) -> None:
        """Give free places to waiting samples, in the order of their requests."""
        while self._waiting and (free := self.config.max_sequences - self._slots.members) > 0:
            # A request that has started goes first: so only one prompt at a time is stored for samples that wait.
            self._waiting.sort(key=lambda job: (not job.started, job.request.order))
            places: dict[Job, range] = {}
            tokens = 0
            for job in self._waiting:
                tokens += 0 if job.started else len(job.request.prefix)
                if not free or (places and tokens > self.config.prefill_tokens):
                    break
                places[job] = range(job.started, min(job.started + free, len(job.request.seeds)))
                free -= len(places[job])
            self._join(places)
            self._waiting = [job for job in self._waiting if job.waits]  # only now: on an error all must still be there

    def _join(self, places: Mapping[Job, range]) -> None:
        """Start these samples of each request.

        The prefix is computed with a request's first ones, except for its last token, which the next step feeds.
        """
        jobs = list(places)
        plan = self._prefilled([() if job.started else job.request.prefix[:-1] for job in jobs])
        self.occupancy.prefilled += len(plan.tokens)
        joining: list[Joining] = []
        own: list[int] = []
        may_share = self._may_share()
        for j, (job, members) in enumerate(places.items()):
            length, samples = len(job.request.prefix), len(job.request.seeds)
            if not job.started and self._routers is not None:
                job.experts = plan.went(j)
            shares = may_share and length > 1 and length * (samples - 1) >= 7 * self.config.share_prompt_tokens
            if not job.started and (shares or members.stop < samples):
                self._prompts.add(job, plan.whole(j))
            shared, cached = (self._prompts.entry(job), 0) if shares else (-1, length - 1)
            if not shares:
                own.append(j)
            joining.append(self._joining(job, members, cached, shared))
        have = len(self._slots)
        # As wide as the slots' own tokens: a shared prompt is stored elsewhere.
        self._store.reserve(have + len(jobs), max((len(jobs[j].request.prefix) for j in own), default=1))
        entry, missing = self._entries(jobs, own)
        plan.fill(self._store, [(entry[j], j) for j in missing if not jobs[j].started])
        for j in missing:
            if jobs[j].started:
                self._store.put(entry[j], self._prompts.read(jobs[j]))
        plan.keep([j for j, job in enumerate(jobs) if job.request.keep])
        self._slots.join([joining[j] for j in sorted(range(len(jobs)), key=entry.__getitem__)])
        for job, members in places.items():
            job.started = members.stop
        self._forget_left()
        self._plan = None

    def _prefilled(self, paths: Sequence[Sequence[int]]) -> PrefillPlan:
        """Keys and values of paths, of which those that are not kept are computed."""
        plan = self._prefill_plan(paths)
        if len(plan.tokens):
            device = self.policy.device
            tokens, position = torch.tensor(plan.tokens, device=device), torch.tensor(plan.position, device=device)
            seen = {} if self.policy.sight is None else self._seen_by(self.policy.sight, plan, paths)
            self._hidden(tokens, position, plan.to(device), furthest=max(plan.position), **seen)
            plan.experts = self._went
        return plan

    def _joining(self, job: Job, members: range, cached: int, shared: int = -1) -> Joining:
        """What a slot of a job's samples begins with."""
        request = job.request
        limit = min(request.sampling.max_completion_tokens, self.policy.context_length - len(request.prefix))
        carried = carried_by(job, routing=self._routers is not None)
        return Joining(job, members, cached, shared, limit, self._distribution(request), carried)

    def _entries(self, jobs: list[Job], own: list[int]) -> tuple[list[int], list[int]]:
        """Entries of the store after the live slots, one per request, and which own prefixes are not there yet.

        Args:
            own: the requests whose slots hold their whole prefix.
        """
        have = len(self._slots)
        entry = [-1] * len(jobs)
        free = dict.fromkeys(range(have, have + len(jobs)))
        for j in own if self._left else ():
            left = self._left.get(tuple(jobs[j].request.prefix[:-1]), -1)
            if left in free:
                entry[j] = left
                del free[left]
        missing = [j for j in own if entry[j] < 0]
        rest = iter(free)
        return [next(rest) if at < 0 else at for at in entry], missing

    def _forget_left(self) -> None:
        """Forget entries that live slots have taken."""
        self._left = {path: entry for path, entry in self._left.items() if entry >= len(self._slots)}

    def _may_share(self) -> bool:
        config = self.policy.causal.config.get_text_config()
        limits = (getattr(config, name, None) for name in ("sliding_window", "attention_chunk_size"))
        return all(limit is None for limit in limits)

    def _distribution(self, request: Request) -> int:
        """Index of a distribution: of what decides how a token is drawn, and what is reported of it."""
        sampling = request.sampling
        how = Distribution(
            (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p),
            sampling.constraint is not None,
            request.top,
            request.entropy,
        )
        self._distributions.setdefault(how, request)
        return list(self._distributions).index(how)

    # Stepping ------------------------------------------------------------------------------------------------------

    def _step(self) -> None:
        """Feed every slot's token, draw the next for every sample, branch slots whose samples diverge."""
        slots = self._slots
        drawn = self._draw(self._feed())
        self.occupancy.steps += 1
        self.occupancy.computed += len(slots)
        self.occupancy.drawn += slots.members
        progress.sampled(tokens=slots.members)
        slots.cached += 1
        slots.position += 1
        self._settle(*drawn)

    def _feed(self) -> Tensor:
        """(A, V) logits after the token of every slot."""
        slots = self._slots
        self._store.reserve(len(slots), int(slots.cached.max()) + 1)
        if self._plan is None:
            self._plan = self._decode_plan()
        else:
            self._plan.advance()
        tokens, position = torch.from_numpy(slots.fed).to(self.policy.device)
        seen = {} if self.policy.sight is None else self._seen_in_step(self.policy.sight)
        hidden = self._hidden(tokens, position, self._plan, furthest=int(slots.position.max()), **seen)
        for slot in range(len(slots)) if self._routers is not None else ():
            slots.carried[slot].experts_now = [self._went[slot]]
        lean = self._lean
        return self.policy.head(hidden, None if lean is None else lean.output)

    def _prefill_plan(self, prefixes: Sequence[Sequence[int]]) -> PrefillPlan:
        cache = self.policy.model_cache
        return PrefillPlan(prefixes, self._keeper) if cache is None else ModelPrefillPlan(prefixes, self._keeper, cache)

    def _decode_plan(self) -> DecodePlan:
        cache, length, part = self.policy.model_cache, self._slots.cached, self._prompts.part(self._slots)
        return (
            DecodePlan(self._store, length, part)
            if cache is None
            else ModelDecodePlan(self._store, length, part, cache)
        )

    def _hidden(self, tokens: Tensor, position: Tensor, plan: AttentionPlan, *, furthest: int, **seen: Any) -> Tensor:
        """Directly from the weights where the architecture is known; else, and for pictures, by the model's own."""
        lean = self._lean
        if isinstance(plan, (ModelPrefillPlan, ModelDecodePlan)):
            seen["past_key_values"] = KeptCache(plan, position)
        if self._routers is not None:
            with routed(routing := self._routers.routing()):
                hidden = self.policy.hidden(tokens, position, plan, **seen)
            self._went = routing.experts().cpu().numpy().astype(np.int16)
            return hidden
        if lean is None or seen:
            return self.policy.hidden(tokens, position, plan, **seen)
        return lean.hidden(tokens, position, plan, furthest=furthest)

    def _seen_by(self, sight: Sight, plan: PrefillPlan, paths: Sequence[Sequence[int]]) -> dict[str, Any]:
        """What the model is told of the pictures among new tokens."""
        shift = [n for j, first in plan.runs for n in sight.shifts(paths[j])[first:]]
        return {"shift": torch.tensor(shift, device=self.policy.device), "features": self._features}

    def _seen_in_step(self, sight: Sight) -> dict[str, Any]:
        """What it is told of the tokens that are fed: nothing where all are text, in one row of positions."""
        slots = self._slots
        if not sight.rope and int(slots.token.max()) < FIRST:
            return {}
        last, after = np.array([job.shift for job in slots.job]).T
        shift = torch.from_numpy(np.where(slots.count == 0, last, after)).to(self.policy.device)
        return {"shift": shift, "features": self._features}

    @property
    def _lean(self) -> Decoder | None:
        """The decoder, where it computes what the modules would compute now."""
        return self._decoder if self._decoder is not None and self._decoder.usable else None

    def _draw(self, logits: Tensor) -> tuple[Ints, Floats, Floats]:
        """(M,) token, behaviour and model log-probability of each member."""
        slots, device = self._slots, logits.device
        uniforms = uniform(slots.seed, slots.count[slots.member_slot].astype(np.uint64))
        token, logprob = np.empty(slots.members, np.int64), np.empty((2, slots.members), np.float32)
        distributions = list(self._distributions.values())
        for kind in slots.distributions:
            rows, members, place = None, slice(None), None if slots.alone else slots.member_slot
            if len(slots.distributions) > 1:
                rows = np.flatnonzero(slots.distribution == kind)
                members = np.flatnonzero(slots.distribution[slots.member_slot] == kind)
                place = np.searchsorted(rows, slots.member_slot[members])
            z = logits if rows is None else logits[torch.from_numpy(rows).to(device)]
            request = distributions[kind]
            drawn = draw(
                z,
                None if place is None else torch.from_numpy(place).to(device),
                torch.from_numpy(uniforms[members]).to(device),
                request.sampling,
                self._carried(z, range(len(slots)) if rows is None else rows.tolist(), request),
            )
            token[members] = drawn.token.cpu().numpy()
            logprob[0, members] = drawn.behaviour_logprob.cpu().numpy()
            logprob[1, members] = drawn.model_logprob.cpu().numpy()
        self._require(bool(np.isfinite(logprob).all()))
        return token, logprob[0], logprob[1]

    def _carried(self, logits: Tensor, of_slots: Sequence[int], request: Request) -> Tensor | None:
        """(A, V) tokens that the slots' constraints allow, None without one; and writes what is reported of this
        step."""
        if request.sampling.constraint is None and not request.top and not request.entropy:
            return None
        carried = [self._slots.carried[slot] for slot in of_slots]
        allowed = None
        bits = [each.constraint.allowed() for each in carried if each.constraint is not None]
        if bits:
            allowed = unpacked(torch.from_numpy(np.stack(bits)).to(logits.device), logits.shape[1])
        if request.top:
            token, logprob = (x.tolist() for x in likeliest(logits, request.top, allowed))
            for each, tokens, nats in zip(carried, token, logprob, strict=True):
                each.top_now = [tuple(zip(tokens, nats, strict=True))]
        if request.entropy:
            for each, nats in zip(carried, entropies(logits, allowed).tolist(), strict=True):
                each.entropy_now = [nats]
        return allowed

    def _require(self, finite: bool) -> None:
        """Raise Diverged where logits are not finite: tokens drawn from them are meaningless."""
        if finite:
            return
        if self.version:
            cause = f"under the weights of step {self.version}, which have diverged"
        else:
            cause = "so that training has diverged, or the weights that were loaded are broken"
        raise Diverged(
            f"the model's logits are not finite, {cause}; lower learner.lr or learner.max_grad_norm and resume from an "
            "earlier checkpoint, or use another model"
        )

    def _settle(self, token: Ints, behaviour: Floats, model: Floats) -> None:
        """Sort each slot's samples by the token they drew: finished ones leave, each other token is a slot."""
        slots = self._slots
        groups = slots.grouped(token)
        token, behaviour, model = token[groups.leader], behaviour[groups.leader], model[groups.leader]
        finished = self._finished(groups, token)
        if not finished and len(groups.slot) == len(slots):
            slots.append(groups.slot, token, behaviour, model, self.version)
            return
        live = np.ones(len(token), bool)
        for g, finish in finished.items():
            live[g] = False
            self._finish(groups, g, (int(token[g]), float(behaviour[g]), float(model[g])), finish)
        self._keep(np.unique(groups.slot[~live]))
        place = self._regroup(groups, live)
        if len(place):
            slots.append(place, token[live], behaviour[live], model[live], self.version)

    def _finished(self, groups: MemberGroups, token: Ints) -> dict[int, str]:
        """Finish reason of each group that ends here."""
        slots = self._slots
        count = slots.count[groups.slot] + 1
        may = (count >= slots.limit[groups.slot]) | (slots.strings[groups.slot] > 0)
        if len(slots.stop_ids):
            may |= (token[:, None] == slots.stop_ids).any(1)
        finished: dict[int, str] = {}
        for g in np.flatnonzero(may).tolist():
            slot = int(groups.slot[g])
            if self._stopped(slot, int(token[g])):
                finished[g] = "stop"
            elif count[g] >= slots.limit[slot]:
                finished[g] = "length"
        return finished

    def _stopped(self, slot: int, token: int) -> bool:
        job = self._slots.job[slot]
        request, stops = job.request, job.request.sampling.stop
        if token in job.stop_ids or not stops:
            return token in job.stop_ids
        drawn = [*self._slots.drawn(slot), token]
        return ends_in_drawn(request.prefix, request.written, drawn, stops, self.policy.decode)

    def _finish(self, groups: MemberGroups, group: int, last: tuple[int, float, float], finish: str) -> None:
        slots, slot = self._slots, int(groups.slot[group])
        job, drawn = slots.job[slot], slots.drawn(slot)
        behaviour, model = slots.logprobs(slot)
        tokens, version = [*drawn, last[0]], [*slots.versions(slot), self.version]
        members = slots.member[groups.of == group].tolist()
        carried = slots.carried.get(slot, NOTHING)
        experts = np.array([*carried.experts, *carried.experts_now], np.int16) if self._routers else no_choices()
        for member in members:
            job.results[member] = Continuation(
                list(tokens),
                [*behaviour, last[1]],
                [*model, last[2]],
                list(version),
                finish,
                [*carried.top, *carried.top_now],
                [*carried.entropy, *carried.entropy_now],
                experts,
                job.experts,
            )
        progress.sampled(ended=len(members))
        job.left -= len(members)
        if job.left == 0 and not job.future.done():
            job.future.set_result([result for result in job.results if result is not None])

    def _keep(self, ended: Ints) -> None:
        """Keep the cache of slots in which samples ended: the prefix and all drawn tokens but the last."""
        slots = self._slots
        entry, place, pool = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for slot in ended.tolist():
            job = slots.job[slot]
            request = job.request
            if not request.keep:
                continue
            # A slot does not own its shared prompt: where that was evicted, nothing below it can be found.
            elsewhere = int(slots.position[slot] - slots.cached[slot])
            path = (*request.prefix, *slots.drawn(slot))
            if not elsewhere:
                self._left[path] = slot
            at, added = self._keeper.add(path, least=elsewhere)
            entry.append(np.full(len(added), slot))
            place.append(at - elsewhere + np.arange(len(added)))
            pool.append(added)
            if self._routers is not None and len(added):
                carried = slots.carried[slot]
                went = np.concatenate([job.experts, [*carried.experts, *carried.experts_now]])
                self._keeper.pool.experts[added] = went[at:]
        if len(pool) > 1:
            read = self._store.read(np.concatenate(entry), np.concatenate(place))
            self._keeper.pool.write(np.concatenate(pool), read)
            self._keeper.trim()

    def _regroup(self, groups: MemberGroups, live: NDArray[np.bool_]) -> Ints:
        """Every live group becomes a slot with its cache; returns the slot of each."""
        place, source, target = self._slots.regroup(groups, live)
        self._move(source, target)
        return place

    def _move(self, source: Ints, target: Ints) -> None:
        """Copy the cache of slots to others, after slots were regrouped."""
        slots = self._slots
        if len(source):
            longest = int(slots.cached.max())
            self._store.reserve(len(slots), longest)
            self._store.copy(source.tolist(), target.tolist(), longest)
        self._prompts.release(slots)
        self._forget_left()
        self._plan = None

    # Scoring -------------------------------------------------------------------------------------------------------

    def _score_waiting(self) -> None:
        if not self._scoring:
            return
        # At most this many tokens at once; a longer request goes alone.
        ends = itertools.accumulate(len(tokens) for tokens, _ in self._scoring)
        batch = self._scoring[: max(1, sum(end <= self.config.prefill_tokens for end in ends))]
        device = self.policy.device
        starts = np.cumsum([0] + [len(tokens) for tokens, _ in batch])
        paths = [torch.arange(a, b) for a, b in itertools.pairwise(starts)]
        token = torch.tensor([t for tokens, _ in batch for t in tokens], device=device)
        position = torch.cat([torch.arange(len(tokens)) for tokens, _ in batch]).to(device)
        seen: dict[str, Any] = {}
        if (sight := self.policy.sight) is not None:
            shift = [n for tokens, _ in batch for n in sight.shifts(tokens)]
            seen = {"shift": torch.tensor(shift, device=device), "features": self._features}
        hidden = self.policy.hidden(token, position, TreePlan(paths, [0] * len(paths)).to(device), **seen)
        logprob = logprob_of(self.policy, hidden[:-1], token[1:]).tolist()
        self._require(not any(map(math.isnan, logprob)))  # -inf is a valid score: a token that the model rules out
        self._scoring = self._scoring[len(batch) :]
        for (_, future), a, b in zip(batch, starts[:-1], starts[1:], strict=True):
            if not future.done():
                future.set_result([0.0, *logprob[a : b - 1]])

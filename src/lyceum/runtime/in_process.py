"""The in-process runtime: rollouts, graders and engine as coroutines of one event loop, in a fixed order.

Random draws are keyed by what is drawn (run seed, step, task, node, number of the draw), and the engine's batches form
in an order that does not depend on time, so that a resumed run is the same run.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass
from itertools import accumulate, takewhile
from pathlib import Path
from typing import Any, Literal, TypeVar

from lyceum.core.roles import Roles
from lyceum.core.settings import RuntimeSettings
from lyceum.core.steps import write_texts
from lyceum.core.tree import Node, Tree
from lyceum.core.types import (
    ASSISTANT,
    Continuation,
    Engine,
    FrozenName,
    Grade,
    Grader,
    History,
    Judgement,
    JudgingValue,
    MarkedPath,
    Message,
    Request,
    Rollout,
    Sampling,
    Scored,
    Served,
    ServedLimits,
    Spoken,
    Task,
    ValueModel,
)
from lyceum.core.waves import Grows, Runtime
from lyceum.models.picture_tokens import note_shown
from lyceum.models.policy import Policy
from lyceum.models.renderer import RenderedPrompt
from lyceum.runtime.endpoint import ChatEndpoint
from lyceum.utils import progress as display
from lyceum.utils.aio import IdleLoop, gather, idle
from lyceum.utils.seeds import SeedKey, counter_seed
from lyceum.utils.stop_strings import ends_in_drawn

T = TypeVar("T")


class InProcessRuntime(RuntimeSettings):
    """In the process that trains: generation and training take turns."""

    kind: Literal["in-process"] = "in-process"

    def build(self, here: Grows, start: Callable[[], Mapping[str, Any]]) -> Runtime:
        return here


ScoreUnder = Callable[[FrozenName, Sequence[Scored]], list[list[float]]]
"""The learner's ``score_under``."""


class InProcess:
    """Runs one coroutine per task over a shared engine.

    Args:
        grader: grades these tasks.
        seed: random seed of the run.
        max_tokens_per_task: maximum tokens sampled per task and step, over all its rollouts; None for no limit.
        value: value model behind ``Context.value``; None without one.
        grader_asks: whether the grader asks the model, so that its further questions follow from what it waits for.
        tools: what prompts tell of, as JSON schemas.
        score_under: scores under the stage's frozen models; None without any.
        judge: the value model, where it gives rewards.
        roles: which model plays which role; None: the engine's one model plays all.
        folder: ``GradingContext.folder``.
    """

    def __init__(
        self,
        policy: Policy,
        engine: Engine,
        grader: Grader,
        *,
        seed: int,
        max_tokens_per_task: int | None = None,
        value: ValueModel | None = None,
        grader_asks: bool = False,
        tools: Sequence[Mapping[str, Any]] = (),
        score_under: ScoreUnder | None = None,
        judge: JudgingValue | None = None,
        roles: Roles | None = None,
        folder: Path | None = None,
    ) -> None:
        self.folder = folder
        self.policy, self.engine, self.grader, self.seed = policy, engine, grader, seed
        self.max_tokens_per_task, self.value_model, self.grader_asks = max_tokens_per_task, value, grader_asks
        self.tools, self.score_under, self.judge, self.roles = tools, score_under, judge, roles or Roles()
        self._valuing: list[tuple[Sequence[Node], asyncio.Future[list[float]]]] = []
        self._valuer: asyncio.Future[None] | None = None
        self._holds: set[Hold] = set()
        self._back = asyncio.Event()
        self._endpoint: ChatEndpoint | None = None
        """None before the first episode of an agent."""

    async def run(
        self,
        tasks: Sequence[Task],
        rollout: Rollout,
        *,
        key: SeedKey,
        samples: int | None = None,
        under_way: Sequence[Tree] = (),
        numbers: Sequence[int] | None = None,
        step: int = 0,
        progress: float = 0.0,
        done: Callable[[Tree], None] | None = None,
        drawn: Callable[[], None] | None = None,
    ) -> list[Tree]:
        """Every task's tree, in the order of the tasks, after those under way; finished ones are graded.

        Args:
            key: separates this call's random draws from those of other calls (the step).
            samples: trajectories of a task that does not say how many; None leaves it to the rollout.
            under_way: trees of earlier calls, whose unfinished trajectories go on.
            numbers: of each task, in the order of the result, how often it was there before: each time has draws of its
                own. None counts here; who has other processes run a part of the tasks says it.
            step, progress: how far the stage is, for rollouts that change over training.
            done: called with each finished tree, for the progress display.
            drawn: called when all rollouts have ended, so that only grading is left.
        Raises:
            RuntimeError: the event loop is not ``run_async``'s: it is not known when all requests of a batch are sent.
        """
        if not isinstance(asyncio.get_running_loop(), IdleLoop):
            raise RuntimeError("rollouts run in the loop of lyceum.utils.aio.run_async, not in another one")
        # Here, not when it was built: an evaluation between two steps has its own runtime over the same engine.
        self.engine.may_step = self._all_back
        if numbers is None:
            numbers = counted([*(tree.task for tree in under_way), *tasks])

        def context_of(task: Task, place: int, tree: Tree | None = None) -> TaskContext:
            key_of_task = (self.seed, key, task.id, numbers[place])
            return TaskContext(self, task, key_of_task, place, tree=tree, step=step, progress=progress)

        rolling = len(under_way) + len(tasks)

        async def ended() -> None:
            nonlocal rolling
            rolling -= 1
            if not rolling:
                await self._serve_nobody()  # now: another call may use it while trees of this one are graded
                if drawn is not None:
                    drawn()

        async def one(context: TaskContext) -> Tree:
            tree = context.tree
            if tree.chosen is None:
                tree.chosen = await rollout(context, tree.root, context.task.samples or samples)
            else:
                shared = context.share(context.budget_left // len(tree.unfinished))
                ways = [(leaf, rollout(shared, leaf, 1) if leaf.finish is None else None) for leaf in tree.chosen]
                further = iter(await gather(way for _, way in ways if way is not None))
                tree.chosen = [end for leaf, way in ways for end in ([leaf] if way is None else next(further))]
            await ended()
            if not tree.unfinished:
                # The rollout has ended and reads none of these grades, so the engine need not wait for them.
                await context.finish(tree.chosen, wait=self.grader_asks)
            if done is not None:
                done(tree)
            return tree

        contexts = [context_of(tree.task, place, tree) for place, tree in enumerate(under_way)]
        contexts += [context_of(task, place) for place, task in enumerate(self.policy.foreseen(tasks), len(contexts))]
        try:
            return await gather([one(context) for context in contexts])
        finally:
            if rolling:
                await self._serve_nobody()

    async def _serve_nobody(self) -> None:
        if self._endpoint is not None:
            await self._endpoint.close()

    async def beside(
        self,
        task: Task,
        rollout: Rollout,
        *,
        key: SeedKey,
        place: int,
        samples: int | None,
        step: int,
        progress: float,
        drawing: AbstractAsyncContextManager[object],
    ) -> Tree:
        """One task's finished tree, beside others that grow at the same time: the engine steps when no coroutine can go
        on, and waits for no grader and no environment. Batches, and with them last bits, depend on the clock.

        Args:
            place: requests that wait together are answered in its order.
            drawing: entered before the first token is drawn, left when only grading is left.
        """
        self.engine.may_step = idle
        context = TaskContext(self, task, (self.seed, key, task.id, 0), place, step=step, progress=progress)
        tree = context.tree
        async with drawing:
            tree.chosen = await rollout(context, tree.root, task.samples or samples)
        await context.finish(tree.chosen, wait=False)
        return tree

    async def grade(self, task: Task, leaves: Sequence[Node], *, key: SeedKey) -> None:
        """Grade trajectories of a task that were not rolled out here.

        Args:
            key: as for ``run``.
        """
        self.engine.may_step = self._all_back
        await TaskContext(self, task, (self.seed, key, task.id, 0), 0).finish(leaves, wait=True)

    async def value(self, paths: Sequence[Node]) -> list[float]:
        """Values of paths. Tasks that ask at the same time share one call of the model, for which the engine waits."""
        if self.value_model is None:
            raise RuntimeError("a rollout asked for the value of a path, and the stage has no value model")
        answer: asyncio.Future[list[float]] = asyncio.get_running_loop().create_future()
        self._valuing.append((paths, answer))
        if len(self._valuing) == 1:
            self._valuer = asyncio.ensure_future(self._value_waiting(self.value_model))
        with self.holding():
            return await answer

    async def _value_waiting(self, model: ValueModel) -> None:
        await idle()
        waiting, self._valuing = self._valuing, []
        try:
            values = model([node for paths, _ in waiting for node in paths])
        except Exception as error:
            for _, answer in waiting:
                if not answer.done():
                    answer.set_exception(error)
            return
        for paths, answer in waiting:
            found, values = values[: len(paths)], values[len(paths) :]
            if not answer.done():  # cancelled meanwhile
                answer.set_result(found)

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Hold the engine: what is awaited here takes a varying time, and its result leads to further requests.

        They would join batches that differ from run to run, and in the last bits so would all in them.
        """
        hold = Hold()
        self._holds.add(hold)
        token = _hold.set(hold)
        try:
            yield
        finally:
            _hold.reset(token)
            self._holds.remove(hold)
            self._back.set()

    @asynccontextmanager
    async def serving(
        self, context: TaskContext, number: int, sampling: Sampling, limits: ServedLimits
    ) -> AsyncIterator[Served]:
        """An episode of someone who asks by OpenAI's interface; the engine waits for it where its limits say so."""
        hold = Hold()
        if limits.waits:
            self._holds.add(hold)

        def turned(asks: bool) -> None:
            hold.asking = int(asks)
            self._back.set()

        if self._endpoint is None:
            self._endpoint = ChatEndpoint(self.policy.renderer, self.policy.context_length)
        try:
            async with self._endpoint.serving(context, number, sampling, limits, turned) as served:
                yield served
        finally:
            self._holds.discard(hold)
            self._back.set()

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Let the engine go on where who holds it asks it something."""
        hold = _hold.get()
        if hold is None:
            yield
            return
        hold.asking += 1
        self._back.set()
        try:
            yield
        finally:
            hold.asking -= 1

    async def _all_back(self) -> None:
        """Until nobody holds the engine, and everyone has sent the next requests."""
        await idle()
        while any(not hold.asking for hold in self._holds):
            self._back.clear()
            await self._back.wait()
            await idle()


def counted(tasks: Sequence[Task]) -> list[int]:
    """How often each task is among those before it."""
    seen: Counter[str] = Counter()
    numbers: list[int] = []
    for task in tasks:
        numbers.append(seen[task.id])
        seen[task.id] += 1
    return numbers


@dataclass(eq=False)
class Hold:
    """Something for which the engine waits, while it does not itself wait for the engine.

    Attributes:
        asking: its requests that the engine has.
    """

    asking: int = 0


_hold: ContextVar[Hold | None] = ContextVar("lyceum_hold", default=None)
"""The hold within which a coroutine runs."""


def assistant_tokens(node: Node) -> int:
    """Tokens of the assistant at the end of a path, since anyone else wrote: a stop string may begin in them."""
    ending = takewhile(lambda above: above.origin in ASSISTANT, reversed(node.path()))
    return sum(len(above.tokens) for above in ending)


@dataclass
class Budget:
    """Tokens that may be sampled, within a larger budget.

    Attributes:
        left: None for no limit of its own.
    """

    left: int | None
    within: Budget | None = None

    @property
    def tokens(self) -> int:
        limits = [1 << 62] if self.left is None else [max(0, self.left)]
        return min(limits if self.within is None else [*limits, self.within.tokens])

    def spend(self, tokens: int) -> None:
        self.left = None if self.left is None else self.left - tokens
        if self.within is not None:
            self.within.spend(tokens)


class TaskContext:
    """Implements :class:`lyceum.core.types.Context` for one task.

    Args:
        key: what the task's random draws are keyed by.
        place: of the task in the step: requests that wait together are answered in this order.
        tree: one that is under way; None begins a new one.
    """

    def __init__(
        self,
        runtime: InProcess,
        task: Task,
        key: tuple[object, ...],
        place: int,
        *,
        tree: Tree | None = None,
        step: int = 0,
        progress: float = 0.0,
    ) -> None:
        self.task, self.step, self.progress = task, step, progress
        self._runtime, self._key, self._place, self._role, self._model = runtime, key, place, "", 0
        self._changes: tuple[Callable[[Sampling], Sampling], ...] = ()
        self._entropy = False
        self._budget = Budget(runtime.max_tokens_per_task)
        self._prompts: dict[tuple[int, ...], RenderedPrompt] = {}
        """What was rendered, by its tokens: conversations go on from there."""
        self.tree = self._begun() if tree is None else tree

    def _begun(self) -> Tree:
        prompt = self._rendered(self.task.messages)
        return Tree(self.task, [Node.prompt(prompt, self.decode(prompt))])

    @property
    def version(self) -> int:
        return self._runtime.engine.version

    @property
    def folder(self) -> Path | None:
        return self._runtime.folder

    def share(self, tokens: int) -> TaskContext:
        shared = copy(self)
        shared._budget = Budget(tokens, self._budget)
        return shared

    async def outside(self, answer: Awaitable[T]) -> T:
        with self._runtime.holding():
            return await answer

    def served(self, episode: int, sampling: Sampling, limits: ServedLimits) -> AbstractAsyncContextManager[Served]:
        return self._runtime.serving(self, episode, sampling, limits)

    def acting(self, role: str, task: Task | None = None) -> TaskContext:
        acting = copy(self)
        acting._role, acting._model, acting.task = role, self._runtime.roles.model(role, self.step), task or self.task
        return acting

    def with_sampling(self, change: Callable[[Sampling], Sampling], *, entropy: bool = False) -> TaskContext:
        changed = copy(self)
        changed._changes, changed._entropy = (*self._changes, change), entropy or self._entropy
        return changed

    def render(self, messages: Sequence[Message]) -> list[int]:
        note_shown(self.tree, messages)
        return self._rendered(messages)

    def _rendered(self, messages: Sequence[Message]) -> list[int]:
        prompt = self._runtime.policy.renderer.render(messages, self._runtime.tools)
        self._prompts[prompt.tokens] = prompt
        return list(prompt.tokens)

    def follow(self, node: Node, messages: Sequence[Message], history: History = "append") -> tuple[int, list[int]]:
        path = tuple(node.path_tokens())
        ends = accumulate(len(above.tokens) for above in node.path())
        prompt = next((self._prompts[path[:end]] for end in [*ends][::-1] if path[:end] in self._prompts), None)
        if prompt is None:
            raise ValueError(f"task {self.task.id!r}: a conversation goes on after a prompt that was not rendered here")
        after = self._runtime.policy.renderer.follow(prompt, path[len(prompt.tokens) :], messages, history)
        self._prompts[after.prompt.tokens] = after.prompt
        note_shown(self.tree, messages)
        return after.keep, list(after.tokens)

    def decode(self, tokens: Sequence[int]) -> str:
        return self._runtime.policy.decode(tokens)

    def encode(self, completion: str) -> list[int]:
        return self._runtime.policy.encode(completion)

    def encode_after(self, path: Sequence[int], text: str) -> list[int]:
        return self._runtime.policy.renderer.within(path, text)

    def spoken(self, turn: Node) -> Spoken | None:
        path = turn.path()
        own = [*takewhile(lambda above: above.origin in ASSISTANT, reversed(path))][::-1]
        # What was written since the turn before: in a long conversation all of it would be decoded again at each turn.
        above = [*takewhile(lambda node: node.origin not in ASSISTANT, reversed(path[: -len(own)]))][::-1]
        before, said = ([token for node in nodes for token in node.tokens] for nodes in (above, own))
        renderer = self._runtime.policy.renderer
        return renderer.spoken(renderer.text(before), said, self._runtime.tools)

    async def extend(
        self,
        node: Node,
        n: int,
        sampling: Sampling | None = None,
        *,
        keep: bool = False,
        top: int = 0,
        entropy: bool = False,
        draws: Sequence[int] | None = None,
    ) -> list[Node]:
        if draws is None:
            draws, node.draws = range(node.draws, node.draws + n), node.draws + n
        seeds = [self.seed(node.address, number) for number in draws]
        sampling = sampling or Sampling()
        for change in self._changes:
            sampling = change(sampling)
        written = assistant_tokens(node) if sampling.stop or sampling.constraint is not None else 0
        order = (self._place, node.address, *draws[:1])
        path = node.path_tokens()
        request = Request(
            path,
            seeds,
            sampling,
            keep,
            order=order,
            written=written,
            top=top,
            entropy=entropy or self._entropy,
            model=self._model,
        )
        drawn = await self._runtime.engine.extend(request)
        sampled = sum(len(continuation.tokens) for continuation in drawn)
        self._budget.spend(sampled)
        self.tree.sampled_tokens += sampled
        # Samples that drew the same tokens are decoded once.
        texts = {tuple(c.tokens): "" for c in drawn}
        if node.parent is None:
            for tokens in texts:
                texts[tokens] = self.decode(tokens)
        if drawn:
            node.note_experts(drawn[0].prefix_experts)
        children = [
            node.add_drawn(c, texts[tuple(c.tokens)], number=number, role=self._role, model=self._model)
            for number, c in zip(draws, drawn, strict=True)
        ]
        if node.parent is not None:  # decoded alone they may lack a space, or begin inside a character
            for child in children:
                write_texts([child], self.decode, terminal=True)
        return children

    def choose(self, node: Node, token: int, logprob: float, sampling: Sampling) -> Node:
        policy, path = self._runtime.policy, node.path_tokens()
        ends = token in policy.stop_ids or token in sampling.stop_token_ids
        if sampling.stop and not ends:
            ends = ends_in_drawn(path, assistant_tokens(node), [token], sampling.stop, policy.decode)
        self._budget.spend(1)
        self.tree.sampled_tokens += 1
        finish = "stop" if ends else "length"
        # Of the weights that drew the token in whose place it is: newer ones may have come since.
        beside = next((child.version[0] for child in node.children if child.version), self.version)
        child = node.add_drawn(Continuation([token], [0.0], [logprob], [beside], finish))
        write_texts([child], self.decode, terminal=ends)
        return child

    async def ask(
        self, prefix: Sequence[int], n: int, sampling: Sampling, *, key: tuple[SeedKey, ...]
    ) -> list[Continuation]:
        seeds = [self.seed("ask", *key, i) for i in range(n)]
        with self._runtime.asking():
            drawn = await self._runtime.engine.extend(Request(prefix, seeds, sampling, order=(self._place, *seeds[:1])))
        self.tree.sampled_tokens += sum(len(continuation.tokens) for continuation in drawn)
        return drawn

    async def score(self, path: Sequence[int]) -> list[float]:
        with self._runtime.asking():
            return await self._runtime.engine.score(path)

    async def score_under(self, model: FrozenName, paths: Sequence[Scored]) -> list[list[float]]:
        # Computed at once, not batched with other tasks' paths: which paths share a forward pass changes last bits, and
        # must not depend on when a verifier answered.
        if self._runtime.score_under is None:
            raise RuntimeError(f"log-probabilities under the model {model!r} were asked for, where there is none")
        return self._runtime.score_under(model, paths)

    async def grade(self, leaves: Sequence[Node]) -> list[Grade]:
        await self.finish(leaves, wait=True)
        return [leaf.grade for leaf in leaves if leaf.grade is not None]

    async def finish(self, leaves: Sequence[Node], *, wait: bool) -> None:
        """Grade, together, the leaves that have no grade yet.

        Args:
            wait: whether the engine waits for them.
        """
        new = list(dict.fromkeys(leaf for leaf in leaves if leaf.grade is None))
        if not new:
            return
        display.sampled(to_grade=len(new))
        with self._runtime.holding() if wait else nullcontext():
            grades = await self._runtime.grader(self.task, new, self)
        display.sampled(graded=len(new))
        for leaf, grade in zip(new, grades, strict=True):
            leaf.grade = grade

    async def value(self, paths: Sequence[Node]) -> list[float]:
        return await self._runtime.value(paths)

    async def judge(self, paths: Sequence[MarkedPath]) -> list[Judgement]:
        # Not batched with other tasks' paths, for the reason given in ``score_under``.
        model = self._runtime.judge
        if model is None:
            raise RuntimeError("a reward asked for a value model's judgement, and the stage has none that judges")
        return model.judge(paths)

    def tokens_left(self, node: Node) -> int:
        return max(0, self._runtime.policy.context_length - sum(len(above.tokens) for above in node.path()))

    def seed(self, *key: SeedKey) -> int:
        return counter_seed(*self._key, *key)

    @property
    def budget_left(self) -> int:
        return self._budget.tokens

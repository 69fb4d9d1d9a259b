"""The in-process runtime: rollouts, graders and engine as coroutines of one event loop, in a fixed order.

Random draws are counter-based (run seed, step, task, sample), and the engine's batches form in an order that does not
depend on time, so that a resumed run is the same run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from lyceum.core.tree import Node, Tree
from lyceum.core.types import Engine, Grade, Grader, Message, Origin, Request, Rollout, Sampling, Task, ValueModel
from lyceum.models.policy import Policy
from lyceum.utils.aio import callers_turn, gather
from lyceum.utils.seeds import SeedKey, counter_seed


class InProcess:
    """Runs one coroutine per task over a shared engine.

    Args:
        grader: grades these tasks.
        seed: random seed of the run.
        max_tokens_per_task: maximum tokens sampled per task and step, over all its rollouts; None for no limit.
        value: value model behind ``Context.value``; None without one.
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
    ) -> None:
        self.policy, self.engine, self.grader, self.seed = policy, engine, grader, seed
        self.max_tokens_per_task, self.value_model = max_tokens_per_task, value
        self._valuing: list[tuple[Sequence[Node], asyncio.Future[list[float]]]] = []
        self._valuer: asyncio.Future[None] | None = None
        self._outside, self._returned = 0, False
        self._back = asyncio.Event()

    async def run(
        self,
        tasks: Sequence[Task],
        rollout: Rollout,
        *,
        key: SeedKey,
        step: int = 0,
        progress: float = 0.0,
        done: Callable[[Tree], None] | None = None,
    ) -> list[Tree]:
        """Every task's tree, in the order of the tasks.

        Args:
            key: separates this call's random draws from those of other calls (the step).
            step, progress: how far the stage is, for rollouts that change over training.
            done: called with each finished tree, for the progress display.
        """

        # Here, not when it was built: an evaluation between two steps has its own runtime over the same engine.
        self.engine.may_step = self._all_back

        async def one(task: Task, place: int) -> Tree:
            context = TaskContext(self, task, (self.seed, key, place, task.id), step=step, progress=progress)
            tree = await rollout(task, context)
            if done is not None:
                done(tree)
            return tree

        return await gather(one(task, place) for place, task in enumerate(tasks))

    async def grade_outside(self, task: Task, leaves: Sequence[Node], *, hold: bool) -> list[Grade]:
        """Grade; with ``hold``, the engine waits meanwhile.

        A task that sends more requests after a verifier in another process would do so at a varying time, into batches
        that differ in their last bits. Tasks that only wait for their grades do not hold the engine.
        """
        with self._held() if hold else nullcontext():
            return await self.grader(task, leaves)

    async def value(self, paths: Sequence[Node]) -> list[float]:
        """Values of paths. Tasks that ask at the same time share one call of the model, for which the engine waits."""
        if self.value_model is None:
            raise RuntimeError("a rollout asked for the value of a path, and the stage has no value model")
        answer: asyncio.Future[list[float]] = asyncio.get_running_loop().create_future()
        self._valuing.append((paths, answer))
        if len(self._valuing) == 1:
            self._valuer = asyncio.ensure_future(self._value_waiting(self.value_model))
        with self._held():
            return await answer

    async def _value_waiting(self, model: ValueModel) -> None:
        await callers_turn()
        asked, self._valuing = self._valuing, []
        try:
            values = model([node for paths, _ in asked for node in paths])
        except Exception as error:
            for _, answer in asked:
                if not answer.done():
                    answer.set_exception(error)
            return
        for paths, answer in asked:
            found, values = values[: len(paths)], values[len(paths) :]
            if not answer.done():  # cancelled meanwhile
                answer.set_result(found)

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Hold the engine for tasks in this context, and then until they have sent their next requests."""
        self._outside += 1
        try:
            yield
        finally:
            self._outside -= 1
            self._returned = True
            if not self._outside:
                self._back.set()

    async def _all_back(self) -> None:
        while self._outside or self._returned:
            if self._outside:
                self._back.clear()
                await self._back.wait()
            # The task that returned last, even during the callers' turn, has not sent its next request yet.
            self._returned = False
            await callers_turn()


class TaskContext:
    """Implements :class:`lyceum.core.types.Context` for one task."""

    def __init__(
        self, runtime: InProcess, task: Task, key: tuple[Any, ...], *, step: int = 0, progress: float = 0.0
    ) -> None:
        self._runtime, self._task, self._key = runtime, task, key
        self._requests = 0
        self._sampled = 0
        self._trees: list[Tree] = []
        self._returns = False
        self._returning = 0
        self.version = runtime.engine.version
        self.step, self.progress = step, progress

    def tree(self, task: Task) -> Tree:
        tokens = self.render(task.messages)
        tree = Tree(task, [Node(None, tokens, Origin.PROMPT, text=self.decode(tokens))])
        self._trees.append(tree)
        return tree

    def render(self, messages: Sequence[Message]) -> list[int]:
        return self._runtime.policy.render(messages)

    def decode(self, tokens: Sequence[int]) -> str:
        return self._runtime.policy.decode(tokens)

    def encode(self, completion: str) -> list[int]:
        return self._runtime.policy.encode(completion)

    async def extend(self, node: Node, n: int, sampling: Sampling | None = None, *, keep: bool = False) -> list[Node]:
        number, self._requests = self._requests, self._requests + 1
        self._returns = keep
        seeds = [self.seed("sample", number, i) for i in range(n)]
        sampling = sampling or Sampling()
        written = len(node.completion_tokens) if sampling.stop else 0
        request = Request(node.path_tokens(), seeds, sampling, keep, order=(self._key[2], number), written=written)
        drawn = await self._runtime.engine.extend(request)
        self.version = self._runtime.engine.version
        sampled = sum(len(continuation.tokens) for continuation in drawn)
        self._sampled += sampled
        # Samples that drew the same tokens are decoded once.
        texts = {tuple(c.tokens): "" for c in drawn}
        for tokens in texts:
            texts[tokens] = self.decode(tokens)
        tree = next((tree for tree in self._trees if node.path()[0] in tree.roots), self._trees[-1])
        tree.sampled_tokens += sampled
        return [node.add_drawn(continuation, texts[tuple(continuation.tokens)]) for continuation in drawn]

    async def score(self, path: Sequence[int]) -> list[float]:
        return await self._runtime.engine.score(path)

    async def grade(self, leaves: Sequence[Node]) -> list[Grade]:
        hold = self._returns or self._returning > 0
        grades = await self._runtime.grade_outside(self._task, leaves, hold=hold)
        for leaf, grade in zip(leaves, grades, strict=True):
            leaf.grade = grade
        return grades

    async def value(self, paths: Sequence[Node]) -> list[float]:
        return await self._runtime.value(paths)

    @contextmanager
    def returning(self) -> Iterator[None]:
        self._returning += 1  # a count, since guides may be nested
        try:
            yield
        finally:
            self._returning -= 1

    def tokens_left(self, node: Node) -> int:
        return max(0, self._runtime.policy.context_length - sum(len(above.tokens) for above in node.path()))

    def seed(self, *key: SeedKey) -> int:
        return counter_seed(*self._key, *key)

    @property
    def budget_left(self) -> int:
        limit = self._runtime.max_tokens_per_task
        return (1 << 62) if limit is None else max(0, limit - self._sampled)

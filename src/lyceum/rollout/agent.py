"""An agent of the user's own, in whatever framework: it asks the run's model by OpenAI's interface, and is trained."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from lyceum.core.component import CommandLine, words_of
from lyceum.core.settings import Composition, RolloutSettings
from lyceum.core.tree import Node, Tree, UnknownTokens, as_episode
from lyceum.core.types import (
    SERVED_MODEL,
    Context,
    Continuation,
    Grade,
    Origin,
    Rollout,
    Sampling,
    Served,
    ServedLimits,
    Task,
    TaskSource,
)
from lyceum.core.user_files import describe
from lyceum.reward.function_registry import registered_agent, shown
from lyceum.reward.function_worker import reward_reply
from lyceum.reward.user_code import (
    UserFunction,
    accepted,
    check_parameters,
    ending_its_call,
    is_async,
    trusted_function,
)
from lyceum.rollout._program import AgentProgramError, in_thread, run_program
from lyceum.tasks.episodes import EPISODES, LIBRARIES, play, room_for
from lyceum.utils.aio import gather
from lyceum.utils.documents import DocumentError, read_json
from lyceum.utils.errors import RecipeError
from lyceum.utils.messages import prompt_text, text_of
from lyceum.utils.numbers import to_json
from lyceum.utils.terminal import quoted
from lyceum.utils.tracebacks import user_traceback

KEY = "rollout.function"
COUNTED = ("requests", "refused", "overridden", "vanished", "unknown")
"""What the endpoint counts of an episode (``Served.counts``)."""
LEAVES, FAILED, LATE, CUT, SILENT = "leaves", "failed", "late", "cut", "silent"
"""``Node.stats`` of the leaf that stands for an episode, beside ``COUNTED``: its leaves, and whether its agent raised,
ran out of time, met a limit, or never asked."""
TO_INSTALL = "which needs openai; pip install 'lyceum-rl[agent]', or take base_url and api_key"


class Agent(RolloutSettings):
    """Episodes of an agent that is not written for lyceum, trained without changing it.

    The agent asks the run's model at an address that serves OpenAI's chat completions (tools, streams, ``n``, ``stop``,
    log-probabilities). What it was answered is trained, what it asked with is context; a request that resends its
    history goes on where that stands, token for token. An agent that rewrites its history leaves several rows, which
    are one episode.

    ``function`` is called once per episode, with those of these keywords that it names: ``client`` (an openai client:
    asynchronous in an async function), ``base_url`` and ``api_key``, ``model``, ``task``, ``messages``, ``prompt`` (the
    messages' text), ``answer``, ``columns``, ``id``, ``seed``, and each column of the task by its own name. An async
    function runs in the run's event loop and must not block; another one runs in a thread. ``program`` is started once
    per episode with ``OPENAI_BASE_URL``, ``OPENAI_API_KEY`` and ``OPENAI_MODEL`` in its environment and the task as
    JSON on its standard input; ``{prompt}`` in it stands for the prompt's text. With neither, the agent and the reward
    are the tasks' own (tasks ``verifiers``, ``inspect``).

    What the agent returns is its result. A number, or a dict with ``reward``, is the reward; a text or a message is
    what the recipe's reward grades; after None that is the model's last reply. A program prints its text, or a JSON
    object with ``reward`` as the last line. One that raises, or takes too long, is ungraded.
    """

    requires: ClassVar = ("episode-advantages", "episode-weights")
    refuses: ClassVar = ("prefix-lengths",)

    sized_by: ClassVar = "samples"

    kind: Literal["agent"] = "agent"
    function: str | None = None
    """``path/to/file.py:name`` or ``package.module:name``. In Python also the function itself."""
    program: CommandLine = ()
    """Command line, a text or its words, in the place of a function."""
    samples: int = Field(default=8, ge=1)
    """Episodes per task, unless the curriculum sets the number."""
    sampling: Sampling = Sampling()
    """How tokens are drawn, whatever the agent asks for; ``max_completion_tokens`` is for all replies of an episode
    together."""
    max_requests: int = Field(default=64, ge=1)
    """Maximum requests of an episode; further ones are refused, as are those beyond its tokens (status 429)."""
    timeout_seconds: float = Field(default=600.0, gt=0)
    """Maximum time that the agent itself takes per episode, in seconds; the model's is not counted."""
    concurrency: int | None = Field(default=None, ge=1)
    """Maximum episodes under way at once; null: all of a function's, 32 of a program's, each of which is a process."""
    failed_reward: float | None = None
    """Reward of an episode whose agent raised, ran out of time, or ended without a result at a limit, where it has
    asked at all. Null: ungraded, and at a limit as the recipe's reward grades the last reply."""
    waits: bool = True
    """Whether the engine waits while an agent is not asking, so that a resumed run is the same run. With false it goes
    on, which is faster with slow tools: batches then differ from run to run, and so do last bits."""

    @field_validator("function", mode="before")
    @classmethod
    def _function_itself(cls, given: Any) -> Any:
        return registered_agent(given) if callable(given) else given

    @model_validator(mode="after")
    def _not_both(self) -> Agent:
        if self.function is not None and self.program:
            raise ValueError("function, program: got both; allowed: one, such as function=FILE.py:NAME")
        return self

    @property
    def by_clock(self) -> bool:
        return not self.waits

    def independent(self) -> Agent:
        return self

    def code(self) -> tuple[str, ...]:
        if self.function is not None:
            return (self.function,)
        return (self.program,) if isinstance(self.program, str) else self.program

    def check(self, stage: Composition) -> list[str]:
        if not stage.guidance:
            return []
        guide = stage.guidance[0].kind
        return [
            f"rollout.kind: got 'agent' with guidance {guide!r}, but an agent writes its own prompts; allowed: none"
        ]

    def check_tasks(self, source: TaskSource) -> None:
        super().check_tasks(source)
        if self.function is None:
            if not self.program and EPISODES not in source[0].columns:
                raise RecipeError(
                    "rollout.function, rollout.program: got neither; allowed: one, such as function=FILE.py:NAME, or "
                    f"tasks that have an agent of their own (those of {' and '.join(LIBRARIES)})"
                )
            return
        found = self._loaded(self.function)
        check_parameters(found, {**keywords(source[0]), **dict.fromkeys(ACCESS)}, key=KEY)
        if "client" in accepted(found.function, {"client": None}) and importlib.util.find_spec("openai") is None:
            raise RecipeError(f"{KEY}: {found.spec!r} takes a client, {TO_INSTALL}")

    def build(self) -> Rollout:
        found = None if self.function is None else self._loaded(self.function)
        most = self.concurrency or (32 if self.program else None)
        return partial(self.roll, found, nullcontext() if most is None else asyncio.Semaphore(most))

    def _loaded(self, spec: str) -> UserFunction:
        place, name, function = trusted_function(spec, key=KEY)
        return UserFunction(shown(spec), place, name, function, None, {})

    async def roll(
        self,
        found: UserFunction | None,
        turnstile: asyncio.Semaphore | nullcontext[None],
        context: Context,
        start: Node,
        n: int | None,
    ) -> list[Node]:
        samples, root = n or self.samples, context.tree.root
        first, root.draws = root.draws, root.draws + samples
        sampling = self.sampling.affordable(start.policy_tokens, context.budget_left // samples)

        async def one(number: int) -> EpisodeEnd:
            own = found is None and not self.program
            async with turnstile, room_for(context.task) if own else nullcontext():
                return await self.episode(found, context, number, sampling)

        ended = await gather(one(number) for number in range(first, first + samples))
        _in_order(context.tree, [leaf for each in ended for leaf in each.leaf.episode])
        # Together, as rewards may compare them.
        texts = [each for each in ended if each.text is not None and each.leaf.grade is None]
        if texts:
            graded = [each.leaf if each.text is None else _as_text(each) for each in ended if each.leaf.grade is None]
            await context.grade(graded)
            for each, node in zip((each for each in ended if each.leaf.grade is None), graded, strict=True):
                assert node.grade is not None
                each.leaf.grade = replace(node.grade, steps=())
        return [each.leaf for each in ended]

    async def episode(
        self, found: UserFunction | None, context: Context, number: int, sampling: Sampling
    ) -> EpisodeEnd:
        """One episode, from its beginning to its result."""
        served: Served | None = None
        result: Any = None
        failure: Grade | None = None
        limits = ServedLimits(self.max_requests, self.timeout_seconds, self.waits)
        try:
            async with context.served(number, sampling, limits) as served:
                with ending_its_call():
                    result = await self._result(found, context, served, number)
        except Exception as error:
            if served is None:
                raise
            failure = self._failure(error, served)
        if served.error is not None:  # the run's own, whatever the agent made of it
            raise served.error
        ended = _ended(context, served, number)
        leaf, late = ended.leaf, served.late
        if failure is None:
            try:
                ended = _with_result(ended, result)
            except (TypeError, ValueError) as error:
                failure = Grade.ungraded(f"agent: {describe(error)}")
        leaf.stats |= {FAILED: int(failure is not None and not late and not served.cut), LATE: int(late)}
        if leaf.stats[SILENT]:
            leaf.grade = failure or Grade.ungraded("agent: it ended without asking the model")
        elif failure is not None and (self.failed_reward is not None or late or not served.cut):
            leaf.grade = failure if self.failed_reward is None else Grade(self.failed_reward, reason=failure.reason)
        return ended

    def _failure(self, error: Exception, served: Served) -> Grade:
        if served.late:
            return Grade.ungraded(
                f"agent: no result within {self.timeout_seconds:g} seconds of its own (timeout_seconds)"
            )
        details = error.details if isinstance(error, AgentProgramError) else user_traceback(error)
        return Grade.ungraded(f"agent: {describe(error)}", details)

    async def _result(self, found: UserFunction | None, context: Context, served: Served, number: int) -> Any:
        if found is not None:
            return await _call(found, context, served, number)
        if self.program:
            return await self._program(context, served)
        most = self.sampling.max_completion_tokens
        given = {"base_url": await served.address(), "key": served.key}
        return await play(context.task, **given, max_requests=self.max_requests, max_tokens=most)

    async def _program(self, context: Context, served: Served) -> Any:
        given, address = keywords(context.task), await served.address()
        environment = {
            "OPENAI_BASE_URL": address,
            "OPENAI_API_BASE": address,
            "OPENAI_API_KEY": served.key,
            "OPENAI_MODEL": SERVED_MODEL,
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }
        words = words_of(self.program)
        command = [word.replace("{prompt}", given["prompt"]) for word in words]
        told = {name: given[name] for name in ("id", "messages", "prompt", "answer", "columns")}
        printed = await run_program(command, to_json(told, other=str).encode(), environment)
        return _printed(printed)

    def metrics(self, trees: Sequence[Tree]) -> dict[str, float]:
        """Requests and leaves per episode; of the step's episodes, how many raised, ran out of time, met a limit or
        never asked; requests that were refused, asked for another way of sampling, whose reply nobody waited for, or
        that came with no key of an episode under way."""
        ended = [leaf for tree in trees for leaf in tree.trajectories]
        number = max(1, len(ended))

        def total(name: str) -> float:
            return sum(leaf.stats.get(name, 0) for leaf in ended)

        means = {name: total(name) / number for name in ("requests", LEAVES)}
        return means | {name: total(name) for name in (*COUNTED[1:], FAILED, LATE, CUT, SILENT)}

    def note(self, trees: Sequence[Tree]) -> str | None:
        """That agents asked for another way of sampling."""
        overridden = self.metrics(trees)["overridden"]
        if not overridden:
            return None
        return (
            f"{overridden:g} requests said how to sample (temperature, top_p, seed, ...); rollout.sampling holds for "
            "all of them, as training needs to know how tokens were drawn"
        )


ACCESS = ("client", "base_url", "api_key", "model", "seed")
"""Keywords that an agent's function may name beside the task's."""


def keywords(task: Task) -> dict[str, Any]:
    """What a function may ask of its task. A column named like one of the fixed ones is reached through ``columns``."""
    return {
        **task.columns,
        "task": task.public(),
        "messages": [dict(message) for message in task.messages],
        "prompt": prompt_text(task.messages),
        "answer": task.answer,
        "columns": dict(task.columns),
        "id": task.id,
    }


async def _call(found: UserFunction, context: Context, served: Served, number: int) -> Any:
    """The result of an agent's function."""
    function = found.function
    given = {
        **keywords(context.task),
        "api_key": served.key,
        "model": SERVED_MODEL,
        "seed": context.seed("agent", number),
    }
    wanted = accepted(function, dict.fromkeys(ACCESS))
    needs_address = "base_url" in wanted or ("client" in wanted and not is_async(function))
    if needs_address:
        given["base_url"] = await served.address()
    if is_async(function):
        if "client" in wanted:
            given["client"] = served.client()
        return await function(**accepted(function, given))
    if "client" not in wanted:
        return await in_thread(partial(function, **accepted(function, given)))

    def call() -> Any:
        openai, httpx2 = map(importlib.import_module, ("openai", "httpx2"))
        plain = httpx2.Client(verify=False)  # it is this process's own address: reading certificates takes 30 ms
        with openai.OpenAI(base_url=given["base_url"], api_key=served.key, http_client=plain) as client:
            return function(**accepted(function, {**given, "client": client}))

    return await in_thread(call)


@dataclass
class EpisodeEnd:
    """An episode that has ended.

    Attributes:
        leaf: that stands for it.
        text: what is graded in place of the leaf's completion; None where that is graded itself.
    """

    leaf: Node
    text: str | None = None


def _ended(context: Context, served: Served, number: int) -> EpisodeEnd:
    leaves = served.leaves
    if leaves:
        leaf = as_episode(leaves)
        if served.cut:
            leaf.finish = "length"
    else:
        leaf = context.tree.root.add_drawn(Continuation([], [], [], [], "stop"), number=number)
    counts = {name: served.counts[name] for name in COUNTED}
    leaf.stats |= counts | {LEAVES: len(leaves), CUT: int(bool(served.cut)), SILENT: int(not leaves)}
    return EpisodeEnd(leaf)


def _with_result(ended: EpisodeEnd, result: Any) -> EpisodeEnd:
    """The episode with what its agent returned.

    Raises:
        TypeError, ValueError: that is no result.
    """
    if isinstance(result, list | tuple) and result:
        result = result[-1]
    if callable(dump := getattr(result, "model_dump", None)):  # a message of OpenAI's client
        result = dump()
    if isinstance(result, Mapping) and "reward" not in result and "content" in result:
        result = text_of(result["content"] or "")
    if isinstance(result, Grade):  # of the tasks' own library
        ended.leaf.grade = result
        return ended
    if result is None:
        return ended
    if isinstance(result, str):
        return replace(ended, text=result)
    try:
        graded = reward_reply(result)
    except TypeError as error:
        allowed = "a number, a dict with reward, a text, a message, or None"
        raise TypeError(f"the agent returned {quoted(result)} ({error}); allowed: {allowed}") from None
    if graded["reward"] is not None:
        if not math.isfinite(graded["reward"]):
            raise ValueError(f"the agent returned {quoted(result)}; allowed: a finite number")
        ended.leaf.grade = Grade(graded["reward"], graded["correct"], parts=graded["parts"])
    return ended


def _in_order(tree: Tree, leaves: Sequence[Node]) -> None:
    """Order what hangs in a tree by its leaves, not by who was first to ask."""
    passed: dict[int, int] = {}
    for node in (node for leaf in leaves for node in leaf.path()):
        passed.setdefault(id(node), len(passed))

    def place(node: Node) -> tuple[int, int]:
        return passed.get(id(node), len(passed)), node.address

    tree.roots[1:] = sorted(tree.roots[1:], key=place)
    for node in list(tree.nodes()):
        node.children.sort(key=place)


def _printed(text: str) -> Any:
    """A program's result: a JSON object with ``reward`` where that is its last line, or else all that it printed."""
    lines = text.strip().splitlines()
    try:
        last = read_json(lines[-1]) if lines else None
    except DocumentError:
        last = None
    if isinstance(last, dict) and "reward" in last:
        return last
    return text.strip() or None


def _as_text(ended: EpisodeEnd) -> Node:
    """A trajectory with the text that an agent returned in place of what the model wrote, to be graded."""
    prompt = ended.leaf.root
    above = Node.prompt(prompt.tokens, prompt.text)
    tokens = UnknownTokens(ended.leaf.episode_tokens)
    leaf = Node(above, tokens, Origin.POLICY, text=ended.text or "", address=ended.leaf.address)
    leaf.finish, leaf.role = ended.leaf.finish, ended.leaf.role
    return leaf

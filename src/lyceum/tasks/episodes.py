"""Environments of other libraries that play whole episodes: they ask the run's model, and say what it has earned.

They run in processes of their own, many episodes in each, and reach the model as any agent does. What hangs or dies
there takes the episodes of its process with it, which are ungraded, and the run goes on.
"""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import math
import weakref
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from lyceum.core.settings import TasksSettings
from lyceum.core.tree import Node
from lyceum.core.types import SERVED_MODEL, Grade, Grader, Split, Task
from lyceum.reward.base import allow_code, code_allowed, each
from lyceum.reward.pool import WorkerError, WorkerPool
from lyceum.tasks.base import Source, check_index, checksum, held_out
from lyceum.utils.documents import read_json
from lyceum.utils.errors import RecipeError, RunError
from lyceum.utils.messages import prompt_text, text_of
from lyceum.utils.numbers import LARGEST_FLOAT, real, to_json
from lyceum.utils.terminal import printable, quoted

LIBRARIES = {"verifiers": "lyceum.tasks._verifiers_worker", "inspect_ai": "lyceum.tasks._inspect_worker"}
"""Library -> the module that makes its environments."""
EPISODES, DATA = "episodes", "episode_data"
"""Columns of a task: how its environment is made, as JSON, and what the environment takes as the task."""
_BEGIN_SECONDS = 600.0
"""Maximum time that a process may take to begin, in seconds, and to read tasks: data sets may be fetched."""
_PAGE = 64


class EpisodeError(RunError):
    """The library says why an episode has no result."""


class EpisodeTasks(TasksSettings):
    """Settings of the kinds whose tasks are played by their own library."""

    library: ClassVar[str]
    at_once: ClassVar[int | None] = None
    """Episodes that one process can play at once; None: any number."""

    size: int = Field(default=1000, ge=1)
    """Maximum tasks that are read, in the library's order."""
    heldout_share: float = Field(default=0.1, ge=0, lt=1)
    """Share of the tasks that is held out for evaluation, by their prompts; rounded to the nearest number."""
    solved_at: float = 1.0
    """Reward from which an episode counts as solved."""
    python: str | None = None
    """Interpreter in which the library is installed, such as ``.venv-verifiers/bin/python``; null: the run's own."""
    processes: int = Field(default=1, ge=1, le=64)
    """Processes in which episodes are played; each plays many at once."""
    timeout_seconds: float = Field(default=30.0, gt=0)
    """Maximum time for which an episode may keep the others of its process from going on, in seconds; the process is
    then ended and its episodes are ungraded. The time of an episode is the rollout's ``timeout_seconds``."""
    memory_mb: int | None = Field(default=None, ge=16)
    """Maximum memory that a process may allocate, in megabytes; null: no limit."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What the library calls the environment."""

    @property
    @abstractmethod
    def made(self) -> dict[str, Any]:
        """How a process makes the environment."""

    def build(self, split: Split, seed: int) -> LibraryEpisodes:
        if self.python is None and importlib.util.find_spec(self.library) is None:
            raise RecipeError(
                f"tasks.kind: {self.library} is not installed; allowed: after pip install "
                f"'lyceum-rl[{self.library}]', or with python: the interpreter of an environment that has it"
            )
        with allow_code():  # the user allowed the recipe's code when it was loaded
            return LibraryEpisodes(self, split)

    def code(self) -> tuple[str, ...]:
        return (self.name,) if self.python is None else (self.name, self.python)


class LibraryEpisodes(Source):
    """A split of the tasks that a library lists."""

    def __init__(self, settings: EpisodeTasks, split: Split) -> None:
        self.settings = settings
        of = settings
        played = of.model_dump(include={"solved_at", "python", "processes", "timeout_seconds", "memory_mb"})
        made = {"library": of.library, "name": of.name, "made": of.made, "at_once": of.at_once}
        self.episodes = to_json({**made, **played})
        self.host = host_of(self.episodes)
        try:
            listed = [self._task(index, given) for index, given in enumerate(self.host.tasks(of.size))]
        except WorkerError as error:
            raise RecipeError(f"tasks: {of.kind} {printable(of.name)} does not begin: {error}") from error
        numbers = np.array([checksum(prompt_text(task.messages)) for task in listed], np.uint32)
        kept = held_out(numbers, of.heldout_share) == (split == "heldout")
        self.tasks = [task for task, there in zip(listed, kept, strict=True) if there]
        if not self.tasks:
            raise RecipeError(
                f"tasks.heldout_share: {of.heldout_share:g} of the {len(listed)} tasks of {printable(of.name)} leaves "
                f"none for {split}; allowed: another share{', or evaluate.n=0' if split == 'heldout' else ''}"
            )

    def __len__(self) -> int:
        return len(self.tasks)

    def __getitem__(self, index: int) -> Task:
        check_index(self.settings.kind, index, len(self))
        return self.tasks[index]

    def grader(self) -> Grader:
        def grade(task: Task, leaf: Node) -> Grade:
            return Grade.ungraded(f"{self.settings.kind}: the episode ended at a limit, and has no result")

        return each(grade)

    def _task(self, index: int, given: Mapping[str, Any]) -> Task:
        prompt = given["prompt"]
        messages = prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}]
        shown = tuple({"role": each["role"], "content": text_of(each["content"])} for each in messages)
        columns = {EPISODES: self.episodes, DATA: given["data"]}
        key = f"{self.settings.kind}/{self.settings.name}/{index}"
        return Task(key, shown, given["answer"], columns, provenance=self.settings.kind)


async def play(task: Task, *, base_url: str, key: str, max_requests: int, max_tokens: int) -> Grade:
    """The grade of an episode of a task, by its library.

    Raises:
        EpisodeError: the library has no result, or its process has ended.
    """
    host = host_of(task.columns[EPISODES])
    asked = {"base_url": base_url, "key": key, "model": SERVED_MODEL}
    limits = {"max_requests": max_requests, "max_tokens": max_tokens}
    earned = await host.run({"data": task.columns[DATA], **asked, **limits})
    try:
        reward = real(earned["reward"], "the reward")
        parts = {name: real(value, f"part {name!r}", largest=LARGEST_FLOAT) for name, value in earned["parts"].items()}
    except (TypeError, ValueError) as error:
        raise EpisodeError(printable(str(error))) from error
    if not math.isfinite(reward):
        raise EpisodeError(f"the reward is {reward}; allowed: a finite number")
    return Grade(reward, reward >= host.solved_at, parts=parts)


def room_for(task: Task) -> AbstractAsyncContextManager[None]:
    """A place among the episodes under way, to be waited for before one begins: it would keep the engine waiting."""
    return host_of(task.columns[EPISODES]).room()


_hosts: weakref.WeakValueDictionary[str, EpisodeHost] = weakref.WeakValueDictionary()


def host_of(episodes: str) -> EpisodeHost:
    """The processes that play an environment's episodes, for as long as somebody holds them.

    Args:
        episodes: a task's column ``EPISODES``.
    Raises:
        RecipeError: there are none yet, and code is not allowed: rows of a file may have such a column too.
    """
    if (host := _hosts.get(episodes)) is not None:
        return host
    given = read_json(episodes)
    if not code_allowed():
        raise RecipeError(f"tasks: {quoted(given['name'])} is code; allowed: with trust_code=true")
    if given["library"] not in LIBRARIES:
        raise RecipeError(f"tasks: got episodes of {quoted(given['library'])}; allowed: {', '.join(LIBRARIES)}")
    host = _hosts[episodes] = EpisodeHost(given)
    return host


class EpisodeHost:
    """Processes that play the episodes of one environment, each many at once."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.solved_at: float = given["solved_at"]
        self.processes = [_Process(given) for _ in range(given["processes"])]
        self.most = None if given["at_once"] is None else given["at_once"] * given["processes"]
        self.places: dict[asyncio.AbstractEventLoop, asyncio.Semaphore] = {}

    def room(self) -> AbstractAsyncContextManager[None]:
        if self.most is None:
            return nullcontext()
        loop = asyncio.get_running_loop()
        if loop not in self.places:
            self.places = {loop: asyncio.Semaphore(self.most)}
        return self.places[loop]

    def tasks(self, most: int) -> list[dict[str, Any]]:
        pool, found = self.processes[0].pool, []
        while len(found) < most:
            asked = {"tasks": [len(found), min(most, len(found) + _PAGE)]}
            page = pool.submit(asked, timeout_seconds=_BEGIN_SECONDS).result()
            if not page:
                break
            found += page
        return found

    async def run(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """The result of an episode, in the process that has the fewest. Where this is cancelled, it ends."""
        process = min(self.processes, key=lambda each: len(each.episodes))
        return await process.run(asked)


class _Process:
    """Episodes in one process: its next turn begins and ends all that wait for it."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.pool = WorkerPool(
            "lyceum.tasks._episode_worker:host",
            {"module": LIBRARIES[given["library"]], "made": given["made"]},
            workers=1,
            timeout_seconds=given["timeout_seconds"],
            memory_mb=given["memory_mb"],
            python=given["python"],
            start_seconds=_BEGIN_SECONDS,
            repeatable=False,  # its episodes end with it
        )
        self.numbers = itertools.count()
        self.episodes: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self.begin: dict[str, Mapping[str, Any]] = {}
        self.stop: list[str] = []
        self.turns: asyncio.Task[None] | None = None

    async def run(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        ticket = str(next(self.numbers))
        self.begin[ticket] = asked
        future = self.episodes[ticket] = asyncio.get_running_loop().create_future()
        if self.turns is None or self.turns.done():
            self.turns = asyncio.ensure_future(self._take_turns())
        try:
            return await future
        finally:
            if self.episodes.pop(ticket, None) is not None and self.begin.pop(ticket, None) is None:
                self.stop.append(ticket)

    async def _take_turns(self) -> None:
        while self.episodes or self.stop:
            job = {"begin": self.begin, "stop": self.stop}
            there = list(self.episodes)
            self.begin, self.stop = {}, []
            ended: dict[str, dict[str, Any]]
            try:
                ended = await self.pool.run(job)
            except WorkerError as error:
                ended = {ticket: {"error": str(error)} for ticket in there}
            for ticket, result in ended.items():
                if (future := self.episodes.pop(ticket, None)) is None or future.done():
                    continue
                if "error" in result:
                    future.set_exception(EpisodeError(printable(result["error"])))
                else:
                    future.set_result(result["result"])

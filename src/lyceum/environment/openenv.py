"""Environments behind a server of OpenEnv: each trajectory is a session of its own."""

from __future__ import annotations

import asyncio
import functools
import importlib
import importlib.util
import threading
import time
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar, cast
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from lyceum.core.component import CommandLine, words_of
from lyceum.core.settings import EnvironmentSettings
from lyceum.core.types import Message, Observation, Task, TaskSource, World
from lyceum.core.user_files import describe
from lyceum.reward.function_worker import cut, written
from lyceum.tasks.games import NotAnAction, marked
from lyceum.utils.child_processes import StartedServer
from lyceum.utils.documents import DocumentError, DocumentLimits, read_json
from lyceum.utils.errors import RecipeError, nearest
from lyceum.utils.numbers import real, to_json
from lyceum.utils.seeds import counter_seed
from lyceum.utils.terminal import printable, quoted

T = TypeVar("T")
KEY = "environment.openenv"
PORT = "{port}"
_METADATA = "metadata"
_ACTION = DocumentLimits(characters=100_000, depth=20, values=10_000, digits=18)
_REPLY = DocumentLimits(characters=1 << 24, depth=100, values=1 << 20, digits=300)
_MOST_BYTES = 1 << 26
"""Maximum bytes of a message of the server."""
_CLOSE_SECONDS = 10.0
"""Time that a session has to end on the server; its place is free then."""


class OpenEnvServer(EnvironmentSettings):
    """Plays in an environment of OpenEnv (https://github.com/meta-pytorch/OpenEnv), whose server runs already or is
    started by a command.

    Each trajectory is a session: it begins with a reset, whose observation is shown after the task's prompt; each turn
    of the policy is an action, and it reads the observation that follows. All trajectories of a task begin with the
    same seed. A turn that is no action gets an error and leaves the environment as it is. The server has to allow as
    many sessions as trajectories grow at once (``max_concurrent_envs`` of its ``create_app``, 1 by default).
    """

    kind: Literal["openenv"] = "openenv"
    url: str | None = None
    """Address of a server, such as ``http://127.0.0.1:8000``."""
    command: CommandLine = ()
    """Command line that starts a server on this machine, in the place of an address: a text or its words. ``{port}`` in
    it stands for the port; the server is started again where it dies, and ended with the run."""
    env: dict[str, str] = Field(default_factory=dict)
    """Environment variables of the command, beside the run's own."""
    action: str | None = None
    """Field of the action that the policy's turn becomes: a text as it is; a number, or one of a few texts, from the
    last ``[brackets]`` or alone. Null: the action's one field, or, where it has several, the turn is the action as
    JSON."""
    observation: str | None = None
    """Field of the observation that the policy is shown; null: its one field, or all of it as JSON."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of each reset, beside ``seed``."""
    columns: tuple[str, ...] = ()
    """Columns of the task that are further arguments of its reset, such as ``task_id``, or ``seed`` in the place of
    the one that is made from the task's id."""
    max_characters: int = Field(default=20_000, ge=1)
    """Maximum characters of an observation; a longer one is cut, and says so."""
    failed_reward: float = 0.0
    """Reward of each turn that is no action, read by the reward ``environment``."""
    start_seconds: float = Field(default=120.0, gt=0)
    """Time that a server has to begin answering, in seconds, where it is started by the command."""

    @field_validator("url")
    @classmethod
    def _is_address(cls, given: str | None) -> str | None:
        if given is not None and (urlsplit(given).scheme not in ("http", "https") or not urlsplit(given).hostname):
            raise ValueError(f"got {quoted(given)}; allowed: such as http://127.0.0.1:8000")
        return None if given is None else given.rstrip("/")

    @model_validator(mode="after")
    def _one_of_both(self) -> OpenEnvServer:
        if bool(self.command) == (self.url is not None):
            got = "both" if self.command else "neither"
            raise ValueError(f"url, command: got {got}; allowed: one, such as url=http://127.0.0.1:8000")
        if self.command and not any(PORT in word for word in words_of(self.command)):
            raise ValueError(f"command: it does not say {PORT}; allowed: such as 'python3 server.py --port {PORT}'")
        return self

    def code(self) -> tuple[str, ...]:
        return (self.command,) if isinstance(self.command, str) and self.command else tuple(self.command)

    def check_tasks(self, source: TaskSource) -> None:
        super().check_tasks(source)
        if importlib.util.find_spec("websockets") is None:
            raise RecipeError(f"{KEY}: websockets is not installed; allowed: after pip install 'lyceum-rl[openenv]'")
        there = source[0].columns
        if missing := [name for name in self.columns if name not in there]:
            raise RecipeError(f"{KEY}.columns: the tasks have no column {missing[0]!r}; allowed: {', '.join(there)}")
        worlds = OpenEnvWorlds(self)
        try:
            asyncio.run_coroutine_threadsafe(worlds.check(source[0]), _loop()).result()
        except (OpenEnvError, OSError, TimeoutError) as error:
            late = f"no answer within {self.start_seconds:g} seconds (start_seconds)"
            why = late if isinstance(error, TimeoutError) else describe(error)
            raise RecipeError(f"{KEY}: {worlds.name} does not begin: {why}") from error

    def build(self) -> World[OpenEnvSession]:
        return OpenEnvWorlds(self)


class OpenEnvError(Exception):
    """The server refuses, answers otherwise than OpenEnv's protocol has it, or has ended."""

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.code = code


class Connection(Protocol):
    """A websocket, as the package ``websockets`` has it."""

    async def send(self, message: str) -> None: ...

    async def recv(self) -> str | bytes: ...

    async def close(self) -> None: ...

    async def wait_closed(self) -> None: ...


@dataclass(frozen=True)
class Answer:
    """What followed a reset or an action."""

    observation: Mapping[str, Any]
    reward: float
    end: bool


class OpenEnvSession:
    """One environment on the server, for as long as its connection lasts."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    async def ask(self, kind: Literal["reset", "step"], data: Mapping[str, Any]) -> Answer:
        """Raises OpenEnvError where the server refuses, or answers something else."""
        with suppress(Exception):  # a server without a place says so and closes, before it is asked
            await self.connection.send(to_json({"type": kind, "data": data}))
        said = await self.connection.recv()
        try:
            reply = read_json(said, limits=_REPLY)
            given = reply["data"]
            if reply["type"] == "error":
                raise OpenEnvError(_told(given), str(given.get("code", "")))
            reward = 0.0 if given.get("reward") is None else real(given["reward"], "the reward")
            return Answer(dict(given["observation"]), reward, bool(given.get("done", False)))
        except (DocumentError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise OpenEnvError(f"it answered {kind} with {quoted(str(said))}: {describe(error)}") from error

    async def close(self) -> None:
        """The server closes the connection when the environment has ended."""
        with suppress(Exception):
            await self.connection.send(to_json({"type": "close"}))
            await asyncio.wait_for(self.connection.wait_closed(), _CLOSE_SECONDS)
        with suppress(Exception):
            await self.connection.close()


def _told(error: Mapping[str, Any]) -> str:
    """What an error of the server says, with the first fault where an action does not fit."""
    for fault in error.get("errors") or ():
        return f"{'.'.join(map(str, fault.get('loc', ())))}: {fault.get('msg', '')}".removeprefix(": ")
    return printable(str(error.get("message", "")))[:1000]


class OpenEnvWorlds:
    """Implements :class:`lyceum.core.types.World` by sessions.

    Connections live in a thread of their own, where the server's pings are answered while the run computes: a server
    closes one whose client is silent for 20 seconds.
    """

    def __init__(self, settings: OpenEnvServer) -> None:
        self.settings = settings
        self.forms: tuple[ActionForm, str | None] | None = None
        self.name = settings.url or printable(" ".join(words_of(settings.command)))

    async def begin(self, task: Task) -> tuple[OpenEnvSession, Sequence[Message]]:
        return await _in_thread(self._begin(task))

    async def step(self, state: OpenEnvSession, said: str) -> Observation[OpenEnvSession]:
        form, shown = self.forms or await _in_thread(self._read_forms())
        try:
            answer = await _in_thread(state.ask("step", form.read(said)))
        except (NotAnAction, OpenEnvError) as error:
            if isinstance(error, OpenEnvError) and error.code != "VALIDATION_ERROR":
                raise
            told = ({"role": "user", "content": f"error: {error}"},)
            return Observation(state, told, reward=self.settings.failed_reward, calls=1, failed=1)
        messages = () if answer.end else (self._message(answer, shown),)
        return Observation(state, messages, reward=answer.reward, end=answer.end, calls=1)

    async def end(self, state: OpenEnvSession) -> None:
        await _in_thread(state.close())

    async def check(self, task: Task) -> None:
        """Begin two sessions at once. Raises OpenEnvError, OSError or TimeoutError where that is not possible."""
        async with asyncio.timeout(self.settings.start_seconds + 30):
            begun = [(await self._begin(task))[0]]
            try:
                begun.append((await self._begin(task))[0])
            finally:
                for session in begun:
                    await session.close()

    async def _begin(self, task: Task) -> tuple[OpenEnvSession, Sequence[Message]]:
        _, shown = self.forms or await self._read_forms()
        session = OpenEnvSession(await self._connected())
        given = {name: task.columns[name] for name in self.settings.columns}
        seed = counter_seed("openenv", task.id) % 2**31
        try:
            answer = await session.ask("reset", {"seed": seed, **self.settings.options, **given})
            if answer.end:
                raise OpenEnvError("the episode has ended when it begins")
            return session, (self._message(answer, shown),)
        except BaseException as error:
            await session.close()
            if isinstance(error, OpenEnvError) and error.code == "CAPACITY_REACHED":
                raise OpenEnvError(
                    f"it has no place for another session ({error}); allowed: max_concurrent_envs=N of its create_app, "
                    "with as many as trajectories grow at once"
                ) from error
            raise

    def _message(self, answer: Answer, shown: str | None) -> Message:
        of: Any = {name: value for name, value in answer.observation.items() if name != _METADATA}
        if shown is not None:
            if shown not in of:
                raise OpenEnvError(f"the observation has no field {shown!r}: it has {', '.join(of) or 'none'}")
            of = of[shown]
        return {"role": "user", "content": cut(written(of), self.settings.max_characters)}

    async def _read_forms(self) -> tuple[ActionForm, str | None]:
        """How turns become actions, and which field is shown, by the server's schemas."""
        httpx: Any = importlib.import_module("httpx2")
        url = self._url()
        async with httpx.AsyncClient(timeout=30, trust_env=not _is_here(url)) as client:
            async with asyncio.timeout(self.settings.start_seconds):
                while True:
                    try:
                        reply = await client.get(f"{url}/schema")
                        break
                    except httpx.TransportError as error:
                        await self._patience(error)
        try:
            given = read_json(reply.content, limits=_REPLY)
            action, observation = given["action"], given["observation"]
            self.forms = action_form(action, self.settings.action), shown_field(observation, self.settings.observation)
        except (DocumentError, KeyError, TypeError, AttributeError) as error:
            raise OpenEnvError(f"{url}/schema has no schemas (status {reply.status_code})") from error
        return self.forms

    async def _connected(self) -> Connection:
        client: Any = importlib.import_module("websockets.asyncio.client")
        refused = importlib.import_module("websockets.exceptions").WebSocketException
        until = time.monotonic() + self.settings.start_seconds
        at = f"ws{self._url().removeprefix('http')}/ws"
        more: dict[str, Any] = {"proxy": None} if _is_here(at) else {}
        while True:
            try:
                # No pings of ours: a server that computes an answer is not dead, and each answer has its time limit.
                return await client.connect(at, max_size=_MOST_BYTES, ping_interval=None, **more)
            except (OSError, TimeoutError, refused) as error:
                if time.monotonic() > until:
                    raise
                await self._patience(error)

    async def _patience(self, error: Exception) -> None:
        """Wait for a server that this process has started. Raises where there is nothing to wait for."""
        if self.settings.url is not None:
            raise OpenEnvError(f"it does not answer: {describe(error)}") from error
        if (why := _started(self.settings).why_ended) is not None:
            raise OpenEnvError(why) from error
        await asyncio.sleep(0.1)

    def _url(self) -> str:
        return self.settings.url or _started(self.settings, alive=True).url


@dataclass(frozen=True)
class ActionForm:
    """How a turn becomes an action.

    Attributes:
        field: what it is given as; None: it is the action, as JSON.
        type: of the field: ``text``, ``number``, ``choice``, or ``json``.
        choices: texts that it may be.
    """

    field: str | None
    type: Literal["text", "number", "choice", "json"] = "json"
    choices: tuple[str, ...] = ()

    def read(self, said: str) -> dict[str, Any]:
        """The action's fields. Raises NotAnAction."""
        said = said.encode("utf-8", "replace").decode()
        if self.type == "text":
            return {str(self.field): said}
        if self.type == "choice":
            given = marked(said)
            for choice in self.choices:
                if choice.lower() == given.lower():
                    return {str(self.field): choice}
            raise NotAnAction(f"got {quoted(given)}; allowed: {', '.join(f'[{each}]' for each in self.choices)}")
        given = marked(said) if self.type == "number" else said.strip()
        if self.field is None and "{" in said:
            given = said[said.index("{") : said.rfind("}") + 1]
        try:
            value: Any = read_json(given, limits=_ACTION)
        except DocumentError as error:
            raise NotAnAction(f"got {quoted(given)}: {error}; allowed: {self._allowed}") from error
        if self.type == "number" and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise NotAnAction(f"got {quoted(given)}; allowed: {self._allowed}")
        if self.field is not None:
            return {self.field: value}
        if not isinstance(value, dict):
            raise NotAnAction(f"got {quoted(given)}; allowed: {self._allowed}")
        return cast("dict[str, Any]", value)

    @property
    def _allowed(self) -> str:
        return "a number" if self.type == "number" else "JSON" if self.field else "an object of JSON"


def action_form(schema: Mapping[str, Any], field: str | None) -> ActionForm:
    """How turns become actions of this JSON schema.

    Args:
        field: the setting ``action``.
    Raises:
        RecipeError: the action has no such field.
    """
    fields = {name: of for name, of in schema.get("properties", {}).items() if name != _METADATA}
    if field is not None and field not in fields:
        raise RecipeError(f"{KEY}.action: got {field!r}{nearest(field, fields)}; allowed: {', '.join(fields)}")
    if field is None and len(fields) != 1:
        return ActionForm(None)
    field = field or next(iter(fields))
    given = fields[field]
    given = schema.get("$defs", {}).get(given.get("$ref", "").rpartition("/")[2], given)
    if "enum" in given and all(isinstance(each, str) for each in given["enum"]):
        return ActionForm(field, "choice", tuple(given["enum"]))
    types = [each.get("type") for each in given.get("anyOf", [given])]
    if "string" in types:
        return ActionForm(field, "text")
    return ActionForm(field, "number" if {"integer", "number"} & {*types} else "json")


def shown_field(schema: Mapping[str, Any], field: str | None) -> str | None:
    """Which field of observations of this JSON schema is shown; None: all.

    Args:
        field: the setting ``observation``.
    Raises:
        RecipeError: observations have no such field.
    """
    fields = [name for name in schema.get("properties", {}) if name not in (_METADATA, "reward", "done")]
    if field is not None and fields and field not in fields:
        raise RecipeError(f"{KEY}.observation: got {field!r}{nearest(field, fields)}; allowed: {', '.join(fields)}")
    return field or (fields[0] if len(fields) == 1 else None)


def _is_here(url: str) -> bool:
    return urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    """The loop of the thread in which connections live."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True, name="lyceum-openenv").start()
    return loop


async def _in_thread(coroutine: Coroutine[Any, Any, T]) -> T:
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, _loop()))


_servers: dict[str, StartedServer] = {}
"""Servers that this process has started, by what started them."""


def _started(settings: OpenEnvServer, *, alive: bool = False) -> StartedServer:
    """The server of the settings' command.

    Args:
        alive: start it again where it has ended after it had answered.
    """
    words = words_of(settings.command)
    key = to_json([words, settings.env])
    server = _servers.get(key)
    if server is None or (alive and server.why_ended is not None):
        server = _servers[key] = StartedServer(
            lambda port: [word.replace(PORT, str(port)) for word in words], settings.env
        )
    return server

"""Servers of the Model Context Protocol: their tools are the policy's."""

from __future__ import annotations

import asyncio
import functools
import importlib
import importlib.util
import sys
import threading
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from lyceum.core.component import CommandLine, words_of
from lyceum.core.user_files import describe
from lyceum.environment.tools import CalledTools, Tool, validators
from lyceum.reward.function_worker import cut
from lyceum.reward.pool import WorkerError, WorkerPool, shared_pool
from lyceum.utils.errors import RecipeError
from lyceum.utils.numbers import to_json
from lyceum.utils.terminal import printable

KEY = "environment.mcp"
_ENDS_WITH_ITS_PARENT = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.execvp(sys.argv[1], sys.argv[1:])"  # PR_SET_PDEATHSIG
)


class McpServer(CalledTools):
    """Answers the policy's calls of the tools of an MCP server; a turn without a call ends the trajectory.

    The chat template tells of the tools what the server lists when the run begins, and calls are written and answered
    as with ``tools``. The server is a program, started once for each of ``processes``, or is reached at a URL. All
    trajectories share it: what it remembers of one, another may see, and a resumed run is the same run if it remembers
    nothing. A server that dies, or takes longer than ``timeout_seconds``, is started again for the next call.
    """

    kind: Literal["mcp"] = "mcp"
    command: CommandLine = ()
    """Command line of a server that talks over its standard input and output, a text or its words."""
    env: dict[str, str] = Field(default_factory=dict)
    """Environment variables of the command, beside ``PATH``, ``HOME`` and the like."""
    url: str | None = None
    """Address of a server that talks streamable HTTP, in the place of a command."""
    only: tuple[str, ...] = ()
    """Names of the tools that the policy may call; empty: all that the server lists."""
    processes: int = Field(default=1, ge=1, le=64)
    """Connections, each with a server of its own where that is a command."""

    @model_validator(mode="after")
    def _one_of_both(self) -> McpServer:
        if bool(self.command) == (self.url is not None):
            got = "both" if self.command else "neither"
            raise ValueError(f"command, url: got {got}; allowed: one, such as command='python3 server.py'")
        return self

    @property
    def names(self) -> Collection[str]:
        return self.loaded()

    def code(self) -> tuple[str, ...]:
        return (self.command,) if isinstance(self.command, str) and self.command else tuple(self.command)

    def loaded(self) -> dict[str, Tool]:
        """The server's tools.

        Raises:
            RecipeError: it cannot be reached, or does not have those of ``only``.
        """
        words = words_of(self.command)
        listed = _listed(words, tuple(sorted(self.env.items())), self.url, self.processes, self.timeout_seconds)
        missing = [name for name in self.only if name not in listed]
        if missing:
            raise RecipeError(f"{KEY}.only: got {missing[0]!r}; allowed: {', '.join(listed)}")
        return {name: tool for name, tool in listed.items() if not self.only or name in self.only}


@functools.cache  # whoever asks a server for its tools starts it
def _listed(
    command: tuple[str, ...], env: tuple[tuple[str, str], ...], url: str | None, processes: int, seconds: float
) -> dict[str, Tool]:
    if importlib.util.find_spec("mcp") is None:
        raise RecipeError(f"{KEY}: mcp is not installed; allowed: after pip install 'lyceum-rl[mcp]'")
    where = {"command": list(command), "env": dict(env), "url": url}
    limits: dict[str, Any] = {"workers": processes, "timeout_seconds": seconds}
    # A call may have effects: what was cut off is not called again.
    pool = shared_pool("lyceum.environment.mcp:connection", where, **limits, repeatable=False)
    try:
        given = pool.submit({"do": "list"}).result()
    except WorkerError as error:
        raise RecipeError(f"{KEY}: {printable(url or ' '.join(command))} has no list of tools: {error}") from error
    twice = [name for name, times in Counter(tool["name"] for tool in given).items() if times > 1]
    if twice or not given:
        raise RecipeError(
            f"{KEY}: it lists {f'two tools {twice[0]!r}' if twice else 'no tools'}; allowed: tools by name"
        )
    return {tool["name"]: _tool(tool, pool) for tool in given}


def _tool(given: Mapping[str, Any], pool: WorkerPool) -> Tool:
    schema = {"type": "object", **given["schema"], "properties": given["schema"].get("properties") or {}}
    function = {"name": given["name"], "description": given["description"], "parameters": schema}

    async def call(job: Mapping[str, Any]) -> str:
        got = await pool.run({"do": "call", "name": given["name"], "arguments": job["arguments"]})
        if got["failed"]:
            raise WorkerError(got["text"])
        return cut(got["text"], job["most"])

    told = {"type": "function", "function": function}
    return Tool(told, call, validators(told, given["name"], key=KEY))


def connection(command: list[str], env: dict[str, str], url: str | None) -> Callable[[dict[str, Any]], Any]:
    """The worker's job function: lists the tools, or calls one. A connection that failed is made anew."""
    mcp: Any = importlib.import_module("mcp")
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    if command and sys.platform.startswith("linux"):  # a server that hangs does not outlive this process
        command = [sys.executable, "-c", _ENDS_WITH_ITS_PARENT, *command]

    def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result()

    def opened() -> _Connection:
        server = url or mcp.StdioServerParameters(command=command[0], args=command[1:], env=env or None)
        return _Connection(mcp.Client(server))

    kept = [opened()]
    run(kept[0].ask({"do": "list"}))  # the server starts in the process's time, and not in a call's

    def work(job: dict[str, Any]) -> Any:
        if not kept:
            kept.append(opened())
        try:
            return run(kept[0].ask(job))
        except BaseException:
            run(kept.pop().close())
            raise

    return work


class _Connection:
    """A client that is opened and closed in one coroutine, as its scopes want it."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.jobs: asyncio.Queue[tuple[dict[str, Any], asyncio.Future[Any]] | None] = asyncio.Queue()
        self.serving: asyncio.Task[None] | None = None

    async def ask(self, job: dict[str, Any]) -> Any:
        self.serving = self.serving or asyncio.create_task(self._serve())
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.jobs.put_nowait((job, reply))
        await asyncio.wait([reply, self.serving], return_when=asyncio.FIRST_COMPLETED)
        if reply.done():
            return reply.result()
        error = self.serving.exception()
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise ConnectionError("the server has ended" if error is None else describe(error))

    async def close(self) -> None:
        self.jobs.put_nowait(None)
        if self.serving is not None:
            await asyncio.wait([self.serving])
            self.serving.exception()

    async def _serve(self) -> None:
        async with self.client as client:
            while (asked := await self.jobs.get()) is not None:
                job, reply = asked
                try:
                    reply.set_result(await (_list(client) if job["do"] == "list" else _call(client, job)))
                except Exception as error:
                    reply.set_exception(error)


async def _list(client: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor: str | None = None
    while True:
        page = await client.list_tools(cursor=cursor) if cursor else await client.list_tools()
        found += [
            {"name": each.name, "description": each.description or "", "schema": dict(each.input_schema)}
            for each in page.tools
        ]
        cursor = page.next_cursor
        if not cursor:
            return found


async def _call(client: Any, job: Mapping[str, Any]) -> dict[str, Any]:
    result = await client.call_tool(job["name"], job["arguments"])
    parts = [part.text if part.type == "text" else f"[{part.type}]" for part in result.content]
    if not parts and result.structured_content is not None:
        parts = [to_json(result.structured_content)]
    text = "\n".join(parts).encode("utf-8", "replace").decode()
    return {"text": text, "failed": bool(result.is_error)}

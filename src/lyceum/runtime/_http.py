"""HTTP/1.1 on this machine alone, as h11 reads it: requests in, replies out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import h11

HOST = "127.0.0.1"
_CHUNK = 1 << 16
_MOST_READ = 1 << 26
"""Maximum bytes of a body that is read to its end, though it is too large to be answered."""


@dataclass(frozen=True)
class HttpReply:
    status: int
    body: bytes
    kind: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    unheard: Callable[[], None] = lambda: None
    """Called where whoever asked is gone."""


@dataclass(frozen=True)
class HttpRequest:
    """``body`` is None where it is longer than allowed."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes | None


Respond = Callable[[HttpRequest], Awaitable[HttpReply]]


class HttpServer:
    """Listens on a port of 127.0.0.1 that the system chooses, until it is closed.

    Args:
        most: maximum bytes of a body.
    """

    def __init__(self, respond: Respond, most: int) -> None:
        self._respond, self._most = respond, most
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def port(self) -> int:
        """Of the server, which is started at the first question."""
        if self._server is None:
            self._server = await asyncio.start_server(self._accept, HOST, 0, backlog=1024)
        return self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop listening, and end what is open."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        open_ones = [*self._connections]
        for connection in open_ones:
            connection.cancel()
        await asyncio.gather(*open_ones, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A task of ours: where asyncio's own is cancelled before it has begun, as Ctrl-C does, it prints a traceback.
        connection = asyncio.get_running_loop().create_task(self._talk(reader, writer))
        self._connections.add(connection)

        def ended(connection: asyncio.Task[None]) -> None:
            self._connections.discard(connection)
            writer.close()

        connection.add_done_callback(ended)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.CancelledError):  # cancelled: by close
            await self._serve(reader, writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        http = h11.Connection(h11.SERVER)
        while True:
            try:
                request = await self._request(http, reader)
            except h11.RemoteProtocolError as error:
                if http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                    await _send(http, writer, HttpReply(error.error_status_hint, b"", "text/plain"), close=True)
                return
            if request is None:
                return
            reply = await self._respond(request)
            if reader.at_eof() or writer.is_closing():
                reply.unheard()
                return
            await _send(http, writer, reply, close=False)
            if http.our_state is not h11.DONE or http.their_state is not h11.DONE:
                return
            http.start_next_cycle()

    async def _request(self, http: h11.Connection, reader: asyncio.StreamReader) -> HttpRequest | None:
        """The next request; None where there is no further one."""
        head: h11.Request | None = None
        body, length = bytearray(), 0
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                http.receive_data(await reader.read(_CHUNK))
            elif isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                length += len(event.data)
                if length > _MOST_READ:
                    return None
                if length <= self._most:
                    body += event.data
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
                whole = bytes(body) if length <= self._most else None
                return HttpRequest(head.method.decode("latin-1"), head.target.decode("latin-1"), headers, whole)
            else:  # the connection is closed, or paused
                return None


async def _send(http: h11.Connection, writer: asyncio.StreamWriter, reply: HttpReply, *, close: bool) -> None:
    headers = [("content-type", reply.kind), ("content-length", str(len(reply.body))), *reply.headers.items()]
    if close:
        headers.append(("connection", "close"))
    events = (h11.Response(status_code=reply.status, headers=headers), h11.Data(data=reply.body), h11.EndOfMessage())
    writer.write(b"".join(filter(None, map(http.send, events))))
    await writer.drain()

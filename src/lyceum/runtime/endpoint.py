"""The run's model behind OpenAI's chat completions: for agents that know nothing of the run.

Each episode has a key of its own, which opens nothing but its place in its task's tree, until it ends. Whoever is in
this process needs no socket; others reach it on this machine alone.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Protocol

from lyceum.core.tree import Node, Tree
from lyceum.core.types import SERVED_MODEL, Sampling, ServedLimits
from lyceum.models.renderer import Renderer
from lyceum.runtime._chat import (
    MOST_BYTES,
    ChatRequest,
    NotServed,
    chat_of,
    choice_of,
    completion_of,
    events_of,
    logprobs_of,
    message_of,
    read_reply,
    read_request,
    refused_by_template,
)
from lyceum.runtime._http import HOST, HttpReply, HttpRequest, HttpServer
from lyceum.runtime._responses import read_response_request, response_events, response_of
from lyceum.runtime.conversations import Conversations, Reply
from lyceum.utils.errors import RecipeError
from lyceum.utils.numbers import to_json

log = logging.getLogger(__name__)

CHAT, RESPONSES, MODELS = "/v1/chat/completions", "/v1/responses", "/v1/models"
_BASE = "http://lyceum/v1"
"""The address of those who need no socket."""
MOST_REFUSED = 100
"""Requests refused to an episode before it is ended: it asks on whatever it is told."""
_CHARACTERS = 64
"""Characters per token of the context beyond which messages are not even rendered."""
_NO_RETRY = {"x-should-retry": "false"}
"""So that OpenAI's client does not repeat what will be refused again."""


class EpisodeContext(Protocol):
    """What an episode needs of its task's context."""

    @property
    def tree(self) -> Tree: ...

    @property
    def budget_left(self) -> int: ...

    def tokens_left(self, node: Node) -> int: ...

    async def extend(
        self, node: Node, n: int, sampling: Sampling, *, keep: bool, top: int, draws: list[int]
    ) -> list[Node]: ...


class ChatEndpoint:
    """The episodes that are under way, by their keys."""

    def __init__(self, renderer: Renderer, context_length: int) -> None:
        self.renderer, self.context_length = renderer, context_length
        self.episodes: dict[str, ServedEpisode] = {}
        self.unknown = 0
        """Requests without the key of an episode, not yet counted with any."""
        self._http = HttpServer(self.respond, MOST_BYTES)

    async def address(self) -> str:
        return f"http://{HOST}:{await self._http.port()}/v1"

    async def close(self) -> None:
        """Serve nobody. What came after the last episode had ended is told, as no episode is left to count it with."""
        await self._http.close()
        if self.unknown:
            log.warning("%d requests came when no episode was under way any more; refused", self.unknown)
        self.unknown = 0

    @asynccontextmanager
    async def serving(
        self,
        context: EpisodeContext,
        number: int,
        sampling: Sampling,
        limits: ServedLimits,
        turned: Callable[[bool], None],
    ) -> AsyncIterator[ServedEpisode]:
        """An episode, for as long as it lasts.

        Args:
            turned: called with True when it begins to wait for the model, and with False when it goes on by itself.
        Raises:
            TimeoutError: inside, when it has taken too long, or was refused too often.
        """
        episode = ServedEpisode(self, context, number, sampling, limits, turned)
        self.episodes[episode.key] = episode
        try:
            async with asyncio.timeout(limits.seconds) as clock:
                episode.begin(clock)
                yield episode
        except asyncio.CancelledError:  # by the run, which waits for no draws
            episode.cancel()
            raise
        finally:
            del self.episodes[episode.key]
            await episode.end()

    async def respond(self, request: HttpRequest) -> HttpReply:
        """The reply to any request. What is wrong with it is said as OpenAI's API says it."""
        try:
            return await self._respond(request)
        except NotServed as refused:
            return HttpReply(refused.status, to_json(refused.body()).encode(), headers=_NO_RETRY)

    async def _respond(self, request: HttpRequest) -> HttpReply:
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        episode = self.episodes.get(key.strip()) if scheme.lower() == "bearer" else None
        if episode is None:
            self.unknown += 1
            given = "the key given" if key else "no key"
            raise NotServed(401, f"got {given}; allowed: that of an episode which is under way", "invalid_api_key")
        with episode.counted():
            path = request.path.partition("?")[0]
            if (request.method, path) == ("GET", MODELS):
                listed = {"id": SERVED_MODEL, "object": "model", "created": 0, "owned_by": "lyceum"}
                return HttpReply(200, to_json({"object": "list", "data": [listed]}).encode())
            if request.method != "POST" or path not in (CHAT, RESPONSES):
                got = f"{request.method} {path[:200]}"
                raise NotServed(404, f"got {got}; allowed: POST {CHAT}, POST {RESPONSES}, GET {MODELS}", "not_found")
            if request.body is None:
                raise NotServed(413, f"the body is longer than {MOST_BYTES} bytes, which is allowed", "too_large")
            if path == CHAT:
                return await episode.chat(read_request(request.body))
            return await episode.response(read_response_request(request.body))


class ServedEpisode:
    """Implements :class:`lyceum.core.types.Served`."""

    def __init__(
        self,
        endpoint: ChatEndpoint,
        context: EpisodeContext,
        number: int,
        sampling: Sampling,
        limits: ServedLimits,
        turned: Callable[[bool], None],
    ) -> None:
        self.key = f"sk-{secrets.token_hex(16)}"
        self.counts: Counter[str] = Counter()
        self.cut, self.late = "", False
        self.error: Exception | None = None
        self._stopped = False
        self._endpoint, self._context, self._number = endpoint, context, number
        self._sampling, self._limits, self._turned = sampling, limits, turned
        self._conversations = Conversations(endpoint.renderer, context.tree)
        self._drawn: Counter[int] = Counter()
        """How often it has drawn from each place, by address."""
        self._left = sampling.max_completion_tokens
        self._asking: set[asyncio.Future[Any]] = set()
        self._clock: asyncio.Timeout | None = None
        self._seconds = limits.seconds
        self._client: Any = None

    @property
    def leaves(self) -> list[Node]:
        return self._conversations.leaves

    async def address(self) -> str:
        return await self._endpoint.address()

    def client(self) -> Any:
        if self._client is None:
            self._client = client_without_socket(self._endpoint.respond, self.key)
        return self._client

    def begin(self, clock: asyncio.Timeout) -> None:
        self._clock = clock

    async def end(self) -> None:
        """Once no further request is let in: wait for those that were, whose draws are under way."""
        assert self._clock is not None
        self.late, self._clock = self._clock.expired() and not self._stopped, None
        if self._asking:
            await asyncio.wait(self._asking)
        if self._client is not None:
            await self._client.close()
        self.counts["unknown"], self._endpoint.unknown = self._endpoint.unknown, 0

    def cancel(self) -> None:
        for drawing in self._asking:
            drawing.cancel()

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count what is refused inside; who goes on asking for what it does not get is ended."""
        try:
            yield
        except NotServed as refused:
            self.counts["refused"] += 1
            if refused.status == 429:
                self.cut = str(refused)
            if self.counts["refused"] >= MOST_REFUSED and not self.cut:
                self.cut = f"it asked on after {MOST_REFUSED} refused requests"
            if self.counts["refused"] >= MOST_REFUSED:
                self._stop()
            raise
        except Exception as error:
            self.error = error
            self._stop()
            raise NotServed(500, "the run ends by an error of its own") from error

    def _stop(self) -> None:
        """End it as if its time were over."""
        if self._clock is not None and not self._clock.expired():
            self._stopped = True
            self._clock.reschedule(0)

    async def chat(self, asked: ChatRequest) -> HttpReply:
        """Answer a request for completions."""
        made, replies = await self._completion(asked)
        options = asked.stream_options
        events = events_of(made, usage=bool(options and options.include_usage)) if asked.stream else None
        return self._reply(made, events, replies)

    async def response(self, asked: ChatRequest) -> HttpReply:
        """Answer a request for a response."""
        completion, replies = await self._completion(asked)
        made = response_of(completion, asked)
        return self._reply(made, response_events(made) if asked.stream else None, replies)

    def _reply(self, made: Mapping[str, Any], events: bytes | None, replies: list[Reply]) -> HttpReply:
        body, kind = (to_json(made).encode(), "application/json") if events is None else (events, "text/event-stream")
        return HttpReply(200, body, kind, unheard=lambda: self._unheard(replies))

    async def _completion(self, asked: ChatRequest) -> tuple[dict[str, Any], list[Reply]]:
        self._check(asked)
        messages, tools = chat_of(asked.messages), asked.schemas
        if sum(len(message["content"]) for message in messages) > _CHARACTERS * self._endpoint.context_length:
            raise self._too_long("far more")
        try:
            place = self._conversations.place(messages, tools)
        except RecipeError as error:
            raise refused_by_template(error) from error
        prompt = len(place.prompt.tokens)
        if prompt >= self._endpoint.context_length:
            raise self._too_long(f"{prompt}")
        node = self._conversations.node(place, messages)
        self.counts["requests"] += 1
        self.counts["overridden"] += bool(asked.overridden)
        most = int(min(asked.most, self._left // asked.samples, self._context.budget_left // asked.samples))
        stops = tuple(dict.fromkeys((*self._sampling.stop, *asked.stops)))
        sampling = self._sampling.model_copy(update={"max_completion_tokens": max(1, most), "stop": stops})
        drawn = await self._waiting(self._draw(node, asked, sampling))
        if self._clock is None:  # the agent has ended, and did not wait for it
            for leaf in drawn:
                leaf.detach()
            raise NotServed(401, "the episode ended before its reply", "invalid_api_key")
        self._left -= sum(len(leaf.tokens) for leaf in drawn)
        choices: list[dict[str, Any]] = []
        replies: list[Reply] = []
        for i, leaf in enumerate(drawn):
            renderer = self._endpoint.renderer
            form, ending = renderer.spoken(place.prompt.text, leaf.tokens, tools), renderer.ending(leaf.tokens)
            said = read_reply(leaf.text, form, ending=ending, stops=stops, calls=asked.calls)
            message = message_of(said, leaf)
            replies.append(self._conversations.add(place, message, leaf))
            logprobs = logprobs_of(leaf, asked.top_logprobs or 0, self._token) if asked.logprobs else None
            choices.append(choice_of(i, message, leaf, logprobs))
        made = completion_of(
            f"chatcmpl-{drawn[0].address:x}",
            str((asked.model_extra or {}).get("model") or SERVED_MODEL),
            int(time.time()),
            choices,
            prompt,
            sum(len(leaf.tokens) for leaf in drawn),
        )
        return made, replies

    async def _draw(self, node: Node, asked: ChatRequest, sampling: Sampling) -> list[Node]:
        n, times = asked.samples, self._drawn[node.address]
        self._drawn[node.address] += n
        # The first draw of each episode has the number that it would have as an independent sample.
        draws = [self._number + ((times + i) << 32) for i in range(n)]
        top = asked.top_logprobs or 0 if asked.logprobs else 0
        return await self._context.extend(node, n, sampling, keep=True, top=top, draws=draws)

    async def _waiting(self, drawing: Awaitable[list[Node]]) -> list[Node]:
        """Await the model; the episode's own time stands still meanwhile."""
        future = asyncio.ensure_future(drawing)
        if not self._asking:
            self._turn(True)
        self._asking.add(future)
        try:
            return await future
        finally:
            self._asking.discard(future)
            if not self._asking:
                self._turn(False)

    def _turn(self, asks: bool) -> None:
        if (clock := self._clock) is not None and not clock.expired() and not self._stopped:
            now = asyncio.get_running_loop().time()
            if asks:
                self._seconds = max(0.0, (clock.when() or now) - now)
            clock.reschedule(None if asks else now + self._seconds)
        self._turned(asks)

    def _check(self, asked: ChatRequest) -> None:
        """Raise NotServed for what is beyond the episode's limits, or what training could not repeat."""
        if self.counts["requests"] >= self._limits.requests:
            raise NotServed(429, f"the episode has asked {self._limits.requests} times (max_requests)", "max_requests")
        if min(self._left, self._context.budget_left) < asked.samples:
            most = self._sampling.max_completion_tokens
            why = f"the episode has drawn its tokens (sampling.max_completion_tokens is {most} for all its requests)"
            raise NotServed(429, why, "max_completion_tokens")
        form, constraint = asked.response_format, self._sampling.constraint
        if form is None or form.type == "text":
            return
        wanted = (form.json_schema or {}).get("schema")
        kept = getattr(constraint, "json_schema", None)
        if kept is None or (form.type == "json_schema" and wanted != kept):
            raise NotServed(
                400,
                f"response_format: got {form.type}; allowed: the schema of the recipe's rollout.sampling.constraint "
                f"({'there is none' if kept is None else 'another one'}), which training repeats",
                "invalid_value",
                "response_format",
            )

    def _too_long(self, tokens: str) -> NotServed:
        most = self._endpoint.context_length
        why = f"the messages have {tokens} tokens; this model's context is {most}, of which a reply needs some"
        return NotServed(400, why, "context_length_exceeded", "messages")

    def _unheard(self, replies: list[Reply]) -> None:
        """Take back replies that nobody has got: they led to nothing."""
        self.counts["vanished"] += 1
        for reply in replies:
            self._conversations.replies.remove(reply)
            reply.node.detach()

    def _token(self, token: int) -> str:
        return self._endpoint.renderer.text([token])


def client_without_socket(respond: Callable[[HttpRequest], Awaitable[HttpReply]], key: str) -> Any:
    """An ``openai.AsyncOpenAI`` whose requests are answered in this process.

    Raises:
        ImportError: openai is not installed.
    """
    import httpx2

    openai: Any = importlib.import_module("openai")

    class Transport(httpx2.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            await asyncio.sleep(0)  # who is refused again and again would otherwise let nobody else run
            body = await request.aread()
            path, headers = request.url.raw_path.decode("ascii"), dict(request.headers)
            given = HttpRequest(request.method, path, headers, body if len(body) <= MOST_BYTES else None)
            reply = await respond(given)
            sent = {"content-type": reply.kind, **reply.headers}
            return httpx2.Response(reply.status, headers=sent, content=reply.body)

    return openai.AsyncOpenAI(api_key=key, base_url=_BASE, http_client=httpx2.AsyncClient(transport=Transport()))

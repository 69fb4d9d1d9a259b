"""A model behind an OpenAI-compatible endpoint: bounded, retried with backoff, its replies kept on disk."""

from __future__ import annotations

import asyncio
import hashlib
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from lyceum.core.component import Settings, require_keys
from lyceum.core.tallies import TALLY
from lyceum.core.types import State
from lyceum.models.control_tokens import broken
from lyceum.utils.atomic_files import atomic_write
from lyceum.utils.documents import DATA, DocumentError, read_json
from lyceum.utils.errors import RunError
from lyceum.utils.numbers import to_json
from lyceum.utils.terminal import quoted

LARGEST_REPLY = 1 << 20
"""Maximum bytes of a reply."""
TRIED_AGAIN = {408, 409, 425, 429, 500, 502, 503, 504}
"""HTTP statuses after which the same question is asked again."""


class EndpointSettings(Settings):
    """An OpenAI-compatible chat endpoint. The key is read from the environment, never from a recipe."""

    url: str
    """Base URL up to the version, such as http://localhost:8000/v1."""
    model: str = Field(min_length=1)
    """Name of the model there."""
    key_from: str | None = Field(None, pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,99}$")
    """Environment variable that holds the key; null for none."""
    timeout_seconds: float = Field(60.0, gt=0, le=3600)
    """Seconds after which a question counts as failed."""
    retries: int = Field(4, ge=0, le=20)
    """How often a failed question is asked again."""
    backoff_seconds: float = Field(1.0, ge=0, le=600)
    """Seconds before the first retry, doubled before each further one."""
    concurrent: int = Field(4, ge=1, le=256)
    """Maximum questions under way."""
    most_calls: int = Field(10_000, ge=1)
    """Maximum questions of a stage, retries included; after them trajectories stay ungraded."""
    most_cost: float | None = Field(None, gt=0)
    """Maximum cost of a stage, in the unit of ``price``; null for no limit."""
    price: tuple[float, float] = (0.0, 0.0)
    """Price of a million tokens read and of a million written, as the endpoint counts them."""

    @field_validator("url")
    @classmethod
    def _is_http(cls, url: str) -> str:
        try:
            parts = urlsplit(url)
            valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.username is None
            valid = valid and (parts.port is None or parts.port > 0) and url.isascii() and url.isprintable()
        except ValueError:
            valid = False
        if not valid or " " in url:
            raise ValueError(f"got {quoted(url)}; allowed: http://HOST/v1 or https://HOST/v1, without a user or key")
        return url.rstrip("/")

    @field_validator("price")
    @classmethod
    def _is_no_gain(cls, price: tuple[float, float]) -> tuple[float, float]:
        if min(price) < 0:
            raise ValueError(f"got {price}; allowed: 0 or more")
        return price


class Failed(RunError):
    """The endpoint gave no usable reply."""


class Endpoint:
    """Counts its calls and their cost over a stage."""

    def __init__(self, settings: EndpointSettings) -> None:
        self.settings = settings
        self.calls = self.failures = self.kept = 0
        self.cost = 0.0
        self._waiting: dict[str, asyncio.Future[str]] = {}
        self._places: asyncio.Semaphore | None = None

    async def ask(
        self,
        messages: list[dict[str, str]],
        *,
        most_tokens: int,
        folder: Path | None,
        temperature: float = 0.0,
        vote: int = 0,
    ) -> str:
        """The reply's text. Equal questions are asked once, and not at all where their reply is kept.

        What widespread models take for the end of a turn is sent with a space in it: their tokenizer is not known here.

        Args:
            vote: number of the reply among several to one question: its random seed.
        Raises:
            Failed: all tries failed, or the stage's calls or cost are spent.
        """
        messages = [{name: broken(text) for name, text in message.items()} for message in messages]
        body = {"model": self.settings.model, "messages": messages, "max_tokens": most_tokens, "temperature": 0}
        if temperature:
            body |= {"temperature": temperature, "seed": vote}
        name = hashlib.sha256(to_json([self.settings.url, body]).encode()).hexdigest()
        kept = None if folder is None else folder / f"{name}.json"
        if (reply := _read(kept)) is not None:
            self.kept += 1
            return reply
        if name in self._waiting:
            return await asyncio.shield(self._waiting[name])
        answer = self._waiting[name] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody else may wait for it
        try:
            reply = await self._tried(body)
            if kept is not None:
                kept.parent.mkdir(parents=True, exist_ok=True)
                atomic_write(kept, to_json({"asked": body, "reply": reply}, indent=1) + "\n")
            answer.set_result(reply)
            return reply
        except BaseException as error:
            answer.set_exception(error if isinstance(error, Exception) else Failed("the question was cancelled"))
            raise
        finally:
            del self._waiting[name]

    async def _tried(self, body: Mapping[str, Any]) -> str:
        of, why = self.settings, "never asked"
        self._places = self._places or asyncio.Semaphore(of.concurrent)
        for number in range(of.retries + 1):
            if number:
                await asyncio.sleep(of.backoff_seconds * 2 ** (number - 1))
            async with self._places:
                if self.calls >= of.most_calls:
                    raise Failed(f"the judge's {of.most_calls} calls are spent (most_calls)")
                if of.most_cost is not None and self.cost >= of.most_cost:
                    raise Failed(f"the judge's budget of {of.most_cost:g} is spent (most_cost)")
                self.calls += 1
                try:
                    reply, read, written = await asyncio.to_thread(self._post, body)
                except _Again as error:
                    self.failures, why = self.failures + 1, str(error)
                    continue
            self.cost += (read * of.price[0] + written * of.price[1]) / 1e6
            return reply
        raise Failed(f"the judge failed {of.retries + 1} times, last: {why}")

    def _post(self, body: Mapping[str, Any]) -> tuple[str, int, int]:
        """(reply, tokens read, tokens written)

        Raises:
            Failed: the endpoint refuses the question.
            _Again: it may answer another time.
        """
        key = None if self.settings.key_from is None else os.environ.get(self.settings.key_from)
        headers = {"Content-Type": "application/json"} | ({} if key is None else {"Authorization": f"Bearer {key}"})
        url = f"{self.settings.url}/chat/completions"
        request = urllib.request.Request(url, to_json(body).encode(), headers, method="POST")
        try:
            with _opener.open(request, timeout=self.settings.timeout_seconds) as opened:
                content = opened.read(LARGEST_REPLY + 1)
        except urllib.error.HTTPError as error:
            error.close()
            raise (_Again if error.code in TRIED_AGAIN else Failed)(f"HTTP status {error.code}") from error
        except Exception as error:  # no connection, time, a reply that is no HTTP: also http.client's own errors
            raise _Again(f"{type(error).__name__}: {error}") from error
        return _reply(content)

    def metrics(self) -> dict[str, float]:
        return {"calls": self.calls, "failures": self.failures, "kept": self.kept, "cost": self.cost}

    def state_dict(self) -> State:
        return {TALLY: self.metrics()}

    def load_state_dict(self, state: State) -> None:
        tally = state.get(TALLY, {})
        require_keys("scorer.judge", given=tally, needed=self.metrics())
        self.calls, self.failures, self.kept = int(tally["calls"]), int(tally["failures"]), int(tally["kept"])
        self.cost = float(tally["cost"])


class _Again(Exception):
    """A failure after which the same question may be answered."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is refused: it would take the key elsewhere."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


_opener = urllib.request.build_opener(_NoRedirect)


def _reply(content: bytes) -> tuple[str, int, int]:
    if len(content) > LARGEST_REPLY:
        raise _Again(f"a reply of more than {LARGEST_REPLY} bytes")
    try:
        found = read_json(content, limits=DATA)
    except DocumentError as error:
        raise _Again(f"the reply is no JSON: {error}") from error
    match found:
        case {"choices": [{"message": {"content": str(text)}}, *_]}:
            usage = found.get("usage")
            return text, _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
    raise _Again("the reply has no choices[0].message.content")


def _count(usage: Any, name: str) -> int:
    number = usage.get(name) if isinstance(usage, Mapping) else None
    return number if isinstance(number, int) and 0 <= number <= 10**9 else 0


def _read(file: Path | None) -> str | None:
    """A reply that was kept; None where there is none, or the file is damaged: the question is then asked again."""
    if file is None or not file.is_file():
        return None
    try:
        found = read_json(file.read_bytes(), limits=DATA)
    except (OSError, DocumentError):
        return None
    reply = found.get("reply") if isinstance(found, Mapping) else None
    return reply if isinstance(reply, str) else None

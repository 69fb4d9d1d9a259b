"""Models that write hints: one behind an OpenAI-compatible endpoint, or a local one through an engine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Protocol
from urllib.parse import urlsplit

from lyceum.core.settings import EngineSettings
from lyceum.core.types import Message, Request, Sampling
from lyceum.models.load import ModelSettings, load_policy
from lyceum.utils.errors import RecipeError
from lyceum.utils.seeds import counter_seed

API_KEY = "LYCEUM_API_KEY"
"""Environment variable that holds an endpoint's key."""

RETRIED_STATUS = frozenset({408, 409, 425, 429, *range(500, 600)})
"""HTTP status codes after which the same request may succeed."""


class WriterError(Exception):
    """A request that returned no text.

    Args:
        reason: short, the same for the same cause: failures are counted by it.
        again: whether the same request may succeed later.
    """

    def __init__(self, reason: str, *, again: bool) -> None:
        super().__init__(reason)
        self.reason, self.again = reason, again


class Writer(Protocol):
    """Writes a chat's next message."""

    name: str

    @property
    def settings(self) -> ModelSettings | None:
        """Settings of a local model; None for an endpoint."""
        ...

    async def write(self, messages: Sequence[Message], *, key: str, attempt: int) -> str:
        """The message's text; deterministic in the chat, the key and the attempt as far as the engine allows.

        Raises:
            WriterError: no text was returned.
        """
        ...

    async def __aenter__(self) -> Writer: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None: ...


class EndpointWriter:
    """A model behind an OpenAI-compatible endpoint: vLLM, llama.cpp, a provider.

    Args:
        url: up to and including ``/v1``.
        model: its name at the endpoint.
        sampling: temperature, top_p and max_completion_tokens are sent; the endpoint's own settings apply for the rest.
        timeout_seconds: timeout of a request.
    Raises:
        RecipeError: invalid URL.
    """

    settings = None

    def __init__(self, url: str, model: str, sampling: Sampling, *, timeout_seconds: float) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise RecipeError(f"endpoint: got {url!r}; allowed: a URL such as http://localhost:8000/v1")
        self.name = f"{model} at {parts.hostname}"
        self.url, self.model, self.sampling, self.timeout_seconds = url, model, sampling, timeout_seconds
        self._client: Any = None

    async def __aenter__(self) -> EndpointWriter:
        from huggingface_hub import AsyncInferenceClient

        # Never without a key: the client would then send the user's own Hugging Face token to the endpoint.
        key = os.environ.get(API_KEY) or "none"
        self._client = AsyncInferenceClient(base_url=self.url, api_key=key, timeout=self.timeout_seconds)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self._client.close()

    async def write(self, messages: Sequence[Message], *, key: str, attempt: int) -> str:
        try:
            # The client's own timeout is per read; a server that sends a byte now and then would never time out.
            async with asyncio.timeout(self.timeout_seconds):
                answer = await self._client.chat_completion(
                    [dict(message) for message in messages],
                    model=self.model,
                    max_tokens=self.sampling.max_completion_tokens,
                    temperature=self.sampling.usual_temperature,
                    top_p=self.sampling.top_p,
                    seed=counter_seed("hints", key, attempt) % 2**31,
                )
        except Exception as error:  # from any HTTP library the client uses; counted by its message
            raise self._told(error) from error
        choices = getattr(answer, "choices", None)
        text = choices[0].message.content if choices else None
        if not isinstance(text, str) or not text.strip():
            raise WriterError("an answer without text", again=True)
        return text

    def _told(self, error: Exception) -> WriterError:
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status is not None:
            return WriterError(f"HTTP {status}", again=status in RETRIED_STATUS)
        kind = type(error).__name__
        if isinstance(error, TimeoutError) or "Timeout" in kind:
            return WriterError(f"no answer within {self.timeout_seconds:g} s", again=True)
        if "Connect" in kind:
            return WriterError(f"no connection to {urlsplit(self.url).netloc}", again=True)
        return WriterError(f"{kind}: {' '.join(str(error).split())[:100]}", again=True)


class EngineWriter:
    """A local model through an engine, loaded when it is first used."""

    def __init__(self, settings: ModelSettings, sampling: Sampling, engine: EngineSettings) -> None:
        self.settings, self.sampling, self.engine = settings, sampling, engine
        self.name = settings.path
        self._policy: Any = None
        self._engine: Any = None

    async def __aenter__(self) -> EngineWriter:
        self._policy = load_policy(self.settings)
        self._engine = self.engine.build(self._policy)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        return None

    async def write(self, messages: Sequence[Message], *, key: str, attempt: int) -> str:
        prompt = self._policy.render(messages)
        room = self._policy.context_length - len(prompt)
        if room <= 0:
            raise WriterError(f"a prompt longer than the model's context of {self._policy.context_length}", again=False)
        longest = min(room, self.sampling.max_completion_tokens)
        sampling = self.sampling.model_copy(update={"max_completion_tokens": longest})
        seed = counter_seed("hints", key, attempt)
        (drawn,) = await self._engine.extend(Request(prompt, [seed], sampling, order=(key, attempt)))
        return self._policy.decode(drawn.tokens)

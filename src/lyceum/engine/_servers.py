"""vLLM servers by HTTP: what each must be, what a reply must have, who gets a request, and what happens when one fails.

A request that fails is asked again, of another server where there is one, until ``patience``: no reply is replaced by a
guess. A server that has failed gets no requests until it has been examined, given the weights and compared with the
learner again: after each update, and whenever no other is left.
"""

from __future__ import annotations

import asyncio
import atexit
import hashlib
import itertools
import math
import os
import re
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from lyceum.engine._transfer import Published, transfer_by
from lyceum.engine.vllm import ROUNDING, DrawnSequence, learner_logprobs
from lyceum.models.policy import Policy
from lyceum.utils import progress
from lyceum.utils.errors import Diverged, RecipeError, ServersLost
from lyceum.utils.numbers import to_json

if TYPE_CHECKING:
    import httpx2

    from lyceum.engine._transfer import Weights
    from lyceum.engine.vllm_server import VllmServerConfig

from lyceum.utils.child_processes import StartedServer

OLDEST = (0, 32)
"""The oldest vLLM whose interface is the one that is asked here."""

NOTHING = hashlib.sha256().hexdigest()
"""A server's checksum of a weight that it does not see."""

NO_LOGPROB = -9999.0
"""What a server says in JSON for a log-probability that is not finite, and for one that it has not."""

REFUSALS = (400, 401, 403, 404, 405, 413, 422)
"""HTTP statuses of a request that a server does not take, however often it is asked."""

SHORT = 10.0
"""Seconds within which a server answers what it need not compute."""

PAUSE = 2.0
"""Seconds between two looks at servers that have failed."""

DRAWN, AT = 8, 0.8
"""Tokens that are drawn after each update, and the temperature (no unit), to compare their log-probabilities with the
learner's: at 1, those before and after the temperature would be the same."""


class ServerFailure(Exception):
    """A server did not do what it was asked.

    Attributes:
        not_finite: the model's logits are not, it seems.
        final: it would say the same again.
    """

    def __init__(self, url: str, why: str, *, not_finite: bool = False, final: bool = False) -> None:
        super().__init__(f"{url}{why if why[0] in '/:' else f' {why}'}")
        self.not_finite, self.final = not_finite, final


@dataclass(frozen=True)
class ServerRequest:
    """One sequence to be drawn, or scored.

    Attributes:
        params: arguments of vLLM's SamplingParams.
        scored: token after the prompt whose log-probability is requested, whichever is drawn; None for the drawn one's.
    """

    prompt: list[int]
    params: Mapping[str, Any]
    scored: int | None = None


class VllmServer:
    """One server: every call has a time-out, and every failure is a :class:`ServerFailure`."""

    def __init__(self, url: str, config: VllmServerConfig) -> None:
        import httpx2

        self.url, self.config = url, config
        key = os.environ.get("VLLM_API_KEY")  # as vLLM's own servers and clients read it
        self.headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        # No connection is used again: vLLM closes those of requests that fail, and a reset would look like a failure.
        limits = httpx2.Limits(max_keepalive_connections=0)
        self._client = httpx2.Client(base_url=url, headers=self.headers, limits=limits, verify=url.startswith("https:"))
        self._clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, httpx2.AsyncClient] = (
            weakref.WeakKeyDictionary()
        )
        self.own: OwnServer | None = None
        self.failure: ServerFailure | None = None
        self.requests = 0
        """That it is answering now."""
        self.model, self.vllm, self.dtype = "", "", ""
        self.max_model_len, self.vocab, self.world_size = 0, 0, 1
        self._checksum: tuple[str, str] | None = None
        """Digest of the weights that it was given last, and what it made of them."""

    # Calls ---------------------------------------------------------------------------------------------------------

    def call(self, method: str, path: str, content: Any = None, *, seconds: float | None = None) -> Any:
        """One answer as JSON; of the setting's ``timeout`` seconds where none are given."""
        import httpx2

        limit = self.config.timeout if seconds is None else seconds
        timeout, deadline = httpx2.Timeout(limit, connect=SHORT), time.monotonic() + limit
        body = bytearray()
        try:
            with self._client.stream(method, path, json=content, timeout=timeout) as answer:
                for part in answer.iter_bytes():
                    body += part
                    if time.monotonic() > deadline:  # the client's own limit is of each part
                        raise httpx2.ReadTimeout("the answer comes in drops")
        except httpx2.HTTPError as error:
            raise self.failed(path, error, limit) from error
        return self._json(path, httpx2.Response(answer.status_code, content=bytes(body)))

    async def ask(self, sequence: ServerRequest, label: str) -> DrawnSequence:
        import httpx2

        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            # vLLM closes a connection after 5 s without a request.
            limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=1.0)
            timeout = httpx2.Timeout(None, connect=SHORT)
            given = {"headers": self.headers, "limits": limits, "timeout": timeout}
            client = httpx2.AsyncClient(base_url=self.url, **given, verify=self.url.startswith("https:"))
            self._clients[loop] = client
        self.requests += 1
        try:
            async with asyncio.timeout(self.config.timeout):  # of the whole answer: it may come in drops
                answer = await self._clients[loop].post(GENERATE, json=self._body(sequence))
        except (httpx2.HTTPError, TimeoutError) as error:
            raise self.failed(GENERATE, error, self.config.timeout) from error
        finally:
            self.requests -= 1
        return self._read(self._json(GENERATE, answer), sequence, label)

    def draw(self, sequence: ServerRequest, label: str) -> DrawnSequence:
        """The same, from plain code."""
        return self._read(self.call("POST", GENERATE, self._body(sequence)), sequence, label)

    def failed(self, path: str, error: Exception, limit: float) -> ServerFailure:
        import httpx2

        why = f"{type(error).__name__}: {error}".rstrip(": ")
        if isinstance(error, TimeoutError | httpx2.TimeoutException) and not isinstance(error, httpx2.ConnectTimeout):
            why = f"no answer within {limit:g} s{' (engine.timeout)' if limit == self.config.timeout else ''}"
        elif self.own is not None and self.own.why_ended:
            why = self.own.why_ended
        return ServerFailure(self.url, f"{path}: {why}")

    def _json(self, path: str, answer: httpx2.Response) -> Any:
        if answer.status_code != 200:
            final = answer.status_code in REFUSALS
            raise ServerFailure(self.url, f"{path}: status {answer.status_code}: {answer.text[:300]}", final=final)
        try:
            return answer.json()
        except ValueError as error:
            raise ServerFailure(self.url, f"{path}: its answer is no JSON: {answer.text[:100]!r}") from error

    # What it is ----------------------------------------------------------------------------------------------------

    def examine(self) -> None:
        """Find out what it is; raises ServerFailure, with what is allowed, where it cannot be used."""
        with self._reading():
            self._examine()

    def _examine(self) -> None:
        version = _text(self._told("/version", "another server than vLLM's"), "version")
        numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
        if numbers < OLDEST:
            raise self.refused(f"vLLM {version or 'of no version'}", f"{'.'.join(map(str, OLDEST))} or newer")
        self.vllm = version
        models = self._told("/v1/models", "a server without a model")["data"]
        self.model, self.max_model_len = _text(models[0], "id"), int(models[0].get("max_model_len") or 0)
        try:
            paused = self.call("GET", "/is_paused", seconds=SHORT)
        except ServerFailure as failure:
            if "status 404" not in str(failure):
                raise
            raise self.refused(
                "a server without vLLM's routes for training", "VLLM_SERVER_DEV_MODE=1 set for it"
            ) from None
        info = self.call("GET", "/server_info?config_format=json", seconds=6 * SHORT)["vllm_config"]
        model, backend = info["model_config"], (info.get("weight_transfer_config") or {}).get("backend")
        self.dtype = str(model["dtype"]).removeprefix("torch.")
        wanted = self.config.backend
        if backend != wanted:
            flag = to_json({"backend": wanted})
            raise self.refused(f"weight transfer {backend!r}", f"--weight-transfer-config '{flag}'")
        if model.get("logprobs_mode") != "processed_logprobs":
            raise self.refused(f"logprobs_mode {model.get('logprobs_mode')!r}", "--logprobs-mode processed_logprobs")
        if self.dtype not in ROUNDING:
            raise self.refused(f"data type {self.dtype}", ", ".join(ROUNDING))
        self.world_size = int(self.call("GET", "/get_world_size", seconds=SHORT)["world_size"])
        if paused.get("is_paused"):  # by a run that ended meanwhile
            self.call("POST", "/resume")
        try:
            self.call("POST", GENERATE, self._body(ServerRequest([0], {"max_tokens": 1, "logprobs": 0})))
        except ServerFailure as failure:
            if "status 403" not in str(failure) and "status 404" not in str(failure):
                raise
            raise self.refused(f"a server without {GENERATE}", "--enable-scale-out") from None

    def compare(self, layers: int | None) -> None:
        """Raise ServerFailure where its model has another number of layers than the recipe's.

        Not its vocabulary: vLLM 0.32 ends at a token that its model does not have.
        """
        if layers is None:
            return
        with self._reading():
            names = self.call("POST", "/weight_checker", {"action": "checksum"})["checksums"]
            found = len({place for name in names for place in re.findall(r"\.layers\.(\d+)\.", name)})
        if found and found != layers:
            raise self.refused(f"model {self.model!r} of {found} layers", f"the recipe's model, of {layers}")

    def _told(self, path: str, otherwise: str) -> Any:
        import httpx2

        try:
            return self.call("GET", path, seconds=SHORT)
        except ServerFailure as failure:
            if "status 404" in str(failure) or "no JSON" in str(failure):
                raise self.refused(otherwise, "the address of a vLLM server") from None
            if isinstance(failure.__cause__, httpx2.ConnectError) and self.own is None:
                raise self.refused(
                    f"no answer ({failure.__cause__})", "the address of a vLLM server that runs"
                ) from None
            raise

    def refused(self, got: str, allowed: str) -> ServerFailure:
        return ServerFailure(self.url, f": got {got}; allowed: {allowed}")

    # Weights -------------------------------------------------------------------------------------------------------

    def confirm(self, published: Published) -> None:
        """Raise ServerFailure unless it says that it has these weights, and they changed if they should."""
        with self._reading():
            found = self.call("GET", "/weight_info", seconds=SHORT)["weight_version"]
            sums = self.call("POST", "/weight_checker", {"action": "checksum"})["checksums"]
            now = to_json(dict(sorted(sums.items())))
            if NOTHING in sums.values():  # weights that vLLM keeps packed, on a CPU, it does not see
                now = ""
        if found != published.label:
            raise ServerFailure(self.url, f"has weights {found!r} after it was given {published.label!r}")
        known, self._checksum = self._checksum, (published.digest, now)
        if known and known[1] and now and (known[0] == published.digest) != (known[1] == now):
            kept = "has kept its old weights" if known[1] == now else "has other weights than before"
            raise ServerFailure(self.url, f"{kept} after it was given {published.label!r}")

    def agree(self, policy: Policy, label: str) -> float:
        """Mean difference (nats per token) of sampled tokens' log-probabilities from the policy's.

        Raises:
            ServerFailure: it is more than rounding: vLLM computes this architecture otherwise, or has other weights.
        """
        prompt = list(range(min(16, self.max_model_len - DRAWN, self.vocab)))
        params = {"temperature": AT, "max_tokens": DRAWN, "seed": 0, "logprobs": 0}
        drawn = self.draw(ServerRequest(prompt, params), label)
        expected = learner_logprobs(policy, prompt + drawn.tokens, AT)[-len(drawn.tokens) :]
        if not all(map(math.isfinite, expected)):
            return 0.0  # who samples will be told that the model has diverged
        difference = sum(abs(g - e) for g, e in zip(drawn.logprob, expected, strict=True)) / len(expected)
        limit = ROUNDING[self.dtype]
        if not difference * AT <= limit:
            raise ServerFailure(
                self.url,
                f"gives log-probabilities that differ from the learner's by {difference:.2g} nats per token, and "
                f"rounding makes less than {limit:g} in {self.dtype}: it has other weights, or another model",
            )
        return difference

    # Replies -------------------------------------------------------------------------------------------------------

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise ServerFailure(self.url, f"answered half: {type(error).__name__}: {error}") from error

    def _body(self, sequence: ServerRequest) -> dict[str, Any]:
        params = {**sequence.params, "ignore_eos": True, "detokenize": False}
        return {"model": self.model, "token_ids": sequence.prompt, "sampling_params": params, "stream": False}

    def _read(self, reply: Any, asked: ServerRequest, label: str) -> DrawnSequence:
        """A reply, with everything that was asked for; anything else is a failure."""
        with self._reading():
            return self._drawn(reply, asked, label)

    def _drawn(self, reply: Any, asked: ServerRequest, label: str) -> DrawnSequence:

        def need(true: bool, why: str, **more: bool) -> None:
            if not true:
                raise ServerFailure(self.url, why, **more)

        need(reply["model"] == self.model, f"answered as model {reply['model']!r} instead of {self.model!r}")
        (choice,) = reply["choices"]
        tokens, finish = choice["token_ids"], choice["finish_reason"]
        need(finish in ("stop", "length"), f"ended a request with {finish!r}")
        most, stops = asked.params["max_tokens"], asked.params.get("stop_token_ids", ())
        whole = len(tokens) == most if finish == "length" else 0 < len(tokens) <= most and tokens[-1] in stops
        need(whole, f"answered half: {len(tokens)} of at most {most} tokens, ended by {finish!r}")
        need(all(type(token) is int and 0 <= token < self.vocab for token in tokens), "answered what are no tokens")
        reported = (choice["logprobs"] or {}).get("content") or []
        need([each["token_id"] for each in reported] == tokens, "answered without each token's log-probability")
        top = [[(each["token_id"], float(each["logprob"])) for each in one["top_logprobs"]] for one in reported]
        logprob = [float(each["logprob"]) for each in reported]
        if asked.scored is not None:
            logprob = [dict(one)[asked.scored] for one in top]
        prompt: list[float] = []
        if "prompt_logprobs" in asked.params:
            rows = reply["prompt_logprobs"][1:]
            need(len(rows) == len(asked.prompt) - 1, "answered without the prompt's log-probabilities")
            prompt = [float(row[str(token)]["logprob"]) for row, token in zip(rows, asked.prompt[1:], strict=True)]
        nats = [*logprob, *prompt]
        need(all(each > NO_LOGPROB for each in nats), "gave log-probabilities that are not finite", not_finite=True)
        need(all(each < 1e-3 for each in nats), "gave log-probabilities above 0")
        spans = [(each["version"], each["start"], each["end"]) for each in choice["weight_versions"] or ()]
        need(spans == [(label, 0, len(tokens))], f"drew tokens under the weights {spans}, and {label!r} was asked")
        k = asked.params.get("logprobs") or 0
        ranked = [tuple(sorted(one, key=lambda of: -of[1])[:k]) for one in top] if k else []
        return DrawnSequence(tokens, logprob, finish, prompt, ranked, _computed(reply, len(asked.prompt), len(tokens)))

    def close(self) -> None:
        self._client.close()
        if self.own is not None:
            self.own.close()


GENERATE = "/inference/v1/generate"


def _text(content: Any, key: str) -> str:
    found = content.get(key) if isinstance(content, dict) else None
    return found if isinstance(found, str) else ""


def _computed(reply: Any, prompt: int, drawn: int) -> int:
    """Tokens that went through the model; those in its cache are known where it says so."""
    details = (reply.get("usage") or {}).get("prompt_tokens_details") or {}
    return prompt - int(details.get("cached_tokens") or 0) + drawn - 1


class Servers:
    """The servers of an engine, which serve one policy's weights: those of whoever published last.

    Args:
        own: arguments and environment of a server that is started; None: those of ``engine.urls``.
    """

    _current: Servers | None = None

    @classmethod
    def of(cls, key: Any, config: VllmServerConfig, own: Sequence[str] | None) -> Servers:
        """This process's servers for these settings; others that it started are ended first."""
        if cls._current is None or cls._current.key != key:
            if cls._current is not None:
                cls._current.close()
            cls._current = cls(key, config, own)
        return cls._current

    def __init__(self, key: Any, config: VllmServerConfig, own: Sequence[str] | None) -> None:
        self.key, self.config = key, config
        self.transfer = transfer_by(config.transfer, config.folder, config.timeout)
        self.servers = [VllmServer(url, config) for url in config.urls]
        if own is not None:
            devices = {} if config.devices is None else {"CUDA_VISIBLE_DEVICES": config.devices}
            environment = {**OWN_ENVIRONMENT, **self.transfer.environment, **devices}
            started = OwnServer(config.python_path, own, environment)
            self.servers = [VllmServer(started.url, config)]
            self.servers[0].own = started
        self.serves: object | None = None
        self.policy: Policy | None = None
        self.published: Published | None = None
        self._said: set[str] = set()
        self._run, self._numbers = uuid4().hex[:12], itertools.count(1)
        self._bringing: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = weakref.WeakKeyDictionary()
        atexit.register(self.close)

    def close(self) -> None:
        atexit.unregister(self.close)
        if Servers._current is self:
            Servers._current = None
        for server in self.servers:
            server.close()

    @property
    def up(self) -> list[VllmServer]:
        return [server for server in self.servers if server.failure is None]

    @property
    def bytes(self) -> int:
        """Of the weights that were published last."""
        if self.published is None:
            return 0
        return sum(weight.numel() * weight.element_size() for _, weight in self.published.named())

    @property
    def max_model_len(self) -> int:
        return min(server.max_model_len for server in self.servers)

    # Weights -------------------------------------------------------------------------------------------------------

    def begun(self, policy: Policy) -> Servers:
        """Examine all servers; raises RecipeError where one cannot be used, and ends those that were started."""
        try:
            self._begin(policy)
        except BaseException:
            self.close()
            raise
        return self

    def _begin(self, policy: Policy) -> None:
        for server in self.servers:
            server.vocab = policy.output.weight.shape[0]
            try:
                if server.own is not None:
                    self._wait_for(server)
                server.examine()
            except ServerFailure as failure:
                raise unusable(failure) from failure
        kinds = {server.dtype: server.url for server in self.servers}
        if len(kinds) > 1:
            found = ", ".join(f"{dtype} ({url})" for dtype, url in kinds.items())
            raise RecipeError(f"engine.urls: got servers that compute in {found}; allowed: one data type")

    def _wait_for(self, server: VllmServer) -> None:
        """Until a server that was started answers."""
        assert server.own is not None
        until = time.monotonic() + self.config.patience
        while True:
            try:
                server.call("GET", "/version", seconds=SHORT)
                return
            except ServerFailure:
                if server.own.why_ended or time.monotonic() > until:
                    raise
            time.sleep(0.2)

    def publish(self, serves: object, policy: Policy, weights: Weights, *, strict: bool = False) -> None:
        """Give all servers these weights; ``serves`` is served from now on.

        A server that does not take them gets no requests.

        Args:
            strict: raise RecipeError instead.
        """
        # Of the policy's own weights alone is known what they compute.
        self.serves, self.policy = serves, policy if weights is policy.module else None
        label = f"{self._run}-{next(self._numbers)}"
        self.published = self.transfer.publish(label, weights, self.servers[0].dtype)
        self._give(self.servers)
        if strict and (failures := [server.failure for server in self.servers if server.failure is not None]):
            raise unusable(failures[0]) from failures[0]

    def _give(self, servers: Sequence[VllmServer]) -> None:
        with ThreadPoolExecutor(len(servers)) as pool:
            list(pool.map(self._give_one, servers))

    def _give_one(self, server: VllmServer) -> None:
        assert self.published is not None
        try:
            if server.failure is not None:
                server.examine()
            # What it still answers was given up here.
            server.call("POST", "/pause?mode=abort")
            try:
                self.transfer.send(server, self.published)
            except ServerFailure as failure:
                if "already active" not in str(failure):
                    raise
                server.call("POST", "/finish_weight_update", {})  # begun by a run that ended meanwhile
                self.transfer.send(server, self.published)
            server.call("POST", "/resume")
            server.confirm(self.published)
            if self.policy is not None:
                server.agree(self.policy, self.published.label)
        except ServerFailure as failure:
            self._note(server, failure)
        else:
            server.failure = None

    def _note(self, server: VllmServer, failure: ServerFailure) -> None:
        if str(failure) not in self._said:
            self._said.add(str(failure))
            progress.say(f"engine: {failure}; it is asked again, at the latest after the next update")
        server.failure = failure

    # Requests ------------------------------------------------------------------------------------------------------

    async def draw(self, sequence: ServerRequest, serves: object) -> DrawnSequence:
        """Ask the server with the fewest requests, and others where it fails.

        Raises:
            ServersLost: for ``patience`` seconds none has answered as it should.
            Diverged: what all of them compute is not finite.
        """
        since, tried = math.inf, set[str]()
        while True:
            if self.serves is not serves or self.published is None:
                raise RuntimeError("the servers have the weights of another engine by now: load this one's first")
            if not self.up:
                since = min(since, time.monotonic())
                await self._bring_back(since)
                continue
            server = min(self.up, key=lambda of: (of.url in tried, of.requests))
            try:
                return await server.ask(sequence, self.published.label)
            except ServerFailure as failure:
                self._note(server, failure)
                tried.add(server.url)
                since = min(since, time.monotonic())
                failures = [of.failure for of in self.servers if of.failure is not None]
                everywhere = len(failures) == len(self.servers)
                if everywhere and all(of.not_finite for of in failures):
                    raise Diverged(NOT_FINITE) from failure
                if everywhere and all(of.final for of in failures):
                    raise ServersLost(["engine: every server refuses a request", *map(str, failures)]) from failure
                if time.monotonic() - since > self.config.patience:
                    raise self._lost() from failure

    async def _bring_back(self, since: float) -> None:
        """Examine the servers that have failed until one has the weights; one caller does it for all."""
        loop = asyncio.get_running_loop()
        async with self._bringing.setdefault(loop, asyncio.Lock()):
            while not self.up:
                if time.monotonic() - since > self.config.patience:
                    raise self._lost()
                await asyncio.to_thread(self._give, self.servers)
                if not self.up:
                    await asyncio.sleep(PAUSE)

    def _lost(self) -> ServersLost:
        lines = [str(server.failure) for server in self.servers if server.failure is not None]
        return ServersLost([f"engine: no server has answered for {self.config.patience:g} s (engine.patience)", *lines])


NOT_FINITE = (
    "the model's logits are not finite; lower learner.lr or learner.max_grad_norm and resume from an earlier "
    "checkpoint, or use another model"
)

OWN_ENVIRONMENT = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_NO_USAGE_STATS": "1"}
"""Of servers that are started: vLLM's routes for training, which it has for developers; on this machine alone."""


def unusable(failure: ServerFailure) -> RecipeError:
    return RecipeError(f"engine: {failure}")


class OwnServer(StartedServer):
    """vLLM's server.

    Args:
        python: in whose environment vLLM is.
        arguments: of ``vllm serve``, without host and port.
        environment: variables that it has beside this process's.
    """

    def __init__(self, python: str, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        # Not the command `vllm`, which the CPU build of 0.32 ends with an error: it looks for a package named vllm.
        command = [python, "-m", "vllm.entrypoints.openai.api_server", *arguments, "--host", "127.0.0.1", "--port"]
        super().__init__(lambda port: [*command, str(port)], environment)

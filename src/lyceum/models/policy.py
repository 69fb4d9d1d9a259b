"""A Hugging Face causal language model as lyceum uses it: packed forwards over token trees, and its tokenizer.

There is no model class of our own: the weights, layers and files are transformers'; only attention is redirected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar, cast

from jaxtyping import Float, Int

from lyceum.core.forest import Forest
from lyceum.core.types import FrozenName, Reduction, Task
from lyceum.models.bits import RULED_OUT, unpacked
from lyceum.models.context import context_of_config
from lyceum.models.flex import FlexPlan
from lyceum.models.model_cache import ModelCache, ModelStates
from lyceum.models.renderer import Renderer
from lyceum.models.rows import ByRows
from lyceum.models.sight import Sight
from lyceum.models.tree_attention import (
    CHUNKED,
    SLIDING,
    AttentionPlan,
    NotOverTrees,
    TreePlan,
    packed_hidden,
    take_over,
)
from lyceum.utils.errors import RecipeError
from lyceum.utils.lazy_imports import Tensor, nn, peft, torch, transformers
from lyceum.utils.messages import check_text
from lyceum.utils.terminal import quoted

_LOGIT_ELEMENTS = 1 << 24
"""Maximum (token, vocabulary) logits held at once: 64 MiB in float32."""
_REDUCED_PIECES = 8
"""With reductions, pieces are this many times smaller: those hold several tensors of their logits' size."""
LOGPROB, ENTROPY, EXCLUDED = "logprob", "entropy", "excluded"
"""Names of the outputs that are not reductions'."""
_BY_ROWS, _MODEL_CACHE, _STATES, _FLEX = "lyceum_by_rows", "lyceum_model_cache", "lyceum_states", "lyceum_flex"
_ATTENTION = {"full_attention", SLIDING, CHUNKED}
Plan = TypeVar("Plan", TreePlan, FlexPlan)


class Policy:
    """A causal LM and its tokenizer.

    Args:
        module: any ``*ForCausalLM``, or a peft model around one.
        tokenizer: its tokenizer, with a chat template where messages are to be rendered.
        by_rows: run it over rows, in this way; None for a model over token trees, or a copy of one over rows.
    Raises:
        NotOverTrees: the architecture has attention that cannot be redirected.
    """

    def __init__(
        self, module: nn.Module, tokenizer: transformers.PreTrainedTokenizerBase, *, by_rows: ByRows | None = None
    ) -> None:
        self.module = module
        self.tokenizer = tokenizer
        self.renderer = Renderer(tokenizer)
        causal = module.get_base_model() if isinstance(module, peft.PeftModel) else module
        self.causal = cast(transformers.PreTrainedModel, causal)
        self.by_rows = by_rows or getattr(self.causal, _BY_ROWS, None)
        """How it samples over rows; None over token trees, where what branches share is computed once."""
        self.states: ModelStates | None = getattr(self.causal, _STATES, None)
        """What the engine keeps of each path, where layers have states that branch."""
        if self.by_rows is not None:
            self.run_by_rows(self.by_rows)
        elif self.states is None:
            redirect_attention(self.causal)
        self.model_cache: ModelCache | None = getattr(self.causal, _MODEL_CACHE, None)
        """What the engine keeps of each token; None for one key and one value per layer, as the configuration says."""
        text_alone = self.by_rows is not None or self.states is not None
        self.sight = None if text_alone else Sight.of(self.causal, tokenizer)
        """How it takes pictures; None for a model of text alone, with states, and over rows."""
        self.shown: Callable[[Sequence[int]], list[int]] | None = None
        """What the learner shows it in the place of a row's tokens: other pictures before the same completion. None:
        the tokens themselves."""
        self.backbone = cast(nn.Module, self.sight or backbone_of(self.causal))
        self.output = cast(nn.Linear, self.causal.get_output_embeddings())
        self.stop_ids = _stop_ids(self.causal, tokenizer)
        self.context_length = context_of_config(self.causal.config.get_text_config())
        """Maximum sequence length of the model, in tokens."""
        self._scale_logits = logit_transform(self.causal)

    def run_by_rows(self, how: ByRows) -> None:
        """Run over rows, in this way; copies of the module do too."""
        self.by_rows = how
        setattr(self.causal, _BY_ROWS, how)

    def keep_states(self, states: ModelStates, cache: ModelCache | None) -> None:
        """Run over token trees, keeping states and what is cached beside them; copies of the module do too."""
        self.by_rows, self.states = None, states
        delattr(self.causal, _BY_ROWS)
        setattr(self.causal, _STATES, states)
        if cache is not None:
            self.keep_model_cache(cache)

    def keep_model_cache(self, cache: ModelCache) -> None:
        """Keep what the model caches, in this form; copies of the module do too."""
        self.model_cache = cache
        setattr(self.causal, _MODEL_CACHE, cache)

    @contextmanager
    def showing(self, view: Callable[[Sequence[int]], list[int]]) -> Iterator[None]:
        """Inside, the learner shows it this in the place of a row's tokens."""
        before, self.shown = self.shown, view
        try:
            yield
        finally:
            self.shown = before

    @property
    def flex(self) -> bool:
        """Whether training over trees attends by ``flex_attention``; copies of the module do too."""
        return getattr(self.causal, _FLEX, False)

    @flex.setter
    def flex(self, on: bool) -> None:
        setattr(self.causal, _FLEX, on)

    @property
    def trains_over_trees(self) -> bool:
        """Whether training computes what rows share once, however the model samples."""
        return self.by_rows is None or self.by_rows.attention is not None

    @property
    def device(self) -> torch.device:
        return self.causal.device

    @property
    def cache_shape(self) -> tuple[int, int, int]:
        """Layers, key-value heads and head dimension: the shape of one token's keys."""
        if self.model_cache is not None:
            return self.model_cache.store_shape
        if self.states is not None:
            return self.states.store_shape
        config = self.causal.config.get_text_config()
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        return config.num_hidden_layers, heads, dim

    def hidden(
        self, tokens: Int[Tensor, " T"], position: Int[Tensor, " T"], plan: AttentionPlan, **seen: Any
    ) -> Float[Tensor, "T width"]:
        """Last hidden state of each packed token; ``head`` makes logits of it.

        Args:
            seen: what the :class:`~lyceum.models.sight.Sight` of a model that sees is told beside the tokens.
        """
        return packed_hidden(self.backbone, tokens, position, plan, **seen)

    def head(
        self, hidden: Float[Tensor, "k width"], output: Callable[[Tensor], Tensor] | None = None
    ) -> Float[Tensor, "k V"]:
        """Float32 logits. ``output`` is a faster replacement for the output layer, where there is one."""
        if output is not None:
            return self._scale_logits(output(hidden)).float()
        if self.output.weight.dtype in (torch.bfloat16, torch.float16):
            hidden = hidden.to(self.output.weight.dtype)  # Mamba adds up its layers in float32 and casts here, too
        return self._scale_logits(self.output(hidden)).float()

    def forest_hidden(self, forest: Forest) -> Float[Tensor, "T width"]:
        """One forward of every unique token of a forest."""
        plan = forest_plan(forest, FlexPlan).to(self.device) if self.flex else forest_plan(forest).to(self.device)
        seen = {} if self.sight is None else {"shift": self._on_device(self.sight.forest_shift(forest))}
        return self.hidden(forest.token.to(self.device), forest.position.to(self.device), plan, **seen)

    @property
    def adapters(self) -> bool:
        """Whether peft adapters are trained."""
        return isinstance(self.module, peft.PeftModel)

    def render(self, messages: Sequence[Any]) -> list[int]:
        """Prompt tokens of chat messages, by the tokenizer's own chat template.

        Raises:
            RecipeError: the template refuses them.
        """
        return list(self.renderer.render(messages).tokens)

    def foreseen(self, tasks: Sequence[Task]) -> Iterator[Task]:
        """The tasks, each of whose prompts is rendered before the next is taken.

        What chooses the rates of their pictures sees those of several tasks together, ahead of the first.
        """
        at_once = len(tasks) if self.sight is None else self.sight.at_once
        for first in range(0, len(tasks), max(1, at_once)):
            some = tasks[first : first + at_once]
            if self.sight is not None:
                self.sight.pictures.foresee(task.messages for task in some)
            yield from some

    def encode(self, completion: str) -> list[int]:
        """Tokens of a completion that the policy did not write, its end of sequence included."""
        check_text(completion)
        text = self.renderer.controls.as_text(completion)
        tokens = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return [*cast(Any, tokens), cast(int, self.tokenizer.eos_token_id)]

    def decode(self, tokens: Sequence[int]) -> str:
        return self.renderer.decode(tokens)

    def _on_device(self, x: Tensor | None) -> Tensor | None:
        return None if x is None else x.to(self.device)


def redirect_attention(model: transformers.PreTrainedModel) -> None:
    """Replace a model's attention by lyceum's, so that it can run over packed token trees.

    Raises:
        NotOverTrees: the architecture has attention that cannot be redirected.
    """
    what = type(model).__name__
    # Their state runs along the packed sequence, or the tree does not support their mask: branches would mix.
    other = set(getattr(model.config.get_text_config(), "layer_types", None) or ()) - _ATTENTION
    if other:
        raise NotOverTrees(
            f"{what} has layers of {', '.join(sorted(other))}; over token trees there are: "
            f"{', '.join(sorted(_ATTENTION))}"
        )
    if not take_over(model):
        raise NotOverTrees(f"the attention of {what} cannot be replaced in this transformers")
    for module in model.modules():
        if isinstance(module, transformers.GradientCheckpointingLayer):
            # Where positions are told by a cache, it keeps nothing that recomputing would add to.
            module._can_checkpoint_with_cache = True


def _stop_ids(causal: transformers.PreTrainedModel, tokenizer: transformers.PreTrainedTokenizerBase) -> frozenset[int]:
    """Every end-of-sequence token that the model's generation settings, its config or its tokenizer name.

    Raises:
        RecipeError: one is not a token id.
    """
    ids: list[Any] = []
    generation = getattr(causal, "generation_config", None)
    named = getattr(causal.config, "eos_token_id", None)
    of_text = getattr(causal.config.get_text_config(), "eos_token_id", None) if named is None else None
    for source in (getattr(generation, "eos_token_id", None), named, of_text, tokenizer.eos_token_id):
        ids += source if isinstance(source, (list, tuple)) else [] if source is None else [source]
    if wrong := [token for token in ids if not isinstance(token, int) or abs(token) >= 2**31]:
        raise RecipeError(f"model.path: eos_token_id: got {quoted(wrong[0])}; allowed: a token id, or a list of them")
    return frozenset(ids)


def backbone_of(causal: transformers.PreTrainedModel) -> nn.Module:
    """The model without its output layer."""
    # Llama 4's text part names a prefix that is not its own.
    body = getattr(causal, causal.base_model_prefix, None)
    return cast(nn.Module, getattr(causal, "model", None) if body is None else body)


def logit_transform(causal: transformers.PreTrainedModel) -> Callable[[Tensor], Tensor]:
    """What some architectures do to logits after the output layer, read from their config.

    Gemma 2 and 3, RecurrentGemma and xLSTM soft-cap them, Cohere multiplies, Granite divides.
    """
    config = causal.config.get_text_config()
    factor = getattr(config, "logit_scale", None) or 1.0
    factor /= getattr(config, "logits_scaling", None) or 1.0
    for name in ("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap"):
        if cap := getattr(config, name, None):
            return partial(_capped, factor=factor, cap=float(cap))
    return (lambda logits: logits * factor) if factor != 1.0 else (lambda logits: logits)


def _capped(logits: Tensor, factor: float, cap: float) -> Tensor:
    return torch.tanh(logits * factor / cap) * cap


def forest_plan(forest: Forest, of: Callable[[Sequence[Tensor], Sequence[int]], Plan] = TreePlan) -> Plan:
    """The attention plan of a forest: each row owns the tokens that no earlier row passes."""
    rows = forest.rows()
    lengths = forest.row_length.tolist()
    paths = [rows.index[r, :length] for r, length in enumerate(lengths)]
    owned_from = [length - owned for length, owned in zip(lengths, forest.owned.tolist(), strict=True)]
    return of(paths, owned_from)


@dataclass(frozen=True)
class Beside:
    """A frozen model over the same tokens as the policy: what its logits of them are made of.

    Attributes:
        before: hidden state before each token.
        head: hidden states -> logits.
    """

    before: Float[Tensor, "k other_width"]
    head: Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class TokenOutputs:
    """The learner's outputs for chosen tokens.

    Attributes:
        logprob: (k,) nats.
        entropy: (k,) nats; None where not requested.
        excluded: (k,) nats, -log of the probability that the constraint leaves; None without one.
        columns: results of the reductions by name, (k,) or (k, n).
    """

    logprob: Tensor
    entropy: Tensor | None = None
    excluded: Tensor | None = None
    columns: Mapping[str, Tensor] = field(default_factory=dict)


def token_outputs(
    policy: Policy,
    before: Float[Tensor, "k width"],
    token: Int[Tensor, " k"],
    *,
    temperature: float = 1.0,
    entropy: bool = False,
    reductions: Sequence[Reduction] = (),
    frozen: Mapping[FrozenName, Beside] | None = None,
    allowed: Int[Tensor, "k words"] | None = None,
) -> TokenOutputs:
    """Log-probability (nats) of each token, and other requested outputs, from the hidden state before it.

        logprob_i = z_i[token_i] - logsumexp(z_i),  z_i = head(before_i) / temperature
        entropy_i = logsumexp(z_i) - sum_v p_i[v] z_i[v]

    The logits of all tokens are never held at once: they are computed in chunks, and again in the backward pass.

    Args:
        reductions: what else is made of the logits, see :class:`~lyceum.core.types.Reduction`.
        frozen: the models that the reductions read beside the policy, over the same tokens.
        allowed: packed bits of the tokens that each may be; the distributions of all models are over these alone.
    Raises:
        ValueError: two reductions give the same name.
    """
    frozen = frozen or {}

    def scaled(z: Tensor, bits: Tensor | None) -> Tensor:
        z = z if temperature == 1.0 else z / temperature
        return z if bits is None else z.masked_fill(~unpacked(bits, z.shape[1]), RULED_OUT)

    def piece(
        hidden: Tensor, target: Tensor, beside: Mapping[FrozenName, Tensor], bits: Tensor | None
    ) -> dict[str, Tensor]:
        logits = policy.head(hidden)
        z = scaled(logits, bits)
        total = torch.logsumexp(z, dim=-1)
        out = {LOGPROB: z.gather(1, target[:, None]).squeeze(1) - total}
        if bits is not None:
            out[EXCLUDED] = (scaled(logits.detach(), None).logsumexp(-1) - total.detach()).clamp(min=0)
        if entropy:
            out[ENTROPY] = total - (torch.softmax(z, dim=-1) * z).sum(-1)
        if reductions:
            with torch.no_grad():
                others: dict[FrozenName, Tensor] = {
                    name: scaled(frozen[name].head(h), bits) for name, h in beside.items()
                }
            # Output layers are padded to round sizes, which differ among models of one vocabulary.
            width = min(x.shape[1] for x in (z, *others.values()))
            for reduction in reductions:
                read: dict[FrozenName, Tensor] = {name: others[name][:, :width] for name in reduction.models}
                found = reduction(z[:, :width], target, read)
                if twice := out.keys() & found.keys():
                    raise ValueError(f"two reductions give {sorted(twice)}; allowed: names of their own")
                out |= found
        return out

    held = _LOGIT_ELEMENTS // _REDUCED_PIECES if reductions else _LOGIT_ELEMENTS
    size = max(1, held // policy.output.weight.shape[0])
    if len(token) <= size:
        parts = [piece(before, token, {name: model.before for name, model in frozen.items()}, allowed)]
    else:
        from torch.utils.checkpoint import checkpoint

        recompute = torch.is_grad_enabled()
        parts: list[dict[str, Tensor]] = []
        for n, (h, t) in enumerate(zip(before.split(size), token.split(size), strict=True)):
            beside: dict[FrozenName, Tensor] = {name: model.before.split(size)[n] for name, model in frozen.items()}
            bits = None if allowed is None else allowed.split(size)[n]
            part = (
                checkpoint(piece, h, t, beside, bits, use_reentrant=False) if recompute else piece(h, t, beside, bits)
            )
            parts.append(cast(dict[str, Tensor], part))
    joined = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    return TokenOutputs(joined.pop(LOGPROB), joined.pop(ENTROPY, None), joined.pop(EXCLUDED, None), joined)

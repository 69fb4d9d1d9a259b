"""Models in and out: a Hugging Face folder, a hub name, a ``.gguf`` file, or the small base in this package."""

from __future__ import annotations

import copy
import json
import shutil
import struct
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, cast

import torch
import transformers
from pydantic import Field, field_validator, model_validator
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from lyceum.component import RecipeError, Settings, nearest
from lyceum.models.scratch import build_scratch
from lyceum.models.trial import check_trees, logits_alone
from lyceum.noise import quiet
from lyceum.policy import Policy

BASE, SCRATCH = "base", "scratch"

UNREADABLE = (OSError, ValueError, KeyError, struct.error, SafetensorError)
"""What the libraries raise over files that are not what their names say."""


class LoraSettings(Settings):
    """Train low-rank adapters and leave the model as it is (peft)."""

    rank: int = Field(default=16, ge=1)
    """Rank of each adapter."""
    alpha: float = Field(default=32.0, gt=0)
    """The adapter's output is multiplied by alpha / rank."""
    target_modules: str | tuple[str, ...] = "all-linear"
    """Names of the layers that get adapters, or all-linear."""


class ModelSettings(Settings):
    """Where the policy comes from."""

    path: str = BASE
    """``base`` (the small model in this package), ``scratch`` (it, untrained), a folder, a hub name, a .gguf file."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Of the weights that are trained. Half precision rounds small changes away, nearly all at a learning rate of
    1e-6: to compute in bfloat16 and learn in float32 there is ``learner.autocast``."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto takes a GPU where there is one."""
    chat_template: str | None = None
    """File with a Jinja chat template, for models that come without one."""
    chat_template_kwargs: dict[str, str | bool | int | float] = Field(default_factory=dict)
    """What the template is told beside the messages, such as ``{enable_thinking: false}`` of Qwen3. It becomes part of
    the template that the trained model is saved with."""
    lora: LoraSettings | None = None
    """Adapters to train in place of the weights: true, or rank, alpha, target_modules; none by default."""
    trust_remote_code: bool = False
    """Run Python code that comes with the model. Off unless you trust its authors."""
    seed: int = 0
    """Of the initial weights of ``scratch``, and of new adapters."""

    @model_validator(mode="before")
    @classmethod
    def _bare_path(cls, value: Any) -> Any:
        return {"path": value} if isinstance(value, str) else value

    @field_validator("lora", mode="before")
    @classmethod
    def _lora_on_or_off(cls, value: Any) -> Any:
        """``lora=true`` is its defaults."""
        return ({} if value else None) if isinstance(value, bool) else value


def check_model(settings: ModelSettings) -> None:
    """Refuse what cannot be loaded, before anything is.

    Raises:
        RecipeError: a path that is not there, a folder without a model or without a tokenizer, a missing template or
            GPU.
    """
    path = settings.path
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise RecipeError("model.device: got 'cuda', but torch finds no GPU on this machine; allowed: auto, cpu")
    if settings.chat_template is not None and not Path(settings.chat_template).is_file():
        raise RecipeError(f"model.chat_template: no file {settings.chat_template}")
    if path in (BASE, SCRATCH):
        return
    place = Path(path).expanduser()
    if place.suffix == ".gguf":
        if not place.is_file():
            raise RecipeError(f"model.path: no file {path}")
        return
    if not path or not place.exists():
        looks_local = path.startswith((".", "/", "~")) or path.count("/") != 1
        if looks_local:
            known = f"{BASE}, {SCRATCH}, a folder, owner/name of a hub, a .gguf file"
            raise RecipeError(f"model.path: got {path!r}{nearest(path, [BASE, SCRATCH])}; allowed: {known}")
        return
    if not place.is_dir():
        raise RecipeError(f"model.path: {path} is a file; allowed: a model folder, or a .gguf file")
    config = place / "config.json"
    if not config.is_file():
        meant = f" (did you mean {str(place / 'model')!r}?)" if (place / "model" / "config.json").is_file() else ""
        raise RecipeError(f"model.path: {path} has no config.json, so it is no Hugging Face model folder{meant}")
    names = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json")
    if not any((place / name).is_file() for name in names):
        raise RecipeError(f"model.path: {path} has no tokenizer ({', '.join(names[:2])}); save it beside the model")
    if not any(place.glob("*.safetensors")) and not any(place.glob("*.bin")):
        raise RecipeError(f"model.path: {path} has no weights (model.safetensors)")
    try:
        json.loads(config.read_text())
    except ValueError as error:
        raise RecipeError(f"model.path: {config} is not JSON: {error}") from error


def load_tokenizer(settings: ModelSettings) -> PreTrainedTokenizerBase:
    """The tokenizer alone, with the chat template in place.

    Raises:
        RecipeError: it has no chat template and none is given, no end-of-sequence token, or cannot be loaded.
    """
    check_model(settings)
    if settings.path == SCRATCH:
        tokenizer: PreTrainedTokenizerBase = build_scratch(seed=settings.seed)[1]
    else:
        folder, extra = _source(settings)
        try:
            tokenizer = AutoTokenizer.from_pretrained(folder, **extra)
        except UNREADABLE as error:
            raise RecipeError(f"model.path: the tokenizer of {settings.path} cannot be loaded: {error}") from error
    if settings.chat_template is not None:
        tokenizer.chat_template = Path(settings.chat_template).read_text()
    if tokenizer.chat_template is None:
        raise RecipeError(
            f"model.chat_template: {settings.path} comes without a chat template; give a file with one "
            "(for a base model, one that prints each message's content will do)"
        )
    if settings.chat_template_kwargs:
        tokenizer.chat_template = _told(tokenizer.chat_template, settings.chat_template_kwargs)
    if tokenizer.eos_token_id is None:
        raise RecipeError(f"model.path: the tokenizer of {settings.path} has no end-of-sequence token")
    return tokenizer


def _told(template: Any, kwargs: Mapping[str, Any]) -> str:
    """The template with these names set at its top.

    Raises:
        RecipeError: there are several templates, or a name is none.
    """
    if not isinstance(template, str):
        raise RecipeError("model.chat_template_kwargs: the model has several chat templates; give model.chat_template")
    if wrong := [name for name in kwargs if not name.isidentifier()]:
        raise RecipeError(f"model.chat_template_kwargs: got the name {wrong[0]!r}; allowed: letters, digits and '_'")
    # JSON's values are Jinja's, and a text stays one whatever stands in it.
    return "".join(f"{{%- set {name} = {json.dumps(value)} -%}}" for name, value in kwargs.items()) + template


@quiet()
def load_policy(settings: ModelSettings) -> Policy:
    """Load model and tokenizer.

    Raises:
        RecipeError: it cannot be loaded, the tokenizer knows tokens that the model has no embedding for, or its
            architecture is not one that runs over token trees.
    """
    tokenizer = load_tokenizer(settings)
    device = "cuda" if settings.device == "auto" and torch.cuda.is_available() else settings.device
    device = "cpu" if device == "auto" else device
    if settings.path == SCRATCH:
        module: PreTrainedModel = build_scratch(seed=settings.seed)[0]
    else:
        folder, extra = _source(settings)
        extra |= _unpacked() if "gguf_file" in extra else {}
        try:
            module = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, settings.dtype), **extra)
        except UNREADABLE as error:
            raise RecipeError(f"model.path: {settings.path} cannot be loaded: {error}") from error
    quantizer = getattr(module, "hf_quantizer", None)
    if quantizer is not None:
        quantizer.remove_quantization_config(module)  # unpacked by now; it would refuse to be saved
    largest = max(tokenizer.get_vocab().values(), default=0)
    embeddings = cast(Any, module.get_input_embeddings()).weight.shape[0]
    if largest >= embeddings:
        raise RecipeError(
            f"model.path: the tokenizer of {settings.path} has token ids up to {largest}, the model embeds "
            f"{embeddings}; use the tokenizer that belongs to it"
        )
    module = cast(Any, module).to(device=device, dtype=getattr(torch, settings.dtype)).eval()
    alone = logits_alone(module)
    try:
        policy = Policy(_with_adapters(module, settings), tokenizer)
        check_trees(policy, alone)
    except NotImplementedError as error:
        raise RecipeError(f"model.path: {settings.path} cannot be used: {error}") from error
    return policy


def save_policy(policy: Policy, folder: Path) -> None:
    """A Hugging Face folder that ``from_pretrained`` loads: adapters merged, and kept beside in ``adapter/``.

    It appears whole or not at all: what stood there before stays until the new one is written.
    """
    module = policy.causal
    if policy.adapters:
        module = cast(Any, copy.deepcopy(policy.module)).merge_and_unload()
    save_module(module, policy.tokenizer, folder, adapter=cast(Any, policy.module) if policy.adapters else None)


@quiet()
def save_module(
    module: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path, *, adapter: Any | None = None
) -> None:
    """A model whose attention was redirected, and its tokenizer, as a Hugging Face folder; whole or not at all.

    Args:
        adapter: kept beside in ``adapter/``.
    """
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    if adapter is not None:
        adapter.save_pretrained(partial / "adapter")
    implementation = module.config._attn_implementation
    module.config._attn_implementation = None  # ours is not known to a fresh process
    try:
        module.save_pretrained(partial)
    finally:
        module.config._attn_implementation = implementation
    tokenizer.save_pretrained(partial)
    if folder.exists():
        shutil.rmtree(folder)
    partial.rename(folder)


def _source(settings: ModelSettings) -> tuple[str, dict[str, Any]]:
    """What to hand to from_pretrained."""
    extra: dict[str, Any] = {"trust_remote_code": settings.trust_remote_code}
    if settings.path == BASE:
        return str(files("lyceum.models") / BASE), extra
    place = Path(settings.path).expanduser()
    if place.suffix == ".gguf":
        return str(place.parent), extra | {"gguf_file": place.name}
    return str(place) if place.exists() else settings.path, extra


def _unpacked() -> dict[str, Any]:
    """Asks for plain weights, which can be trained, where transformers would keep a GGUF file's blocks packed."""
    config = getattr(transformers, "GgufConfig", None)
    return {} if config is None else {"quantization_config": config(dequantize=True)}


def _with_adapters(module: PreTrainedModel, settings: ModelSettings) -> Any:
    if settings.lora is None:
        return module
    from peft import LoraConfig, get_peft_model

    targets = settings.lora.target_modules
    config = LoraConfig(
        task_type="CAUSAL_LM",
        r=settings.lora.rank,
        lora_alpha=settings.lora.alpha,  # pyright: ignore[reportArgumentType]
        lora_dropout=0.0,
        target_modules=targets if isinstance(targets, str) else list(targets),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        adapted = get_peft_model(module, config)
    for written in cast(Any, adapted).peft_config.values():
        # peft makes a set of the names: their order, and with it the saved file, would change from process to process.
        if isinstance(written.target_modules, set):
            written.target_modules = sorted(written.target_modules)
    return adapted

"""Models in and out: a Hugging Face folder, a hub name, a ``.gguf`` file, or the small base in this package."""

from __future__ import annotations

import copy
import importlib
import json
import os
import re
import shutil
import warnings
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from pydantic import Field, field_validator, model_validator

from lyceum.core.component import PathText, Seed, Settings
from lyceum.core.hub import check_on_hub
from lyceum.core.user_files import user_file
from lyceum.models.chat import check_template
from lyceum.models.picture_tokens import PictureTokens, give_pictures, pictures_of
from lyceum.models.policy import Policy
from lyceum.models.rates import FILE, add_rates, save_rates
from lyceum.models.rounded import (
    Kind,
    check_rounding,
    compute_alike,
    in_4_bits,
    loaded_in_4_bits,
    rounded_layers,
    unpacked_and_merged,
)
from lyceum.models.sight import RateName, give_rate, parts_of, text_model_of
from lyceum.models.tree_attention import implementations
from lyceum.models.weights import Checkpoint, cast_weights, check_finite, check_folder, read_object
from lyceum.utils.atomic_files import FULL, full_disk, replace_folder
from lyceum.utils.errors import RecipeError, errors_name, nearest
from lyceum.utils.lazy_imports import nn, peft, torch, transformers
from lyceum.utils.library_messages import quiet, told_once
from lyceum.utils.numbers import to_json
from lyceum.utils.paths import local_path
from lyceum.utils.terminal import quoted

BASE, BASE_STORIES, PLAIN, SCRATCH = "base", "base-stories", "plain", "scratch"


class _Builders(NamedTuple):
    """Of an untrained model: a module of this folder, which imports what loads slowly, and two functions of it."""

    module: str
    model: str
    tokenizer: str

    def found(self, function: str) -> Callable[..., Any]:
        return getattr(importlib.import_module(f"lyceum.models.{self.module}"), function)


_UNTRAINED = {
    SCRATCH: _Builders("scratch", "build_scratch", "character_tokenizer"),
    "scratch-pictures": _Builders("scratch_pictures", "build_scratch_pictures", "picture_tokenizer"),
    "scratch-stories": _Builders("scratch_words", "build_scratch_stories", "story_tokenizer"),
    "scratch-worlds": _Builders("scratch_words", "build_scratch_worlds", "world_tokenizer"),
    "scratch-archive": _Builders("scratch_words", "build_scratch_archive", "archive_tokenizer"),
}
UNTRAINED = (*_UNTRAINED,)
SHIPPED = (BASE, BASE_STORIES)
"""Trained models in this package: a folder each, of its name."""
BUILT_IN = (*SHIPPED, *UNTRAINED)
ADAPTERS = "adapter_config.json"
CODE = " (a model with Python code of its own needs model.trust_remote_code=true, if you trust its authors)"


class LoraSettings(Settings):
    """Train low-rank adapters and keep the model frozen (peft)."""

    rank: int = Field(default=16, ge=1)
    """Rank of each adapter."""
    alpha: float = Field(default=32.0, gt=0)
    """LoRA alpha (no unit): the adapter's output is multiplied by alpha / rank."""
    target_modules: str | tuple[str, ...] = "all-linear"
    """Names of the layers that get adapters, or all-linear."""
    experts: bool = False
    """Adapters on the experts of a mixture, too, whose weights are one tensor and no linear layers: one of ``rank`` for
    each expert."""

    @field_validator("target_modules", mode="before")
    @classmethod
    def _a_name_alone(cls, value: Any) -> Any:
        # peft treats a text as a regular expression, which an untrusted recipe could make run forever.
        return (value,) if isinstance(value, str) and value != "all-linear" else value


class ModelSettings(Settings):
    """Where the policy comes from."""

    path: PathText = BASE
    """``base`` and ``base-stories`` (the small models in this package: of sums, of word problems), ``scratch``
    (untrained), ``scratch-pictures`` (untrained, it sees), ``scratch-stories``, ``scratch-worlds`` and
    ``scratch-archive`` (untrained, their tokens are words), a folder, a run's (its model), a hub name, a .gguf file."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Data type of the trained weights. Half precision rounds small updates away, nearly all at a learning rate of
    1e-6: to compute in bfloat16 and train in float32 use ``learner.autocast``."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device; ``auto`` uses a GPU where there is one."""
    chat_template: PathText | None = None
    """File with a Jinja chat template, for models that come without one; or ``plain``: each message's content, with an
    empty line between turns and the end-of-sequence token after an answer. A problem alone is its text alone."""
    chat_template_kwargs: dict[str, str | bool | int | float] = Field(default_factory=dict)
    """Further variables of the template, such as ``{enable_thinking: false}`` for Qwen3. They become part of the
    template that the trained model is saved with."""
    lora: LoraSettings | None = None
    """Adapters to train instead of the weights: true, or rank, alpha, target_modules; none by default."""
    freeze: tuple[Literal["vision", "projector", "language"], ...] = ()
    """Parts of a model that sees which are not trained: its vision tower, what brings its features to the text model's
    width, the text model."""
    rate: RateName | None = None
    """Rate of the pictures of a model that sees: ``compressed`` gives each a quarter of the tokens, by a connector that
    an InternVL gets untrained where it has none; ``random`` either rate, ``routed`` what its router says. Null: routed
    where the model was saved with these, else full."""
    quantise: Kind | None = None
    """Hold the frozen weights of the linear layers in few bits, beside adapters (``lora``): in 8 (``int8``, a scale for
    each row), or in 4 (``nf4``, ``fp4``), which needs bitsandbytes. Steps take longer. The rounded model is what is
    sampled and trained, and the saved one holds the rounded weights unpacked, adapters merged."""
    trust_remote_code: bool = False
    """Run Python code that comes with the model. Off unless you trust its authors."""
    allow_missing_weights: tuple[str, ...] = ()
    """Names of weights that the files may lack, ``*`` matches anything: initialised randomly. Others are refused."""
    allow_unused_weights: tuple[str, ...] = ()
    """Names of weights in the files that the model may have no place for, such as ``v_head.*``. Others are refused."""
    seed: Seed = 0
    """Random seed of the initial weights of ``scratch``, of new adapters and of weights that may be missing."""

    @model_validator(mode="before")
    @classmethod
    def _bare_path(cls, value: Any) -> Any:
        if not isinstance(value, str | Mapping | Settings):
            known = f"{', '.join(BUILT_IN)}, a folder, owner/name of a hub, a .gguf file, or settings"
            raise ValueError(f"got {quoted(value)}; allowed: {known}")
        return {"path": value} if isinstance(value, str) else value

    @field_validator("path")
    @classmethod
    def _of_run(cls, value: str) -> str:
        """A run's folder is its trained model's."""
        place = local_path(value)
        named = value not in ("", *BUILT_IN) and not (place / "config.json").is_file()
        return str(Path(value) / "model") if named and (place / "recipe.yaml").is_file() else value

    @field_validator("lora", mode="before")
    @classmethod
    def _lora_on_or_off(cls, value: Any) -> Any:
        """``lora=true`` is its defaults."""
        return ({} if value else None) if isinstance(value, bool) else value

    @model_validator(mode="after")
    def _something_is_trained(self) -> ModelSettings:
        if len(set(self.freeze)) == 3 or (self.freeze and self.lora is not None):
            which = "all three parts" if self.lora is None else f"freeze={list(self.freeze)} beside lora"
            raise ValueError(
                f"got {which}; allowed: one or two of vision, projector, language, without lora, whose target_modules "
                "say what has adapters"
            )
        return self

    @model_validator(mode="after")
    def _connector_is_trained(self) -> ModelSettings:
        if self.rate is not None and self.lora is not None:
            raise ValueError(f"got rate={self.rate!r} beside lora; allowed: one of them")
        return self

    @model_validator(mode="after")
    def _rounded_weights_are_not_trained(self) -> ModelSettings:
        if self.quantise is not None and self.lora is None:
            raise ValueError(
                f"got quantise={self.quantise!r} without lora, but rounded weights cannot be trained; allowed: both, "
                "model.lora=true beside it, or neither"
            )
        return self


def check_model(settings: ModelSettings) -> None:
    """Refuse what cannot be loaded, before anything is loaded.

    Raises:
        RecipeError: a missing path, a folder without a model or without a tokenizer or with files that cannot be read,
            a missing template or GPU.
    """
    path = settings.path
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise RecipeError("model.device: got 'cuda', but torch finds no GPU on this machine; allowed: auto, cpu")
    if settings.chat_template not in (None, PLAIN) and not Path(settings.chat_template).is_file():
        raise RecipeError(f"model.chat_template: no file {settings.chat_template}; allowed: {PLAIN}, or a file")
    place = local_path(path)
    if settings.quantise is not None:
        check_rounding(settings.quantise, path, place, untrained=path in UNTRAINED)
    if path in BUILT_IN:
        return
    if place.suffix == ".gguf":
        if not place.is_file():
            raise RecipeError(f"model.path: no file {path}")
        return
    if not path or not place.exists():
        return _check_absent(path, place)
    if not place.is_dir():
        raise RecipeError(f"model.path: {path} is a file; allowed: a model folder, or a .gguf file")
    if (base := base_of(settings)) is not None:
        with errors_name(f"model.path: the adapters of {path} belong to another model, model", "model"):
            return check_model(base)
    config = place / "config.json"
    if not config.is_file():
        raise RecipeError(
            f"model.path: {path} has no config.json, so it is not a Hugging Face model folder{_meant(place)}"
        )
    names = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json")
    if not any((place / name).is_file() for name in names):
        raise RecipeError(f"model.path: {path} has no tokenizer ({', '.join(names[:2])}); save it beside the model")
    check_folder("model.path", path, place)


def base_of(settings: ModelSettings) -> ModelSettings | None:
    """The model that a folder of adapters, with a tokenizer beside them, was trained on; None for any other path.

    Raises:
        RecipeError: the adapters do not name it.
    """
    place = local_path(settings.path)
    if settings.path in ("", *BUILT_IN) or (place / "config.json").is_file():
        return None
    if not ((place / ADAPTERS).is_file() and (place / "tokenizer_config.json").is_file()):
        return None
    named = read_object("model.path", place / ADAPTERS).get("base_model_name_or_path")
    if not isinstance(named, str) or not named:
        raise RecipeError(
            f"model.path: {place / ADAPTERS}: base_model_name_or_path: got {quoted(named)}; allowed: the model that "
            "the adapters were trained on"
        )
    if settings.quantise is not None:
        raise RecipeError(
            f"model.quantise: got {settings.quantise!r} with the adapters of {settings.path}, which are merged when "
            "they are read; allowed: null"
        )
    return settings.model_copy(update={"path": named, "lora": None})


def no_model_yet(run: Path) -> str:
    """What is said of a run that has not finished, in the place of its model."""
    allowed = "allowed: a run that has finished (--resume)"
    if (run / "best").is_dir():
        allowed += f", its best so far, {run / 'best'}"
    if (run / "checkpoints").is_dir():
        allowed += f", or from Python its last checkpoint, lyceum.load_model({str(run)!r})"
    return f"the run {run} has no model yet; {allowed}"


def _meant(place: Path) -> str:
    """What a folder without a model holds instead, and which folder beside it has one."""
    if (place / "adapter_config.json").is_file():
        merged = f"; {place.parent} has the model with these merged" if (place.parent / "config.json").is_file() else ""
        return f", but one of adapters; allowed: a whole model{merged}"
    if place.parent.name == "checkpoints":
        run = place.parents[1]
        trained = (run / "model" / "config.json").is_file()
        instead = f"{run / 'model'} is the trained model" if trained else no_model_yet(run)
        return f", but a checkpoint, from which --resume continues; {instead}"
    return f" (did you mean {str(place / 'model')!r}?)" if (place / "model" / "config.json").is_file() else ""


def _check_absent(path: str, place: Path) -> None:
    """Refuse a path that is not there, unless the hub has a model of that name."""
    if place.name == "model" and (place.parent / "recipe.yaml").is_file():
        raise RecipeError(f"model.path: {no_model_yet(place.parent)}")
    looks_local = path.startswith((".", "/", "~")) or path.rstrip("/").count("/") != 1
    if looks_local:
        known = f"{', '.join(BUILT_IN)}, a folder, owner/name of a hub, a .gguf file"
        raise RecipeError(f"model.path: got {path!r}{nearest(path, BUILT_IN)}; allowed: {known}")
    check_on_hub("model.path", path.rstrip("/"), "model")


def check_weights(settings: ModelSettings) -> None:
    """Compare the weights in a model folder with its configuration, reading neither the model nor its weights. Those of
    models in this package are compared when they are loaded, as all are.

    Raises:
        RecipeError: some are missing, left over or of another shape, or the configuration cannot be used.
    """
    if settings.path not in BUILT_IN:
        _checkpoint(settings).check(_auto_class(settings))


def weight_shapes(settings: ModelSettings) -> dict[str, tuple[int, ...]]:
    """Shape of each weight of the model that the configuration describes, by name; no weight is read.

    Raises:
        RecipeError: the configuration cannot be used.
    """
    if settings.path in UNTRAINED:
        return dict(_as_built(settings.path)[1])
    auto = _auto_class(settings)
    config = read_config(settings) if auto is transformers.AutoModelForCausalLM else _whole_config(settings)
    with user_file("model.path", f"{settings.path} cannot be built", "fix its config.json"), torch.device("meta"):
        return _shapes(auto.from_config(config, trust_remote_code=settings.trust_remote_code))


def load_tokenizer(settings: ModelSettings) -> transformers.PreTrainedTokenizerBase:
    """The tokenizer alone, with the chat template in place.

    Raises:
        RecipeError: it has no chat template and none is given, no end-of-sequence token, or cannot be loaded.
    """
    path, tokenizer = settings.path, read_tokenizer(settings)
    if (seeing := _check_kind(settings)) is not None:
        folder, extra = _source(settings)
        give_pictures(tokenizer, PictureTokens.of(seeing, folder, tokenizer, **extra))
    pictures = pictures_of(tokenizer)
    if settings.chat_template == PLAIN:
        tokenizer.chat_template = _plain(tokenizer) if pictures is None else pictures.plain_template(_plain(tokenizer))
    elif settings.chat_template is not None:
        with user_file("model.chat_template", settings.chat_template, "allowed: a file with a Jinja template"):
            tokenizer.chat_template = Path(settings.chat_template).read_text("utf-8")
    if tokenizer.chat_template is None:
        raise RecipeError(
            f"model.chat_template: {path} comes without a chat template; allowed: {PLAIN} (for a base model: each "
            "message's content), or a file with one"
        )
    if settings.chat_template_kwargs:
        tokenizer.chat_template = _told(tokenizer.chat_template, settings.chat_template_kwargs)
    if tokenizer.eos_token_id is None:
        raise RecipeError(f"model.path: the tokenizer of {path} has no end-of-sequence token")
    check_template(tokenizer, settings.chat_template or path)
    return tokenizer


def read_tokenizer(settings: ModelSettings) -> transformers.PreTrainedTokenizerBase:
    """The tokenizer as its files have it, with or without a chat template.

    Raises:
        RecipeError: it cannot be loaded, or the model beside it cannot be used.
    """
    check_model(settings)
    path = settings.path
    if path in UNTRAINED:
        return _tokenizer_of_untrained(path)
    folder, extra = _source(settings)
    folder = folder if base_of(settings) is None else str(local_path(path))
    if "gguf_file" not in extra:
        # The tokenizer's loader reads it too: its errors must not be reported as the tokenizer's.
        read_config(settings)
    with (
        told_once(f"model.path: {path}"),
        user_file("model.path", f"the tokenizer of {path} cannot be loaded", f"save it again beside it{CODE}"),
    ):
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **extra)
        # An unknown token that the vocabulary lacks is an endless recursion where a special token's id is looked up.
        _ = tokenizer.all_special_ids
        return tokenizer


def read_config(settings: ModelSettings) -> Any:
    """The configuration of the model's text part, alone.

    Raises:
        RecipeError: there is none, or it is not as transformers defines it.
    """
    return _whole_config(settings).get_text_config()


def config_of(settings: ModelSettings) -> Any:
    """The configuration of the model's text part, of a model in this package too."""
    if settings.path in UNTRAINED:
        return copy.deepcopy(_as_built(settings.path)[0].get_text_config())
    return read_config(settings)


def _whole_config(settings: ModelSettings) -> Any:
    """The configuration of the model, all its parts."""
    folder, extra = _source(settings)
    with (
        told_once(f"model.path: {settings.path}"),
        user_file("model.path", f"the configuration of {settings.path} cannot be read", f"fix its config.json{CODE}"),
    ):
        return _read_config(folder, extra)


def _read_config(folder: str, extra: Mapping[str, Any]) -> Any:
    """As transformers reads it; a file that has been read before is not read again, which a run does ten times."""
    file = Path(folder) / "config.json"
    if extra != {"trust_remote_code": False} or not file.is_file():
        return transformers.AutoConfig.from_pretrained(folder, **extra)
    return copy.deepcopy(_config_of(folder, file.read_bytes()))


@lru_cache(maxsize=32)
def _config_of(folder: str, written: bytes) -> Any:
    """The configuration of a folder in which this is written."""
    # Told: else transformers asks on the terminal whether the folder's own code may run.
    return transformers.AutoConfig.from_pretrained(folder, trust_remote_code=False)


def _check_kind(settings: ModelSettings) -> Any | None:
    """The configuration of a model that sees; None for one of text alone, and for one whose tokenizer is made here.

    Raises:
        RecipeError: an architecture that neither AutoModelForCausalLM nor AutoModelForImageTextToText loads.
    """
    folder, extra = _source(settings)
    if settings.path in UNTRAINED or "gguf_file" in extra or settings.trust_remote_code:
        return None
    with quiet(), user_file("model.path", f"the configuration of {settings.path} cannot be read", "fix it"):
        config = _read_config(folder, extra)
    known: Any = transformers.MODEL_FOR_CAUSAL_LM_MAPPING
    if type(config) in known:
        # transformers lists Gemma 3's one class under both; without a processor it is a model of text.
        files = Path(folder) / "preprocessor_config.json", Path(folder) / "processor_config.json"
        may_see = not Path(folder).is_dir() or any(file.is_file() for file in files)
        return config if config.model_type == "gemma3" and may_see else None
    if _takes_pictures(config):
        return config
    kind = next(iter(config.architectures or ()), type(config).__name__)
    other = getattr(config, "vision_config", None) or getattr(config, "audio_config", None)
    what = "a model for sound or videos, not supported yet" if other else "no causal language model"
    raise RecipeError(
        f"model.path: {settings.path} is a {kind}, {what}; allowed: a model that AutoModelForCausalLM or "
        f"AutoModelForImageTextToText loads, such as Llama, Qwen, Gemma, Mistral, InternVL or Qwen-VL{CODE}"
    )


def _takes_pictures(config: Any) -> bool:
    seeing: Any = transformers.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING
    return type(config) in seeing and type(config) not in cast(Any, transformers.MODEL_FOR_CAUSAL_LM_MAPPING)


def _auto_class(settings: ModelSettings) -> Any:
    """transformers' class that loads the model."""
    if (
        "gguf_file" in _source(settings)[1]
        or settings.trust_remote_code
        or not _takes_pictures(_whole_config(settings))
    ):
        return transformers.AutoModelForCausalLM
    return transformers.AutoModelForImageTextToText


def _untrained(path: str, seed: int) -> transformers.PreTrainedModel:
    builders = _UNTRAINED[path]
    return builders.found(builders.model)(seed=seed)[0]


def _tokenizer_of_untrained(path: str) -> transformers.PreTrainedTokenizerBase:
    """Without its model, whose weights would be drawn for nothing."""
    builders = _UNTRAINED[path]
    return builders.found(builders.tokenizer)()


@cache
def _as_built(path: str) -> tuple[Any, Mapping[str, tuple[int, ...]]]:
    """The configuration of an untrained model and the shapes of its weights, which no seed changes: each run asks for
    both, and drawing the weights again for it takes longer than a step of a tiny run."""
    module = _untrained(path, seed=0)
    return module.config, _shapes(module)


def _shapes(module: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(weight.shape) for name, weight in module.named_parameters()}


def _plain(tokenizer: transformers.PreTrainedTokenizerBase) -> str:
    """Contents alone, in which every rendering of a conversation begins with that of its first messages."""
    # Templates bring the beginning-of-sequence token themselves, here where the tokenizer would begin a text with it.
    bos = tokenizer.bos_token_id
    begins = bos is not None and tokenizer.encode("a")[:1] == [bos]
    return ("{{- bos_token -}}" if begins else "") + (
        "{%- for message in messages -%}"
        "{%- if not loop.first and message['role'] != 'assistant' -%}{{- '\\n\\n' -}}{%- endif -%}"
        "{{- message['content'] -}}"
        "{%- if message['role'] == 'assistant' -%}{{- eos_token -}}{%- endif -%}"
        "{%- endfor -%}"
    )


def _told(template: Any, kwargs: Mapping[str, Any]) -> str:
    """The template with these names set at its top.

    Raises:
        RecipeError: there are several templates, or a name is not an identifier.
    """
    if not isinstance(template, str):
        raise RecipeError("model.chat_template_kwargs: the model has several chat templates; give model.chat_template")
    if wrong := [name for name in kwargs if not name.isidentifier()]:
        raise RecipeError(f"model.chat_template_kwargs: got the name {wrong[0]!r}; allowed: letters, digits and '_'")
    # JSON values are valid in Jinja, and a text stays a text whatever it contains.
    return "".join(f"{{%- set {name} = {to_json(value)} -%}}" for name, value in kwargs.items()) + template


@quiet()
def load_policy(settings: ModelSettings, *, tokenizer: transformers.PreTrainedTokenizerBase | None = None) -> Policy:
    """Load model and tokenizer.

    Args:
        tokenizer: used instead of its own.
    Raises:
        RecipeError: it cannot be loaded, the tokenizer has tokens that the model has no embedding for, or its
            architecture cannot run over token trees.
    """
    from lyceum.models.eight_bits import hold_in_8_bits
    from lyceum.models.picture_trial import PictureTrial
    from lyceum.models.trial import logits_alone, policy_of

    own, tokenizer = tokenizer is None, tokenizer or load_tokenizer(settings)
    device = "cuda" if settings.device == "auto" and torch.cuda.is_available() else settings.device
    device = "cpu" if device == "auto" else device
    module = load_weights(settings, device)
    largest = max(tokenizer.get_vocab().values(), default=0)
    embeddings = cast(Any, module.get_input_embeddings()).weight.shape[0]
    if largest >= embeddings:
        raise RecipeError(
            f"model.path: the tokenizer of {settings.path} has token ids up to {largest}, the model embeds "
            f"{embeddings}; use the tokenizer that belongs to it"
        )
    if settings.quantise == "int8":
        check_finite("model.path", settings.path, module)  # integers would hide it
        hold_in_8_bits(module)  # before a card has them: it need not hold the whole weights
    if in_4_bits(settings.quantise):
        compute_alike(module)
    else:
        cast_weights(module, getattr(torch, settings.dtype), device)
    module.eval()
    rated = _with_rates(module, settings)
    check_finite("model.path", settings.path, module)
    with user_file("model.path", f"{settings.path} cannot be run", "fix its config.json"):
        alone = logits_alone(module)
        trial = PictureTrial.of(module, tokenizer)
    if not alone.isfinite().all():
        raise RecipeError(
            f"model.dtype: the logits of {settings.path} hold NaN or infinity in {settings.dtype}; allowed: a dtype of "
            "wider range (bfloat16, float32), or a model that works"
        )
    if settings.freeze:
        _freeze(module, settings)
    targets = "allowed for target_modules: all-linear, or names of the model's linear layers, such as q_proj"
    with user_file("model.lora", f"{settings.path} cannot be given adapters", targets):
        trained = _with_adapters(module, settings)
    try:
        policy = policy_of(trained, tokenizer, alone)
        if trial is not None:
            trial.check(policy)
    except NotImplementedError as error:
        raise RecipeError(f"model.path: {settings.path} cannot be used: {error}") from error
    if rated and own:
        give_rate(policy, settings.rate or "routed")
    return policy


def load_weights(settings: ModelSettings, device: str) -> transformers.PreTrainedModel:
    """The model alone: with its weights as its files have them, or already in 4 bits on the device.

    Raises:
        RecipeError: it cannot be loaded.
    """
    if settings.path in UNTRAINED:
        return _untrained(settings.path, settings.seed)
    source = _checkpoint(settings)
    if in_4_bits(settings.quantise):
        extra = loaded_in_4_bits(settings.quantise, settings.dtype, device)
    else:
        extra = _unpacked() if "gguf_file" in source.extra else {}
    module: Any = source.load(_auto_class(settings), getattr(torch, settings.dtype), seed=settings.seed, **extra)
    if base_of(settings) is not None:
        failed = user_file("model.path", f"the adapters of {settings.path} cannot be loaded", "save them again")
        with failed, warnings.catch_warnings():
            warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
            module = cast(Any, peft.PeftModel.from_pretrained(module, local_path(settings.path))).merge_and_unload()
    quantizer = getattr(module, "hf_quantizer", None)
    if quantizer is not None and not in_4_bits(settings.quantise):
        quantizer.remove_quantization_config(module)  # unpacked by now; with it, saving would fail
    return module


def save_policy(policy: Policy, folder: Path, *, dtype: str | None = None) -> None:
    """A Hugging Face folder that ``from_pretrained`` loads: adapters merged, and kept beside in ``adapter/``.

    The previous folder stays until the new one is complete and takes its place.

    Args:
        dtype: data type of the saved weights; None for their own.
    """
    module = merged(policy.module)
    if dtype is not None:
        own = module is policy.module
        module = cast(Any, copy.deepcopy(module) if own else module).to(dtype=getattr(torch, dtype))
    save_module(module, policy.tokenizer, folder, adapter=cast(Any, policy.module) if policy.adapters else None)


@quiet()
def save_adapters(policy: Policy, folder: Path) -> None:
    """The adapters alone and the tokenizer, atomically: a folder that :func:`load_policy` reads with the model that
    the adapters name, which is one of ``SHIPPED`` or a place where that model is.

    Raises:
        OSError: it could not be written; nothing of it is left, and the previous folder is intact.
    """
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        cast(Any, policy.module).save_pretrained(partial)
        policy.tokenizer.save_pretrained(partial)
        written = json.loads((partial / ADAPTERS).read_text())
        place = Path(written["base_model_name_or_path"])
        shipped = next((name for name in SHIPPED if place == shipped_folder(name)), None)
        written["base_model_name_or_path"] = shipped or str(place.absolute() if place.is_dir() else place)
        (partial / ADAPTERS).write_text(to_json(written, indent=2) + "\n")
        replace_folder(partial, folder)
    except OSError:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def merged(module: nn.Module) -> transformers.PreTrainedModel:
    """The model without adapters: itself, or a copy into which they are merged; of rounded weights their unpacked
    values."""
    if not isinstance(module, peft.PeftModel):
        return cast(Any, module)
    copied = copy.deepcopy(module)
    return unpacked_and_merged(copied) if rounded_layers(copied) else cast(Any, copied).merge_and_unload()


@quiet()
def save_module(
    module: transformers.PreTrainedModel,
    tokenizer: transformers.PreTrainedTokenizerBase,
    folder: Path,
    *,
    adapter: Any | None = None,
) -> None:
    """Save a model whose attention was redirected, and its tokenizer, as a Hugging Face folder, atomically.

    Args:
        adapter: saved beside it in ``adapter/``.
    Raises:
        OSError: it could not be written; nothing of it is left, and the previous folder is intact.
    """
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    implementation = implementations(module)
    module.config._attn_implementation = None  # ours is unknown to a fresh process
    try:
        if adapter is not None:
            adapter.save_pretrained(partial / "adapter")
        partial.mkdir(parents=True, exist_ok=True)
        module.save_pretrained(partial, state_dict=save_rates(module, partial))
        tokenizer.save_pretrained(partial)
        if (pictures := pictures_of(tokenizer)) is not None:
            pictures.save(partial)
        readable = (partial / "config.json").stat().st_mode
        for weights in partial.rglob("*.safetensors"):
            weights.chmod(readable)  # written for their owner alone, whatever the umask
        replace_folder(partial, folder)
    except Exception as error:
        shutil.rmtree(partial, ignore_errors=True)
        if (code := _system_error(error)) is None:
            raise
        said = full_disk(folder.parent, bytes_of(module)) if code in FULL else os.strerror(code)
        raise OSError(code, said, str(folder)) from error
    finally:
        module.config._attn_implementation = cast(Any, implementation)  # by part, where it has some


def bytes_of(module: nn.Module) -> int:
    """Approximate size of the folder that a model is saved in: its weights."""
    return sum(weight.nbytes for weight in module.parameters())


def _system_error(error: Exception) -> int | None:
    """Error code of a file that could not be written: safetensors and tokenizers have it in their text alone."""
    if isinstance(error, OSError):
        return error.errno
    found = re.search(r"\(os error ([0-9]+)\)", str(error))
    return None if found is None else int(found[1])


def shipped_folder(name: str) -> Path:
    """Where a model of ``SHIPPED`` is."""
    return Path(str(files("lyceum.models") / name))


def _source(settings: ModelSettings) -> tuple[str, dict[str, Any]]:
    """Arguments for from_pretrained."""
    extra: dict[str, Any] = {"trust_remote_code": settings.trust_remote_code}
    if settings.path in SHIPPED:
        return str(shipped_folder(settings.path)), extra
    if (base := base_of(settings)) is not None:
        return _source(base)
    place = local_path(settings.path)
    if place.suffix == ".gguf":
        return str(place.parent), extra | {"gguf_file": place.name}
    return str(place) if place.exists() else settings.path, extra


def _checkpoint(settings: ModelSettings) -> Checkpoint:
    folder, extra = _source(settings)
    return Checkpoint(
        "model", settings.path, folder, extra, settings.allow_missing_weights, settings.allow_unused_weights
    )


def _unpacked() -> dict[str, Any]:
    """Requests plain weights, which can be trained, where transformers would keep a GGUF file's blocks packed."""
    config = getattr(transformers, "GgufConfig", None)
    return {} if config is None else {"quantization_config": config(dequantize=True)}


def _freeze(module: transformers.PreTrainedModel, settings: ModelSettings) -> None:
    """Raise RecipeError for a model without such parts."""
    parts = parts_of(module)
    if parts is None:
        raise RecipeError(
            f"model.freeze: got {list(settings.freeze)}, but {settings.path} reads text alone; allowed: none, or a "
            "model that sees"
        )
    for part in settings.freeze:
        for weight in parts[part]:
            weight.requires_grad_(False)


def _with_rates(module: transformers.PreTrainedModel, settings: ModelSettings) -> bool:
    """Whether its pictures have a second rate, which it is given where the settings ask for one.

    Raises:
        RecipeError: the model cannot have one.
    """
    folder = local_path(settings.path)
    saved = (folder / FILE).is_file()
    if saved and settings.lora is not None:
        raise RecipeError(f"model.lora: got adapters, but {settings.path} has {FILE}; allowed: none, or without it")
    if saved or settings.rate is not None:
        if text_model_of(module) is None:
            raise RecipeError(
                f"model.rate: got {settings.rate!r}, but {settings.path} reads text alone; allowed: none, or an "
                "InternVL"
            )
        add_rates(module, seed=settings.seed, folder=folder if saved else None)
    return saved or settings.rate is not None


def _with_adapters(module: transformers.PreTrainedModel, settings: ModelSettings) -> Any:
    if settings.lora is None:
        return module
    from peft import LoraConfig, get_peft_model

    largest = max((min(p.shape) for p in module.parameters() if p.dim() == 2), default=0)
    if settings.lora.rank > largest:
        raise RecipeError(
            f"model.lora.rank: got {settings.lora.rank}, but no matrix of the model has a rank above {largest}; "
            f"allowed: 1 to {largest}"
        )
    targets = settings.lora.target_modules
    experts = [name for name, weight in module.named_parameters() if weight.dim() == 3 and ".experts." in name]
    if settings.lora.experts and not experts:
        raise RecipeError(
            f"model.lora.experts: got true, but {type(module).__name__} has no experts whose weights are one tensor; "
            "allowed: false"
        )
    config = LoraConfig(
        task_type="CAUSAL_LM",
        r=settings.lora.rank,
        lora_alpha=settings.lora.alpha,  # pyright: ignore[reportArgumentType]
        lora_dropout=0.0,
        target_modules=targets if isinstance(targets, str) else list(targets),
        target_parameters=experts if settings.lora.experts else None,
    )
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        # peft asks transformers by a name that warns since 5.23.
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
        torch.manual_seed(settings.seed)
        adapted = get_peft_model(module, config)
    for written in cast(Any, adapted).peft_config.values():
        # peft makes a set of the names: their order, and so the saved file, would differ between processes.
        if isinstance(written.target_modules, set):
            written.target_modules = sorted(written.target_modules)
    return adapted

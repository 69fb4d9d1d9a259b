"""A model that is in memory: written to a folder, from which it is loaded like any other, so the caller's own object is
neither trained nor changed."""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lyceum.analysis.measure import model_settings
from lyceum.core.user_files import user_file
from lyceum.models.load import load_policy, merged, save_module
from lyceum.models.policy import Policy
from lyceum.recipe.schema import Overrides, read_override
from lyceum.run import checkpoint
from lyceum.run.reader import is_run, read_recipe
from lyceum.utils.errors import RecipeError
from lyceum.utils.lazy_imports import peft, torch, transformers
from lyceum.utils.numbers import to_json

PAIR = "allowed: a pair (model, tokenizer) of a transformers.PreTrainedModel and its tokenizer"

OF_LOADING = ("transformers_version", "is_local", "local_files_only")
"""Keys in a model's files that say how it was loaded and saved: neither an upgrade nor another way of loading the same
model refuses a resumed run."""


def is_loaded(value: Any) -> bool:
    """Whether a value is a model in memory: alone, in a pair with its tokenizer, or as ``load_model`` returns it."""
    torch = sys.modules.get("torch")  # who holds a model has imported it
    parts = value if isinstance(value, tuple | list) else (value,)
    return isinstance(value, Policy) or (torch is not None and any(isinstance(part, torch.nn.Module) for part in parts))


def write_loaded(value: Any, folder: Path) -> str:
    """Write a model in memory into a folder; returns the name of its own, by its content: the same weights, tokenizer
    and configuration have the same name.

    Raises:
        RecipeError: it has no tokenizer, or is not one that a folder of weights describes whole.
    """
    module, tokenizer = _usable(value)
    partial = folder / "model"
    described = copy.copy(module)  # save_pretrained writes into the configuration
    described.config, described.generation_config = copy.deepcopy((module.config, module.generation_config))
    with user_file("model", type(module).__name__, "allowed: a model that its save_pretrained writes"):
        save_module(described, tokenizer, partial)
    name = f"model-{_digest(partial)}"
    partial.rename(folder / name)
    return name


@contextmanager
def model_as_folder(value: Any) -> Iterator[Any]:
    """The path of a folder with the model, which is removed afterwards; a value that is no model in memory as it is."""
    if not is_loaded(value):
        yield value
        return
    with TemporaryDirectory(prefix="lyceum-") as folder:
        yield str(Path(folder) / write_loaded(value, Path(folder)))


def as_policy(value: Any, overrides: Overrides) -> Policy | None:
    """A copy of a model in memory; one of ``load_model`` itself; None for anything else.

    Args:
        overrides: of which those of the model apply to the copy.
    """
    if isinstance(value, Policy) or not is_loaded(value):
        return value if isinstance(value, Policy) else None
    placed = map(read_override, overrides)
    keys = {key.removeprefix("model."): value for key, value in placed if key.startswith("model.")}
    with model_as_folder(value) as folder:
        return load_policy(model_settings(folder, keys))


def policy_so_far(run: Path, keys: Mapping[str, Any]) -> Policy | None:
    """The model of an unfinished run, with the weights of its last checkpoint, adapters merged; None for anything
    else.

    Args:
        keys: further settings of the model.
    Raises:
        RecipeError: the checkpoint is of several models, or of pieces of one.
    """
    saved = None if not is_run(run) or (run / "model").is_dir() else checkpoint.latest(run / "checkpoints")
    if saved is None:
        return None
    policy = load_policy(model_settings(read_recipe(run)["model"], keys))
    trained = [parameter for parameter in policy.module.parameters() if parameter.requires_grad]
    # Those of a value head come after the policy's own.
    weights = checkpoint.load(saved)["state"]["of_stage"]["learner"].get("parameters", ())[: len(trained)]
    if [weight.shape for weight in weights] != [parameter.shape for parameter in trained]:
        raise RecipeError(f"model: {saved} does not hold one whole model; allowed: a run that has finished")
    with torch.no_grad():
        for parameter, weight in zip(trained, weights, strict=True):
            parameter.copy_(weight)
    return Policy(merged(policy.module), policy.tokenizer)


def _usable(value: Any) -> tuple[transformers.PreTrainedModel, transformers.PreTrainedTokenizerBase]:
    pair = (value.module, value.tokenizer) if isinstance(value, Policy) else value
    if not isinstance(pair, tuple | list):
        raise RecipeError(f"model: got a {type(value).__name__} without its tokenizer; {PAIR}")
    if len(pair) != 2 or not isinstance(pair[1], transformers.PreTrainedTokenizerBase):
        raise RecipeError(f"model: got ({', '.join(type(part).__name__ for part in pair)}); {PAIR}")
    module, tokenizer = pair
    kind = type(module).__name__
    if isinstance(module, peft.PeftModel) or getattr(module, "_hf_peft_config_loaded", False):
        raise RecipeError(
            f"model: got a {kind} with adapters; allowed: the model after merge_and_unload(), and model.lora to train "
            "new ones"
        )
    if not isinstance(module, transformers.PreTrainedModel):
        raise RecipeError(f"model: got a {kind}; {PAIR}")
    if getattr(module, "hf_quantizer", None) is not None or getattr(module, "is_quantized", False):
        raise RecipeError(
            f"model: got a quantised {kind}, whose weights are rounded and cannot be trained; allowed: the model "
            "loaded without quantization_config, with model.lora to save memory, and model.quantise to save more"
        )
    if absent := [name for name, weight in module.state_dict().items() if weight.is_meta]:
        raise RecipeError(
            f"model: got a {kind} with {len(absent)} weights on the meta device ({absent[0]}), where they have no "
            "values; allowed: a model on a CPU or GPU as a whole (no device_map that offloads)"
        )
    # A subclass computes something that its weights and configuration do not say.
    known: Any = transformers.MODEL_FOR_CAUSAL_LM_MAPPING
    expected = known.get(type(module.config), None)
    if type(module) is not expected:
        instead = "" if expected is None else f" ({expected.__name__})"
        raise RecipeError(
            f"model: got a {kind}; allowed: the class that AutoModelForCausalLM loads for its configuration{instead}, "
            "or a folder"
        )
    return module, tokenizer


def _digest(folder: Path) -> str:
    digest = blake2b(digest_size=8)
    for file in sorted(file for file in folder.rglob("*") if file.is_file()):
        digest.update(f"{file.relative_to(folder)}\0".encode())
        if file.name in ("config.json", "generation_config.json", "tokenizer_config.json"):
            described = json.loads(file.read_bytes())
            told = {key: value for key, value in described.items() if key not in OF_LOADING}
            digest.update(to_json(dict(sorted(told.items()))).encode())
            continue
        with file.open("rb") as content:
            while chunk := content.read(1 << 24):
                digest.update(chunk)
    return digest.hexdigest()

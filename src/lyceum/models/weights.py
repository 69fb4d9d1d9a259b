"""Whether the files of a model hold the weights that its configuration describes, and loading them.

transformers initialises missing weights randomly and ignores those that the model has no place for: a folder without
one layer's tensors loads, and gives random answers. Here such a folder is refused.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from safetensors import safe_open

from lyceum.core.user_files import user_file
from lyceum.utils.documents import DATA, DocumentError, read_json
from lyceum.utils.errors import RecipeError, RunError
from lyceum.utils.lazy_imports import Tensor, nn, torch, transformers
from lyceum.utils.library_messages import quiet, tell_once, told_once
from lyceum.utils.terminal import printable, quoted

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
ADVICE = "allowed: a folder as save_pretrained writes it, of an architecture that this transformers knows"
DIFFERENT = "its weights and its config.json are not of one model; allowed: a folder as save_pretrained writes it"

MOST_COUNTED = 1_000_000
"""Maximum layer, head, expert or label count of a configuration: transformers makes lists of such lengths."""
MORE_TENSORS, MORE_ELEMENTS = 16, 64
"""Maximum ratio of a model's tensors and elements to its files': these store tied weights once, fuse or pack others."""
NAMED = 3
"""Maximum weights that a message names."""


@dataclass(frozen=True)
class Checkpoint:
    """A model's files, and what may differ between them and its configuration.

    Attributes:
        key: key of the recipe (``model``, ``value``); messages name its ``path``.
        path: as the user gave it.
        source: folder or hub name, as from_pretrained takes it.
        extra: further arguments of from_pretrained.
        may_miss: patterns (``*`` matches anything) of weights that may be missing, and are then initialised randomly;
            None where no setting allows it.
        may_leave: patterns of weights in the files that the model may have no place for, or None.
    """

    key: str
    path: str
    source: str
    extra: Mapping[str, Any] = field(default_factory=dict)
    may_miss: tuple[str, ...] | None = None
    may_leave: tuple[str, ...] | None = None

    def check(self, auto: Any) -> None:
        """Compare names and shapes of the files' weights with the configuration's; no weight is read.

        Only for local folders; hub models and .gguf files are compared in ``load``. So are quantised weights, whose
        loaders need devices, and models with their own code, which need not run without weights.

        Args:
            auto: transformers' class that would load them, such as AutoModelForCausalLM.
        Raises:
            RecipeError: weights are missing, left over or of another shape, or the configuration cannot be used.
        """
        folder = Path(self.source)
        if "gguf_file" in self.extra or self.extra.get("trust_remote_code") or not folder.is_dir():
            return
        if "quantization_config" not in read_object(f"{self.key}.path", folder / "config.json"):
            self._from_pretrained(auto, device_map="meta")

    def load(self, auto: Any, dtype: torch.dtype, *, seed: int = 0, **extra: Any) -> transformers.PreTrainedModel:
        """
        Args:
            auto: transformers' class that loads it, such as AutoModelForCausalLM.
            seed: random seed of weights that may be missing.
        Raises:
            RecipeError: it cannot be loaded, or weights are missing, left over or of another shape.
        """
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = self._from_pretrained(auto, dtype=dtype, **extra)
        if getattr(module, "_hf_peft_config_loaded", False):
            raise RecipeError(_adapter_line(f"{self.key}.path", self.path))
        return module

    def _from_pretrained(self, auto: Any, **how: Any) -> transformers.PreTrainedModel:
        # use_safetensors: a pickle can run code, and is not read at all.
        safe = {} if "gguf_file" in self.extra else {"use_safetensors": True}
        with (
            quiet(),
            told_once(f"{self.key}.path: {self.path}"),
            user_file(f"{self.key}.path", f"{self.path} cannot be loaded", ADVICE),
            self._bounded(),
        ):
            module, found = auto.from_pretrained(
                self.source, output_loading_info=True, ignore_mismatched_sizes=True, **safe, **self.extra, **how
            )
        self._compare(found, len(module.state_dict()))
        return module

    def _compare(self, found: Mapping[str, Any], total: int) -> None:
        missing, random = _split(found["missing_keys"], self.may_miss)
        surplus, unused = _split(found["unexpected_keys"], self.may_leave)
        shapes = sorted(
            f"{name} {list(stored)}, by config.json {list(asked)}" for name, stored, asked in found["mismatched_keys"]
        )
        said = f"{self.key}.path: {self.path}"
        faults = (
            ("weights that are missing", missing, total, self.may_miss, "allow_missing_weights"),
            ("weights that the model has no place for", surplus, None, self.may_leave, "allow_unused_weights"),
            ("weights of another shape", shapes, total, None, ""),
        )
        if lines := [
            f"{said}: {fault}: {_first(names, of)}; {DIFFERENT}"
            + ("" if patterns is None else f", or {self.key}.{setting}")
            for fault, names, of, patterns, setting in faults
            if names
        ]:
            raise RecipeError(lines)
        for what, names in (("missing weights are initialised randomly", random), ("weights are not used", unused)):
            if names:
                tell_once(f"{said}: {what}: {_first(names)}")

    @contextmanager
    def _bounded(self) -> Iterator[None]:
        """Refuse a module much larger than the files: a million missing layers would take hours to build."""
        size = self._size()
        if size is None:
            yield
            return
        tensors, elements = size
        line = (
            f"{self.key}.path: {self.path}: config.json describes a model many times larger than the {tensors} weights "
            "in its files; allowed: a folder as save_pretrained writes it"
        )
        registered = [0, 0]

        def count(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
            if parameter is not None and parameter.is_meta:  # transformers builds on meta, then puts in what it read
                registered[0] += 1
                registered[1] += parameter.numel()
                if registered[0] > MORE_TENSORS * tensors + 1000 or registered[1] > MORE_ELEMENTS * elements:
                    raise RecipeError(line)

        hook = nn.modules.module.register_module_parameter_registration_hook(count)
        try:
            yield
        finally:
            hook.remove()

    def _size(self) -> tuple[int, int] | None:
        """Number of tensors in the files, and an upper bound on their elements; None for a hub model."""
        folder = Path(self.source)
        if "gguf_file" in self.extra:
            file = folder / self.extra["gguf_file"]
            with file.open("rb") as opened:
                # Magic number, version, tensors. A byte may hold several weights.
                return struct.unpack("<4xIQ", opened.read(16))[1], 8 * file.stat().st_size
        if not folder.is_dir():
            return None
        tensors = elements = 0
        for file in weight_files(f"{self.key}.path", folder):
            with safe_open(file, "pt") as opened:
                for name in opened.keys():  # noqa: SIM118
                    tensors += 1
                    elements += math.prod(opened.get_slice(name).get_shape())
        return tensors, elements


def check_folder(key: str, path: str, folder: Path) -> None:
    """Refuse a folder whose configuration, index or weight headers cannot be read; reads nothing else.

    Args:
        key: key of the recipe, such as ``model.path``.
        path: the folder, as the user gave it.
    Raises:
        RecipeError: it says which file, and what to do.
    """
    if (folder / "adapter_config.json").is_file():
        raise RecipeError(_adapter_line(key, path))
    for name in ("config.json", "generation_config.json", "tokenizer_config.json", "special_tokens_map.json"):
        if (folder / name).is_file():
            read_object(key, folder / name)
    for name, count in _counts(read_object(key, folder / "config.json")):
        if count > MOST_COUNTED:
            raise RecipeError(
                f"{key}: {folder / 'config.json'}: {name}: got {quoted(count)}; allowed: at most {MOST_COUNTED}"
            )
    for file in weight_files(key, folder):
        with user_file(key, file, "the file is damaged or incomplete: copy it again"), safe_open(file, "pt"):
            pass


def weight_files(key: str, folder: Path) -> list[Path]:
    """The safetensors files that transformers would read.

    Raises:
        RecipeError: there are none, or one is missing.
    """
    # A configuration may name another file; transformers refuses one outside the folder.
    name = read_object(key, folder / "config.json").get("transformers_weights")
    first = [str(name)] if name is not None else [WEIGHTS, INDEX]
    found = next((folder / name for name in first if (folder / name).is_file()), None)
    if found is None:
        pickles = sorted(file.name for suffix in ("bin", "pt", "pth") for file in folder.glob(f"*.{suffix}"))
        if pickles:
            raise RecipeError(
                f"{key}: {folder} has its weights in {pickles[0]}, a pickle, which can run code and is not read; "
                "allowed: safetensors (where you trust the file, load it with transformers and save_pretrained it)"
            )
        raise RecipeError(f"{key}: {folder} has no weights ({first[0]})")
    if found.suffix != ".json":
        return [found]
    shards = read_object(key, found).get("weight_map")
    if not isinstance(shards, dict) or not shards:
        raise RecipeError(f"{key}: {found} has no weight_map, which says which file holds which weight")
    names = sorted({str(shard) for shard in shards.values()})
    if gone := [shard for shard in names if not (folder / shard).is_file()]:
        raise RecipeError(f"{key}: {found}: files that are not there: {_first(gone, len(names))}; copy them too")
    return [folder / shard for shard in names]


def cast_weights(module: nn.Module, dtype: torch.dtype, device: torch.device | str) -> None:
    """Move a model to a device, its weights to a data type.

    Its buffers keep theirs, as in from_pretrained: in bfloat16 a rotary frequency is off by up to 1/512, so that the
    angle at position 1000 is off by up to two radians.
    """
    module.to(device=device)
    for weight in module.parameters():
        if weight.is_floating_point():
            weight.data = weight.data.to(dtype)


def file_weights(module: transformers.PreTrainedModel) -> dict[str, Tensor]:
    """A model's weights by the names of its files, in their layout there: as ``save_pretrained`` would write them, and
    other libraries read them. A module may hold what a file has as several, such as the experts of a layer.

    Persistent buffers, such as the bias of a router, are among them; of tied weights the first name is.
    """
    from transformers.core_model_loading import revert_weight_conversion

    once, tied = dict(module.named_parameters()), dict(module.named_parameters(remove_duplicate=False))
    left_out = {*(tied.keys() - once.keys()), *(module._keys_to_ignore_on_save or ())}
    named = {name: weight.detach() for name, weight in module.state_dict().items() if name not in left_out}
    with torch.no_grad():
        return revert_weight_conversion(module, named)


def storable(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors as safetensors writes them: on the CPU, contiguous, none in memory that another of them uses.

    Those that are so already are not copied: that takes longer than writing them.
    """
    found, places = dict[str, Tensor](), set[int]()
    for name, tensor in tensors.items():
        here = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
        memory = here.untyped_storage()
        if memory.nbytes() != here.nbytes or memory.data_ptr() in places:
            here = here.clone()
        places.add(here.untyped_storage().data_ptr())
        found[name] = here
    return found


def check_finite(key: str, path: str, module: nn.Module) -> None:
    """Refuse weights that are not finite.

    Raises:
        RecipeError: some are NaN or infinite, in the precision that they were loaded in.
    """
    # The sum first, in one pass without a mask as large as the weight. It may overflow where no weight is infinite.
    wrong = [
        name
        for name, weight in module.named_parameters()
        if not weight.sum(dtype=torch.float32).isfinite() and not weight.isfinite().all()
    ]
    if wrong:
        dtype = str(next(module.parameters()).dtype).removeprefix("torch.")
        raise RecipeError(
            f"{key}: {path}: weights with NaN or infinity in {dtype}: {_first(wrong)}; allowed: finite numbers (from a "
            "checkpoint before training diverged, or in a dtype of wider range)"
        )


def read_object(key: str, file: Path) -> dict[str, Any]:
    """A JSON file that holds one object.

    Raises:
        RecipeError: it holds something else, or cannot be read.
    """
    try:
        found = read_json(file.read_bytes(), limits=DATA)
    except (OSError, DocumentError) as error:
        raise RecipeError(f"{key}: {file} cannot be read: {error}; allowed: a file with a JSON object") from error
    if not isinstance(found, dict):
        raise RecipeError(f"{key}: {file} holds {quoted(found)}; allowed: a JSON object")
    return found


def _counts(value: Any) -> Iterator[tuple[str, int]]:
    """Counts in a configuration, such as ``num_hidden_layers``, nested ones included."""
    for name, inner in value.items() if isinstance(value, dict) else ():
        if isinstance(inner, int) and name.startswith(("num_", "n_")):
            yield name, inner
        yield from _counts(inner)


def _split(names: Iterable[str], patterns: tuple[str, ...] | None) -> tuple[list[str], list[str]]:
    """Names that match no pattern, and names that match one."""
    fits = {name: any(fnmatchcase(name, pattern) for pattern in patterns or ()) for name in sorted(names)}
    return [name for name in fits if not fits[name]], [name for name in fits if fits[name]]


def _first(names: list[str], of: int | None = None) -> str:
    """``9 of 39 (a, b, c, ...)``"""
    total = "" if of is None else f" of {of}"
    shown = ", ".join(printable(name) for name in names[:NAMED]) + (", ..." if len(names) > NAMED else "")
    return f"{len(names)}{total} ({shown})"


def _adapter_line(key: str, path: str) -> str:
    return (
        f"{key}: {path} holds a peft adapter and no model of its own; merge it into its base model first (peft: "
        "PeftModel.from_pretrained(base, adapter).merge_and_unload().save_pretrained(folder), the tokenizer beside it)"
    )


def trained_weights(module: nn.Module) -> dict[str, Tensor]:
    """The weights that training changes, by name."""
    return {name: value.detach() for name, value in module.named_parameters() if value.requires_grad}


def load_trained(module: nn.Module, found: Mapping[str, Tensor]) -> None:
    """Give a module the weights that ``trained_weights`` has of another one.

    Raises:
        RunError: they are another model's.
    """
    trained = trained_weights(module)
    if found.keys() != trained.keys():
        odd = ", ".join(sorted(found.keys() ^ trained.keys())[:3])
        raise RunError(f"runtime: a snapshot has other weights than the worker's model: {odd}")
    with torch.no_grad():
        for name, value in trained.items():
            value.copy_(found[name])

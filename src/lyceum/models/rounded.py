"""Linear layers whose frozen weights are held in few bits: in 8 by our own layers, in 4 by bitsandbytes'."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, TypeGuard

from lyceum.models.weights import read_object
from lyceum.utils.errors import RecipeError
from lyceum.utils.lazy_imports import Tensor, nn, torch, transformers

Kind = Literal["int8", "nf4", "fp4"]
EIGHT, FOUR = ("lyceum.models.eight_bits", "Linear8bit"), ("bitsandbytes.nn.modules", "Linear4bit")
"""Modules and names of the layers' classes, which are not imported where there is no such layer."""


def check_rounding(kind: Kind, path: str, place: Path, *, untrained: bool) -> None:
    """Raise RecipeError where a model's weights cannot be held in few bits.

    Args:
        path, place: of the model, as the user gave it, and as a path.
        untrained: whether its weights are random, and in no file.
    """
    got = f"model.quantise: got {kind!r}"
    if in_4_bits(kind) and find_spec("bitsandbytes") is None:
        raise RecipeError(
            f"{got}, which needs bitsandbytes: pip install bitsandbytes; or leave it out (model.quantise=int8 needs "
            "nothing else and halves the memory of the frozen weights in bfloat16)"
        )
    if untrained or place.suffix == ".gguf":
        raise RecipeError(f"{got} with {path}; allowed: base, a folder, or owner/name of a hub")
    file = place / "config.json"
    if file.is_file() and "quantization_config" in read_object("model.path", file):
        raise RecipeError(f"{got}, but {path} is quantised already; allowed: null, or plain weights")


def in_4_bits(kind: Kind | None) -> TypeGuard[Literal["nf4", "fp4"]]:
    return kind in ("nf4", "fp4")


def loaded_in_4_bits(kind: Kind, dtype: str, device: str) -> dict[str, Any]:
    """Arguments of from_pretrained for weights in 4 bits, whose products are computed in ``dtype``."""
    config = transformers.BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type=kind,
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=getattr(torch, dtype),
    )
    return {"quantization_config": config, "device_map": {"": device}}


def compute_alike(module: nn.Module) -> None:
    """Have sampling and learning compute the same products.

    Where a CPU has them, bitsandbytes repacks weights for products in bfloat16 at the first forward without a gradient.
    """
    for layer in rounded_layers(module).values():
        layer.support_avx512bf16_for_cpu = False


def rounded_layers(module: nn.Module) -> dict[str, Any]:
    """Layers whose weights are held in few bits, by name."""
    return {name: layer for name, layer in module.named_modules() if _class_of(layer) in (EIGHT, FOUR)}


def _class_of(layer: nn.Module) -> tuple[str, str]:
    return type(layer).__module__, type(layer).__name__


def weight_of(layer: Any) -> Tensor:
    """The matrix (out, in) that such a layer multiplies by, in float32."""
    if _class_of(layer) == EIGHT:
        from lyceum.models.eight_bits import unpacked

        return unpacked(layer.weight, layer.scale, torch.float32)
    from bitsandbytes.functional import dequantize_4bit  # pyright: ignore[reportMissingImports]

    return dequantize_4bit(layer.weight.data, layer.weight.quant_state).float()


def unpacked_and_merged(module: Any) -> transformers.PreTrainedModel:
    """A peft model on rounded weights, with plain weights that compute what it does: W = unpacked W_r + s B A.

    peft's own merging would round the sum again.
    """
    causal = module.get_base_model()
    for name, own in rounded_layers(causal).items():
        weight = weight_of(own)
        adapted_name = name.removesuffix(".base_layer")
        if adapted_name != name:
            adapted = causal.get_submodule(adapted_name)
            for adapter in adapted.active_adapters:
                weight += adapted.get_delta_weight(adapter)
        plain = nn.Linear(own.in_features, own.out_features, bias=own.bias is not None, device="meta")
        plain.weight, plain.bias = nn.Parameter(weight.to(causal.dtype)), own.bias
        above, _, last = adapted_name.rpartition(".")
        setattr(causal.get_submodule(above), last, plain)
    if (quantizer := getattr(causal, "hf_quantizer", None)) is not None:
        quantizer.remove_quantization_config(causal)
    return module.merge_and_unload()  # adapters of layers that are not rounded

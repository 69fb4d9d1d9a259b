"""Linear layers whose frozen weights are held in 4 bits, by bitsandbytes."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from lyceum.models.weights import read_object
from lyceum.utils.errors import RecipeError
from lyceum.utils.lazy_imports import nn, torch, transformers

Kind = Literal["nf4", "fp4"]


def check_4_bits(kind: Kind, path: str, place: Path) -> None:
    """Raise RecipeError where a model's weights cannot be held in 4 bits.

    Args:
        path, place: of the model, as the user gave it, and as a path.
    """
    got = f"model.quantise: got {kind!r}"
    if find_spec("bitsandbytes") is None:
        raise RecipeError(
            f"{got}, which needs bitsandbytes: pip install bitsandbytes; or leave it out (model.dtype=bfloat16 halves "
            "the memory of the frozen weights)"
        )
    if path == "scratch" or place.suffix == ".gguf":
        raise RecipeError(f"{got} with {path}; allowed: base, a folder, or owner/name of a hub")
    file = place / "config.json"
    if file.is_file() and "quantization_config" in read_object("model.path", file):
        raise RecipeError(f"{got}, but {path} is quantised already; allowed: null, or plain weights")


def in_4_bits(kind: Kind, dtype: str, device: str) -> dict[str, Any]:
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
    for layer in _layers(module):
        layer.support_avx512bf16_for_cpu = False


def unpacked_and_merged(module: Any) -> transformers.PreTrainedModel:
    """A peft model on weights in 4 bits, with plain weights that compute what it does: W = dequantised W_4 + s B A.

    peft's own merging would round the sum to 4 bits again.
    """
    from bitsandbytes.functional import dequantize_4bit  # pyright: ignore[reportMissingImports]

    causal = module.get_base_model()
    names = {layer: name for name, layer in causal.named_modules()}
    for own in _layers(causal):
        weight = dequantize_4bit(own.weight.data, own.weight.quant_state).to(causal.dtype)
        name = names[own].removesuffix(".base_layer")
        if name != names[own]:
            adapted = causal.get_submodule(name)
            weight += sum(adapted.get_delta_weight(adapter) for adapter in adapted.active_adapters)
        plain = nn.Linear(own.in_features, own.out_features, bias=own.bias is not None, device="meta")
        plain.weight, plain.bias = nn.Parameter(weight), own.bias
        above, _, last = name.rpartition(".")
        setattr(causal.get_submodule(above), last, plain)
    causal.hf_quantizer.remove_quantization_config(causal)
    return causal


def _layers(module: nn.Module) -> list[Any]:
    return [layer for layer in module.modules() if type(layer).__module__ == "bitsandbytes.nn.modules"]

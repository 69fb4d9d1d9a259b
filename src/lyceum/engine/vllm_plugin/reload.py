"""New weights in place of a vLLM's own, in its process, whatever layout it keeps them in.

vLLM's reload (``initialize_layerwise_reload`` ... ``finalize_layerwise_reload``) follows what goes through a
parameter's ``weight_loader``. Some models, such as gpt-oss with its experts and sinks, copy into parameters directly:
there it loses the weights, and keeps the old ones with no more than a warning. Such layers are found at the first
reload and are given memory before the next. And on a CPU vLLM 0.32 packs the experts of a layer at its start alone.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch
from vllm.model_executor.model_loader.reload import layerwise
from vllm.model_executor.model_loader.reload.meta import materialize_layer
from vllm.platforms import current_platform

Weights = Iterable[tuple[str, torch.Tensor]]


class Missed(NamedTuple):
    """A layer that a reload did not see all weights of, and whether it saw none."""

    layer: torch.nn.Module
    none: bool


@torch.no_grad()
def write_weights(
    model: Any, model_config: Any, named: Callable[[], Weights], missed: list[Missed] | None
) -> list[Missed]:
    """Write a model's weights, by the names of its files.

    Args:
        named: the weights; it is called once more where the first reload has missed some.
        missed: what an earlier call returned for this model; None at the first.
    Returns:
        The layers whose weights do not all go through loaders: padded ones, tied ones, and those that are copied into.
    """
    first = missed is None
    missed = _reload(model, model_config, named(), missed or [])
    return _reload(model, model_config, named(), missed) if first and missed else missed


def _reload(model: Any, model_config: Any, named: Weights, missed: list[Missed]) -> list[Missed]:
    if current_platform.is_cpu():
        _pack_experts_again(model)
    layerwise.initialize_layerwise_reload(model)
    given = [(layer, none, _given_memory(layer, math.nan if none else 0.0)) for layer, none in missed]
    model.load_weights(named)
    for layer, none, tensors in given:
        # Tied layers, and those that hold a cache's scales, have no weights of their own: vLLM puts the old ones back.
        if none and any(not tensor.isnan().all() for tensor in tensors):
            layerwise.get_layerwise_info(layer).load_numel = 1
    found = [Missed(layer, none) for layer, none in _unseen(model)]
    layerwise.finalize_layerwise_reload(model, model_config)
    return missed or found


def _pack_experts_again(model: torch.nn.Module) -> None:
    """Forget the kernels of mixtures of experts: vLLM packs (and pads) weights only where it makes a kernel."""
    for layer in model.modules():
        method: Any = getattr(layer, "quant_method", None)
        if getattr(method, "moe_kernel", None) is not None:
            method.moe_kernel = None


def _given_memory(layer: torch.nn.Module, value: float) -> list[torch.Tensor]:
    """The tensors of a layer that a reload would have no memory for, filled; padding is 0."""
    names = [name for name, tensor in layerwise.get_layer_tensors(layer).items() if tensor.is_meta]
    materialize_layer(layer, layerwise.get_layerwise_info(layer))
    tensors = layerwise.get_layer_tensors(layer)
    floats = [tensors[name] for name in names if tensors[name].is_floating_point() and not tensors[name].is_meta]
    return [tensor.fill_(value) for tensor in floats]


def _unseen(model: torch.nn.Module) -> Iterator[tuple[torch.nn.Module, bool]]:
    """Layers of which not all went through loaders, and whether nothing did."""
    for layer in model.modules():
        info = layerwise.get_layerwise_info(layer)
        if info.can_load() and info.load_numel < (info.load_numel_total or 0):
            yield layer, info.load_numel == 0

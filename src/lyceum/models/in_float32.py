"""A model with weights of 16 bits, computed in float32 for a while: a layer's weights are cast as it is called."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import nn
from transformers import PreTrainedModel

HALF = (torch.bfloat16, torch.float16)


def can_compute_in_float32(model: PreTrainedModel) -> bool:
    """Whether it has weights of 16 bits, and none of fewer (whose layers would go on in float32 afterwards), as
    parameters or as buffers."""
    weights = list(model.parameters())
    few = (torch.int8, torch.uint8)
    return (
        all(weight.is_floating_point() and weight.element_size() > 1 for weight in weights)
        and not any(buffer.dtype in few for buffer in model.buffers())
        and any(weight.dtype in HALF for weight in weights)
    )


@contextmanager
def in_float32(model: PreTrainedModel) -> Iterator[None]:
    """Inside, layers compute in float32 with the weights that they have; afterwards these are the same tensors.

    In float32 are, at a time, the layers that are being called, with those of their parts that have none (some layers
    use the weights of a part without calling it), and the output layer: ``Policy.head`` rounds to its dtype.
    """
    held: list[tuple[nn.Module, list[tuple[torch.Tensor, torch.Tensor]]]] = []

    def widen(layer: nn.Module, *_: Any) -> None:
        parts = [layer, *(part for part in layer.children() if not any(part.children()))]
        tensors = (tensor for part in parts for tensor in (*part.parameters(False), *part.buffers(False)))
        half = [(tensor, tensor.data) for tensor in tensors if tensor.dtype in HALF]
        held.append((layer, half))
        for tensor, data in half:
            tensor.data = data.float()

    def restore(layer: nn.Module, *_: Any) -> None:
        while held:  # those that a layer which raised had called are given back with it
            last, half = held.pop()
            for tensor, data in half:
                tensor.data = data
            if last is layer:
                return

    output = cast(nn.Module, model.get_output_embeddings())
    hooks: list[Any] = []
    widen(output)
    try:
        for layer in model.modules():
            hooks += [layer.register_forward_pre_hook(widen), layer.register_forward_hook(restore, always_call=True)]
        yield
    finally:
        for hook in hooks:
            hook.remove()
        restore(output)

"""Linear layers whose frozen weights are held in 8 bits: each row as integers, with a scale of its own.

Weights alone are rounded. bitsandbytes' LLM.int8() rounds the layers' inputs too, in a way that depends on what else is
in the batch, so that what is sampled would not be what is trained.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int8
from torch import Tensor, nn
from transformers import PreTrainedModel

LARGEST = 127
"""Largest code: the integers are symmetric about 0."""


def in_8_bits(weight: Float[Tensor, "out in"]) -> tuple[Int8[Tensor, "out in"], Float[Tensor, "out 1"]]:
    """Codes and scales of a matrix, by the largest magnitude of each row (arXiv:2208.07339, section 2.1).

        scale = max |W| / 127,    code = round(W / scale),    |W - code * scale| <= scale / 2

    A row of zeros has codes of 0.
    """
    wide = weight.detach().float()
    scale = wide.abs().amax(1, keepdim=True) / LARGEST
    return (wide / scale.clamp(min=torch.finfo(torch.float32).tiny)).round().to(torch.int8), scale


def unpacked(codes: Int8[Tensor, "out in"], scale: Float[Tensor, "out 1"], dtype: torch.dtype) -> Tensor:
    """The matrix that codes and scales stand for, rounded once, to ``dtype``."""
    # In one pass, which takes less time than the product: of integers and floats torch makes one sixteen times as slow.
    return codes.to(scale.dtype).mul_(scale).to(dtype)


class Linear8bit(nn.Linear):
    """x W^T + b with W in 8 bits, which is unpacked as it is called, and again in the backward pass.

    Attributes:
        weight: the codes.
    """

    scale: Float[Tensor, "out 1"]

    def __init__(self, plain: nn.Linear) -> None:
        super().__init__(plain.in_features, plain.out_features, bias=False, device="meta")
        codes, scale = in_8_bits(plain.weight)
        self.weight = nn.Parameter(codes, requires_grad=False)
        self.register_buffer("scale", scale)
        self.bias = plain.bias

    def forward(self, input: Float[Tensor, "... in"]) -> Float[Tensor, "... out"]:
        device = input.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else input.dtype
        bias = None if self.bias is None else self.bias.to(dtype)
        return _Product.apply(input.to(dtype), self.weight, self.scale, bias)


class _Product(torch.autograd.Function):
    """x W^T + b that keeps the codes for its backward pass, where autograd would keep each layer's unpacked matrix."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, codes: Tensor, scale: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(codes, scale)
        return nn.functional.linear(x, unpacked(codes, scale, x.dtype), bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None, None, None]:
        (gradient,), (codes, scale) = gradients, ctx.saved_tensors
        of_x = gradient @ unpacked(codes, scale, gradient.dtype) if ctx.needs_input_grad[0] else None
        return of_x, None, None, None


def hold_in_8_bits(model: PreTrainedModel) -> None:
    """Round the weights of a model's linear layers, one layer after another; its output layer keeps its own."""
    output = model.get_output_embeddings()
    for above in list(model.modules()):
        for name, layer in list(above.named_children()):
            if type(layer) is nn.Linear and layer is not output:
                setattr(above, name, Linear8bit(layer))

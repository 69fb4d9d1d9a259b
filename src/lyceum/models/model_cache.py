"""What a model caches of each token, where that is not one key and one value as its configuration says.

Latent attention (DeepSeek) caches latents, and makes keys and values of them; other models have layers of several
widths, or attend more often than they have layers. What each layer hands to its cache is all that later tokens need:
the trial at load time checks that. So the engine keeps it, and hands it back to the layer for all tokens of a path.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from jaxtyping import Float, Int

from lyceum.models.tree_attention import PackedCache
from lyceum.models.tree_states import StateName
from lyceum.utils.lazy_imports import Tensor, torch

Shape = tuple[int, int, int, int]
"""Heads and width of the first tensor that a layer caches, and of the second."""


@dataclass(frozen=True)
class ModelCache:
    """What is cached: of each token one vector per layer, its two tensors joined, padded to one width and halved.

    Attributes:
        layers: what each layer of the cache has, by the model's number for it.
    """

    layers: Mapping[int, Shape]

    @property
    def half(self) -> int:
        return max((a * b + c * d + 1) // 2 for a, b, c, d in self.layers.values())

    @property
    def store_shape(self) -> tuple[int, int, int]:
        """Layers, heads and width, as a store has them for keys and values."""
        return len(self.layers), 1, self.half

    def row(self, layer: int) -> int:
        """Place of a layer in a store."""
        return list(self.layers).index(layer)

    def joined(self, first: Float[Tensor, "1 A T B"], second: Float[Tensor, "1 C T D"]) -> tuple[Tensor, Tensor]:
        """(T, 1, half) both halves of what is stored."""
        flat = [x.squeeze(0).transpose(0, 1).flatten(1) for x in (first, second)]
        width = flat[0].shape[1] + flat[1].shape[1]
        padding = flat[0].new_zeros(len(flat[0]), 2 * self.half - width)
        whole = torch.cat((*flat, padding), 1).unsqueeze(1)
        return whole[..., : self.half], whole[..., self.half :]

    def parted(self, layer: int, whole: Float[Tensor, "N twice_half"]) -> tuple[Tensor, Tensor]:
        """What was joined: (1, A, N, B) and (1, C, N, D)."""
        a, b, c, d = self.layers[layer]
        first = whole[:, : a * b].view(-1, a, b).transpose(0, 1)
        second = whole[:, a * b : a * b + c * d].reshape(-1, c, d).transpose(0, 1)
        return first.unsqueeze(0), second.unsqueeze(0)


@dataclass(frozen=True)
class ModelStates:
    """What layers with states keep of a path, and which layers keep keys and values of its tokens.

    Attributes:
        shapes: of one path's state, and its dtype, by name.
        layers: the model's numbers of the layers that keep keys and values; none where a :class:`ModelCache` is kept.
        heads, width: of those keys and values.
    """

    shapes: Mapping[StateName, tuple[torch.Size, torch.dtype]]
    layers: tuple[int, ...] = ()
    heads: int = 1
    width: int = 1

    @property
    def store_shape(self) -> tuple[int, int, int]:
        """Layers, heads and width of a store of keys and values; of a model without attention, the least there is."""
        return max(1, len(self.layers)), self.heads, self.width


class Keeping(Protocol):
    """A plan that keeps what layers cache."""

    def update(self, layer: int, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        """Keep it of the new tokens; returns it of all tokens that the plan's attention is over, in their order."""
        ...


class KeptCache(PackedCache):
    """In the place of transformers' cache: what a layer caches goes to a plan."""

    def __init__(self, plan: Keeping, position: Int[Tensor, " T"]) -> None:
        super().__init__(position)
        self._plan = plan

    def update(self, key: Tensor, value: Tensor, layer_idx: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        return self._plan.update(layer_idx, key, value)

"""A second rate for the pictures of an InternVL: a connector of a quarter of the tokens, and what chooses between both.

The vision tower's patches are merged four at a time by a pixel shuffle, and a connector brings them to the text model's
width. The second connector merges them sixteen at a time. Of the patches of a picture, the router says how much its
answers need the full rate: its logit is above 0 where they do.

Source: InternVL3.5, arXiv:2508.18265, section on the Visual Resolution Router (ViR), and ViCO, arXiv:2510.12793. There
each tile of a large picture has a rate of its own; here all tiles of a picture have one.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from jaxtyping import Float

from lyceum.core.pictures import COMPRESSED
from lyceum.core.user_files import user_file
from lyceum.utils.errors import RecipeError
from lyceum.utils.lazy_imports import Tensor, nn, torch, transformers

FILE = "picture_rates.safetensors"
"""Beside a model's own weights: without it, it is the model at its full rate, as transformers loads it."""
UNTRAINED = 0.01
"""The logit of a router that was not trained: full, so that a model is at its full rate until its router is trained."""
_NAME = "picture_rates"


def connector_and_router(inner: Any) -> nn.Module:
    """The second connector and the router of a model that sees, untrained.

    Raises:
        RecipeError: its vision tower's patches are not merged by a pixel shuffle.
    """
    config = inner.config
    if not hasattr(inner, "pixel_shuffle") or config.vision_feature_layer != -1:
        raise RecipeError(
            f"model.rate: {type(inner).__name__} has no pixel shuffle that a second connector could go beyond; "
            "allowed: an InternVL in its Hugging Face form"
        )
    config = copy.deepcopy(config)
    config.downsample_ratio /= 2
    width = config.vision_config.hidden_size
    made = nn.Module()
    made.connector = type(inner.multi_modal_projector)(config)
    made.router = nn.Sequential(nn.LayerNorm(2 * width), nn.Linear(2 * width, width), nn.GELU(), nn.Linear(width, 1))
    return made


def add_rates(causal: transformers.PreTrainedModel, *, seed: int, folder: Path | None) -> None:
    """Give a model that sees a second rate, where it has none.

    Args:
        seed: random seed of the initial weights.
        folder: of a model that was saved with one, whose weights are read.
    Raises:
        RecipeError: the model cannot have one, or its file is not of it.
    """
    from safetensors.torch import load_file

    inner = _inner(causal)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        made = connector_and_router(inner)
        for weight in made.parameters():
            if weight.dim() > 1:
                weight.normal_(0, causal.config.get_text_config().initializer_range)
        last = cast(nn.Linear, cast(nn.Sequential, made.router)[-1])
        last.weight.zero_()
        last.bias.fill_(UNTRAINED)
    if folder is not None:
        advice = "save the model again, or remove the file: the model then has its full rate alone"
        with user_file("model.path", folder / FILE, advice):
            made.load_state_dict(load_file(folder / FILE))
    weight = next(inner.multi_modal_projector.parameters())
    setattr(inner, _NAME, made.to(device=weight.device, dtype=weight.dtype).eval())


def rates_of(causal: Any) -> PictureRates | None:
    """What a model's pictures have a second rate by; None where they have none."""
    inner = _inner(causal)
    return PictureRates(inner, getattr(inner, _NAME)) if hasattr(inner, _NAME) else None


def save_rates(causal: transformers.PreTrainedModel, folder: Path) -> dict[str, Tensor] | None:
    """Write what a second rate takes beside a model's own weights; returns these, None where all are its own."""
    from safetensors.torch import save_file

    if not hasattr(_inner(causal), _NAME):
        return None
    save_file(getattr(_inner(causal), _NAME).state_dict(), folder / FILE)
    return {name: weight for name, weight in causal.state_dict().items() if f".{_NAME}." not in name}


def _inner(causal: Any) -> Any:
    return getattr(causal, str(getattr(causal, "base_model_prefix", "")), None)


class PictureRates:
    """A model's own connector, the second one, and the router.

    Attributes:
        connector: the second one.
        router: patches of a picture to one logit; trained apart from everything else.
    """

    def __init__(self, inner: Any, second: nn.Module) -> None:
        self.inner = inner
        self.connector, self.router = cast(nn.Module, second.connector), cast(nn.Module, second.router)

    def patches(self, pixel_values: Float[Tensor, "tile 3 height width"]) -> Float[Tensor, "tile n vision_width"]:
        """What the vision tower makes of tiles, without its first token, which is of the whole."""
        out = self.inner.vision_tower(pixel_values=pixel_values.to(self.inner.dtype), return_dict=True)
        skipped = int(self.inner.config.vision_feature_select_strategy == "default")
        return out.last_hidden_state[:, skipped:]

    def features(self, patches: Float[Tensor, "tile n vision_width"], rate: int) -> Float[Tensor, "k text_width"]:
        """The tokens' embeddings at a rate, tile after tile."""
        side = round(patches.shape[1] ** 0.5)
        ratio, connector = self.inner.config.downsample_ratio, self.inner.multi_modal_projector
        if rate == COMPRESSED:
            ratio, connector = ratio / 2, self.connector
        merged = self.inner.pixel_shuffle(patches.view(len(patches), side, side, -1), scale_factor=ratio)
        return connector(merged.flatten(1, 2)).flatten(0, 1)

    def logit(self, patches: Float[Tensor, "tile n vision_width"]) -> Float[Tensor, ""]:
        """Of a picture's need of the full rate, from the mean and the largest of its patches; mean over its tiles."""
        return self._of_tiles(patches).mean()

    def logits(self, patches: Sequence[Float[Tensor, "tile n vision_width"]]) -> Float[Tensor, " picture"]:
        """``logit`` of several pictures, up to rounding: their tiles go through the router together."""
        of_tiles = self._of_tiles(torch.cat(list(patches))).squeeze(1)
        return torch.stack([each.mean() for each in of_tiles.split([len(each) for each in patches])])

    def _of_tiles(self, patches: Float[Tensor, "tile n vision_width"]) -> Float[Tensor, "tile 1"]:
        pooled = torch.cat([patches.mean(1), patches.amax(1)], dim=-1)
        return self.router(pooled)

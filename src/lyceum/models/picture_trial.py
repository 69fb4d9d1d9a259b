"""Whether a model that sees gives the same logits over a token tree with a picture as over plain sequences, tested once
at load time (``trial.py`` does so without one)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from lyceum.core.pictures import is_picture, pictures_among
from lyceum.models.picture_tokens import PictureTokens, pictures_of
from lyceum.models.policy import Policy
from lyceum.models.see import data_uri
from lyceum.models.sight import taken_by, text_model_of, two_way
from lyceum.models.tree_attention import TreePlan
from lyceum.models.trial import TOLERANCE

BEFORE, AFTER, BRANCH = 3, 2, 3
"""Tokens of the test tree: some before a picture and after it, then two branches."""
SIDE = 56
"""Of the picture (pixels): noise, so that its features differ from place to place."""


@dataclass(frozen=True)
class PictureTrial:
    """A tree of two branches below a prompt with a picture, and transformers' own logits of both paths."""

    trunk: list[int]
    branches: list[list[int]]
    alone: Float[Tensor, "2 path V"]

    @classmethod
    def of(cls, module: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> PictureTrial | None:
        """Before the model's attention is redirected; None for a model of text alone.

        Raises:
            NotImplementedError: the model takes no pictures as transformers' processors give them.
        """
        pictures = pictures_of(tokenizer)
        if pictures is None or text_model_of(module) is None:
            return None
        trunk, tokens = _prompt(pictures, tokenizer, module), _spread(module, pictures)
        branches = [tokens[BEFORE + AFTER :][:BRANCH], tokens[BEFORE + AFTER + BRANCH :]]
        try:
            alone = [logits_of(module, pictures, trunk + branch) for branch in branches]
        except (TypeError, ValueError, RuntimeError, AttributeError, IndexError) as error:
            raise NotImplementedError(f"{type(module).__name__} cannot be called with a picture: {error}") from error
        return cls(trunk, branches, torch.stack(alone))

    @torch.no_grad()
    def check(self, policy: Policy) -> None:
        """Compare with the logits over the packed tree, the picture's features computed once.

        Raises:
            NotImplementedError: they differ: where text before a picture sees it, for one.
        """
        what, sight = type(policy.causal).__name__, policy.sight
        if policy.states is not None:
            raise NotImplementedError("layers with states take text alone")
        if policy.by_rows is not None:
            raise NotImplementedError(f"it takes pictures over token trees alone, and {policy.by_rows.why}")
        assert sight is not None
        first, last = len(self.trunk), len(self.trunk) + BRANCH
        paths = [torch.arange(last), torch.tensor([*range(first), *range(last, last + BRANCH)])]
        tokens = torch.tensor([*self.trunk, *self.branches[0], *self.branches[1]])
        position = torch.tensor([*range(last), *range(first, last)])
        shift = torch.tensor([*sight.shifts(self.trunk), *[sight.shift_after(self.trunk)] * 2 * BRANCH])
        plan = TreePlan(paths, [0, first]).to(policy.device)
        try:
            hidden = policy.hidden(
                tokens.to(policy.device), position.to(policy.device), plan, shift=shift.to(policy.device)
            )
        except (TypeError, ValueError, RuntimeError, AttributeError, IndexError) as error:
            raise NotImplementedError(f"{what} cannot be called over token trees with pictures: {error}") from error
        sight.encoded = sight.trained = 0
        got = policy.head(hidden)[torch.stack(paths).to(policy.device)]
        difference = float((got - self.alone).norm() / self.alone.norm())
        if not difference <= TOLERANCE[policy.causal.dtype]:
            raise NotImplementedError(
                f"{what} gives other logits over a token tree with a picture than over plain sequences (they differ by "
                f"{difference:.1%}): its image tokens see others than those before them and those of their picture"
            )


@torch.no_grad()
def logits_of(module: PreTrainedModel, pictures: PictureTokens, path: list[int]) -> Float[Tensor, "path V"]:
    """Logits of a path by transformers' own forward, its pictures given as their processor gives them."""
    ids = torch.tensor([pictures.plain(path)], device=module.device)
    return module(input_ids=ids, **model_inputs(module, pictures, path), use_cache=False).logits[0].float()


def model_inputs(module: PreTrainedModel, pictures: PictureTokens, path: list[int]) -> dict[str, Any]:
    """What transformers' forward takes beside the token ids of a path: its pictures, and which tokens are theirs."""
    seen = [pictures.seen(id) for id in pictures_among(path)]
    names = (
        [name for name in seen[0].inputs if name in taken_by(getattr(module, module.base_model_prefix))] if seen else []
    )
    inputs: dict[str, Any] = {name: torch.cat([each.inputs[name] for each in seen]).to(module.device) for name in names}
    kinds = torch.tensor([[int(is_picture(t)) for t in path]], device=module.device)
    if hasattr(getattr(module, module.base_model_prefix), "get_rope_index"):
        inputs["mm_token_type_ids"] = kinds
    if two_way(getattr(module, module.base_model_prefix)):
        inputs["token_type_ids"] = kinds
    return inputs


def _prompt(pictures: PictureTokens, tokenizer: Any, module: PreTrainedModel) -> list[int]:
    """Some tokens, a picture with all that stands around it, some more."""
    noise = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, 3)).astype(np.uint8)
    [picture] = pictures.remember([{"role": "user", "content": [{"type": "image", "image": data_uri(noise)}]}])
    written = tokenizer(pictures.seen(picture.id).text, add_special_tokens=False)["input_ids"]
    tokens = _spread(module, pictures)
    return [*tokens[:BEFORE], *pictures.named(written, [picture]), *tokens[BEFORE : BEFORE + AFTER]]


def _spread(module: PreTrainedModel, pictures: PictureTokens) -> list[int]:
    """Different text tokens, spread over the vocabulary."""
    config: Any = module.config
    special = {
        value for name, value in config.to_dict().items() if name.endswith("token_id") and isinstance(value, int)
    }
    special.add(pictures.placeholder_id)
    words = [token for token in range(config.get_text_config().vocab_size) if token not in special]
    count = BEFORE + AFTER + 2 * BRANCH
    place: Int[np.ndarray, " count"] = (np.arange(count) + 1) * (len(words) - 1) // (count + 1)
    return [words[at] for at in place.tolist()]

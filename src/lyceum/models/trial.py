"""Whether a model gives the same logits over a token tree as over plain sequences, tested once at load time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from lyceum.models.policy import Policy
from lyceum.models.tree_attention import TreePlan

TRUNK, BRANCH = 6, 3
"""Tokens of the test tree: a trunk with two branches."""
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.05, torch.float16: 0.05}
"""Maximum |difference| / |logits| that counts as rounding: attention sums in another order."""

Logits = Float[Tensor, "2 path V"]


@torch.no_grad()
def logits_alone(module: PreTrainedModel) -> Logits:
    """Logits of both paths of the tree, by transformers' own forward: computed before attention is redirected."""
    return module(input_ids=_tokens(module)[_PATHS].to(module.device), use_cache=False).logits.float()


@torch.no_grad()
def check_trees(policy: Policy, alone: Logits) -> None:
    """Compare with the logits over the packed tree, in which both branches follow one trunk.

    A model whose layers carry a state along the sequence, or whose attention has a feature that lyceum's lacks, would
    be trained on wrong probabilities. One whose layers attend differently from its configuration (DeepSeek's latent
    attention) has keys that the engine's cache could not hold.

    Raises:
        NotImplementedError: they differ, or the model cannot be called over token trees.
    """
    what = type(policy.causal).__name__
    tokens, paths = _tokens(policy.causal).to(policy.device), _PATHS.to(policy.device)
    position = torch.empty_like(tokens).scatter_(0, paths.flatten(), torch.arange(paths.shape[1]).repeat(2).to(paths))
    plan = _Keys(list(_PATHS), [0, TRUNK])
    try:
        hidden = policy.hidden(tokens, position, plan.to(policy.device))
    except (TypeError, ValueError, RuntimeError, AttributeError, IndexError) as error:
        raise NotImplementedError(f"{what} cannot be called over token trees: {error}") from error
    layers, heads, dim = policy.cache_shape
    if plan.shapes != dict.fromkeys(range(layers), (heads, dim)):
        shapes = ", ".join(f"{h} of width {d}" for h, d in sorted(set(plan.shapes.values())))
        raise NotImplementedError(
            f"{what} has {len(plan.shapes)} layers with key heads {shapes}; the engine's cache is made for what its "
            f"configuration says: {layers} layers with {heads} of width {dim}"
        )
    difference = float((policy.head(hidden)[paths] - alone).norm() / alone.norm())
    if not difference <= TOLERANCE[policy.causal.dtype]:
        raise NotImplementedError(
            f"{what} gives other logits over a token tree than over plain sequences (they differ by {difference:.1%}): "
            "its attention, or a state along the sequence, is not one that branches can share"
        )


class _Keys(TreePlan):
    """Records the key heads of each layer and their width."""

    def __init__(self, paths: Sequence[Tensor], owned_from: Sequence[int]) -> None:
        super().__init__(paths, owned_from)
        self.shapes: dict[int, tuple[int, int]] = {}

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, *, scale: float, window: int | None
    ) -> Tensor:
        self.shapes[layer] = (key.shape[1], key.shape[2])
        return super().attend(layer, query, key, value, scale=scale, window=window)


_SIZE = TRUNK + 2 * BRANCH
_PATHS = torch.tensor([[*range(TRUNK + BRANCH)], [*range(TRUNK), *range(TRUNK + BRANCH, _SIZE)]])


def _tokens(module: PreTrainedModel) -> Int[Tensor, " T"]:
    """Tokens of the packed tree: the trunk, one branch, the other. Spread over the vocabulary, all different."""
    vocabulary = cast(nn.Linear, module.get_output_embeddings()).weight.shape[0]
    return (torch.arange(_SIZE) + 1) * (vocabulary - 1) // (_SIZE + 1)

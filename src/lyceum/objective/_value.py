"""The value head's loss."""

from __future__ import annotations

from jaxtyping import Float

from lyceum.utils.lazy_imports import Tensor, torch


def value_loss(
    value: Float[Tensor, "R L"],
    value_target: Float[Tensor, "R L"],
    old_value: Float[Tensor, "R L"] | None = None,
    clip: float | None = None,
) -> Float[Tensor, "R L"]:
    """Half the squared error of each token's value; with a clip, the larger of it and that of the clipped value.

        (V - target)^2 / 2        max(that, (V_old + clip(V - V_old, -c, c) - target)^2 / 2)

    Args:
        value: of the current weights, in the reward's unit.
        value_target: its target, in the reward's unit.
        old_value: of the weights at the start of the step; needed with ``clip``.
        clip: maximum unpenalised change of a value in one step, in the reward's unit; None for no limit.
    Returns:
        Squared reward units per token.
    Raises:
        ValueError: a clip without old values.
    Source:
        PPO2 of OpenAI baselines; arXiv:2005.12729, section 3.
    """
    loss = (value - value_target).square() / 2
    if clip is None:
        return loss
    if old_value is None:
        raise ValueError("value_clip needs old_value: the values at the start of the step")
    near = old_value + (value - old_value).clamp(-clip, clip)
    return torch.maximum(loss, (near - value_target).square() / 2)

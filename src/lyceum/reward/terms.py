"""What each part of a reward adds to the outcomes."""

from __future__ import annotations

from collections.abc import Mapping

from jaxtyping import Float

from lyceum.core.settings import RewardSettings
from lyceum.utils.lazy_imports import Tensor, torch

OTHER = "other"
"""What is in an outcome beside its parts: a guide, a role or a rollout changed it after it was graded."""


def terms(
    parts: Mapping[str, RewardSettings], found: Mapping[str, Float[Tensor, " R"]], reward: Float[Tensor, " R"]
) -> dict[str, Float[Tensor, " R"]]:
    """The outcomes taken apart, as ``reward.base.add_up`` put them together.

        adds: weight part        multiplies: the sum so far times weight (part - passes_at)
        gates: where it decides, what it makes of the outcome, minus all of the others' terms; elsewhere 0

    Args:
        parts: the reward's parts by name, those without a weight left out.
        found: ``Forest.parts``: the parts' values, weights that follow a schedule, and gates that failed.
        reward: outcome of each row.
    Returns:
        Terms in the unit of reward, which sum to it; ``OTHER`` is the rest, where there is any.
    """
    nothing = torch.zeros_like(reward)
    term: dict[str, Tensor] = {}
    total = nothing
    for how in ("add", "multiply", "gate"):
        decided = torch.zeros_like(reward, dtype=torch.bool)
        for name, part in parts.items():
            if part.combine != how:
                continue
            value = found.get(name, nothing).nan_to_num(0).to(reward)
            weight = found.get(f"{name}/weight", torch.full_like(reward, part.weight)).nan_to_num(0)
            if how == "add":
                term[name] = weight * value
            elif how == "multiply":
                term[name] = total * weight * (value - part.passes_at)
            else:
                failed = (found.get(f"{name}/failed", nothing) == 1) & ~decided
                term[name] = torch.where(failed, weight * value - total, 0)
                decided = decided | failed
                continue  # of several gates the first that fails decides alone
            total = total + term[name]
    rest = reward - sum(term.values(), nothing)
    if bool((rest.abs() > 1e-5 * reward.abs().clamp(min=1)).any()):
        term[OTHER] = rest
    return {name: term[name] for name in (*parts, *term.keys() - parts.keys())}

"""Value gain: what a step adds to the value of the state that it was taken from, by the stage's value model."""

from __future__ import annotations

from typing import ClassVar, Literal

from jaxtyping import Float

from lyceum.core import keys
from lyceum.core.forest import Forest
from lyceum.core.types import Credit, Credited
from lyceum.credit.base import BaseCredit, CreditWithKL, by_group, group_centred, lay, row_reward
from lyceum.utils.lazy_imports import Tensor, torch


class ValueGain(CreditWithKL):
    """The value after a step minus the value before it, where the rollout had the value model value every state.

    Source: Direct Advantage Policy Optimization, arXiv:2412.18279 (advantages of steps by a critic trained before).
    """

    gives: ClassVar = ("step-tokens",)
    requires: ClassVar = ("state-values",)

    kind: Literal["value-gain"] = "value-gain"

    def build(self) -> Credit:
        return ValueGainCredit(self)


class ValueGainCredit(BaseCredit):
    """Its column ``step`` numbers the steps, from 1; one that several rows pass has one number. 0: no step."""

    def __init__(self, settings: ValueGain) -> None:
        self.settings, self.needs = settings, settings.needs

    def __call__(self, forest: Forest) -> Credited:
        rows, of = forest.rows(), keys.passes(forest)
        reward = row_reward(forest, rows, self.settings.kl_in_reward)
        node = torch.tensor(of.key, dtype=torch.long)
        value = forest.segment_value[keys.begins_pass(forest)].to(reward)
        gain = value_gain(value, reward, forest.group, of, node)
        is_step = forest.node_parent[node] != Forest.ROOT
        number = (node + 1) * is_step
        once = first_of(node) & is_step
        known = value[first_of(node) & ~value.isnan()]
        metrics = {
            "steps": float(once.sum()),
            "steps_with_gain": float((once & (gain != 0)).sum()),
            "gain/mean_abs": float(gain[once].abs().mean().nan_to_num()),
            "values/spread": float((known - known.mean()).square().mean().sqrt().nan_to_num()),
        }
        advantage = lay(of.lay(gain * is_step, rows), forest, rows)
        return Credited(advantage, metrics=metrics, columns={"step": of.lay(number.float(), rows)})


def value_gain(
    value: Float[Tensor, " P"], reward: Float[Tensor, " R"], group: Tensor, of: keys.Keyed, node: Tensor
) -> Float[Tensor, " P"]:
    """Of each pass of a row through a node:

        A = V(after) - V(before)        V(after) of a row's last node: the row's outcome

    Args:
        value: V of the state in which each pass ends, in 0 .. 1, by the value model; nan where none was asked: the mean
            outcome of the rows that pass the node then stands for it.
        reward: outcome of each row, in the verifier's unit: what the last step led to.
        group: group of each row.
        of: the passes, in the order of rows and from the prompt down.
        node: of each pass.
    Returns:
        Advantages in the unit of value; 0 for a prompt. Along a row they sum to its outcome minus its prompt's value.
    Source:
        Direct Advantage Policy Optimization, arXiv:2412.18279: A(s, a) = r(s, a) + V(s, a) - V(s), rewards at the end.
    """
    # Relative to each row's outcome, so that equal outcomes without values give exactly 0.
    centred = group_centred(reward, group)
    mean = reward[of.row] - centred[of.row] + by_group(centred[of.row], node, "mean") if len(node) else value
    value = torch.where(value.isnan(), mean, value)
    is_first = torch.ones(len(node), dtype=torch.bool)
    is_first[1:] = of.row[1:] != of.row[:-1]
    after = torch.where(is_first.roll(-1), reward[of.row], value)
    return torch.where(is_first, 0, after - value.roll(1))


def first_of(node: Tensor) -> Tensor:
    """True where a number occurs for the first time."""
    place = torch.arange(len(node))
    first = torch.full((int(node.max()) + 1 if len(node) else 0,), len(node)).scatter_reduce(0, node, place, "amin")
    return first[node] == place

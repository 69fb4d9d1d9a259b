"""GiGPO: trajectories of a group against each other, and steps from the same state against each other."""

from __future__ import annotations

from typing import ClassVar, Literal

from jaxtyping import Float, Int
from pydantic import Field, model_validator

from lyceum.core import keys
from lyceum.core.forest import Forest
from lyceum.core.types import Credit, Credited
from lyceum.credit._steps import StepwiseCredit
from lyceum.credit.base import BaseCredit, by_group, lay, row_reward
from lyceum.credit.group import group_relative
from lyceum.credit.shares import token_shares
from lyceum.papers.gigpo._states import marked_states, state
from lyceum.utils.errors import RecipeError
from lyceum.utils.lazy_imports import Tensor, torch


class GiGPO(StepwiseCredit):
    """The group-relative advantage of the trajectory plus that of each step among those taken from the same state.

    The paper's agents act in an environment that names its state. A text has no environment: its state is how many
    steps were taken, and the last ones. In chained arithmetic the last step holds the running value.
    """

    requires: ClassVar = ("company",)

    kind: Literal["gigpo"] = "gigpo"
    state: Literal["steps", "marked"] = "steps"
    """The state before a step: the number of steps so far with the tokens of the last ``history`` of them, or the key
    with which an environment or a rollout marked the node before it (``Node.key``)."""
    history: int | None = Field(default=1, ge=0)
    """Number of preceding steps that must be equal for two states to be the same, for ``steps``; null: all of them."""
    gamma: float = Field(0.95, ge=0, le=1)
    """Discount of the outcome per step that is left after a step (no unit)."""
    step_weight: float = Field(1.0, ge=0)
    """Weight of the steps' advantages beside the trajectory's (the paper's omega); 0 is ``credit: group``."""
    episode_mean: Literal["trajectories", "steps"] = "trajectories"
    """What the trajectory's advantage is relative to: mean (and standard deviation) over the group's trajectories, as
    in the paper's equation 3, or over their steps, so that a long trajectory counts more: the default of the authors'
    code (``compute_mean_std_cross_steps``). A trajectory without steps then has no advantage."""
    scale: Literal["std", "none"] = "none"
    """Divisor of both differences from their means: nothing (``mean_norm`` in the authors' code), or the standard
    deviation."""
    ddof: Literal[0, 1] = 1
    """The standard deviation divides by n - ddof; 1 as in the authors' code."""
    eps: float = Field(1e-6, gt=0)
    """Added to the standard deviation, in the reward's unit."""

    @model_validator(mode="after")
    def _marks_are_of_nodes(self) -> GiGPO:
        if self.state == "marked" and self.steps != "judged":
            raise ValueError(
                f"steps: got '{self.steps}' with state 'marked', but marks stand where nodes end; allowed: 'judged'"
            )
        return self

    def sources(self, outcome: tuple[str, ...]) -> tuple[str, ...]:
        return (*super().sources(outcome), *(("steps",) if self.step_weight else ()))

    def build(self) -> Credit:
        return GiGPOCredit(self)


class GiGPOCredit(BaseCredit):
    def __init__(self, settings: GiGPO) -> None:
        self.settings, self.needs = settings, settings.needs

    def __call__(self, forest: Forest) -> Credited:
        of, rows = self.settings, forest.rows()
        reward = row_reward(forest, rows, of.kl_in_reward)
        of_row = group_relative(reward, forest.group, scale=of.scale, ddof=of.ddof, eps=of.eps)
        steps = self.steps(forest, learns=bool(of_row.any()))
        if of.episode_mean == "steps":
            by_step = group_relative(
                reward[steps.row], forest.group[steps.row], scale=of.scale, ddof=of.ddof, eps=of.eps
            )
            of_row = torch.zeros_like(of_row).index_put((steps.row,), by_step)  # equal for the steps of a row
        number = steps.number
        left = steps_left(steps.row)
        of_step = group_relative(reward[steps.row] * of.gamma**left, number, scale=of.scale, ddof=of.ddof, eps=of.eps)
        of_steps = of.step_weight * steps.lay(of_step, rows)
        advantage = of_row[:, None] + of_steps
        compared = by_group(reward.new_ones(len(number)), number, "sum") > 1
        metrics = {"steps": float(len(number)), "steps_compared": float(compared.sum())}
        if of.step_weight:
            metrics |= token_shares({"outcome": of_row[:, None], "steps": of_steps}, forest.trainable(rows))
        return Credited(lay(advantage, forest, rows), metrics=metrics)

    def steps(self, forest: Forest, *, learns: bool) -> keys.Keyed:
        """The steps that the policy took, by the state before them."""
        of = self.settings
        written = forest.trainable(forest.rows())
        spans = [
            [(start, end) for start, end in own if bool(mask[start:end].any())]
            for mask, own in zip(written, of.spans(forest, learns=learns and of.state == "steps"), strict=True)
        ]
        if of.state == "steps":
            return keys.steps(forest, spans, state(of.history))
        if learns and not forest.node_key:
            raise RecipeError(
                "credit.state: got 'marked', but no node of the step is marked with a key; allowed: 'steps', or a "
                "rollout or an environment that marks states"
            )
        return marked_states(forest, spans)


def steps_left(row: Int[Tensor, " U"]) -> Float[Tensor, " U"]:
    """How many steps of its row come after each step.

    Source:
        GiGPO, arXiv:2505.10978, equation 5 with an outcome at the end alone: R_t = gamma^(T - t) r.
    """
    count = torch.bincount(row)
    end = count.cumsum(0)  # of each row's steps among all
    return (end[row] - 1 - torch.arange(len(row))).float()

"""EMPG: outcome advantages scaled by how certain the policy is at each step, plus a bonus for a clear next step."""

from __future__ import annotations

from typing import Literal

from jaxtyping import Float, Int
from pydantic import Field

from lyceum.core.forest import Forest
from lyceum.core.keys import Keyed, Span
from lyceum.core.types import Credited
from lyceum.credit._steps import StepwiseCredit
from lyceum.credit.base import ForestCreditSettings, lay, row_reward
from lyceum.credit.group import Scale, group_relative
from lyceum.credit.shares import token_shares
from lyceum.utils.lazy_imports import Tensor, torch


class EMPG(StepwiseCredit, ForestCreditSettings):
    """Group-relative advantages, larger at steps that the policy was certain of, whether they led to success or not.

    A step's certainty is relative to the step's batch: the lowest and the highest mean entropy of its steps.
    """

    kind: Literal["empg"] = "empg"
    certainty_rate: float = Field(1.0, ge=0, le=100)
    """How fast a step's factor falls with its entropy (the paper's k): the least certain step has exp(-k) times the
    factor of the most certain one; 0 scales nothing."""
    clarity_weight: float = Field(0.1, ge=0, le=1e6)
    """Weight of the bonus for a certain next step (the paper's zeta), in the unit of advantages; 0: no bonus."""
    clarity_rate: float = Field(1.0, ge=0, le=100)
    """How fast the bonus falls with the next step's entropy (the paper's k')."""
    scale: Scale = "std"
    """Divisor of a row's difference from its group's mean, as in ``credit: group``."""
    ddof: Literal[0, 1] = 0
    """The standard deviation divides by n - ddof."""
    eps: float = Field(1e-6, gt=0)
    """Added to the standard deviation, in the reward's unit."""

    @property
    def needs(self) -> frozenset[str]:
        return super().needs | {"old_entropy"}

    def sources(self, outcome: tuple[str, ...]) -> tuple[str, ...]:
        return (*super().sources(outcome), *(("clarity",) if self.clarity_weight else ()))

    def credited(self, forest: Forest) -> Credited:
        rows = forest.rows()
        written = forest.trainable(rows)
        reward = row_reward(forest, rows, self.kl_in_reward)
        of_row = group_relative(reward, forest.group, scale=self.scale, ddof=self.ddof, eps=self.eps)
        spans = [
            [(start, end) for start, end in own if bool(mask[start:end].any())]
            for mask, own in zip(written, self.spans(forest, learns=bool(of_row.any())), strict=True)
        ]
        steps = keyed(spans)
        entropy = rows.gather(forest.columns["old_entropy"])[written]
        number = steps.lay(torch.arange(1.0, len(steps.row) + 1), rows)[written].long()  # 0: of no step
        count, total = (
            value.new_zeros(len(steps.row) + 1).index_add(0, number, value)[1:]
            for value in (torch.ones_like(entropy), entropy)
        )
        uncertainty = total / count
        factor = certainty_factor(uncertainty, self.certainty_rate)
        bonus = self.clarity_weight * clarity_bonus(uncertainty, steps.row, self.clarity_rate)
        scaled = of_row[steps.row] * factor
        advantage = scaled + bonus
        if len(advantage):
            advantage = advantage - advantage.mean()
        metrics = {
            "steps": float(len(steps.row)),
            "steps_amplified": float((factor > 1).sum()),
            "steps_with_bonus": float((bonus > 0).sum()),
        }
        if self.clarity_weight:
            sources = {"outcome": steps.lay(scaled, rows), "clarity": steps.lay(bonus, rows)}
            metrics |= token_shares(sources, written)
        return Credited(lay(steps.lay(advantage, rows), forest, rows), metrics=metrics)


def keyed(spans: list[list[Span]]) -> Keyed:
    """The steps of all rows, in order; none is compared with another."""
    flat = [(row, *span) for row, own in enumerate(spans) for span in own]
    row, start, end = torch.tensor(flat, dtype=torch.long).view(-1, 3).unbind(1)
    return Keyed(row, start, end, range(len(flat)))


def relative_uncertainty(entropy: Float[Tensor, " U"]) -> Float[Tensor, " U"]:
    """Each step's entropy between the lowest, 0, and the highest, 1; 0 where all are equal."""
    if not len(entropy):
        return entropy
    above = entropy - entropy.min()
    return above / (above.max() + 1e-8)


def certainty_factor(entropy: Float[Tensor, " U"], rate: float) -> Float[Tensor, " U"]:
    """What each step's advantage is multiplied by.

        g_t = exp(-k h_t) / mean_s exp(-k h_s)        h: relative_uncertainty, over all steps of the batch

    Args:
        entropy: mean over each step's tokens, nats.
        rate: k.
    Returns:
        Without unit, mean 1.
    Source:
        EMPG, arXiv:2509.09265; ``compute_empg_advantage`` on the authors' page (empgseed-seed.github.io), which names
        the paper's equations 10 to 12.
    """
    falling = torch.exp(-rate * relative_uncertainty(entropy))
    return falling / falling.mean() if len(falling) else falling


def clarity_bonus(entropy: Float[Tensor, " U"], row: Int[Tensor, " U"], rate: float) -> Float[Tensor, " U"]:
    """What each step earns for the certainty of the one after it; 0 for the last of a row.

        f_t = exp(-k' h_{t+1})

    Args:
        entropy: mean over each step's tokens, nats.
        row: of each step, never decreasing.
        rate: k'.
    Source:
        As :func:`certainty_factor`.
    """
    clear = torch.exp(-rate * relative_uncertainty(entropy))
    bonus = torch.zeros_like(clear)
    bonus[:-1] = torch.where(row[1:] == row[:-1], clear[1:], 0)
    return bonus

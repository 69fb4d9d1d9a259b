"""SALT: the trajectories of a group merged into a graph; a step that several take gets their mean advantage."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from typing import Literal

from pydantic import Field

from lyceum.core import keys
from lyceum.core.forest import Forest
from lyceum.core.types import Credited
from lyceum.credit._steps import StepwiseCredit
from lyceum.credit.base import ForestCreditSettings, lay, row_reward
from lyceum.credit.group import Scale, group_relative
from lyceum.utils.lazy_imports import torch
from lyceum.utils.numbers import mean as mean_of


class Salt(StepwiseCredit, ForestCreditSettings):
    """Group-relative advantages, averaged over the trajectories wherever they take the same step from the same state.

    The paper works on agents whose environment gives their state. A text has none: here a state is the preceding steps,
    and a step the tokens between two cuts. The paper's own rule for identical steps was not available, and its code is
    not released: this follows its abstract, that a graph of the trajectories of one prompt separates shared steps from
    distinct ones.
    """

    kind: Literal["salt"] = "salt"
    history: int | None = Field(default=1, ge=0)
    """Number of preceding steps that must be equal too for two steps to be merged; null: all, from the prompt on."""
    scale: Scale = "std"
    """Divisor of a trajectory's difference from its group's mean, as in ``credit: group``."""
    ddof: Literal[0, 1] = 0
    """The standard deviation divides by n - ddof."""
    eps: float = Field(1e-6, gt=0)
    """Added to the standard deviation, in the reward's unit."""

    def credited(self, forest: Forest) -> Credited:
        rows = forest.rows()
        reward = row_reward(forest, rows, self.kl_in_reward)
        of_row = group_relative(reward, forest.group, scale=self.scale, ddof=self.ddof, eps=self.eps)
        spans = self.spans(forest, learns=bool(of_row.any()))
        steps = keys.steps(forest, spans, step_taken(self.history))
        merged = merged_advantages(of_row.tolist(), steps.row.tolist(), steps.key)
        advantage = steps.lay(torch.tensor(merged, dtype=of_row.dtype), rows)
        rows_of_step = Counter(key for _, key in set(zip(steps.row.tolist(), steps.key, strict=True)))
        metrics = {"steps": len(steps.key), "steps_shared": sum(rows_of_step[key] > 1 for key in steps.key)}
        return Credited(lay(advantage, forest, rows), metrics=metrics)


def merged_advantages(advantage: Sequence[float], row: Sequence[int], key: Sequence[Hashable]) -> list[float]:
    """The advantage of each step of each row: the mean over the rows that take the same step.

        A(step) = mean over the rows through it of A_row

    Args:
        advantage: of each row, without unit.
        row, key: of each step, in order; same steps have equal keys.
    Returns:
        One value per step. A row that takes a step twice counts once.
    Source:
        SALT, arXiv:2510.20022 (abstract; see the class for what is ours).
    """
    through: dict[Hashable, dict[int, float]] = defaultdict(dict)
    for of, step in zip(row, key, strict=True):
        through[step][of] = advantage[of]
    mean = {step: mean_of(rows.values()) for step, rows in through.items()}
    return [mean[step] for step in key]


def step_taken(history: int | None) -> keys.StepKey:
    """A step and the steps before it."""
    return lambda words, at: (keys.before(words, at, history), words[at])

"""Thoughts (TP-GRPO): neighbouring steps with one verdict share a process reward, beside the group's outcome."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Literal

from jaxtyping import Float, Int
from pydantic import Field

from lyceum.core.forest import Forest
from lyceum.core.keys import judged_steps
from lyceum.core.types import Credited
from lyceum.credit.base import ForestCreditSettings, lay, row_reward
from lyceum.credit.group import Scale, group_relative
from lyceum.credit.shares import token_shares
from lyceum.utils.lazy_imports import Tensor, torch

Unit = Literal["thought", "step"]


class Thoughts(ForestCreditSettings):
    """The group-relative advantage of the outcome, less where a judge found a thought wrong.

    A thought is a run of judged steps with the same verdict (above 0: good). Where the answer is correct, wrong
    thoughts lose ``alpha`` times the group's accuracy: little while the task is hard, so that trying costs nothing.
    Where it is incorrect, thoughts that the judge clears (``judged-steps``: the answer does not build on them) lose
    nothing. All others keep the outcome's advantage: no number of steps can earn more than it.

    Source:
        TP-GRPO, arXiv:2507.23317, as notes on its version for ICLR 2026 (openreview LZZENDlZt9) tell; alpha's value was
        not among them.
    """

    kind: Literal["thoughts"] = "thoughts"
    alpha: float = Field(1.0, ge=0, le=1e6)
    """Process reward of a thought of a correct answer where all answers of its group are correct (no unit)."""
    unit: Unit = "thought"
    """What earns a process reward: a thought, or each step by itself, whose rewards then add up over the steps that
    come after it."""
    scale: Scale = "std"
    """Divisor of the outcome's difference from the group's mean, as in ``credit: group``."""
    ddof: Literal[0, 1] = 0
    """The standard deviation divides by n - ddof."""
    eps: float = Field(1e-6, gt=0)
    """Added to the standard deviation, in the reward's unit."""

    def sources(self, outcome: tuple[str, ...]) -> tuple[str, ...]:
        return (*super().sources(outcome), *(("process",) if self.alpha else ()))

    def credited(self, forest: Forest) -> Credited:
        rows = forest.rows()
        reward = row_reward(forest, rows, self.kl_in_reward)
        of_row = group_relative(reward, forest.group, scale=self.scale, ddof=self.ddof, eps=self.eps)
        share = self.alpha * accuracy(forest.correct, forest.group)
        steps, verdict = judged_steps(forest)
        of_steps: list[float] = []
        counts = {"thoughts": 0, "thoughts/wrong": 0, "thoughts/cleared": 0}
        of_each = (verdict > 0).split(torch.bincount(steps.row, minlength=forest.n_rows).tolist())
        numbers = zip(of_row.tolist(), share.tolist(), forest.correct.tolist(), of_each, strict=True)
        for outcome, size, correct, verdicts in numbers:
            good = verdicts.tolist()
            if correct not in (0.0, 1.0) or not good:
                of_steps += [0.0] * len(good)
                continue
            good[-1] = bool(correct)
            first = [label for label, before in zip(good, [None, *good], strict=False) if label != before]
            counts["thoughts"] += len(first)
            counts["thoughts/wrong" if correct else "thoughts/cleared"] += first.count(not correct)
            of_steps += process_advantages(good, reward=size if correct else -outcome, unit=self.unit)
        laid = steps.lay(torch.tensor(of_steps, dtype=of_row.dtype), rows)
        metrics = {name: float(count) for name, count in counts.items()}
        mask = forest.trainable(rows)
        metrics["tokens_changed"] = float(((laid != 0) & mask).sum())
        metrics |= token_shares({"outcome": of_row[:, None], "process": laid}, mask)
        return Credited(lay(of_row[:, None] + laid, forest, rows), metrics=metrics)


def accuracy(correct: Float[Tensor, " R"], group: Int[Tensor, " R"]) -> Float[Tensor, " R"]:
    """The share of correct rows in each row's group, among those that a grader judged; 0 where none is judged."""
    judged = (~correct.isnan()).float()
    n_groups = int(group.max()) + 1 if len(group) else 0
    right, count = (torch.zeros(n_groups).index_add(0, group, each) for each in (correct.nan_to_num(0), judged))
    return (right / count.clamp(min=1))[group]


def process_advantages(good: Sequence[bool], *, reward: float, unit: Unit = "thought") -> list[float]:
    """What is added to the outcome's advantage on the tokens of each of a row's steps.

        u_1 .. u_K: the runs of equal verdicts (or the steps)        r_k = reward if u_k is good else -reward,  r_K = 0
        a_k = sum_{j >= k} r_j

    The last step has the answer, so that its verdict is the answer's own: u_K is paid by the outcome alone. Runs
    alternate; a_k is then 0 for runs with u_K's verdict, and for the others -reward (answer correct) or reward (answer
    incorrect). With the reward -A of an incorrect answer, A its advantage, tokens of good runs have A - A = 0.

    Args:
        good: the verdict on each step, the last one that on the answer.
        reward: r_c = alpha acc_G where the answer is correct, minus the outcome's advantage where not, without unit.
    Source:
        TP-GRPO, arXiv:2507.23317: sums of process rewards that are not standardised, and its propositions on what is
        left of them; that the last run earns none is ours, without which the propositions do not hold.
    """
    last = len(good) - 1
    ends = [unit == "step" or i == last or good[i + 1] != good[i] for i in range(len(good))]
    earned = [
        (reward if label else -reward) * (end and i < last)
        for i, (label, end) in enumerate(zip(good, ends, strict=True))
    ]
    return list(accumulate(reversed(earned)))[::-1]

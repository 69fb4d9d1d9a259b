"""Parallel-R1's reward: in some steps accuracy alone, in others a bonus for a correct answer with parallel paths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from lyceum.core.settings import RewardSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, GradingContext, ShapingGrader, Task, TaskSource
from lyceum.papers.parallel_r1.tasks_chain_parallel import blocks, ends_of


class ParallelThinking(RewardSettings):
    """What an answer earns, by whether it is correct, whether it has parallel paths, and which reward the step has.

        accuracy steps:  1 correct, -1 otherwise
        bonus steps:     ``with_paths`` correct with well-formed paths, ``without`` correct with none, -1 otherwise

    The last ``share`` of each window of steps are bonus steps. Its part ``parallel`` is the share of answers with
    well-formed paths, ``malformed`` of those with marks that are none, ``bonus`` 1 where the step pays it, ``agree``
    the share of blocks whose paths come to the same number.

    Source:
        Parallel-R1, arXiv:2509.07980: alternating rewards, and the authors' code (github.com/zhengkid/Parallel-R1,
        math_dapo_emphase_parallel.py): 1.2, 1 and -1, and 1 and -1 where paths are required.
    """

    after_verdict: ClassVar[bool] = True

    kind: Literal["parallel-thinking"] = "parallel-thinking"
    with_paths: float = 1.2
    """What a correct answer with parallel paths earns in a bonus step."""
    without: float = 1.0
    """What a correct answer without any earns there; -1 requires them."""
    window: int = Field(default=10, ge=1)
    """Steps after which the alternation begins again."""
    share: float = Field(default=0.2, ge=0, le=1)
    """Share of each window that are bonus steps (no unit); 0: none, 1: all."""

    def build(self, source: TaskSource) -> ShapingGrader:
        return self.graded

    async def graded(
        self, task: Task, leaves: Sequence[Node], context: GradingContext, verdicts: Sequence[bool | None]
    ) -> list[Grade]:
        bonus = has_bonus(context.step, self.window, self.share)
        return [self.grade(leaf.completion, right, bonus) for leaf, right in zip(leaves, verdicts, strict=True)]

    def grade(self, text: str, right: bool | None, bonus: bool) -> Grade:
        if right is None:
            return Grade.ungraded("no other part of the reward says whether the answer is correct")
        found = blocks(text)
        parts = {"parallel": float(bool(found)), "malformed": float(found is None), "bonus": float(bonus)}
        if found:
            parts["agree"] = sum(len(set(ends_of(paths))) == 1 for paths in found) / len(found)
        return Grade(tiered(right, found, self.with_paths, self.without) if bonus else 2.0 * right - 1, parts=parts)


def has_bonus(step: int, window: int, share: float) -> bool:
    """Whether a step, counted from 0, is among the last ``share`` of its window, rounded to whole steps."""
    return step % window >= window - round(share * window)


def tiered(right: bool, found: list[list[str]] | None, with_paths: float, without: float) -> float:
    """The reward of a bonus step, in the verifier's unit of 1 for correct and -1 for incorrect.

    Args:
        found: the answer's blocks; none at all, or None where they are malformed.
    """
    if not right or found is None:
        return -1.0
    return with_paths if found else without

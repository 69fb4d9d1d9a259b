"""SPEAR's reward for turns that call a tool, which a schedule lets fade: exploration first, outcomes later."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from lyceum.core.needs import Need
from lyceum.core.settings import RewardSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, TaskSource
from lyceum.reward.base import each
from lyceum.rollout.turns import CALLS


class ToolCalls(RewardSettings):
    """A little for each turn that calls a tool, whether the answer is correct or not, up to a maximum.

        min(per_turn n, most)        n: the trajectory's turns that called a tool, whatever came of it

    With ``schedule: {values: [1, 0], form: cosine, end: 0.7}`` it fades along half a cosine and is gone at 70 % of the
    stage, so that a policy finds out first what its tools are good for, and is then paid for outcomes alone.

    Source:
        SPEAR, arXiv:2509.22601 (intrinsic reward of tool calls), and the authors' code
        (``default_compute_score_enforce_toolcall_posneg_decay`` in recipe/spear/reward.py).
    """

    requires: ClassVar = (
        Need(
            "environment",
            line="{own} with {given}, which has no environment to call; allowed: a rollout with one, such as 'turns'",
        ),
    )

    kind: Literal["tool-calls"] = "tool-calls"
    per_turn: float = Field(default=0.1, gt=0)
    """Reward of each such turn."""
    most: float = Field(default=1.0, gt=0)
    """Maximum of a trajectory."""

    def build(self, source: TaskSource) -> Grader:
        return each(lambda task, leaf: Grade(self.paid(leaf), parts={"turns": float(turns_with_calls(leaf))}))

    def paid(self, leaf: Node) -> float:
        return min(self.per_turn * turns_with_calls(leaf), self.most)


def turns_with_calls(leaf: Node) -> int:
    """How many of a trajectory's turns called a tool."""
    return sum(node.stats.get(CALLS, 0) > 0 for node in leaf.path())

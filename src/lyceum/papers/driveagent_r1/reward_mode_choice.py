"""What the choice of a mode was worth: answers with a tool against the group's without one (DriveAgent-R1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from lyceum.core.needs import Need
from lyceum.core.settings import RewardSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, GradingContext, ShapingGrader, Task, TaskSource
from lyceum.rollout.turns import CALLS, FAILED
from lyceum.utils.numbers import mean


class ModeChoice(RewardSettings):
    """What an answer in the tool's mode gains over the group's mean in the other mode, less a cost per call.

        g_i = r_i - mean_alone(r) - cost n_i      r: 1 correct, 0 not; n_i: calls of answer i
        clip(g_i q_i, -most, most) where g_i > 0, else clip(g_i, -most, most)      q_i: share of the calls without error

    An answer alone gets 0, and so does one with a tool where the group has none alone to compare it with. One that
    keeps to no mode (begins with neither mark, or with the tool's and calls none) gets ``-most``.

    Source:
        DriveAgent-R1's released code, ``_calculate_adaptive_tool_rewards`` of vllm_grpo_trainer_modified.py
        (Zwc2003/DriveAgent-R1; arXiv:2507.20879).
    """

    after_verdict: ClassVar[bool] = True
    requires: ClassVar = (
        "company",
        Need(
            "environment",
            line="{own} with {given}, which has no environment to call; allowed: a rollout with one, such as 'turns'",
        ),
    )

    kind: Literal["mode-choice"] = "mode-choice"
    alone: str = Field("<think>", min_length=1)
    """What a completion begins with that answers by itself."""
    tool: str = Field("<tool>", min_length=1)
    """What a completion begins with that calls a tool."""
    cost: float = Field(default=0.125, ge=0)
    """What each call has to gain, in the unit of accuracy."""
    most: float = Field(default=0.2, gt=0)
    """Maximum of what is gained or lost."""

    def build(self, source: TaskSource) -> ShapingGrader:
        return self.score

    async def score(
        self, task: Task, leaves: Sequence[Node], context: GradingContext, verdicts: Sequence[bool | None]
    ) -> list[Grade]:
        alone = [
            float(verdict)
            for leaf, verdict in zip(leaves, verdicts, strict=True)
            if verdict is not None and self.mode(leaf) == self.alone
        ]
        return [self.paid(leaf, verdict, alone) for leaf, verdict in zip(leaves, verdicts, strict=True)]

    def mode(self, leaf: Node) -> str:
        """The mark of the mode that a completion keeps to; empty where it keeps to none."""
        called = calls_of(leaf) > 0
        if leaf.completion.startswith(self.tool):
            return self.tool if called else ""
        return self.alone if leaf.completion.startswith(self.alone) and not called else ""

    def paid(self, leaf: Node, verdict: bool | None, alone: Sequence[float]) -> Grade:
        mode = self.mode(leaf)
        parts = {"tool": float(mode == self.tool), "none": float(not mode)}
        if not mode:
            return Grade(-self.most, parts=parts)
        if mode == self.alone or not alone:
            return Grade(0.0, parts=parts)
        if verdict is None:
            return Grade.ungraded("nothing says whether the answer is right")
        calls = calls_of(leaf)
        gain = float(verdict) - mean(alone) - self.cost * calls
        failed = sum(node.stats.get(FAILED, 0) for node in leaf.path())
        gain *= (1 - failed / calls) if gain > 0 else 1
        return Grade(max(-self.most, min(self.most, gain)), parts={**parts, "contrasted": 1.0})


def calls_of(leaf: Node) -> int:
    """How many calls a trajectory made."""
    return sum(node.stats.get(CALLS, 0) for node in leaf.path())

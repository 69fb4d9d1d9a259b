"""Self-reference: an incorrect answer earns the more, the nearer it comes to one of the group's correct ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from lyceum.core.settings import RewardSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, GradingContext, ShapingGrader, Task, TaskSource
from lyceum.reward.scorer.base import in_order

MOST_CHARACTERS = 4_000
"""Maximum characters that are compared of a completion."""


class SelfReference(RewardSettings):
    """0 for correct answers; for incorrect ones of a group with correct ones 0 to 1, by how near they come to one.

    Nearness is what completions have in common, in the same order; among the incorrect ones of a group the nearest
    earns almost 1, the farthest almost nothing.

    Source:
        SRPO, arXiv:2511.15605; sii-research/siiRL, siirl/utils/reward_score/embodied.py, whose distances are between
        embeddings of a world model.
    """

    after_verdict: ClassVar[bool] = True
    requires: ClassVar = ("company",)

    kind: Literal["self-reference"] = "self-reference"
    weight: float = 0.6
    """What the nearest of many incorrect answers earns, beside a verifier's 1 for a correct one."""
    steepness: float = Field(10.0, ge=0, le=1000)
    """How sharply near is told from far; at 0 all incorrect answers of a group with correct ones earn half."""

    def build(self, source: TaskSource) -> ShapingGrader:
        return self.score

    async def score(
        self, task: Task, leaves: Sequence[Node], context: GradingContext, verdicts: Sequence[bool | None]
    ) -> list[Grade]:
        texts = [leaf.completion[:MOST_CHARACTERS] for leaf in leaves]
        correct = list(dict.fromkeys(text for text, verdict in zip(texts, verdicts, strict=True) if verdict))
        failed = [i for i, verdict in enumerate(verdicts) if verdict is False]
        if not correct:
            failed = []
        distances = [1 - max(in_order(texts[i], other) for other in correct) for i in failed]
        earned = dict(zip(failed, zip(distances, progress(distances, self.steepness), strict=True), strict=True))

        def grade(i: int) -> Grade:
            if verdicts[i] is None:
                return Grade.ungraded("nothing says whether the answer is right")
            if i not in earned:
                return Grade(0.0)
            distance, reward = earned[i]
            return Grade(reward, parts={"distance": distance})

        return [grade(i) for i in range(len(leaves))]


def progress(distance: Sequence[float], steepness: float) -> list[float]:
    """Reward of each of a group's incorrect answers.

        r_i = 1 / (1 + exp(-s (1/2 - n_i)))        n_i = (d_i - min d) / (max d - min d)

    Args:
        distance: d, to the nearest correct answer, 0 to 1.
        steepness: s.
    Returns:
        0 to 1, without unit; 1/2 where all are as far.
    Source:
        The code that ``SelfReference`` names.
    """
    if not distance:
        return []
    low, width = min(distance), max(distance) - min(distance)
    places = [(d - low) / width if width >= 1e-6 else 0.5 for d in distance]
    return [1 / (1 + math.exp(steepness * (place - 0.5))) for place in places]

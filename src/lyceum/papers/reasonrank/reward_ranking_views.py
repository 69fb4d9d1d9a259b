"""ReasonRank's reward: an order of passages seen from three sides, and less than nothing for what is no order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from lyceum.core.settings import RewardSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, Task, TaskSource
from lyceum.papers.reasonrank.tasks_rankings import ranked
from lyceum.reward.base import each
from lyceum.utils.errors import RecipeError


class RankingViews(RewardSettings):
    """How good an order of passages is, of tasks with the columns ``order`` (all passages, the best first) and
    ``relevance`` (name -> gain, of the relevant ones).

        r = nDCG@k + recall Recall@k + overlap RBO        -1 where the answer is not every passage once

    Source:
        ReasonRank, arXiv:2508.07050 (multi-view ranking reward).
    """

    kind: Literal["ranking-views"] = "ranking-views"
    top: int = Field(default=10, ge=1)
    """k: passages from the first that nDCG and recall look at."""
    recall: float = Field(default=0.1, ge=0)
    """Weight of the share of the relevant passages that are among the first k."""
    overlap: float = Field(default=0.1, ge=0)
    """Weight of the rank-biased overlap with the reference order."""
    persistence: float = Field(default=0.9, gt=0, lt=1)
    """p of the overlap: how much of the weight each further rank has."""
    malformed: float = -1.0
    """Reward of what is no order."""

    def check_tasks(self, source: TaskSource) -> None:
        super().check_tasks(source)
        columns: Mapping[str, Any] = source[0].columns
        if missing := [name for name in ("order", "relevance") if name not in columns]:
            raise RecipeError(
                f"reward.kind: got {self.kind!r}, and task {source[0].id!r} has no column {missing[0]!r}; allowed: "
                "tasks with columns 'order' and 'relevance', such as kind 'rankings'"
            )

    def build(self, source: TaskSource) -> Grader:
        return each(self.grade)

    def grade(self, task: Task, leaf: Node) -> Grade:
        order: list[str] = task.columns["order"]
        found = ranked(leaf, order)
        if found is None:
            return Grade(self.malformed, False, answered=False)
        gain = task.columns["relevance"]
        parts = {
            "ndcg": ndcg(found, gain, self.top),
            "recall": recall(found, list(gain), self.top),
            "rbo": rank_biased_overlap(found, order, self.persistence),
        }
        reward = parts["ndcg"] + self.recall * parts["recall"] + self.overlap * parts["rbo"]
        return Grade(reward, found == order, parts=parts, answered=True)


def ndcg(order: Sequence[str], gain: Mapping[str, float], top: int) -> float:
    """Discounted gain of an order over that of the best one.

        DCG = sum_{i <= k} (2^{g_i} - 1) / log2(i + 1)

    Args:
        order: passages, the first rank first.
        gain: of the relevant passages; 0 for all others.
        top: k.
    Returns:
        0 to 1.
    Source:
        Jarvelin and Kekalainen, Cumulated gain-based evaluation of IR techniques, 2002.
    """

    def discounted(gains: Sequence[float]) -> float:
        return sum((2**g - 1) / math.log2(rank + 1) for rank, g in enumerate(gains[:top], 1))

    return discounted([gain.get(name, 0) for name in order]) / discounted(sorted(gain.values(), reverse=True))


def recall(order: Sequence[str], relevant: Sequence[str], top: int) -> float:
    """Share of the relevant passages that are among the first ``top``."""
    return len({*order[:top]} & {*relevant}) / len(relevant)


def rank_biased_overlap(order: Sequence[str], reference: Sequence[str], persistence: float) -> float:
    """How much two orders have in common at every depth, the first ranks most.

        (1 - p) sum_{d = 1}^{n} p^{d - 1} |A_d & B_d| / d        A_d, B_d: the first d of each

    Returns:
        0 to 1 - p^n, n being the length of the shorter one: equal orders do not reach 1.
    Source:
        Webber, Moffat and Zobel, A similarity measure for indefinite rankings, 2010.
    """
    depths = range(1, min(len(order), len(reference)) + 1)
    common = (persistence ** (d - 1) * len({*order[:d]} & {*reference[:d]}) / d for d in depths)
    return (1 - persistence) * sum(common)

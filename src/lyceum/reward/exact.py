"""Exact match: an answer is correct when its text is the same."""

from __future__ import annotations

from typing import ClassVar, Literal

from lyceum.core.settings import RewardSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, Task, TaskSource
from lyceum.reward.base import each, no_right_answer, right_answers, verdict
from lyceum.reward.extract import WHOLE, Extract


class Exact(RewardSettings):
    """1 where the extracted answer equals the task's, runs of white space taken as one space, else 0."""

    kind: Literal["exact"] = "exact"
    compares_answers: ClassVar[bool] = True
    extract: Extract = WHOLE
    """Where to find the answer in a completion: whole, boxed, {after: MARK} or {tags: NAME}."""
    case: bool = True
    """Whether the comparison is case-sensitive."""

    def build(self, source: TaskSource) -> Grader:
        return each(self.score)

    def score(self, task: Task, leaf: Node) -> Grade:
        answers = right_answers(task)
        if not answers:
            return no_right_answer(task)
        found = self.extract(leaf.completion)
        right = found is not None and any(same_text(found, str(a), case=self.case) for a in answers)
        return verdict(right, answered=self.extract.answered(leaf.completion))


def same_text(left: str, right: str, *, case: bool) -> bool:
    """Whether two texts are the same, runs of white space taken as one space."""
    one, other = " ".join(left.split()), " ".join(right.split())
    return one == other if case else one.casefold() == other.casefold()

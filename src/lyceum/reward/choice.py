"""Multiple choice: an answer is correct when it is the same letter."""

from __future__ import annotations

import re
from typing import Any, ClassVar, Literal

from pydantic import field_validator

from lyceum.core.settings import RewardSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, Task, TaskSource
from lyceum.reward.base import each, right_answers, verdict
from lyceum.reward.extract import WHOLE, Extract

LETTERS = "ABCDEFGHIJ"


class Choice(RewardSettings):
    """1 where the extracted letter is the task's, or one of several, else 0. A letter may be its number, from 0."""

    kind: Literal["choice"] = "choice"
    compares_answers: ClassVar[bool] = True
    extract: Extract = WHOLE
    """Where to find the answer in a completion: whole, boxed, {after: MARK} or {tags: NAME}."""
    letters: str = LETTERS
    """Letters of the options, capitals, in order."""

    @field_validator("letters")
    @classmethod
    def _letters_are_usable(cls, letters: str) -> str:
        if len(set(letters)) < len(letters) or len(letters) < 2 or not re.fullmatch("[A-Z]+", letters):
            raise ValueError(f"got {letters!r}; allowed: two or more different capital letters, for example 'ABCD'")
        return letters

    def build(self, source: TaskSource) -> Grader:
        return each(self.score)

    def score(self, task: Task, leaf: Node) -> Grade:
        expected = [letter_of(answer, self.letters) for answer in right_answers(task)]
        if not expected or None in expected:
            return Grade.ungraded(f"the answer {task.answer!r} of task {task.id!r} is none of {self.letters}")
        found = self.extract(leaf.completion) or ""
        chosen = chosen_letter(found, self.letters) if self.extract.form == "whole" else letter_of(found, self.letters)
        return verdict(chosen in expected, answered=self.extract.answered(leaf.completion))


def letter_of(answer: Any, letters: str) -> str | None:
    """The letter of an answer: 2 is C, ``b``, ``(B)``, ``B.`` and ``B) Paris`` are B. None if it is not a letter."""
    if isinstance(answer, int) and not isinstance(answer, bool):
        return letters[answer] if 0 <= answer < len(letters) else None
    found = re.match(rf"\W*([{letters}{letters.lower()}])(?:\W*$|[).:,])", str(answer))
    return found.group(1).upper() if found else None


def chosen_letter(text: str, letters: str) -> str | None:
    """The letter that a whole completion chooses.

    The last one that is announced (``answer is (B)``, ``Answer: B``); without an announcement, the last letter that
    stands alone. Only capitals: ``a`` is a word.
    """
    # Every repeat is bounded: on a page of spaces after "answer", two unbounded ones take quadratic time.
    announced = re.findall(rf"(?i:answer)(?i:\s{{1,4}}is)?[\s:*($\\]{{0,8}}([{letters}])\b", text)
    alone = announced or re.findall(rf"(?<![\w'])([{letters}])(?![\w'])", text)
    return alone[-1] if alone else None

"""Multiple choice: whether a completion's reasoning leads to the same option when the options are in another order."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

from pydantic import Field, field_validator

from lyceum.core.settings import RewardSettings
from lyceum.core.sources import checked_tasks, source_of
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, GradingContext, Message, Sampling, Task, TaskSource
from lyceum.reward.base import right_answers
from lyceum.reward.choice import LETTERS, letter_of
from lyceum.reward.extract import Extract
from lyceum.utils.aio import gather
from lyceum.utils.errors import RecipeError
from lyceum.utils.seeds import counter_seed

CHECKED = 64
"""Number of tasks whose options are checked before a model is loaded; for a dataset all."""


class AnswerConsistency(RewardSettings):
    """One reward for each case: whether the answer is correct, and whether it is again under shuffled options.

    The model answers a second time below the completion's own reasoning, in a prompt whose options are in another
    order, and without the hint that a guide may have given. Whether the completion counts as correct is decided by its
    own answer alone. Logged are the shares of completions for which the model was asked, and of these the shares of
    equal (``consistent``) and of correct second answers.

    Source:
        ACRE, arXiv:2510.10104, section 4 (equation 3). The values of its three coefficients, and how its second answer
        is decoded, are not stated in the paper as far as we could read it: the defaults are ours.
    """

    asks_model: ClassVar[bool] = True

    kind: Literal["answer-consistency"] = "answer-consistency"
    extract: Extract = Extract.model_validate({"tags": "answer"})
    """Where a completion has its letter: boxed, {after: MARK} or {tags: NAME}; the text before it is the reasoning."""
    both_right: float = 1.0
    """Reward where both answers are correct, and so agree."""
    first_right: float = 0.5
    """Reward where the completion's answer is correct and the second one is not."""
    second_right: float = 0.25
    """Reward where only the second answer is correct: the reasoning is good, the first answer does not follow it."""
    both_wrong: float = 0.0
    """Reward where neither is correct, or the completion has no answer."""
    temperature: float = Field(0.0, ge=0, le=100)
    """Sampling temperature of the second answer; 0 is greedy, otherwise 0.001 or more."""
    max_answer_tokens: int = Field(16, ge=1)
    """Maximum tokens of the second answer."""

    @field_validator("extract")
    @classmethod
    def _reasoning_ends_somewhere(cls, extract: Extract) -> Extract:
        if extract.form == "whole":
            raise ValueError("got 'whole', which leaves no reasoning; allowed: boxed, {after: MARK} or {tags: NAME}")
        return extract

    @field_validator("temperature")
    @classmethod
    def _logits_stay_finite(cls, temperature: float) -> float:
        return Sampling(temperature=temperature).usual_temperature

    def build(self, source: TaskSource) -> Grader:
        for index in checked_tasks(source, CHECKED):
            _check(source, source[index])
        return partial(self._grade, source)

    async def _grade(
        self, source: TaskSource, task: Task, leaves: Sequence[Node], context: GradingContext
    ) -> list[Grade]:
        return await gather([self._grade_one(source, task, leaf, context) for leaf in leaves])

    async def _grade_one(self, source: TaskSource, task: Task, leaf: Node, context: GradingContext) -> Grade:
        options: Sequence[Any] = task.columns["options"]
        right = right_options(task)
        reasoning, first = self.extract.until_answer(leaf.completion), self._option(leaf.completion, options)
        if reasoning is None or first is None:
            return Grade(self.both_wrong, False, parts={"asked": 0.0}, answered=False)

        order = shuffled(len(options), task.id, leaf.address)
        messages = reordered(source, task, order)
        assert messages is not None, "checked before"
        begun = tokens_within(leaf.completion_tokens, len(reasoning), context.decode)
        sampling = Sampling(temperature=self.temperature, max_completion_tokens=self.max_answer_tokens)
        key = ("answer-consistency", leaf.address)
        [drawn] = await context.ask([*context.render(messages), *begun], 1, sampling, key=key)
        place = self._option(context.decode([*begun, *drawn.tokens]), options)
        second = None if place is None else order[place]

        reward = (self.both_wrong, self.second_right, self.first_right, self.both_right)
        parts = {"asked": 1.0, "consistent": float(second == first), "second_right": float(second in right)}
        return Grade(reward[2 * (first in right) + (second in right)], first in right, parts=parts, answered=True)

    def _option(self, text: str, options: Sequence[Any]) -> int | None:
        """The number of the option that a text answers with; None without an answer."""
        letters = LETTERS[: len(options)]
        letter = letter_of(self.extract(text) or "", letters)
        return None if letter is None else letters.index(letter)


@runtime_checkable
class Reorders(Protocol):
    """A source of multiple-choice tasks that writes their prompts with the options in any order."""

    def reordered(self, task: Task, order: Sequence[int]) -> Sequence[Message] | None:
        """The prompt with the options in another order; None where it cannot be written.

        The options are the task's column ``options``, a list; ``order[i]`` is the number of the one put in place i.
        """
        ...


def reordered(source: TaskSource, task: Task, order: Sequence[int]) -> Sequence[Message] | None:
    """The prompt with the options in another order; None where the task's source cannot write it."""
    own, of = source_of(source, task)
    return own.reordered(of, order) if isinstance(own, Reorders) else None


def right_options(task: Task) -> set[int]:
    """Numbers of the correct options. The task's answer is an option's text, its letter, or its number from 0."""
    options, found = list(map(str, task.columns["options"])), set[int]()
    for answer in right_answers(task):
        letter = letter_of(answer, LETTERS[: len(options)])
        if isinstance(answer, str) and answer in options:
            found.add(options.index(answer))
        elif letter is not None:
            found.add(LETTERS.index(letter))
    return found


def shuffled(n: int, *key: int | str) -> list[int]:
    """Another order of n >= 2 options, uniform among all but their own: ``[2, 0, 1]`` puts the third one first."""
    rng = random.Random(counter_seed("answer-consistency", *key))
    order = list(range(n))
    while order == sorted(order):
        rng.shuffle(order)
    return order


def tokens_within(tokens: Sequence[int], characters: int, decode: Callable[[Sequence[int]], str]) -> list[int]:
    """The first tokens, as many as lie within the first characters of their text.

    A token that reaches beyond is left out: what it begins with is written again.
    """
    ends = range(len(tokens) + 1)
    return list(tokens[: bisect_right(ends, characters, key=lambda end: len(decode(tokens[:end]))) - 1])


def _check(source: TaskSource, task: Task) -> None:
    options = task.columns.get("options")
    if not isinstance(options, list) or not 2 <= len(options) <= len(LETTERS):
        raise RecipeError(
            f"reward.answer-consistency: task {task.id!r} is not multiple choice; allowed: tasks with 2 to "
            f"{len(LETTERS)} options (kind 'chain-choice', or tasks.columns.options of a dataset)"
        )
    if reordered(source, task, range(len(options))) is None:
        raise RecipeError(
            f"reward.answer-consistency: the options in the prompt of task {task.id!r} cannot be put in another order; "
            "allowed: tasks whose source writes them (kind 'chain-choice', or a dataset with {options} in its template)"
        )
    if not right_options(task):
        raise RecipeError(
            f"reward.answer-consistency: the answer {task.answer!r} of task {task.id!r} is none of its options; "
            "allowed: an option's text, its letter, or its number from 0"
        )

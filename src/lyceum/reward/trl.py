"""Reward functions written for TRL, unchanged."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from lyceum.core.sources import FromRows, sources_of
from lyceum.core.tree import LOGGED, LOGGED_METRICS, Node
from lyceum.core.types import Grade, Grader, GradingContext, Task, TaskSource
from lyceum.core.user_files import describe
from lyceum.reward.base import numbered
from lyceum.reward.function_registry import parameters_of
from lyceum.reward.user_code import CodePart, UserFunction, accepting, check_parameters, failed
from lyceum.utils.errors import RunError
from lyceum.utils.messages import prompt_text

OFFERED = ("trainer_state", "log_extra", "log_metric")
"""Keywords that TRL passes beside the columns."""

ANSWER = ("solution", "ground_truth")
"""Names of the reference answer in datasets that TRL's and open-r1's functions are written for."""

INDEXED_TEXT, INDEXED_EMPTY = "string indices must be integers", "string index out of range"
"""What Python says of ``"text"["content"]`` and of ``""[0]``."""

_RESERVED = ("prompt", "completion", "prompts", "completions", "completion_ids")


class Trl(CodePart):
    """``function(prompts, completions, completion_ids, **columns)``: a list of numbers, one per completion.

    Several functions are added up as TRL adds them: one that returns None for a completion is left out of that
    completion's sum, and a completion for which all return None is ungraded. Each call has the completions of one task
    (TRL's have those of a whole batch). ``trainer_state`` has ``global_step``, the newest policy version among the
    tokens, and ``max_steps``. The mean of the numbers passed to ``log_metric`` is the metric ``reward/log/NAME``;
    values passed to ``log_extra`` stand in the rollout table, column ``logged``.
    Parameters ``solution`` and ``ground_truth`` are the reference answer where no column has that name.
    """

    kind: Literal["trl"] = "trl"
    function: tuple[str, ...] = Field(min_length=1)
    """``path/to/file.py:name`` or ``package.module:name``, or a list of these."""
    function_weights: tuple[float, ...] | None = None
    """Weight of each function in their sum (TRL's ``reward_weights``); null gives each weight 1."""
    conversational: bool | None = None
    """Whether prompts and completions are lists of messages, and not texts; null follows the dataset, as TRL does, and
    passes messages to a function that fails on texts as one that reads ``completion[0]["content"]`` does."""
    max_steps: int = Field(0, ge=0)
    """``trainer_state.max_steps``: steps of the run, for functions that use its progress; 0 if not used."""

    @field_validator("function", mode="before")
    @classmethod
    def _one_alone(cls, function: Any) -> Any:
        return (function,) if isinstance(function, str) else function

    @model_validator(mode="after")
    def _weights_fit(self) -> Trl:
        if self.function_weights is not None and len(self.function_weights) != len(self.function):
            raise ValueError(
                f"function_weights: got {len(self.function_weights)}, but function names {len(self.function)}; "
                f"allowed: {len(self.function)}, or null"
            )
        if self.arguments and len(self.function) > 1:
            raise ValueError(
                f"arguments: got {', '.join(self.arguments)}, but function names {len(self.function)}; allowed: with "
                "one function; of several, each a part of its own"
            )
        return self

    def build(self, source: TaskSource) -> Grader:
        names = numbered([self.own_name(spec) for spec in self.function])
        weights = self.function_weights or (1.0,) * len(names)
        chat = self.conversational
        if chat is None:
            chat = all(isinstance(one, FromRows) and one.conversational for one in sources_of(source))
        # None until it has answered: a function that reads messages, with a dataset of texts.
        form = chat if chat or self.conversational is not None else None
        functions = [_Called(self.called(spec, source[0], chat=chat), self, form) for spec in self.function]

        async def grade(task: Task, leaves: Sequence[Node], context: GradingContext) -> list[Grade]:
            asked = (function.rewards(task, leaves) for function in functions)
            columns = await asyncio.gather(*asked, return_exceptions=True)
            for number, (name, column) in enumerate(zip(names, columns, strict=True)):
                prefix = f"{name}: " if len(names) > 1 else ""
                if isinstance(column, Exception):
                    given = functions[number].keywords(task, leaves, chat=bool(functions[number].as_messages))
                    return [failed(column, self.function[number], task, given, prefix=prefix)] * len(leaves)
                if isinstance(column, BaseException):
                    raise column
            rows = zip(*(column for column in columns if not isinstance(column, BaseException)), strict=True)
            return [self._add_up(dict(zip(names, row, strict=True)), weights) for row in rows]

        return grade

    def called(self, spec: str, example: Task, *, chat: bool) -> UserFunction:
        given = {**arguments(example, (), chat=chat), **dict.fromkeys(OFFERED)}
        found = self.found(spec, given, columns=example.columns)
        check_parameters(found, {**given, **asked_answers(parameters_of(found.function), example, 0)})
        return found

    def _add_up(self, rewards: Mapping[str, float | None], weights: Sequence[float]) -> Grade:
        # TRL treats None and nan alike: it turns None into nan and sums with nansum.
        given = {name: reward for name, reward in rewards.items() if reward is not None and not math.isnan(reward)}
        if not given:
            said = " and ".join(sorted({"None" if reward is None else "NaN" for reward in rewards.values()}))
            return Grade.ungraded(f"{', '.join(rewards)} gave {said}: none grades this")
        weight = dict(zip(rewards, weights, strict=True))
        total = sum(weight[name] * reward for name, reward in given.items())
        return Grade(total, self.correctness(total, None), parts=given if len(rewards) > 1 else {})


class _Called:
    """One of the functions, and whether it is given messages; None until it has answered with texts or messages."""

    def __init__(self, found: UserFunction, settings: Trl, as_messages: bool | None) -> None:
        self.call, self.picked = settings.caller(found, "trl"), accepting(found.function)
        self.extras, self.reads = [*self.picked(dict.fromkeys(OFFERED))], parameters_of(found.function)
        self.max_steps, self.as_messages = settings.max_steps, as_messages

    def keywords(self, task: Task, leaves: Sequence[Node], *, chat: bool) -> dict[str, Any]:
        lists = arguments(task, leaves, chat=chat)
        return self.picked({**lists, **asked_answers(self.reads, task, len(leaves))})

    async def rewards(self, task: Task, leaves: Sequence[Node]) -> list[float | None]:
        async def ask(given: dict[str, Any]) -> dict[str, Any]:
            job = {
                "arguments": given,
                "extras": self.extras,
                "count": len(leaves),
                "global_step": max((version for leaf in leaves for version in leaf.version), default=0),
                "max_steps": self.max_steps,
            }
            return await self.call(job)

        if "completion_ids" in self.reads and any(leaf.completion_ids is None for leaf in leaves):
            raise RunError("it reads completion_ids, but only texts are known here; try: lyceum grade with --model")
        form = self.as_messages  # another task's call may decide it while this one runs
        given = self.keywords(task, leaves, chat=bool(form))
        try:
            answer = await ask(given)
        except Exception as error:
            if form is not None or not await reads_messages(ask, given, error):
                raise
            answer = await ask(self.keywords(task, leaves, chat=True))
            self.as_messages = True
        if self.as_messages is None and any(leaf.completion for leaf in leaves):
            self.as_messages = False
        _keep_log(leaves, answer)
        return answer["rewards"]


def arguments(task: Task, leaves: Sequence[Node], *, chat: bool) -> dict[str, Any]:
    """TRL's keywords: lists with one entry per completion, the task's columns repeated."""
    prompt: Any = [dict(message) for message in task.messages] if chat else prompt_text(task.messages)
    texts = [leaf.completion for leaf in leaves]
    columns = {"answer": task.answer, **task.columns}
    return {
        **{name: [value] * len(leaves) for name, value in columns.items() if name not in _RESERVED},
        "prompts": [prompt] * len(leaves),
        "completions": [[{"role": "assistant", "content": text}] for text in texts] if chat else texts,
        "completion_ids": [leaf.completion_ids for leaf in leaves],
    }


def asked_answers(parameters: Collection[str], task: Task, count: int) -> dict[str, list[Any]]:
    """The reference answer under the names that reward functions have for it, where the tasks have no such column."""
    asked = (name for name in ANSWER if name in parameters and name not in task.columns)
    return {} if task.answer is None else {name: [task.answer] * count for name in asked}


async def reads_messages(
    ask: Callable[[dict[str, Any]], Awaitable[Any]], given: Mapping[str, Any], error: Exception
) -> bool:
    """Whether a call with texts failed since the function reads each completion as a list of messages.

    ``text[0]["content"]`` raises a TypeError, but an IndexError where the text is empty: then a call without empty
    texts tells, since such an IndexError alone may be anything.
    """
    if INDEXED_EMPTY in describe(error) and not all(given.get("completions", ())):
        try:
            await ask({**given, "completions": [text or " " for text in given["completions"]]})
        except Exception as further:
            error = further
    return INDEXED_TEXT in describe(error)


def _keep_log(leaves: Sequence[Node], answer: Mapping[str, Any]) -> None:
    """Store what the function logged: a column's value with its trajectory, the call's metrics with the first."""
    for place, leaf in enumerate(leaves):
        own = {name: values[place] for name, values in answer["extra"].items() if place < len(values)}
        if own:
            leaf.stats.setdefault(LOGGED, {}).update(own)
    for name, values in answer["metrics"].items() if leaves else ():
        leaves[0].stats.setdefault(LOGGED_METRICS, {}).setdefault(name, []).extend(values)

"""Reward functions written for TRL, unchanged."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, GradingContext, Task, TaskSource
from lyceum.reward._code import CodePart, accepted, check_parameters, failed
from lyceum.reward.function import prompt_text
from lyceum.utils.numbers import real

PREPARE = "lyceum.reward.trl:prepare"

OFFERED = ("trainer_state", "log_extra", "log_metric")
"""Keywords that TRL passes beside the columns."""

_RESERVED = ("prompt", "completion", "prompts", "completions", "completion_ids")


class Trl(CodePart):
    """``function(prompts, completions, completion_ids, **columns)``: a list of numbers, one per completion.

    Several functions are added up as TRL adds them: one that returns None for a completion is left out of that
    completion's sum, and a completion for which all return None is ungraded. Each call has the completions of one task
    (TRL's have those of a whole batch). ``trainer_state`` has ``global_step``, the newest policy version among the
    tokens, and ``max_steps``; values passed to ``log_extra`` and ``log_metric`` are kept with the trajectory.
    """

    kind: Literal["trl"] = "trl"
    function: tuple[str, ...] = Field(min_length=1)
    """``path/to/file.py:name`` or ``package.module:name``, or a list of these."""
    function_weights: tuple[float, ...] | None = None
    """Weight of each function in their sum (TRL's ``reward_weights``); null gives each weight 1."""
    conversational: bool | None = None
    """Whether prompts and completions are lists of messages, and not texts; null follows the dataset, as TRL does."""
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
        return self

    def build(self, source: TaskSource) -> Grader:
        callers = [self.caller(spec, PREPARE, key="reward.function") for spec in self.function]
        names = function_names(self.function)
        weights = self.function_weights or (1.0,) * len(names)
        chat = source.conversational if self.conversational is None else self.conversational
        given = {**arguments(source[0], (), chat=chat), **dict.fromkeys(OFFERED)}
        for spec, (function, _) in zip(self.function, callers, strict=True):
            check_parameters(function, given, spec=spec, key="reward.function")

        async def ask(number: int, task: Task, leaves: Sequence[Node]) -> list[float | None]:
            function, call = callers[number]
            job = {
                "arguments": accepted(function, arguments(task, leaves, chat=chat)),
                "extras": list(accepted(function, dict.fromkeys(OFFERED))),
                "count": len(leaves),
                "global_step": max((version for leaf in leaves for version in leaf.version), default=0),
                "max_steps": self.max_steps,
            }
            answer = await call(job)
            _keep_log(leaves, answer)
            return answer["rewards"]

        async def grade(task: Task, leaves: Sequence[Node], context: GradingContext) -> list[Grade]:
            asked = (ask(number, task, leaves) for number in range(len(names)))
            columns = await asyncio.gather(*asked, return_exceptions=True)
            for number, (name, column) in enumerate(zip(names, columns, strict=True)):
                if isinstance(column, TimeoutError):
                    reason = f"{name}: no result within {self.timeout_seconds:g} seconds"
                    return [Grade.ungraded(reason)] * len(leaves)
                if isinstance(column, Exception):
                    given = accepted(callers[number][0], arguments(task, leaves, chat=chat))
                    return [failed(column, self.function[number], task, given, name=name)] * len(leaves)
                if isinstance(column, BaseException):
                    raise column
            rows = zip(*(column for column in columns if not isinstance(column, BaseException)), strict=True)
            return [self._add_up(dict(zip(names, row, strict=True)), weights) for row in rows]

        return grade

    def _add_up(self, rewards: Mapping[str, float | None], weights: Sequence[float]) -> Grade:
        given = {name: reward for name, reward in rewards.items() if reward is not None}
        if not given:
            return Grade.ungraded(f"{', '.join(rewards)} gave None: none grades this")
        total = sum(w * r for w, r in zip(weights, rewards.values(), strict=True) if r is not None)
        return Grade(total, self.correctness(total, None), parts=given)


def function_names(specs: Sequence[str]) -> list[str]:
    """The functions' own names; a second one of a name is ``name#2``."""
    own = [spec.rpartition(":")[2] for spec in specs]
    return [name if own.index(name) == at else f"{name}#{own[: at + 1].count(name)}" for at, name in enumerate(own)]


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


def prepare(job: dict[str, Any]) -> tuple[dict[str, Any], Callable[[Any], Any]]:
    """The call of one task's completions; its reply is {rewards, extra, metrics}."""
    extra: dict[str, list[Any]] = {}
    metrics: dict[str, float] = {}

    def log_extra(column: str, values: Sequence[Any]) -> None:
        extra[column] = [value if isinstance(value, bool | int | float | str) else str(value) for value in values]

    def log_metric(name: str, value: Any) -> None:
        metrics[name] = real(value, f"metric {name!r}")

    offered = {
        "trainer_state": SimpleNamespace(global_step=job["global_step"], max_steps=job["max_steps"]),
        "log_extra": log_extra,
        "log_metric": log_metric,
    }

    def reply(result: Any) -> dict[str, Any]:
        numbers = [math.nan if reward is None else real(reward, "a reward") for reward in result]
        if len(numbers) != job["count"]:
            raise ValueError(f"{len(numbers)} rewards for {job['count']} completions; allowed: one for each")
        # TRL treats None and nan alike: it turns None into nan and sums with nansum.
        rewards = [None if math.isnan(number) else number for number in numbers]
        return {"rewards": rewards, "extra": extra, "metrics": metrics}

    return {**job["arguments"], **{name: offered[name] for name in job["extras"]}}, reply


def _keep_log(leaves: Sequence[Node], answer: Mapping[str, Any]) -> None:
    """Store what the function logged in each leaf's metadata: a metric as it is, an extra column's own value."""
    for place, leaf in enumerate(leaves):
        own = {name: values[place] for name, values in answer["extra"].items() if place < len(values)}
        if own or answer["metrics"]:
            leaf.stats.setdefault("log", {}).update({**answer["metrics"], **own})

"""What runs in the process of a user's own function: how it is loaded, and called by each convention.

Nothing heavy is imported here: each reward and tool of a user's own starts such a process.
"""

from __future__ import annotations

import inspect
import json
import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from lyceum.core.own_code import load_module
from lyceum.reward.function_registry import PLACE, passed_in
from lyceum.utils.errors import RecipeError, nearest
from lyceum.utils.numbers import LARGEST_FLOAT, plain, python_number, real

Prepare = Callable[[Any], tuple[dict[str, Any], Callable[[Any], Any]]]
"""Turns a job (JSON types) into a call's keywords and a function that turns its result into a reply (JSON types)."""


def serve(
    place: str, name: str, convention: str, made_with: Mapping[str, Any] | None, further: Mapping[str, Any]
) -> Callable[[Any], Any]:
    """The worker's job function: calls the function with each job. ``convention`` is a key of
    :data:`CONVENTIONS`; the others are as in :class:`UserFunction`."""
    named = load_function(place, name, key="reward")
    function = named if made_with is None else named(**made_with)
    prepare = CONVENTIONS[convention]

    def work(job: Any) -> Any:
        arguments, reply = prepare(job)
        return reply(function(**{**arguments, **further}))

    return work


def load_function(place: str, name: str, *, key: str) -> Callable[..., Any]:
    """The named function of a file or module, whose code is run, or one that was passed in from Python.

    Raises:
        RecipeError: the file or module is missing or fails on import, or has no such function.
    """
    if place == PLACE:
        return passed_in(f"{place}:{name}")
    module = load_module(place, key=key)
    function = getattr(module, name, None)
    if not callable(function):
        names = [each for each, value in vars(module).items() if inspect.isfunction(value)]
        raise RecipeError(
            f"{key}: {place!r} has no function {name!r}{nearest(name, names)}; it has {', '.join(names) or 'none'}"
        )
    return function


# Conventions


def of_trajectory(job: dict[str, Any]) -> tuple[dict[str, Any], Callable[[Any], Any]]:
    """The call of one trajectory; its reply is {reward, correct, parts}."""
    if "task" in job:
        from lyceum.core.types import Task  # here: it imports numpy and pydantic

        job = {**job, "task": Task(**{**job["task"], "messages": tuple(job["task"]["messages"])})}
    return job, reward_reply


def reward_reply(result: Any) -> dict[str, Any]:
    if result is None:
        return {"reward": None}
    if isinstance(result, Mapping):
        if "reward" not in result:
            raise TypeError(
                f"a dict without 'reward', with {', '.join(map(str, result)) or 'nothing'}; allowed: one with it"
            )
        inner = reward_reply(result["reward"])
        parts = {
            str(name): real(value, f"part {name!r}", largest=LARGEST_FLOAT)
            for name, value in result.items()
            if name not in ("reward", "correct") and value is not None
        }
        if (correct := result.get("correct")) is None:
            return {**inner, "correct": inner.get("correct"), "parts": parts}
        if (verdict := verdict_of(correct)) is None:
            raise TypeError(f"'correct' is {correct!r:.100}; allowed: true, false, 0, 1 or None")
        return {**inner, "correct": verdict, "parts": parts}
    correct = result if isinstance(result, bool) else None
    return {"reward": real(result, "the reward"), "correct": correct, "parts": {}}


def of_trl(job: dict[str, Any]) -> tuple[dict[str, Any], Callable[[Any], Any]]:
    """The call of one task's completions; its reply is {rewards, extra, metrics}."""
    extra: dict[str, list[Any]] = {}
    metrics: dict[str, list[float]] = {}

    def log_extra(column: str, values: Sequence[Any]) -> None:
        extra[column] = [value if isinstance(value, bool | int | float | str) else str(value) for value in values]

    def log_metric(name: str, value: Any) -> None:
        metrics.setdefault(name, []).append(real(value, f"metric {name!r}", largest=LARGEST_FLOAT))

    offered = {
        "trainer_state": SimpleNamespace(global_step=job["global_step"], max_steps=job["max_steps"]),
        "log_extra": log_extra,
        "log_metric": log_metric,
    }

    def reply(result: Any) -> dict[str, Any]:
        rewards = one_each(result, job["count"])
        rewards = [None if reward is None else real(reward, "a reward") for reward in rewards]
        return {"rewards": rewards, "extra": extra, "metrics": metrics}

    return {**job["arguments"], **{name: offered[name] for name in job["extras"]}}, reply


def of_verl_batch(job: dict[str, Any]) -> tuple[dict[str, Any], Callable[[Any], Any]]:
    """The call of one task's completions; its reply is a list of :func:`verl_reply`."""

    def replies(result: Any) -> list[dict[str, Any]]:
        return [verl_reply(each) for each in one_each(result, job["count"])]

    return job["arguments"], replies


def of_verl(job: dict[str, Any]) -> tuple[dict[str, Any], Callable[[Any], Any]]:
    """The call of one trajectory; its reply is {reward, correct, parts}."""
    return job, verl_reply


def verl_reply(result: Any) -> dict[str, Any]:
    if result is None:
        return {"reward": None}
    if not isinstance(result, Mapping):
        return {"reward": real(result, "the score"), "correct": None, "parts": {}}
    if "score" not in result:
        raise TypeError(
            f"a dict without 'score', with {', '.join(map(str, result)) or 'nothing'}; allowed: one with it"
        )
    parts: dict[str, float] = {}
    for name, value in result.items():
        # verl logs everything that a function returns beside the score, text too: here only numbers are parts.
        if name != "score" and isinstance(value, numbers.Real):
            parts[str(name)] = real(value, f"part {name!r}", largest=LARGEST_FLOAT)
    return {
        "reward": real(result["score"], "the score"),
        "correct": verdict_of(result.get("acc")),  # a share of tests is none
        "parts": parts,
    }


def of_tool(job: Mapping[str, Any]) -> tuple[dict[str, Any], Callable[[Any], str]]:
    """The call of a function with {arguments, most}; its reply is the result's text."""
    return job["arguments"], lambda result: cut(written(result), job["most"])


def written(result: Any) -> str:
    """A function's result as the policy reads it: texts as they are, everything else as JSON.

    Raises:
        TypeError: JSON cannot hold it.
    """
    text = result if isinstance(result, str) else json.dumps(plain(result), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "replace").decode()  # no tokenizer encodes half of a surrogate pair


def cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}... [cut: {most} of {len(text)} characters]"


def verdict_of(value: Any) -> bool | None:
    """What a function says of an answer by a bool, or by the number 0 or 1; None where it says anything else."""
    number = python_number(value)
    return bool(number) if number in (0, 1) else None


def one_each(result: Any, count: int) -> list[Any]:
    """What a function of several completions returned, an entry per completion.

    Raises:
        TypeError: it returned one thing for all of them.
        ValueError: more or fewer.
    """
    if isinstance(result, str | bytes | Mapping) or not isinstance(result, Iterable):
        what = "None" if result is None else f"{result!r:.100}, a {type(result).__name__}"
        raise TypeError(f"got {what}, for {count} completions; allowed: a list with one number or None for each")
    rewards = list(result)
    if len(rewards) != count:
        raise ValueError(f"{len(rewards)} rewards for {count} completions; allowed: one for each")
    return rewards


CONVENTIONS: Mapping[str, Prepare] = {
    "function": of_trajectory,
    "trl": of_trl,
    "verl": of_verl,
    "verl-batch": of_verl_batch,
    "tool": of_tool,
}

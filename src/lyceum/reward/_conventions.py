"""Whose reward function it is, by the names of its parameters; and whether it makes the reward function instead."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal

Convention = Literal["function", "trl", "verl"]

OWN = frozenset({"task", "completion", "prompt", "messages", "answer", "columns", "completion_ids", "finish", "id"})
TRL = frozenset({"prompts", "completions"})
VERL = frozenset({"solution_str", "solution_strs", "ground_truth", "ground_truths"})
VERL_TEXTS = ("model_output", "predict_str")
"""Other names of the completion in verl's own ``reward_score``, beside ``ground_truth``."""


def parameters_of(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Its parameters by name; empty where a builtin does not tell them."""
    try:
        return inspect.signature(function).parameters
    except ValueError:
        return {}


def takes_any(function: Callable[..., Any]) -> bool:
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters_of(function).values())


def convention_of(function: Callable[..., Any]) -> Convention:
    """``trl``, ``verl``, or ``function`` for lyceum's own.

    TRL's functions that read tokens alone, as its ``get_soft_overlong_punishment`` makes them, are told from lyceum's
    by their ``**kwargs``, without which TRL could not call them.
    """
    names = set(parameters_of(function))
    if names & TRL or ("completion_ids" in names and takes_any(function) and not names & OWN - {"completion_ids"}):
        return "trl"
    if names & {"solution_str", "solution_strs"} or ("ground_truth" in names and names & {*VERL_TEXTS}):
        return "verl"
    return "function"


def is_factory(function: Callable[..., Any], columns: Collection[str]) -> bool:
    """Whether it takes settings and nothing of a sample, so that its result is the reward function.

    Args:
        columns: of the tasks.
    """
    return not takes_any(function) and not set(parameters_of(function)) & (OWN | TRL | VERL | set(columns))

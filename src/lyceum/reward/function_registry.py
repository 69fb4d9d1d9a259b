"""Python functions as rewards: whose calling convention they follow, and a register of those that were passed in.

A recipe is plain values; a notebook's function is not. One that is passed in is kept here under a name, which the
recipe writes as ``lyceum.reward.function_registry:NAME`` (``reward/user_code.py`` looks there), and lives as long as
its process: there it is used again without being asked for (``run.evaluate()``); elsewhere, and to resume a run, pass
it in again.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal

from lyceum.utils.errors import RecipeError, nearest

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


PLACE = __name__
"""Module part of the name of a function registered here."""
FUNCTIONS: dict[str, Callable[..., Any]] = {}
"""Name -> function."""

REWARD, TOOL, AGENT = "reward_", "tool_", "agent_"
"""What the names of rewards, of tools, and of agents begin with."""

SYNC = 0
"""Processes for a function that is not async: 0, as it may close over objects of this process."""


def reward_settings(reward: Any) -> Any:
    """A reward as a recipe writes it: functions become parts, alone, in a list, or as the ``function`` of a mapping;
    everything else stays.

    A function is called as its parameters say (:func:`convention_of`): as TRL does, as verl does, or with the
    keywords of reward kind ``function`` that it names.
    """
    taken: set[str] = set()
    if isinstance(reward, Sequence) and not isinstance(reward, str):
        return [_part(part, taken) for part in reward]
    return _part(reward, taken)


def is_passed_in(spec: str) -> bool:
    """Whether a recipe's function is one that was passed in, in this process or another."""
    return spec.rpartition(":")[0] == PLACE


def shown(spec: str) -> str:
    """A function as messages call it: one that was passed in by its own name, any other as the recipe names it."""
    return re.sub(f"^({REWARD}|{TOOL}|{AGENT})", "", spec.rpartition(":")[2]) if is_passed_in(spec) else spec


def passed_in(spec: str) -> Callable[..., Any]:
    """The function that was passed in under this name.

    Raises:
        RecipeError: that was in another process.
    """
    name = spec.rpartition(":")[2]
    if name not in FUNCTIONS:
        key, allowed = (
            "reward.function",
            (
                "reward=FUNCTION in Python, or from a file, reward=FILE.py:FUNCTION (lyceum train) or --reward "
                "FILE.py:FUNCTION (lyceum eval)"
            ),
        )
        if name.startswith(TOOL):
            key, allowed = "environment.functions", "[FUNCTION] in Python, or from a file, [FILE.py:FUNCTION]"
        elif name.startswith(AGENT):
            key, allowed = "rollout.function", "FUNCTION in Python, or from a file, FILE.py:FUNCTION"
        raise RecipeError(
            f"{key}: {name!r} was passed in from Python, and not in this process; allowed: it again, {allowed}"
            f"{nearest(name, FUNCTIONS)}"
        )
    return FUNCTIONS[name]


def _part(part: Any, taken: set[str]) -> Any:
    if isinstance(part, tuple) and any(map(callable, part)):
        raise RecipeError("reward: got a tuple as a part; allowed: {'function': FUNCTION, 'weight': 0.5}, or a list")
    if isinstance(part, Mapping) and callable(part.get("function")):
        return _part(part["function"], taken) | {key: value for key, value in part.items() if key != "function"}
    if not callable(part) or hasattr(part, "model_fields"):
        return part
    return {"kind": convention_of(part), "function": f"{PLACE}:{_keep(part, taken)}", "processes": SYNC}


def registered_tool(function: Callable[..., Any]) -> str:
    """A function that the policy may call, as a recipe names it: ``PLACE:tool_NAME``."""
    return f"{PLACE}:{_keep(function, set(), TOOL)}"


def registered_agent(function: Callable[..., Any]) -> str:
    """An agent that was passed in, as a recipe names it: ``PLACE:agent_NAME``."""
    return f"{PLACE}:{_keep(function, set(), AGENT)}"


def _keep(function: Callable[..., Any], taken: set[str], of: str = REWARD) -> str:
    """A name for the function: its own, so that the same recipe stays the same, numbered where two parts of one
    reward share it. A later function of the same name replaces it."""
    plain = re.sub(r"\W", "_", getattr(function, "__name__", type(function).__name__)).strip("_")
    stem = f"{of}{plain or 'function'}"
    name = stem
    while name in taken:
        name = f"{stem}_{len(taken) + 1}"
    taken.add(name)
    FUNCTIONS[name] = function
    return name

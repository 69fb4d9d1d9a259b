"""Keys of the commands that train nothing, and what they call the settings of a recipe and of other libraries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from lyceum.analysis.grading.rows import GradedColumns
from lyceum.core.types import Sampling
from lyceum.recipe.other_names import known_elsewhere
from lyceum.recipe.schema import Recipe
from lyceum.utils.errors import RecipeError, nearest

MEASURED = ("model", "tasks", "reward", "engine", "environment", "trust_code", *Sampling.model_fields)
"""First names of the keys of commands that sample; those of sampling stand alone."""
KEYS_OF_COLUMNS = tuple(f"columns.{name}" for name in GradedColumns.model_fields)
KEYS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("eval", "search", "boundary"), MEASURED),
    "grade": ("reward", "tasks", "model", "trust_code", "columns"),
}

_SAMPLING = {f"{of}.sampling.{name}": name for of in ("rollout", "evaluate") for name in Sampling.model_fields}
_MEASURED = {**_SAMPLING, "rollout.environment": "environment", "evaluate.tasks": "tasks", "evaluate.n": "--n"}
_MEASURED |= {name: f"--{name}" for name in ("n", "seed", "output")}
_WORKERS = dict.fromkeys(("evaluate.workers", "workers"), "--workers")
_SAMPLES = ("rollout.samples", "evaluate.samples", "samples")
NAMES: dict[str, dict[str, str]] = {
    "eval": {
        **_MEASURED,
        **_WORKERS,
        **dict.fromkeys(_SAMPLES, "--samples"),
        **dict.fromkeys(("evaluate.k", "k"), "--k"),
        "evaluate.greedy": "--greedy",
    },
    "search": _MEASURED | dict.fromkeys(_SAMPLES, "--sizes"),
    "boundary": _MEASURED | _WORKERS | dict.fromkeys(_SAMPLES, "--samples"),
    "grade": {"evaluate.tasks": "tasks", **{name: f"--{name}" for name in ("reward", "model", "output")}},
}
"""A recipe's key, or an option without its dashes -> the key or the option of the command, where it has another name.
An option is an argument of the function in Python."""


def refuse_unknown(command: str, keys: Iterable[str]) -> None:
    """Refuse keys that a command does not have by their first name, all of them at once.

    Raises:
        RecipeError: a line for each, with what it is called here, or what may have been meant.
    """
    known = KEYS[command]
    if lines := [_unknown(command, key) for key in keys if key.partition(".")[0] not in known]:
        raise RecipeError(lines)


def _unknown(command: str, key: str) -> str:
    known = KEYS[command]
    if instead := NAMES[command].get(key):
        near = f" (here it is {'the option ' if instead.startswith('--') else ''}{instead})"
    else:
        told = told_elsewhere(command, key)
        near = f" ({told})" if told else nearest(key.partition(".")[0], known)
    allowed = (name for first in known for name in (KEYS_OF_COLUMNS if first == "columns" else (first,)))
    return f"{key}: unknown key{near}; allowed: {', '.join(allowed)}"


def told_elsewhere(command: str, key: str, options: Mapping[str, str] | None = None) -> str | None:
    """What another library's key is called in a command; None where no library of the table has it.

    Args:
        options: key -> the option that sets it, for who typed an option.
    """
    here = partial(_name_in, command, options)
    whole = key in Recipe.model_fields  # "name" alone is not the end of custom_reward_function.name
    return known_elsewhere(key, here=here) or known_elsewhere(key, whole=whole, here=here)


def _name_in(command: str, options: Mapping[str, str] | None, ours: str) -> str:
    """What a command calls a key of a recipe; empty where it has none."""
    name = NAMES[command].get(ours, ours)
    if name.startswith("--"):
        return name if options is not None else f"{name[2:]}, on the command line {name},"
    return (options or {}).get(name) or (name if name.partition(".")[0] in KEYS[command] else "")

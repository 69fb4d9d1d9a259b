"""Arguments of ``import lyceum``'s functions: of a wrong type, or misspelt, they are refused before anything runs."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Collection, Mapping
from functools import wraps
from numbers import Integral, Real
from typing import Any, ParamSpec, TypeVar, get_args

from lyceum.api.loaded import is_loaded
from lyceum.api.rows import are_rows
from lyceum.api.trained import Trained
from lyceum.core.component import kinds
from lyceum.core.types import Sampling
from lyceum.recipe.other_names import known_elsewhere
from lyceum.recipe.schema import Recipe
from lyceum.utils import progress
from lyceum.utils.errors import RecipeError, closest
from lyceum.utils.interrupts import imports_whole
from lyceum.utils.terminal import quoted

P = ParamSpec("P")
R = TypeVar("R")


ANSWERING = ("train", "compare", "evaluate", "grade", "search", "boundary")
"""Functions that say what another library's key is called in them."""


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """A function that raises RecipeError for arguments of a wrong type, by their annotations, and for keywords that
    are one of its own arguments misspelt. Ctrl-C leaves no import halfway (:func:`imports_whole`)."""
    parameters = inspect.signature(function).parameters

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        lines = [line for key in kwargs if (line := _misspelt(function.__name__, key, parameters))]
        named = dict(zip(parameters, args, strict=False)) | kwargs
        for name, value in named.items():
            fits, allowed = _TYPES[parameters[name].annotation] if name in parameters else _ANY
            if not fits(value):
                meant = _instead_of_overrides(function.__name__, value) if name == "overrides" else ""
                lines.append(f"{name}: got {quoted(value)}; allowed: {allowed}{meant}")
        if lines:
            raise RecipeError(lines)
        with imports_whole():
            return function(*args, **kwargs)

    return call


def _instead_of_overrides(function: str, value: Any) -> str:
    """Where a value belongs that was passed as the second argument, or the third."""
    if function == "boundary" and (_RUN[0](value) or is_loaded(value)):
        return "; models are one list, lyceum.boundary([BASE, MODEL])"
    if function == "compare" and isinstance(value, str):
        return f"; recipes are one list, lyceum.compare([RECIPE, {value[:40]!r}])"
    return "; rows are tasks=ROWS" if are_rows(value) else ""


def _misspelt(function: str, key: str, parameters: Mapping[str, Any]) -> str | None:
    own = [name for name, parameter in parameters.items() if parameter.kind is not parameter.VAR_KEYWORD]
    meant = None if key in parameters or "." in key or "__" in key else closest(key, own)
    if meant is None or key in _keys() or (function in ANSWERING and known_elsewhere(key)):
        return None  # the recipe answers
    return f"{key}: unknown argument of lyceum.{function} (did you mean {meant!r}?); allowed: {', '.join(own)}"


def _keys() -> set[str]:
    """First names of a recipe's keys, and of sampling."""
    stages = (kind.model_fields for kind in kinds("stages").values())
    return set(Recipe.model_fields).union(Sampling.model_fields, *stages)


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_no_number(value: Any) -> bool:
    return not isinstance(value, Real)


def _is_path(value: Any) -> bool:
    return isinstance(value, (str, os.PathLike))


def _each(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Whether a value is a list, or another collection that is no text, of values that fit."""
    return lambda value: (
        isinstance(value, Collection) and not isinstance(value, str | Mapping) and all(map(fits, value))
    )


def _optional(kind: tuple[Callable[[Any], bool], str]) -> tuple[Callable[[Any], bool], str]:
    fits, allowed = kind
    return lambda value: value is None or fits(value), f"{allowed}, or None"


def _are_keys_of_labels(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(keys, Mapping) for keys in value.values())


_ANY: tuple[Callable[[Any], bool], str] = (lambda value: True, "anything")
_WHOLE = (_is_whole, "a whole number")
_PATH = (_is_path, "a path")
_CALLED = (callable, "a function")
_RUN = (lambda value: _is_path(value) or isinstance(value, Trained), "a run, or its folder")
_TYPES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "int": _WHOLE,
    "int | None": _optional(_WHOLE),
    "float": (_is_number, "a number"),
    "bool": (lambda value: isinstance(value, bool), "True or False"),
    "str": (lambda value: isinstance(value, str), "a text"),
    "str | None": _optional((lambda value: isinstance(value, str), "a text")),
    "str | Path": _PATH,
    "Path | str | None": _optional(_PATH),
    "str | Path | Recipe": (lambda value: _is_path(value) or isinstance(value, Recipe), "a recipe's name or file"),
    "Sequence[int]": (_each(_is_whole), "a list of whole numbers, such as [1, 8]"),
    "Sequence[float]": (_each(_is_number), "a list of numbers, such as [200, 800]"),
    "Sequence[str]": (_each(lambda value: isinstance(value, str)), "a list of texts"),
    "Sequence[Any]": (lambda value: isinstance(value, Collection), "a list"),
    "Folders": (
        lambda value: _is_path(value) or _each(_is_path)(value),
        "a paper's folder, or one with several, or a list of these",
    ),
    "Overrides": (
        _each(lambda value: isinstance(value, str | tuple)),
        'a list of texts, such as ["steps=50"]',
    ),
    "progress.Mode": (
        lambda value: isinstance(value, str) and value in get_args(progress.Mode),
        f"{', '.join(get_args(progress.Mode))}",
    ),
    "Resume": (lambda value: isinstance(value, bool) or value == "auto", "True, False or 'auto'"),
    "Mapping[str, Mapping[str, Any]] | None": _optional((_are_keys_of_labels, "a mapping {LABEL: {KEY: VALUE}}")),
    "Callable[[int, int, Sizes], None]": _CALLED,
    "Callable[[Line], None] | None": _optional(_CALLED),
    "Trained | Path | str | Rows": (_is_no_number, "a file, rows, or a run"),
    "str | Path | Mapping[str, Any] | None": (_is_no_number, "a kind, a folder, settings, or None"),
    "Trained | Path | str": _RUN,
    "Trained | str | Path": _RUN,
    "Trained | str | Path | None": _optional(_RUN),
    "Literal['model', 'best']": (lambda value: value in ("model", "best"), "'model' or 'best'"),
    **dict.fromkeys(("Any", "Model | Policy", "Model | Policy | None", "Tasks | None"), _ANY),  # the recipe answers
}
"""What an annotation takes, as it is written in the signature: a test of a value, and what to give."""

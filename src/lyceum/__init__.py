"""lyceum: reinforcement-learning post-training of reasoning language models.

Each name below is imported when it is first used, so that ``import lyceum`` is light.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lyceum.api import compare, evaluate, load_model, recipes, search, train
    from lyceum.recipe import Recipe, load_recipe
    from lyceum.trained import Trained
    from lyceum.utils.errors import Interrupted, RecipeError

__all__ = [
    "Interrupted",
    "Recipe",
    "RecipeError",
    "Trained",
    "compare",
    "evaluate",
    "load_model",
    "load_recipe",
    "recipes",
    "search",
    "train",
]

_PLACES = {
    "Interrupted": "lyceum.stages.session",
    "Recipe": "lyceum.recipe",
    "RecipeError": "lyceum.component",
    "Trained": "lyceum.trained",
    "compare": "lyceum.api",
    "load_model": "lyceum.api",
    "load_recipe": "lyceum.recipe",
    "recipes": "lyceum.api",
}
_CALLABLE_MODULES = ("evaluate", "search", "train")
"""Modules that are called like the function of their name in ``lyceum.api`` (see ``lyceum.callable_module``)."""


def __getattr__(name: str) -> Any:
    if name in _CALLABLE_MODULES:
        return importlib.import_module(f"lyceum.{name}")
    if name not in _PLACES:
        raise AttributeError(f"module 'lyceum' has no attribute {name!r}")
    return getattr(importlib.import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""lyceum: reinforcement-learning post-training of reasoning language models.

Each name below is imported when it is first used, so that ``import lyceum`` is light.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lyceum.api import (
        boundary,
        compare,
        doctor,
        evaluate,
        grade,
        load_model,
        push,
        recipes,
        replay,
        search,
        sparsity,
        train,
    )
    from lyceum.api.trained import Trained
    from lyceum.recipe.schema import Recipe, load_recipe
    from lyceum.utils.errors import Interrupted, RecipeError

__all__ = [
    "Interrupted",
    "Recipe",
    "RecipeError",
    "Trained",
    "boundary",
    "compare",
    "doctor",
    "evaluate",
    "grade",
    "load_model",
    "load_recipe",
    "push",
    "recipes",
    "replay",
    "search",
    "sparsity",
    "train",
]

_PLACES = {
    "Interrupted": "lyceum.utils.errors",
    "Recipe": "lyceum.recipe.schema",
    "RecipeError": "lyceum.utils.errors",
    "Trained": "lyceum.api.trained",
    "load_recipe": "lyceum.recipe.schema",
}
"""Where a name is imported from; ``lyceum.api`` holds the others."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'lyceum' has no attribute {name!r}")
    return getattr(importlib.import_module(_PLACES.get(name, "lyceum.api")), name)


def __dir__() -> list[str]:
    """The public names alone: what else is a module is not for users."""
    return list(__all__)

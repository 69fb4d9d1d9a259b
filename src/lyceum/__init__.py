"""lyceum: reinforcement-learning post-training of reasoning language models.

Each name below is imported when it is first used, so that ``import lyceum`` is light.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lyceum.analysis.boundary.result import Boundary
    from lyceum.analysis.comparison.result import Comparison
    from lyceum.analysis.doctor.run import Report
    from lyceum.analysis.grading.grade import Graded
    from lyceum.analysis.measure import Accuracy, Unwritten
    from lyceum.analysis.replay import Replayed
    from lyceum.analysis.sparsity import Sparsity
    from lyceum.analysis.test_time.result import SearchResult
    from lyceum.api import (
        boundary,
        compare,
        convert,
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
    from lyceum.models.policy import Policy
    from lyceum.recipe.schema import Recipe, load_recipe
    from lyceum.utils.errors import (
        Diverged,
        Interrupted,
        NothingGraded,
        NothingLearnt,
        NothingLearntWarning,
        RecipeError,
        RunError,
    )

__all__ = [
    "Accuracy",
    "Boundary",
    "Comparison",
    "Diverged",
    "Graded",
    "Interrupted",
    "NothingGraded",
    "NothingLearnt",
    "NothingLearntWarning",
    "Policy",
    "Recipe",
    "RecipeError",
    "Replayed",
    "Report",
    "RunError",
    "SearchResult",
    "Sparsity",
    "Trained",
    "Unwritten",
    "boundary",
    "compare",
    "convert",
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
    "Accuracy": "lyceum.analysis.measure",
    "Boundary": "lyceum.analysis.boundary.result",
    "Comparison": "lyceum.analysis.comparison.result",
    "Diverged": "lyceum.utils.errors",
    "Graded": "lyceum.analysis.grading.grade",
    "Interrupted": "lyceum.utils.errors",
    "NothingGraded": "lyceum.utils.errors",
    "NothingLearnt": "lyceum.utils.errors",
    "NothingLearntWarning": "lyceum.utils.errors",
    "Policy": "lyceum.models.policy",
    "Recipe": "lyceum.recipe.schema",
    "RecipeError": "lyceum.utils.errors",
    "Replayed": "lyceum.analysis.replay",
    "Report": "lyceum.analysis.doctor.run",
    "RunError": "lyceum.utils.errors",
    "SearchResult": "lyceum.analysis.test_time.result",
    "Sparsity": "lyceum.analysis.sparsity",
    "Trained": "lyceum.api.trained",
    "Unwritten": "lyceum.analysis.measure",
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

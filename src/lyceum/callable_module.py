"""``lyceum.train`` is a module, and ``lyceum.train(...)`` is how a notebook trains: one name for both.

Whoever imports ``lyceum.train`` puts the module in the place of any function of that name in the package, so that the
module itself must be callable.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any


def callable_as(module: str, function: str) -> None:
    """Let ``module`` be called as ``package.module:function``, which is imported on the first call."""

    class Callable(ModuleType):
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            place, _, name = function.partition(":")
            return getattr(importlib.import_module(place), name)(*args, **kwargs)

    sys.modules[module].__class__ = Callable

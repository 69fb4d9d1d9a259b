"""Annotations of arrays are checked while tests run: what a function is given and gives back has the shapes it says.

A module of lyceum is gone over once it has been imported, before another takes a name from it: nothing escapes but a
function that is kept elsewhere while its own module is being imported (in a table, by a decorator). Only what is said
of arrays is checked; jaxtyping's import hook would check protocols too, for which tests have stand-ins. Of a function
called very often (a decoding step's) only some calls are checked, or checks would be a tenth of the suite's time.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import re
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any, get_args, get_type_hints

import jaxtyping
from beartype import BeartypeConf, beartype
from jaxtyping import AbstractArray, AbstractDtype, jaxtyped

_KINDS = {name for name, kind in vars(jaxtyping).items() if isinstance(kind, type) and issubclass(kind, AbstractDtype)}
"""``Float``, ``Int``, ...: an annotation is of an array if it names one of these, or what is made of one."""

ALWAYS, THEN_EVERY = 300, 16
"""So many first calls of a function in a process are checked, and then one of so many."""

_CHECKER = beartype(conf=BeartypeConf(is_pep484_tower=True))  # an int passes for a float, as it does to type checkers


def install() -> None:
    """From here on, modules of lyceum are imported with their annotations of arrays checked."""
    sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if fullname.partition(".")[0] != "lyceum":
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        check(module)


def check(module: ModuleType) -> None:
    """Puts a check in front of the module's functions, methods and dataclasses that say something of an array."""
    names = vars(module)
    arrays = _KINDS | {name for name, value in names.items() if _is_of_arrays(value)}

    def checked(value: Any) -> Any:
        if isinstance(value, (classmethod, staticmethod)):
            function = checked(value.__func__)
            return value if function is value.__func__ else type(value)(function)
        if isinstance(value, property):
            return value.getter(checked(value.fget))
        if isinstance(value, functools.cached_property):
            value.func = checked(value.func)
        if not isinstance(value, FunctionType):
            return value
        said = inspect.unwrap(value).__annotations__
        hints = {name: hint for name, hint in said.items() if arrays & set(re.findall(r"\w+", str(hint)))}
        if not hints:
            return value
        # A NameError here: the module imports what the annotation names for type checkers only.
        hints = get_type_hints(SimpleNamespace(__annotations__=hints), names, include_extras=True)
        inspect.unwrap(value).__annotations__ = value.__annotations__ = hints
        # What beartype makes of a generator begins to check when it is iterated over, in another call's context.
        checks = (
            jaxtyped(value, typechecker=_CHECKER)
            if inspect.isgeneratorfunction(value)
            else functools.wraps(value)(_in_context(_CHECKER(value), value))
        )
        inspect.unwrap(value).__annotations__ = value.__annotations__ = checks.__annotations__ = said
        return checks

    for name, value in list(names.items()):
        if getattr(value, "__module__", None) != module.__name__:
            continue
        if isinstance(value, FunctionType):
            names[name] = checked(value)
        elif isinstance(value, type):
            for attribute, method in list(vars(value).items()):
                checks = checked(method)
                if checks is not method:
                    setattr(value, attribute, checks)


def _in_context(checking: Callable[..., Any], unchecked: Callable[..., Any]) -> Callable[..., Any]:
    """An axis has one size in one call. ``jaxtyped(typechecker=...)`` would check every argument twice."""
    calls = itertools.count()

    def called(*args: Any, **kwargs: Any) -> Any:
        call = next(calls)
        if call >= ALWAYS and call % THEN_EVERY:
            return unchecked(*args, **kwargs)
        with jaxtyped("context"):
            return checking(*args, **kwargs)

    return called


def _is_of_arrays(hint: Any) -> bool:
    return (isinstance(hint, type) and issubclass(hint, AbstractArray)) or any(map(_is_of_arrays, get_args(hint)))

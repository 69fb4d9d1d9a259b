"""A user's own Python function as a verifier: found by name, run where it can be ended, its results checked.

A function that is not async runs in its own process, so that one that hangs can be ended. An async function runs
in the run's event loop, many calls at once; it must not block, and is cancelled at its time limit.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from lyceum.core.settings import RewardSettings
from lyceum.core.types import Grade, Task
from lyceum.core.user_files import describe
from lyceum.reward.base import code_allowed
from lyceum.reward.function_registry import FUNCTIONS, PLACE
from lyceum.reward.pool import WorkerError, shared_pool
from lyceum.utils.errors import RecipeError, nearest
from lyceum.utils.terminal import quoted
from lyceum.utils.tracebacks import user_traceback

Prepare = Callable[[Any], tuple[dict[str, Any], Callable[[Any], Any]]]
"""Turns a job (JSON types) into a call's keywords and a function that turns its result into a reply (JSON types)."""

MAX_ROW = 600
"""Maximum characters quoted of a failed call."""


class CodePart(RewardSettings):
    """A reward that runs a Python function named in the recipe, where ``lyceum.reward.base.allow_code`` allows it."""

    timeout_seconds: float = Field(30.0, gt=0)
    """Time limit per call, in seconds; one that takes longer is ungraded."""
    processes: int = Field(1, ge=0, le=64)
    """Processes for a function that is not async. 1 keeps its state in one place; 0 calls it in the run's own process,
    with live objects and without a time limit."""
    correct_at: float | None = None
    """Minimum reward of a correct answer; null where only the function's own verdict counts."""

    def code(self) -> tuple[str, ...]:
        named: str | tuple[str, ...] = getattr(self, "function", ())
        return (named,) if isinstance(named, str) else named

    def caller(
        self, spec: str, prepare: str, *, key: str, default_name: str | None = None
    ) -> tuple[Callable[..., Any], Callable[[Any], Awaitable[Any]]]:
        """The function, and an async wrapper that calls it with a job and returns its reply.

        Args:
            spec: ``path/to/file.py:name`` or ``package.module:name``.
            prepare: ``module:name`` of the calling convention.
            key: the recipe's key, for messages.
            default_name: of the function where ``spec`` has none.
        Raises:
            RecipeError: code is not allowed, or there is no such function.
        """
        if not code_allowed():
            raise RecipeError(
                f"{key}: got {spec!r}, which is Python code to run; allowed: give it on the command line, "
                "or trust_code=true, after a look at what it does"
            )
        place, name = split_spec(spec, key=key, default_name=default_name)
        function = load_function(place, name, key=key)
        convention: Prepare = _attribute(prepare)
        if is_async(function):

            async def call_async(job: Any) -> Any:
                arguments, reply = convention(job)
                async with asyncio.timeout(self.timeout_seconds):
                    return reply(await function(**arguments))

            return function, call_async
        if self.processes == 0:

            async def call_here(job: Any) -> Any:
                arguments, reply = convention(job)
                return reply(function(**arguments))

            return function, call_here
        pool = shared_pool(
            "lyceum.reward._code:serve",
            {"place": place, "name": name, "prepare": prepare},
            workers=self.processes,
            timeout_seconds=self.timeout_seconds,
        )
        return function, pool.run

    def correctness(self, reward: float, said: bool | None) -> bool | None:
        """The function's own verdict, or else whether the reward reaches ``correct_at``."""
        if said is not None or self.correct_at is None:
            return said
        return reward >= self.correct_at


def serve(place: str, name: str, prepare: str) -> Callable[[Any], Any]:
    """The worker's job function: calls the function with each job."""
    function = load_function(place, name, key="reward")
    convention: Prepare = _attribute(prepare)

    def work(job: Any) -> Any:
        arguments, reply = convention(job)
        return reply(function(**arguments))

    return work


def split_spec(spec: str, *, key: str, default_name: str | None = None) -> tuple[str, str]:
    """``path/to/file.py:name`` or ``package.module:name`` in its two parts, a file's path made absolute."""
    place, colon, name = spec.rpartition(":")
    if spec.endswith(".py") and default_name is not None:
        place, colon, name = spec, ":", default_name
    if not colon or not place or not name.isidentifier():
        raise RecipeError(f"{key}: got {spec!r}; allowed: path/to/file.py:name or package.module:name")
    return (str(Path(place).expanduser().resolve()) if place.endswith(".py") else place), name


def load_function(place: str, name: str, *, key: str) -> Callable[..., Any]:
    """The named function of a file or module, whose code is run, or one that was passed in from Python.

    Raises:
        RecipeError: the file or module is missing or fails on import, or has no such function.
    """
    if place == PLACE:
        if name not in FUNCTIONS:
            raise RecipeError(
                f"{key}: {name!r} was passed in from Python, and not in this process; allowed: the function itself "
                f"again{nearest(name, FUNCTIONS)}"
            )
        return FUNCTIONS[name]
    if place.endswith(".py") and not Path(place).is_file():
        raise RecipeError(f"{key}: {place!r} does not exist; allowed: path/to/file.py:name or package.module:name")
    try:
        module = _load_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    except Exception as error:
        where = (user_traceback(error) or "").splitlines()
        raise RecipeError([f"{key}: {place!r} cannot be imported: {describe(error)}", *where]) from error
    function = getattr(module, name, None)
    if not callable(function):
        names = [each for each, value in vars(module).items() if inspect.isfunction(value)]
        raise RecipeError(
            f"{key}: {place!r} has no function {name!r}{nearest(name, names)}; it has {', '.join(names) or 'none'}"
        )
    return function


def _load_file(path: Path) -> Any:
    # Registered under a unique name: two files named reward.py must not be one module, and dataclasses and
    # functools look a function's module up by its name.
    name = f"lyceum_user_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError("not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # it may import files beside it; last, so that they do not shadow a library
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def is_async(function: Callable[..., Any]) -> bool:
    """Whether it is an async function, or an object whose ``__call__`` is one."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def accepted(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords that the function accepts: all where it has ``**kwargs``."""
    parameters = _parameters(function)
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return dict(given)
    return {name: value for name, value in given.items() if name in parameters}


def check_parameters(function: Callable[..., Any], given: Mapping[str, Any], *, spec: str, key: str) -> None:
    """Raise RecipeError where the function requires a keyword that it will not get."""
    for name, parameter in _parameters(function).items():
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise RecipeError(f"{key}: {spec!r} takes {name!r} by position only; allowed: parameters with names")
        if parameter.default is parameter.empty and name not in given:
            raise RecipeError(f"{key}: {spec!r} asks for {name!r}{nearest(name, given)}; allowed: {', '.join(given)}")


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(function).parameters


def _attribute(dotted: str) -> Any:
    module, _, name = dotted.partition(":")
    return getattr(importlib.import_module(module), name)


def failed(error: Exception, function: str, task: Task, given: Mapping[str, Any], *, name: str = "") -> Grade:
    """Ungraded, since the function raised: the error, the row, and the line of its file.

    Args:
        function: as the recipe names it.
        given: its keywords.
        name: prefix of the reason, where there are several functions.
    """
    where = error.traceback if isinstance(error, WorkerError) else user_traceback(error)
    keywords = ", ".join(f"{keyword}={quoted(value)}" for keyword, value in given.items())
    row = f"task {task.id}: {function}({keywords})"
    row = row if len(row) <= MAX_ROW else f"{row[: MAX_ROW - 3]}..."
    return Grade.ungraded(f"{name}{': ' if name else ''}{describe(error)}", "\n".join(filter(None, (row, where))))


def abstained(what: str) -> Grade:
    return Grade.ungraded(f"{what} gave None: it does not grade this")

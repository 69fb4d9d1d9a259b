"""A user's own Python function, a verifier or a tool: found by name, run where it can be ended, its results checked.

A function that is not async runs in its own process, so that one that hangs can be ended. An async function runs
in the run's event loop, many calls at once; it must not block, and is cancelled at its time limit.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import Field, field_validator

from lyceum.core.component import Component
from lyceum.core.own_code import split_spec
from lyceum.core.settings import RewardSettings
from lyceum.core.types import Grade, Task
from lyceum.core.user_files import describe
from lyceum.reward.base import code_allowed
from lyceum.reward.function_registry import is_factory, is_passed_in, parameters_of, shown, takes_any
from lyceum.reward.function_worker import CONVENTIONS, load_function
from lyceum.reward.pool import WorkerError, WorkerTimeoutError, shared_pool
from lyceum.utils.errors import LostOutside, RecipeError, nearest
from lyceum.utils.progress import say
from lyceum.utils.terminal import quoted
from lyceum.utils.tracebacks import exit_in_words, user_traceback

KEY = "reward.function"
"""The recipe's key, for messages."""

OPENRLHF = (
    "a function of OpenRLHF's has other names here: completions for queries, answer for labels, and returns a list"
)
INSTEAD = {"queries": OPENRLHF, "labels": OPENRLHF} | dict.fromkeys(
    ("tokenizer", "num_examine", "compute_score"),
    "a reward manager of verl's is not called: name the function that scores, such as FILE.py:compute_score",
)
"""What to write where a function asks for a parameter of another library that is never passed."""

MAX_ROW = 600
"""Maximum characters quoted of a failed call."""


@dataclass(frozen=True)
class UserFunction:
    """The function that a recipe names, loaded.

    Attributes:
        made_with: arguments that it was made with by the factory of that name; None where it is the named one itself.
        further: keywords of every call beside the convention's.
    """

    spec: str
    place: str
    name: str
    function: Callable[..., Any]
    made_with: dict[str, Any] | None
    further: dict[str, Any]


class CodePart(RewardSettings):
    """A reward that runs a Python function named in the recipe, where ``lyceum.reward.base.allow_code`` allows it."""

    may_judge = True
    default_name: ClassVar[str | None] = None
    """Function of a file that is named alone."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """Further keywords of every call (verl's ``reward_kwargs``); of a function that only takes settings and makes the
    reward function (``get_cosine_scaled_reward(max_len=...)``), that function's."""

    timeout_seconds: float = Field(30.0, gt=0)
    """Time limit per call, in seconds; one that takes longer is ungraded."""
    processes: int = Field(1, ge=0, le=64)
    """Processes for a function that is not async. 1 keeps its state in one place; 0 calls it in the run's own process,
    with live objects and without a time limit."""
    correct_at: float | None = None
    """Minimum reward of a correct answer; null where only the function's own verdict counts."""

    @field_validator("arguments")
    @classmethod
    def _go_to_another_process(cls, arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            json.dumps(arguments, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{error}; allowed: numbers, texts, booleans, null, lists and mappings of these; what has others is "
                "made in Python and passed in as the reward"
            ) from None
        return arguments

    def code(self) -> tuple[str, ...]:
        named: str | tuple[str, ...] = getattr(self, "function", ())
        return (named,) if isinstance(named, str) else named

    @property
    def label(self) -> str:
        """The name of its function, where it has one."""
        code = self.code()
        return self.own_name(code[0]) if len(code) == 1 else self.kind

    def own_name(self, spec: str) -> str:
        """The name of a function that the recipe names; of one that was passed in, as it was defined."""
        if is_passed_in(spec):
            return shown(spec)
        return spec.rpartition(":")[2] if ":" in spec else self.default_name or spec

    def found(self, spec: str, given: Mapping[str, Any], *, columns: Collection[str]) -> UserFunction:
        """The function, made by its factory where it is one.

        Args:
            spec: ``path/to/file.py:name`` or ``package.module:name``.
            given: keywords of the convention, for messages.
            columns: of the tasks.
        Raises:
            RecipeError: code is not allowed, there is no such function, or it does not take ``arguments``.
        """
        place, name, function = trusted_function(spec, key=KEY, default_name=self.default_name)
        if isinstance(function, type) and issubclass(function, Component):
            raise RecipeError(
                f"{KEY}: got {spec!r}, a component's class; allowed: a function, or reward={{kind: {spec}}} for the "
                "class"
            )
        spec = shown(spec)
        taken = parameters_of(function)
        unread = [] if takes_any(function) else sorted(set(self.arguments) - set(taken))
        if unread:
            raise RecipeError(
                f"reward.arguments: got {', '.join(unread)}, which {spec!r} does not take{nearest(unread[0], taken)}; "
                f"allowed: {', '.join(taken) or 'none'}"
            )
        if not is_factory(function, columns):
            return UserFunction(spec, place, name, function, None, self.arguments)
        for each, parameter in taken.items():
            if parameter.default is parameter.empty and each not in self.arguments:
                raise RecipeError(
                    f"{KEY}: {spec!r} asks for {each!r}{nearest(each, given)}; allowed: {', '.join(given)}; where it "
                    f"makes the reward function of settings, reward.arguments.{each}=...{_instead(each)}"
                )
        made = _made(function, self.arguments, spec)
        if not taken and not callable(made):
            return UserFunction(spec, place, name, function, None, {})
        return UserFunction(spec, place, name, made, self.arguments, {})

    def caller(self, found: UserFunction, convention: str) -> Callable[[Any], Awaitable[Any]]:
        """An async function that calls the found one with a job and returns its reply.

        Args:
            convention: how it is called, a key of ``CONVENTIONS``.
        """
        call = caller(found, convention, processes=self.processes, timeout_seconds=self.timeout_seconds)
        told = False

        async def call_and_tell(job: Any) -> Any:
            nonlocal told
            try:
                return await call(job)
            except WorkerTimeoutError:
                if not told:  # at once: a function that hangs may cost hours until its step is over
                    told = True
                    say(
                        f"{found.spec} took longer than {self.timeout_seconds:g} s, and what it grades is ungraded; "
                        "reward.timeout_seconds=SECONDS (of several parts: reward.N.timeout_seconds) sets the limit"
                    )
                raise

        return call_and_tell

    def correctness(self, reward: float, said: bool | None) -> bool | None:
        """The function's own verdict, or else whether the reward reaches ``correct_at``."""
        if said is not None or self.correct_at is None:
            return said
        return reward >= self.correct_at


def caller(
    found: UserFunction, convention: str, *, processes: int, timeout_seconds: float, repeatable: bool = True
) -> Callable[[Any], Awaitable[Any]]:
    """An async function that calls the found one with a job and returns its reply.

    Args:
        convention: how it is called, a key of ``CONVENTIONS``.
        processes: for a function that is not async; 0 calls it here, without a time limit.
        timeout_seconds: of each call.
        repeatable: whether a call whose process is ended from outside may be done again.
    Raises:
        WorkerError: by the calls: no result in time, or what would end more than the call. Whatever else the function
            raises comes as it is, from a process as a WorkerError.
        GraderLost: by the calls: their process was ended from outside several times in a row.
    """
    prepare, function = CONVENTIONS[convention], found.function
    if is_async(function):

        async def call_async(job: Any) -> Any:
            arguments, reply = prepare(job)
            limit = asyncio.timeout(timeout_seconds)
            try:
                async with limit:
                    with ending_its_call():
                        return reply(await function(**{**arguments, **found.further}))
            except TimeoutError:
                if not limit.expired():  # the function's own
                    raise
                raise WorkerTimeoutError(f"no result within {timeout_seconds:g} seconds") from None

        return call_async
    if processes == 0:

        async def call_here(job: Any) -> Any:
            arguments, reply = prepare(job)
            with ending_its_call():
                return reply(function(**{**arguments, **found.further}))

        return call_here
    settings = {
        **{"place": found.place, "name": found.name, "convention": convention},
        **{"made_with": found.made_with, "further": found.further},
    }
    limits: dict[str, Any] = {"workers": processes, "timeout_seconds": timeout_seconds, "repeatable": repeatable}
    return shared_pool("lyceum.reward.function_worker:serve", settings, **limits, name=found.spec).run


@contextmanager
def ending_its_call() -> Iterator[None]:
    """Let a function's ``sys.exit``, a cancellation of its own, or an exception that is none of ``Exception``, end its
    call and not the run."""
    try:
        yield
    except SystemExit as error:
        raise WorkerError(exit_in_words(error), user_traceback(error)) from error
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():  # by the run, or the time limit
            raise
        raise WorkerError("it was cancelled, and not by the run", user_traceback(error)) from error
    except (Exception, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        raise WorkerError(describe(error), user_traceback(error)) from error


def _made(factory: Callable[..., Any], arguments: Mapping[str, Any], spec: str) -> Any:
    """What a factory returns: callable, or anything at all where it has no parameters and may be no factory."""
    try:
        made = factory(**arguments)
    except Exception as error:
        if not parameters_of(factory):  # then it is no factory, and every call of it will tell
            return None
        where = (user_traceback(error) or "").splitlines()
        raise RecipeError([f"reward.arguments: {spec!r} raised {describe(error)}", *where]) from error
    if parameters_of(factory) and not callable(made):
        named = ", ".join(parameters_of(factory))
        raise RecipeError(
            f"{KEY}: {spec!r} takes nothing of a completion ({named}) and returned a {type(made).__name__}; allowed: a "
            "function of completions, or one that returns such a function"
        )
    return made


def trusted_function(spec: str, *, key: str, default_name: str | None = None) -> tuple[str, str, Callable[..., Any]]:
    """Place, name and function that a recipe's key names, where its code is allowed to run.

    Raises:
        RecipeError: it is not allowed, or there is no such function.
    """
    if not code_allowed():
        raise RecipeError(
            f"{key}: got {spec!r}, which is Python code to run; allowed: give it on the command line, "
            "or trust_code=true, after a look at what it does"
        )
    place, name = split_spec(spec, key=key, default_name=default_name)
    return place, name, load_function(place, name, key=key)


def _instead(name: str) -> str:
    """What to write, where a parameter of another library tells what was meant; else nothing."""
    return f"; {INSTEAD[name]}" if name in INSTEAD else ""


def is_async(function: Callable[..., Any]) -> bool:
    """Whether it is an async function, or an object whose ``__call__`` is one."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def accepting(function: Callable[..., Any]) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Picks the keywords that the function accepts: all where it has ``**kwargs``.

    To be made once for many calls: reading the parameters of a function takes longer than many a reward.
    """
    if takes_any(function):
        return dict
    taken = frozenset(parameters_of(function))
    return lambda given: {name: value for name, value in given.items() if name in taken}


def accepted(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords that the function accepts."""
    return accepting(function)(given)


def check_parameters(found: UserFunction, given: Mapping[str, Any], *, key: str = KEY) -> None:
    """Raise RecipeError where the function requires a keyword that it will not get."""
    spec, given = found.spec, {**given, **found.further}
    for name, parameter in parameters_of(found.function).items():
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise RecipeError(f"{key}: {spec!r} takes {name!r} by position only; allowed: parameters with names")
        if parameter.default is parameter.empty and name not in given:
            near = nearest(name, given)
            raise RecipeError(f"{key}: {spec!r} asks for {name!r}{near}; allowed: {', '.join(given)}{_instead(name)}")


def failed(error: Exception, function: str, task: Task, given: Mapping[str, Any], *, prefix: str = "") -> Grade:
    """Ungraded, as the function raised: the error, the row, the line of its file. ``LostOutside`` is raised as it is.

    Args:
        function: as the recipe names it.
        given: its keywords.
        prefix: of the reason, where there are several functions.
    """
    if isinstance(error, LostOutside):
        raise error
    where = error.traceback if isinstance(error, WorkerError) else user_traceback(error)
    keywords = ", ".join(f"{keyword}={quoted(value)}" for keyword, value in given.items())
    row = f"task {task.id}: {shown(function)}({keywords})"
    row = row if len(row) <= MAX_ROW else f"{row[: MAX_ROW - 3]}..."
    return Grade.ungraded(f"{prefix}{describe(error)}", "\n".join(filter(None, (row, where))))


def abstained(function: str) -> Grade:
    return Grade.ungraded(f"{shown(function)} gave None: it does not grade this")

"""Errors in a user's file (a template, a tokenizer, a dataset, a model, a damaged run) reported in one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lyceum.utils.errors import RecipeError, RunError
from lyceum.utils.terminal import printable

LONGEST = 300
"""Maximum characters of an exception's own message that a line repeats."""


@contextmanager
def user_file(key: str, path: object, advice: str) -> Iterator[None]:
    """Report whatever is raised inside as an error in this file: ``key: path: what was raised; advice``.

    Only for code whose one input is the file: lyceum's own bugs must not be reported as a user's mistake. The
    exception is kept as the cause.

    Args:
        key: of the recipe or the command line, for instance ``model.chat_template``.
        path: the file, folder or name, as the user gave it.
        advice: what to do about it.
    Raises:
        RecipeError: instead of any exception except those that end a program; a RecipeError passes unchanged.
    """
    try:
        yield
    except RecipeError:
        raise
    except Exception as error:
        raise RecipeError(f"{key}: {printable(str(path))}: {describe(error)}; {advice}") from error


def describe(error: BaseException) -> str:
    """``ValueError: message`` on one line, printable, of bounded length: an error may quote a whole file or completion.

    A RunError's message is given without its type: a WorkerError names what was raised in the worker.
    """
    message = str(error) if isinstance(error, RunError) else f"{type(error).__name__}: {error}"
    text = printable(" ".join(message.split()))
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."

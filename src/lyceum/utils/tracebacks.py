"""The user's part of a traceback: where their function failed, without the frames that called it.

Only the standard library: a verifier's process imports it before anything else.
"""

from __future__ import annotations

import contextlib
import importlib
import traceback
from pathlib import Path

_PACKAGE = str(Path(__file__).parents[1])
_MACHINERY = ("<frozen importlib", importlib.__file__, contextlib.__file__)
_LONGEST_LINE = 300
_MOST_LINES = 40


def user_traceback(error: BaseException) -> str | None:
    """The traceback from the first frame outside lyceum on, of bounded length; None where there is no such frame.

    Chained exceptions are included likewise, as Python does.
    """
    whole = traceback.TracebackException.from_exception(error)
    seen: traceback.TracebackException | None = whole
    while seen is not None:
        first = next((i for i, frame in enumerate(seen.stack) if not _is_callers(frame.filename)), len(seen.stack))
        own = [frame for frame in seen.stack[first:] if not frame.filename.startswith(_MACHINERY)]
        seen.stack = traceback.StackSummary.from_list(own)
        seen = seen.__cause__ or seen.__context__
    if not whole.stack and not isinstance(error, SyntaxError):  # which names its file and line itself
        return None
    lines = [line[:_LONGEST_LINE] for line in "".join(whole.format()).splitlines()]
    if len(lines) > _MOST_LINES:
        lines = [*lines[: _MOST_LINES // 2], "  ...", *lines[-_MOST_LINES // 2 :]]
    return "\n".join(lines)


def exit_in_words(error: SystemExit) -> str:
    """That a user's function called ``sys.exit``, of bounded length."""
    return f"it called sys.exit({'' if error.code is None else error.code!r})"[:2000]


def _is_callers(filename: str) -> bool:
    return filename.startswith((_PACKAGE, *_MACHINERY))


def frames(details: str) -> tuple[str, ...]:
    """The lines of a text with a traceback that name a file and a line: where it was raised, whatever the values."""
    return tuple(line.strip() for line in details.splitlines() if line.startswith('  File "'))

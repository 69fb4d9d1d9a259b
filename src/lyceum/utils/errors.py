"""Errors that end a command and are not bugs of the program. Imports nothing heavy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import ClassVar

LONGEST_LINE = 2000
"""Maximum characters of a line of an error message; longer ones are shortened in the middle."""


class RunError(RuntimeError):
    """Something went wrong while a command ran; its lines say what, and a traceback would add nothing."""

    exit_code: ClassVar[int] = 1

    def __init__(self, lines: str | Iterable[str]) -> None:
        self.lines = [lines] if isinstance(lines, str) else list(lines)
        super().__init__("\n".join(self.lines))


class RecipeError(ValueError):
    """A recipe or an input that cannot be used. Each line names the key, what was given, what is allowed."""

    def __init__(self, lines: str | Iterable[str]) -> None:
        self.lines = [_of_bounded_length(line) for line in ([lines] if isinstance(lines, str) else lines)]
        super().__init__("\n".join(self.lines))


def _of_bounded_length(line: str) -> str:
    """The beginning of a long line names the key, its end says what is allowed: both are kept."""
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE // 2]} ... {line[-LONGEST_LINE // 4 :]}"


def nearest(given: str, allowed: Iterable[str]) -> str:
    """`` (did you mean 'x'?)``, or nothing when no allowed word is close."""
    if len(str(given)) > 100:  # not a typo, and slow to compare
        return ""
    close = difflib.get_close_matches(str(given), list(allowed), n=3, cutoff=0.6)
    # Swapped letters are the likelier typo: 'gpro' is 'grpo', though 'gspo' is as near.
    close.sort(key=lambda word: sorted(word) != sorted(str(given)))
    return f" (did you mean {close[0]!r}?)" if close else ""


class Diverged(RunError):
    """A run has diverged: weights, logits, losses or advantages are not finite."""


class NothingGraded(RunError):
    """No trajectory could be graded in several steps in a row, or in an evaluation.

    Its lines say why, and then where the first failure came from.
    """

    exit_code = 3


class Interrupted(Exception):
    """The user asked to stop; what was trained is in a checkpoint."""

    def __init__(self, step: int) -> None:
        super().__init__(f"stopped at step {step}")
        self.step = step

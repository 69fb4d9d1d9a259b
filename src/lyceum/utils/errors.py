"""Errors that end a command and are not bugs of the program, and its exit codes. Imports nothing heavy."""

from __future__ import annotations

import difflib
import re
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import ClassVar

# Exit codes of the commands; 0: done.
FAILED = 1
"""It failed while running."""
UNUSABLE = 2
"""The command or its input is invalid; nothing was loaded or overwritten."""
NOTHING_LEARNT = 3
"""Nothing was learnt, or nothing could be graded."""
STOPPED = 130
"""Stopped by Ctrl-C."""

LONGEST_LINE = 2000
"""Maximum characters of a line of an error message; longer ones are shortened in the middle."""


class RunError(RuntimeError):
    """Something went wrong while a command ran; its lines say what, and a traceback would add nothing."""

    exit_code: ClassVar[int] = 1

    def __init__(self, lines: str | Iterable[str]) -> None:
        self.lines = [lines] if isinstance(lines, str) else list(lines)
        super().__init__("\n".join(self.lines))

    def _render_traceback_(self) -> list[str]:
        return shown_in_a_notebook(self, self.lines)


class RecipeError(ValueError):
    """A recipe or an input that cannot be used. Each line names the key, what was given, what is allowed."""

    def __init__(self, lines: str | Iterable[str]) -> None:
        self.lines = [bounded(line) for line in ([lines] if isinstance(lines, str) else lines)]
        super().__init__("\n".join(self.lines))

    def _render_traceback_(self) -> list[str]:
        return shown_in_a_notebook(self, self.lines)


@contextmanager
def errors_name(place: str, key: str) -> Iterator[None]:
    """Let errors inside name the key under which settings stand, where they name the key that such settings have
    elsewhere: ``teacher.path`` for ``model.path``."""
    try:
        yield
    except RecipeError as error:
        raise RecipeError([renamed(line, key, place) for line in error.lines]) from error


def renamed(line: str, key: str, place: str) -> str:
    """A line of an error about what stands under ``key``, about what stands under ``place``."""
    return re.sub(rf"^{key}(?=[.:])|(?<![\w.]){key}(?=\.\w)", place, line)


def shown_in_a_notebook(error: Exception, lines: Iterable[str]) -> list[str]:
    """What IPython shows instead of a traceback, as the command line does: the lines say what to do."""
    return [f"{type(error).__name__}: {line}" for line in lines]


def bounded(line: str) -> str:
    """The beginning of a long line names the key, its end says what is allowed: both are kept."""
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE // 2]} ... {line[-LONGEST_LINE // 3 :]}"


MEANT = {
    "accuracy": ("math", "task"),
    "adam": ("local",),
    "adamw": ("local",),
    "bf16": ("bfloat16",),
    "cuda:0": ("cuda",),
    "dapo": ("group", "ppo-clip"),
    "dr-grpo": ("group", "ppo-clip"),
    "dr_grpo": ("group", "ppo-clip"),
    "fp16": ("float16",),
    "fp32": ("float32",),
    "gpu": ("cuda",),
    "group_norm": ("group",),
    "grpo": ("group", "ppo-clip"),
    "half": ("float16",),
    "hf": ("embedded",),
    "kl": ("k1",),
    "loo": ("leave-one-out",),
    "low_var_kl": ("k3",),
    "mse": ("k2",),
    "ppo": ("ppo-clip",),
    "r": ("rank",),
    "random": ("uniform",),
    "reinforce++": ("reinforce-plus-plus",),
    "reinforce_plus_plus": ("reinforce-plus-plus",),
    "rloo": ("leave-one-out",),
    "seq-mean-token-mean": ("sequence",),
    "seq-mean-token-sum": ("constant",),
    "seq-mean-token-sum-norm": ("constant",),
    "steps": ("every",),
    "token-mean": ("token",),
    "transformers": ("embedded",),
}
"""Words by which some things are called elsewhere, of which the nearest word here is another thing."""


def nearest(given: str, allowed: Iterable[str]) -> str:
    """`` (did you mean 'x'?)``, or nothing when no allowed word is close."""
    found = closest(given, allowed)
    return "" if found is None else f" (did you mean {found!r}?)"


def closest(given: str, allowed: Iterable[str]) -> str | None:
    """The allowed word that was meant, most likely; None when no one is close."""
    return next(iter(close(given, allowed)), None)


def close(given: str, allowed: Iterable[str]) -> list[str]:
    """The allowed words that may have been meant, the likeliest first, at most ten."""
    if len(str(given)) > 100:  # not a typo, and slow to compare
        return []
    words = {word.lower(): word for word in reversed(list(allowed))}
    wanted = str(given).lower()
    if meant := [word for word in MEANT.get(wanted, ()) if word in words]:
        return [words[meant[0]]]
    near = difflib.get_close_matches(wanted, words, n=10, cutoff=0.6)

    def unlikely(word: str) -> tuple[bool, bool, float]:
        # Swapped letters are the likelier typo: 'gpro' is 'grpo', though 'gspo' is as near; a first letter seldom is.
        near = difflib.SequenceMatcher(None, word, wanted).ratio()
        return sorted(word) != sorted(wanted), word[:1] != wanted[:1], -near

    return [words[word] for word in sorted(near, key=unlikely)]


def how_it_ended(code: int) -> str:
    """A process's return code in words; below 0 it is the signal's number."""
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


class Diverged(RunError):
    """A run has diverged: weights, logits, losses or advantages are not finite."""


class LostOutside(RunError):
    """What the run needs outside its own process is lost.

    Nothing was taken for an answer or a grade: the step in which it happened is done again when the run resumes.
    """


class ServersLost(LostOutside):
    """No server that samples has answered as it should, for as long as the recipe waits; the lines name each."""


class EncoderLost(LostOutside):
    """The process that encodes an engine's pictures has ended, failed or passed its time limit; its lines say how."""


KILLED_IN_A_ROW = 3
"""Processes, or sandboxes, that may be ended from outside at one job of a grader; then the run ends."""


class GraderLost(LostOutside):
    """A process that grades was ended from outside several times in a row at the same job; its lines say how."""


class NothingGraded(RunError):
    """No trajectory could be graded in several steps in a row, or in an evaluation.

    Its lines say why, and then where the first failure came from.
    """

    exit_code = 3


class NothingLearnt(RunError):
    """No reward has differed within any group in many steps from the first on; a checkpoint holds what there is."""

    exit_code = 3


class NothingLearntWarning(UserWarning):
    """A run from Python is done and has learnt nothing; the command line has an exit code for it."""


class Interrupted(Exception):
    """The user asked to stop; what was trained is in a checkpoint.

    Attributes:
        advice: what can be done from Python now. Not notes of the error: those say what was undone.
    """

    def __init__(self, step: int) -> None:
        super().__init__(f"stopped at step {step}")
        self.step = step
        self.advice: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "; ".join([super().__str__(), *self.advice])

    def _render_traceback_(self) -> list[str]:
        return shown_in_a_notebook(self, ["; ".join([str(self), *getattr(self, "__notes__", ())])])

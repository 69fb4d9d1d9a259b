"""Suppresses, in one place, what other libraries would print over the progress display."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from lyceum.utils.terminal import printable

log = logging.getLogger(__name__)

LONGEST_WARNING = 1000
"""Maximum characters of a repeated transformers warning."""
_DECORATION = re.compile(r"\x1b\[[0-9;]*m|[-+]{3,}")
"""Colours, and the lines of its tables."""


@contextmanager
def quiet() -> Iterator[None]:
    """Without transformers' progress bars and advice; its settings are restored afterwards, for notebooks.

    Its errors stay, and so do its warnings while a model is loaded (``told_once``). Lyceum's own errors and warnings do
    not pass through here.
    """
    # tokenizers warns about it in every process that forks after it was used.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


@contextmanager
def told_once(place: str) -> Iterator[None]:
    """Transformers' warnings inside (a weight, a token or a setting that it changed) become lyceum's own, each once per
    process: a model is read when a recipe is checked, and again when it is loaded.

    Args:
        place: prefix of the lines: the key and its value.
    """
    from transformers.utils import logging as of_transformers

    root = of_transformers.get_logger()
    heard = _Heard()
    level, handlers, propagate = root.level, root.handlers, root.propagate
    root.handlers, root.propagate = [heard], False  # it propagates where the environment has CI=1
    root.setLevel(logging.WARNING)
    # lyceum itself reports weights that do not fit, from what transformers returns; where it raises, its report is all.
    left_out = "LOAD REPORT"
    try:
        yield
    except Exception:
        left_out = None
        raise
    finally:
        root.setLevel(level)
        root.handlers, root.propagate = handlers, propagate
        for message in heard.messages:
            if left_out is None or left_out not in message:
                tell_once(f"{place}: transformers: {message[:LONGEST_WARNING]}")


class _Heard(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(printable(" ".join(_DECORATION.sub("", record.getMessage()).split())))


@cache
def tell_once(line: str) -> None:
    """Log a warning only the first time in a process."""
    log.warning("%s", line)

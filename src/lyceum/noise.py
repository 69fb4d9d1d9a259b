"""What other libraries would write across the display while something runs: held back in one place."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet() -> Iterator[None]:
    """Without transformers' progress bars and advice, and put back afterwards: a notebook's settings are its own.

    Its errors stay. What lyceum itself refuses or warns of does not pass through here.
    """
    # Asked for by tokenizers in every process that forks after it was used.
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

"""Keeping Python's garbage collector away from what stays."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def only_new() -> Iterator[None]:
    """Let the collector look only at what is made in here, until it ends.

    Trees are many small objects in cycles, for which it walks everything that it knows again and again; with torch and
    transformers loaded (400,000 objects) that takes some tenths of a second each time, as long as a step of a small
    model.
    """
    gc.collect()  # what is garbage already would stay to the end
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()

"""Keeping Python's garbage collector away from long-lived objects."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_inside = False
"""Whether such a context is open: to count what is frozen walks through it all."""


@contextmanager
def only_new() -> Iterator[None]:
    """Restrict the collector to objects made inside this context.

    Trees are many small objects in cycles, for which it walks all tracked objects again and again; with torch and
    transformers loaded (400,000 objects) that takes some tenths of a second each time, as long as a step of a small
    model. Within another such context it does nothing.
    """
    global _inside
    if _inside or gc.get_freeze_count():
        yield
        return
    gc.collect()  # existing garbage would otherwise stay until the end
    gc.freeze()
    _inside = True
    try:
        yield
    finally:
        _inside = False
        gc.unfreeze()

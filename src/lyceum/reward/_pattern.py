"""The worker side of the reward ``format``; imports little, so that workers start quickly."""

from __future__ import annotations

import re
from collections.abc import Callable


def matcher(pattern: str) -> Callable[[str], bool]:
    """In a worker: the job function, whether a whole completion matches."""
    compiled = re.compile(pattern, re.DOTALL)
    return lambda text: compiled.fullmatch(text) is not None

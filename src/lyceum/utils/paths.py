"""Paths as users write them."""

from __future__ import annotations

import os
from pathlib import Path


def local_path(path: str | os.PathLike[str]) -> Path:
    """A path with ``~`` expanded; unchanged where there is no such home, for which ``Path.expanduser`` raises."""
    return Path(os.path.expanduser(path))

"""A run that another one is to replace stays whole in its folder until the new one is worth keeping.

How far a replacement has come is said by the one of these that stands in the run's folder::

    .replacing/   entries move into it, or back out of it; there is nothing of the new run
    .replaced/    the old run, whole; what stands beside it is the new run's
    .discarded/   the old run, not needed any more

One rename leads from each to the next, so that a kill at any moment leaves what :func:`put_back` or :func:`discard`
can finish. The caller holds the folder's lock.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from lyceum.utils.atomic_files import fsync_folder, remove

MOVING, KEPT, GONE = ".replacing", ".replaced", ".discarded"


def is_set_aside(folder: Path) -> bool:
    """Whether a run waits here to be replaced or put back."""
    return any((folder / name).is_dir() for name in (MOVING, KEPT))


def set_aside(folder: Path, names: Iterable[str]) -> None:
    """Move these entries of the folder, those that there are, out of the new run's way."""
    moving = folder / MOVING
    moving.mkdir()
    for name in names:
        if os.path.lexists(folder / name):
            (folder / name).rename(moving / name)
    moving.rename(folder / KEPT)
    fsync_folder(folder)


def put_back(folder: Path, names: Iterable[str]) -> None:
    """Have the old run again; these entries of the folder are the new one's and go. Nothing where none is set aside."""
    kept, moving = folder / KEPT, folder / MOVING
    if kept.is_dir():
        for name in names:
            remove(folder / name)
        kept.rename(moving)
    if moving.is_dir():
        for entry in list(moving.iterdir()):
            entry.rename(folder / entry.name)
        moving.rmdir()
        fsync_folder(folder)


def discard(folder: Path) -> None:
    """The old run is not needed any more. Nothing where none is set aside."""
    kept, gone = folder / KEPT, folder / GONE
    if kept.is_dir():
        shutil.rmtree(gone, ignore_errors=True)
        kept.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)  # what cannot be removed now is tried again when a run is next begun here

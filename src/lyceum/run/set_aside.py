"""A run that is being replaced is kept in its folder until the new one is worth keeping.

The state of a replacement is given by which of these exists in the run's folder::

    .replacing/   entries move into it, or back out of it; there is nothing of the new run
    .replaced/    the old run, complete; what is beside it is the new run's
    .discarded/   the old run, no longer needed

One rename leads from each state to the next, so that :func:`put_back` or :func:`discard` can finish after a kill at
any moment. The caller holds the folder's lock.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from lyceum.utils.atomic_files import fsync_folder, remove

MOVING, KEPT, GONE = ".replacing", ".replaced", ".discarded"


def is_set_aside(folder: Path) -> bool:
    """Whether a run is set aside here, to be replaced or put back."""
    return any((folder / name).is_dir() for name in (MOVING, KEPT))


def set_aside(folder: Path, names: Iterable[str]) -> None:
    """Move those of these entries that exist in the folder out of the new run's way."""
    moving = folder / MOVING
    moving.mkdir()
    for name in names:
        if os.path.lexists(folder / name):
            (folder / name).rename(moving / name)
    moving.rename(folder / KEPT)
    fsync_folder(folder)


def put_back(folder: Path, names: Iterable[str]) -> None:
    """Restore the old run and remove these entries, the new run's. Does nothing where none is set aside."""
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
    """Remove the old run. Does nothing where none is set aside."""
    kept, gone = folder / KEPT, folder / GONE
    if kept.is_dir():
        shutil.rmtree(gone, ignore_errors=True)
        kept.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)  # what cannot be removed now is tried again when the next run begins here

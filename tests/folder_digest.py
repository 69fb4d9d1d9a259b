"""What a folder holds, to the byte: for tests that say that nothing was changed, or that two folders are the same."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def digest(folder: Path | str, *, without: tuple[str, ...] = ()) -> dict[str, str]:
    """Path below the folder -> what stands there: ``folder``, ``-> target`` of a link, ``unreadable``, or a
    file's SHA-256.

    Args:
        without: names, of files or folders, that are left out with all that is in them.
    Returns:
        An empty mapping where there is no folder; one that is there has the entry ``.``.
    """
    folder = Path(folder)
    found = {".": "folder"} if folder.is_dir() else dict[str, str]()
    for above, folders, files in os.walk(folder):
        folders[:] = sorted(set(folders) - set(without))
        for name in sorted({*folders, *files} - set(without)):
            path = Path(above) / name
            key = path.relative_to(folder).as_posix()
            if path.is_symlink():
                found[key] = f"-> {os.readlink(path)}"
            else:
                found[key] = "folder" if path.is_dir() else _digest_of_file(path)
    return found


def _digest_of_file(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if os.access(path, os.R_OK) else "unreadable"

"""What a run reads from files of the user's (rows, rewards, tools, models): a resumed run says what changed."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from lyceum.run.outputs import input_paths
from lyceum.utils.paths import local_path

WHOLE = 64 << 20
"""Bytes up to which a file is read whole: a tenth of a second. Of a larger one, so many are read, in pieces."""
PIECE = 1 << 20
MOST_FILES = 1000
"""Maximum files of a folder that are looked at."""


def checksums(settings: Any) -> dict[str, str]:
    """Key of the recipe -> checksum of what it names on the local disk: a file's bytes, or those of a folder's files.

    Of a file larger than ``WHOLE`` its size and evenly spaced pieces count, the first and the last among them. What
    cannot be read has none: whoever needs it says so.
    """
    found: dict[str, str] = {}
    for key, path in input_paths(settings).items():
        try:
            found[key] = _checksum(local_path(path))
        except OSError:
            continue
    return found


def changed(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Keys whose files are others than before; those of which nothing is known are left out."""
    return [key for key, checksum in now.items() if before.get(key, checksum) != checksum]


def _checksum(path: Path) -> str:
    digest = hashlib.sha256()
    if not path.is_dir():
        _read(path, digest, WHOLE)
    else:
        files = list(islice(_files(path), MOST_FILES))
        for file in files:
            digest.update(os.fsencode(file.relative_to(path)) + b"\0")
            _read(file, digest, max(PIECE, WHOLE // len(files)))
    return digest.hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    for above, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__pycache__")))
        yield from (Path(above) / name for name in sorted(files) if not name.startswith("."))


def _read(path: Path, digest: Any, most: int) -> None:
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):  # a pipe or a device would be read without end
        return
    size, pieces = found.st_size, max(2, most // PIECE)
    digest.update(str(size).encode() + b"\0")
    with path.open("rb") as file:
        if size <= most:
            while piece := file.read(PIECE):
                digest.update(piece)
            return
        for number in range(pieces):
            file.seek((size - PIECE) * number // (pieces - 1))
            digest.update(file.read(PIECE))

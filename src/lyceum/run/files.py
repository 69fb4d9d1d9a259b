"""Files of the user's that a run reads and writes.

Output paths are refused before any work where they cannot be written, or would destroy existing files; of what is read
(rows, rewards, tools, models), a resumed run says what changed.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from glob import glob
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from lyceum.core.own_components import own_file
from lyceum.run.reader import FILES, is_run
from lyceum.utils.errors import RecipeError
from lyceum.utils.paths import local_path
from lyceum.utils.terminal import quoted

NAME_BYTES = 200
"""Maximum bytes of a file or folder name: file systems allow 255, and a file is first written under a longer name."""

_PATHS = ("path", "heldout_path", "chat_template", "function")
"""Keys of recipes and of their components that name input files."""


WHOLE = 64 << 20
"""Bytes up to which a file is read whole: a tenth of a second. Of a larger one, so many are read, in pieces."""
PIECE = 1 << 20
MOST_FILES = 1000
"""Maximum files of a folder that are looked at."""


def check_output(
    key: str, path: Path | str, *, folder: bool = False, inputs: Mapping[str, str | Path] | None = None
) -> Path:
    """Refuse a path that must not be written to; returns it as a Path.

    Existing files are compared by identity, not by name: links of either kind, and ``./`` or ``..`` in a path, are
    refused alike.

    Args:
        key: key of the recipe or the command line, for the message.
        path: a file that will be written, or with ``folder`` a folder; folders above it may be missing.
        inputs: what the command reads, as :func:`input_paths` gives it.
    Raises:
        RecipeError: it cannot be written, is part of a run, or is an input, is inside one, or (a folder) contains one.
    """
    try:
        place = Path(path)
        there = _stat(place)
        resolved = place.resolve()
    except (OSError, ValueError, RuntimeError) as error:  # a NUL, a path that is too long, a loop of links
        raise RecipeError(
            f"{key}: got {quoted(str(path))}, which is not a valid path ({error}); allowed: another one"
        ) from error
    allowed = "allowed: another folder" if folder else "allowed: another file"
    if any(len(os.fsencode(part)) > NAME_BYTES for part in place.parts):
        raise RecipeError(f"{key}: got {quoted(str(path))}; allowed: names of at most {NAME_BYTES} bytes")
    _check_writable(key, place, there, folder=folder)
    for above in resolved.parents:
        if is_run(above) and resolved.relative_to(above).parts[0] in FILES:
            raise RecipeError(f"{key}: got {str(path)!r}, which is part of the run in {above}; {allowed}")
    for name, given in (inputs or {}).items():
        read = local_path(given)
        if (found := _stat(read)) is None:
            continue
        if there is not None and os.path.samestat(there, found):
            raise RecipeError(f"{key}: got {str(path)!r}, which {name} is read from; {allowed}")
        if stat.S_ISDIR(found.st_mode) and _lies_in(resolved, found):
            raise RecipeError(f"{key}: got {str(path)!r}, which lies in {read}, where {name} is read from; {allowed}")
        if folder and there is not None and _lies_in(read.resolve(), there):
            raise RecipeError(f"{key}: got {str(path)!r}, which holds {read}, where {name} is read from; {allowed}")
    return place


def input_paths(settings: Any, key: str = "") -> dict[str, str]:
    """Key -> path of everything on the local disk that settings (a recipe, a component, a list of them) name."""
    return {key: path for key, path in _named(settings, key) if path and _stat(local_path(path)) is not None}


def _named(settings: Any, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(settings, BaseModel):
        if own := own_file(type(settings)):
            yield f"{key}.kind".lstrip("."), own
        for name in type(settings).model_fields:
            below, value = f"{key}.{name}".lstrip("."), getattr(settings, name)
            if name == "functions" and isinstance(value, tuple):
                yield from ((below, str(function).rpartition(":")[0]) for function in value)
            if name in _PATHS and isinstance(value, str):
                path = value.rpartition(":")[0] if name == "function" else value
                yield below, path
                if path and _stat(local_path(path)) is None:  # it may be a pattern of several files
                    for found in glob(os.path.expanduser(path)):
                        yield f"{below} ({Path(found).name})", found
            else:
                yield from _named(value, below)
    elif isinstance(settings, (list, tuple)):
        for number, item in enumerate(settings):
            yield from _named(item, f"{key}.{number}" if len(settings) > 1 else key)


def _check_writable(key: str, place: Path, there: os.stat_result | None, *, folder: bool) -> None:
    above = next((parent for parent in place.absolute().parents if _stat(parent) is not None), place)
    if there is None:
        reason = _not_to_write(above, must_be_folder=True)
    elif folder and not stat.S_ISDIR(there.st_mode):
        raise RecipeError(f"{key}: {place} is a file; allowed: a folder, or a new name")
    elif folder:
        reason = _not_to_write(place, must_be_folder=True)
    elif stat.S_ISDIR(there.st_mode):
        raise RecipeError(f"{key}: got {str(place)!r}, but {place} is a folder; allowed: a file to write")
    elif not stat.S_ISREG(there.st_mode):
        raise RecipeError(f"{key}: got {str(place)!r}, which is not a regular file; allowed: a file to write")
    else:
        reason = _not_to_write(above, must_be_folder=True) or _not_to_write(place, must_be_folder=False)
    if reason is None:
        return
    if folder:
        raise RecipeError(f"{key}: {place} cannot be made ({os.strerror(reason)}); allowed: another folder")
    said = f"{above} is a file" if reason == errno.ENOTDIR else f"it cannot be written ({os.strerror(reason)})"
    raise RecipeError(f"{key}: got {str(place)!r}, but {said}; allowed: a file to write")


def _not_to_write(path: Path, *, must_be_folder: bool) -> int | None:
    if must_be_folder and not path.is_dir():
        return errno.ENOTDIR
    return None if os.access(path, os.W_OK | (os.X_OK if must_be_folder else 0)) else errno.EACCES


def _stat(path: Path) -> os.stat_result | None:
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:  # links in a circle lead nowhere
            return None
        raise


def _lies_in(path: Path, folder: os.stat_result) -> bool:
    """Whether a path is inside a folder."""
    return any(found is not None and os.path.samestat(found, folder) for found in map(_stat, path.parents))


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

"""Files that are written whole or not at all."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

FULL = (errno.ENOSPC, errno.EDQUOT)
"""Error codes of a full disk or an exceeded user quota."""


DAMAGED = ".damaged"
"""Suffix of a damaged file that is kept after another one has taken its place."""


def fsync_folder(path: Path) -> None:
    """Make names that were created, renamed or removed in a folder survive a power cut."""
    if sys.platform == "win32":
        return  # a folder cannot be opened there; NTFS journals its names
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_file(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Write a new file and, where ``durable``, wait until the disk has it."""
    with open(path, "xb") as file:
        file.write(content)
        if durable:
            file.flush()
            os.fsync(file.fileno())


def atomic_write(path: Path | str, content: bytes | str, *, durable: bool = True) -> None:
    """Replace a file's content atomically: a reader, also after a kill, sees the old content or the new.

    Args:
        path: file to write; its folder must exist.
        content: text is written as UTF-8.
        durable: wait for the disk, so that it survives a power cut too. Without, it only survives a kill.
    Raises:
        OSError: it could not be written; the old content is kept and no temporary file is left.
    """
    with atomic_path(Path(path), durable=durable) as partial:
        write_file(partial, content.encode() if isinstance(content, str) else content, durable=False)


@contextmanager
def atomic_path(path: Path, *, durable: bool = True) -> Iterator[Path]:
    """A path to write piece by piece inside the context, which then replaces ``path`` atomically.

    Args:
        path, durable: as :func:`atomic_write`.
    Raises:
        OSError: as :func:`atomic_write`.
    """
    partial = path.with_name(f".partial-{os.getpid()}-{path.name}")
    try:
        partial.unlink(missing_ok=True)  # left by a killed process with the same pid
        yield partial
        if durable:
            with partial.open("rb") as written:
                os.fsync(written.fileno())
        os.replace(partial, path)
        if durable:
            fsync_folder(path.parent)
    except BaseException as error:
        partial.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno in FULL and error.filename is None:
            raise OSError(error.errno, full_disk(path.parent), str(path)) from error
        raise


@contextmanager
def atomic_lines(path: Path | None) -> Iterator[Callable[[str], None]]:
    """Write a file line by line, which takes its place when all are written; on an exception the old one is kept.

    Args:
        path: None writes nothing.
    """
    if path is None:
        yield lambda line: None
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(path)
    with atomic_path(path) as partial, partial.open("x", encoding="utf-8") as file:
        yield lambda line: print(line, file=file)


def _remove_leftovers(path: Path) -> None:
    """Remove what processes left that were killed while they wrote this file."""
    name = re.compile(rf"\.partial-(\d+)-{re.escape(path.name)}")
    for entry in path.parent.iterdir():
        if (found := name.fullmatch(entry.name)) and not _is_alive(int(found[1])):
            entry.unlink(missing_ok=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # another user's
        return True
    return True


def replace_folder(new: Path, place: Path) -> None:
    """Move a complete folder to a place, where a folder may be, which is then removed.

    At any moment, killed or not, the place has the old folder or the new one whole. Where the system cannot exchange
    two folders at once, it has neither for a moment, in which the old one is beside it as ``NAME.previous``.
    """
    aside = place.with_name(f"{place.name}.previous")
    if not place.is_dir():
        new.rename(place)
    elif _exchanged(new, place):
        aside = new
    else:
        shutil.rmtree(aside, ignore_errors=True)
        place.rename(aside)
        new.rename(place)
    shutil.rmtree(aside, ignore_errors=True)


def _exchanged(one: Path, other: Path) -> bool:
    """Exchange two folders in one step; False where this system, or this file system, cannot."""
    if sys.platform not in ("linux", "darwin"):
        return False
    c, paths = ctypes.CDLL(None, use_errno=True), (os.fsencode(one), os.fsencode(other))
    here, exchange = -100, 2  # AT_FDCWD; RENAME_EXCHANGE, on macOS RENAME_SWAP
    try:
        if sys.platform == "darwin":
            return c.renamex_np(*paths, exchange) == 0
        return c.renameat2(here, paths[0], here, paths[1], exchange) == 0
    except AttributeError:  # a C library of before 2018, or another one
        return False


def remove(path: Path) -> None:
    """Remove a file, a link or a whole folder; does nothing where there is none."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def full_disk(folder: Path, needed: int | None = None) -> str:
    """What is told of a full disk.

    Args:
        needed: bytes that were to be written, where that is known.
    """
    needs = "" if needed is None else f", {size(needed)} needed"
    return f"no space left on the disk ({size(shutil.disk_usage(folder).free)} free{needs})"


def size(count: int) -> str:
    """Human-readable bytes, ``1.5 GB``, in powers of ten as for disks."""
    if count < 1000:
        return f"{count} B"
    value = float(count)
    for unit in ("kB", "MB", "GB"):
        value /= 1000
        if value < 999.95:
            return f"{value:.1f} {unit}"
    return f"{value / 1000:.1f} TB"


class Lock:
    """Marks a folder as being written by this process, until it is released or the process ends, killed or not.

    A record lock and not ``flock``: children of a fork do not hold it, so that a verifier's process that outlives a
    killed run does not keep the run from being resumed. Advisory: it only binds processes that check it.
    """

    _held: ClassVar[set[Path]] = set()  # a process never conflicts with its own record locks

    def __init__(self, file: Path) -> None:
        """Raises BlockingIOError, its ``filename`` the process that holds the lock, where another one does."""
        self.file = file.resolve()
        if self.file in self._held:
            raise BlockingIOError(errno.EAGAIN, "locked", str(os.getpid()))
        self._descriptor = self._locked()
        while not self._in_place():  # removed by its last holder between our opening and our locking
            os.close(self._descriptor)
            self._descriptor = self._locked()
        self._held.add(self.file)
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def _locked(self) -> int:
        descriptor = os.open(self.file, os.O_RDWR | os.O_CREAT, 0o644)
        if sys.platform != "win32":
            import fcntl

            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                holder = os.read(descriptor, 32).decode("ascii", "replace").strip()
                os.close(descriptor)
                if error.errno in (errno.EACCES, errno.EAGAIN):
                    raise BlockingIOError(errno.EAGAIN, "locked", holder or "unknown") from error
                raise
        return descriptor

    def _in_place(self) -> bool:
        """Whether the locked file still has that name: a lock on a removed file has no effect."""
        try:
            return os.path.samestat(os.fstat(self._descriptor), os.stat(self.file))
        except FileNotFoundError:
            return False

    def release(self) -> None:
        if self.file in self._held:
            self._held.discard(self.file)
            os.ftruncate(self._descriptor, 0)  # as before: a command that changed nothing leaves the same bytes
            os.close(self._descriptor)

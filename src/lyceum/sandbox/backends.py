"""What confines a program's processes, from the strongest: bubblewrap, util-linux namespaces, Landlock alone.

Inside each, ``inside`` gives up capabilities, sets limits, and installs Landlock (where the kernel has it) and a
filter of system calls. A backend is used once its self-test has shown that a program in it is confined.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Backend = Literal["bubblewrap", "unshare", "landlock", "none"]
CONFINING: tuple[Backend, ...] = ("bubblewrap", "unshare", "landlock")
"""In the order in which they are tried."""

_HERE = str(Path(__file__).resolve().parent)
_MOUNT_POINTS = ("/mnt", "/media", "/srv", "/tmp", "/var/tmp")


@dataclass(frozen=True)
class Start:
    """How one sandbox is started.

    Attributes:
        command: without what ``inside`` is told.
        settings: what it is told by the backend: which files can be read and written, and what must be there.
    """

    command: tuple[str, ...]
    settings: dict[str, object]

    def argv(self, limits: dict[str, object]) -> list[str]:
        return [*self.command, json.dumps({**self.settings, **limits})]


def start(backend: Backend, *, files_mb: int) -> Start:
    """The command of a backend.

    Raises:
        FileNotFoundError: its tool is not installed; the message says which package has it.
            Or no folder is left to mount an empty one over.
        PermissionError: this user cannot read Python's own folder.
    """
    # Imported and not run as a file, so that Python keeps it compiled. Not -I, under which PYTHONHASHSEED (all there is
    # of an environment) has no effect: a program that iterates over a set of texts is to be judged alike every time.
    script = f"import sys; sys.path.append({_HERE!r}); import inside.judge; inside.judge.main()"
    python = [str(_python()), "-s", "-P", "-S", "-B", "-c", script]
    readable = [*_folders(), "/dev/urandom"]
    told: dict[str, object] = {
        "confine": True,
        "needs_landlock": True,
        "readable": readable,
        "writable": ["/dev/null", "/dev/null"],  # devices, and the folder that programs write in
        "own_folder": False,
    }
    match backend:
        case "none":
            return Start(tuple(python), {**told, "confine": False})
        case "landlock":
            return Start(tuple(python), told)
        case "unshare":
            tool = _tool("unshare", "util-linux")
            folders = (point for point in _MOUNT_POINTS if not _holds(point, readable) and Path(point).is_dir())
            work_folder = next(folders, None)
            if work_folder is None:
                raise FileNotFoundError(f"none of {', '.join(_MOUNT_POINTS)} is a folder without Python in it")
            size = f"size={files_mb}m,nr_inodes=4096,nosuid,nodev"
            mount = f'mount -t tmpfs -o {size} sandbox {work_folder} && cd {work_folder} && exec "$@"'
            spaces = "--user --map-root-user --net --pid --mount --ipc --uts --fork --kill-child"
            command = [tool, *spaces.split(), "/bin/sh", "-c", mount, "sh", *python]
            return Start(tuple(command), {**told, "writable": ["/dev/null", work_folder], "own_folder": True})
        case "bubblewrap":
            binds = [word for path in _folders() for word in ("--ro-bind", path, path)]
            devices = [word for path in ("/dev/null", "/dev/urandom") for word in ("--dev-bind", path, path)]
            links = [
                word
                for path in ("/lib", "/lib64", "/lib32")
                if Path(path).is_symlink()
                for word in ("--symlink", os.readlink(path), path)
            ]
            # Not over the package's own folder, where that is in /work. One more name than there are folders.
            names = (f"/work{number or ''}" for number in range(len(readable) + 1))
            work_folder = next(name for name in names if not _holds(name, readable))
            tmpfs = ["--size", str(files_mb << 20), "--tmpfs", work_folder]
            tmpfs += ["--remount-ro", "/", "--chdir", work_folder]
            command = [_tool("bwrap", "bubblewrap"), "--unshare-all", "--unshare-user", "--die-with-parent"]
            command += ["--cap-drop", "ALL"]
            settings = {**told, "needs_landlock": False, "writable": ["/dev/null", work_folder], "own_folder": True}
            return Start((*command, *binds, *links, *devices, *tmpfs, *python), settings)


def _tool(name: str, package: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise FileNotFoundError(f"{name} is not installed (apt-get install {package})")
    return found


@functools.cache
def _python() -> Path:
    """The interpreter of this environment, without the environment's packages."""
    return Path(os.path.realpath(sys.executable))


@functools.cache
def _folders() -> tuple[str, ...]:
    """Folders that Python and its libraries are read from, and this one; none within another."""
    importlib.import_module("lyceum.sandbox.inside.judge")  # compiles it, where its folder can be written
    named = [_HERE, str(_python().parent), *(os.path.join(sys.base_prefix, name) for name in ("lib", "lib64"))]
    named += ["/usr/lib", "/usr/lib64", *(path for path in ("/lib", "/lib64") if not Path(path).is_symlink())]
    needed = [path for path in named[1:3] if path == named[1] or os.path.lexists(path)]
    if hidden := [path for path in needed if not os.access(path, os.R_OK | os.X_OK)]:
        raise PermissionError(f"Python is in {hidden[0]}, which this user cannot read")
    there = sorted({os.path.realpath(path) for path in named if Path(path).is_dir()})
    return tuple(path for path in there if not any(path != other and _holds(other, [path]) for other in there))


def _holds(folder: str, paths: Sequence[str]) -> bool:
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for path in paths)

"""The control groups of this process, whose limits a container's processes share."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")


def control_groups(root: Path = CGROUPS) -> list[Path]:
    """Folders of the process's groups (version 2) and of those above them, the root first; where there are none, it
    alone."""
    folders = [root]
    with suppress(OSError):  # not Linux
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            if line.startswith("0::"):
                folder = root / line.removeprefix("0::").lstrip("/")
                folders += [folder, *folder.parents]
    return folders

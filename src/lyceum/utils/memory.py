"""This process's memory and this machine's, from the kernel's own files; on other systems half of what is there."""

from __future__ import annotations

import os
from collections.abc import Mapping
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


def resident() -> int:
    """Bytes of memory that this process holds now."""
    return _fields(Path("/proc/self/status")).get("VmRSS", 0) or 400 << 20


def free_memory() -> int:
    """Bytes that this process may still take without being killed: what is available, swap, and no more than its
    control group's limit leaves.

    Source: the kernel's documentation of /proc/meminfo (MemAvailable) and of control groups (memory.max and
    memory.current, version 2).
    """
    found = _fields(Path("/proc/meminfo"))
    if "MemAvailable" in found:
        free = found["MemAvailable"] + found.get("SwapFree", 0)
    else:
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    for folder in control_groups():
        with suppress(OSError, ValueError):  # the root has no limit, and "max" is none
            limit = int((folder / "memory.max").read_text())
            used = int((folder / "memory.current").read_text())
            cached = _fields(folder / "memory.stat").get("inactive_file", 0)
            free = min(free, max(0, limit - used + cached))
    return free


def _fields(file: Path) -> Mapping[str, int]:
    """Bytes by name, of a file whose lines are a name and a number, in kB where they say so."""
    found: dict[str, int] = {}
    with suppress(OSError):
        for line in file.read_text().splitlines():
            name, *number = line.replace(":", " ").split()
            if number and number[0].isdigit():
                found[name] = int(number[0]) << (10 if number[-1] == "kB" else 0)
    return found

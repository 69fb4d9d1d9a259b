"""What a result was made with: versions, machine, commit, command."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from lyceum.utils.lazy_imports import torch


def versions() -> dict[str, Any]:
    """Everything about the surroundings that a figure may depend on; plain values, for JSON."""
    return {
        "lyceum": _version("lyceum-rl"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": _version("transformers"),
        "commit": commit(),
        "machine": f"{platform.system()} {platform.machine()}, {processor()}",
        "cores": cores(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "command": shlex.join(sys.argv),
    }


def cores() -> int:
    """That this process may run on, which in a container can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:  # not Linux
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown processor"


def commit() -> str | None:
    """Of the checkout that lyceum is run from, ``-dirty`` where tracked files differ; None where it is installed."""
    here = Path(__file__)
    # Asked for this very file: an environment may lie inside someone else's repository.
    if _git(here.parent, "ls-files", "--error-unmatch", here.name) is None:
        return None
    found = _git(here.parent, "rev-parse", "HEAD")
    return f"{found}-dirty" if found and _git(here.parent, "status", "--porcelain", "-uno") else found


def _git(folder: Path, *command: str) -> str | None:
    try:
        result = subprocess.run(["git", *command], cwd=folder, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):  # no git here, or a file system that hangs: the commit is not known
        return None
    return result.stdout.strip() if result.returncode == 0 else None


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None

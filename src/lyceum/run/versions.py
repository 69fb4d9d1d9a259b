"""Provenance of a result: versions, machine, commit, command."""

from __future__ import annotations

import platform
import shlex
import subprocess
import sys
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from lyceum.utils.lazy_imports import torch
from lyceum.utils.threads import usable_cores


def versions() -> dict[str, Any]:
    """Everything about the environment that a result may depend on; plain values, for JSON."""
    return {
        "lyceum": _version("lyceum-rl"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": _version("transformers"),
        "commit": commit(),
        "machine": f"{platform.system()} {platform.machine()}, {processor()}",
        "cores": usable_cores(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "command": shlex.join(sys.argv),
    }


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:  # not Linux
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown processor"


def commit() -> str | None:
    """Commit of the checkout that lyceum runs from, ``-dirty`` where tracked files differ; None where installed."""
    here = Path(__file__)
    # Checked for this very file: an environment may be inside another project's repository.
    if _git(here.parent, "ls-files", "--error-unmatch", here.name) is None:
        return None
    found = _git(here.parent, "rev-parse", "HEAD")
    return f"{found}-dirty" if found and _git(here.parent, "status", "--porcelain", "-uno") else found


def _git(folder: Path, *command: str) -> str | None:
    try:
        result = subprocess.run(["git", *command], cwd=folder, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):  # no git here, or a file system that hangs: the commit is unknown
        return None
    return result.stdout.strip() if result.returncode == 0 else None


@cache  # of what is imported already
def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None

"""The sandboxes that work on this machine, for tests."""

from __future__ import annotations

import os

import pytest

from lyceum.sandbox.backends import CONFINING, Backend
from lyceum.sandbox.run import SandboxError, fault_of, usable


def _here() -> dict[str, Backend]:
    found = {backend: backend for backend in CONFINING if fault_of(backend) is None}
    try:
        return {"auto": usable("auto"), **found}
    except SandboxError:
        return {}


HERE = _here()


def needs(name: str) -> pytest.MarkDecorator:
    """Skip where this sandbox does not work, and say why; never where LYCEUM_SANDBOX says that it has to."""
    required = os.environ.get("LYCEUM_SANDBOX", "").split(",")
    why = f"{name}: {'no sandbox works here' if name == 'auto' else fault_of(name)}"  # pyright: ignore[reportArgumentType]
    return pytest.mark.skipif(name not in HERE and name not in required, reason=why)

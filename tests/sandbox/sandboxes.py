"""The sandboxes that work on this machine, for tests."""

from __future__ import annotations

import pytest

from lyceum.sandbox.backends import CONFINING
from lyceum.sandbox.run import fault_of


def _needs(backend: str) -> pytest.MarkDecorator:
    """Skip where this sandbox does not work, and say why."""
    fault = fault_of(backend)  # pyright: ignore[reportArgumentType]
    return pytest.mark.skipif(fault is not None, reason=f"{backend}: {fault}")


each_sandbox = pytest.mark.parametrize(
    "backend", [pytest.param(backend, marks=_needs(backend)) for backend in CONFINING]
)
"""A test under each sandbox that this machine has."""

NONE_WORKS = all(fault_of(backend) is not None for backend in CONFINING)
"""Whether ``auto`` finds none on this machine."""

sandboxed = pytest.mark.skipif(NONE_WORKS, reason="no sandbox works on this machine")
"""A test under the sandbox that ``auto`` finds."""

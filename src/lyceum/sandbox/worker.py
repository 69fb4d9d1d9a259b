"""What worker processes do with programs (``reward/pool.py``). Each imports this as it starts, so it imports little."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any, cast

from lyceum.sandbox.backends import Backend
from lyceum.sandbox.run import Limits, execute, run_all


def judge(limits: dict[str, Any], backend: Backend) -> Callable[[dict[str, Any]], list[Any]]:
    """The job: programs with the same tests. Returned of each: its :class:`Verdict` as a dict, or a text that says why
    there is none.

    Args:
        limits: ``ProgramLimits``, which a recipe has checked, as a dict.
    """
    given = cast(Limits, SimpleNamespace(**limits))

    def work(job: dict[str, Any]) -> list[Any]:
        found = run_all(**job, limits=given, backend=backend)
        return [each if isinstance(each, str) else asdict(each) for each in found]

    return work


def interpret(limits: dict[str, Any], backend: Backend, characters: int) -> Callable[[str], dict[str, Any]]:
    """The job: a program. Returned: its :class:`Printed`, as a dict.

    Args:
        limits: as of :func:`judge`.
        characters: kept of what it prints.
    """
    given = cast(Limits, SimpleNamespace(**limits))

    def work(program: str) -> dict[str, Any]:
        return asdict(execute(program, characters=characters, limits=given, backend=backend))

    return work

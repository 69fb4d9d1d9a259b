"""Tools as users write them."""

import asyncio
import os
import sys
import time
from typing import Literal


def add(a: int, b: float = 1.0, unit: Literal["m", "km"] = "m") -> dict:
    """Add two lengths.

    Args:
        a: the first length
        b: the second length
        unit: of both
    """
    return {"sum": a + b, "unit": unit}


def text(of: str | None) -> str:
    """The text itself.

    Args:
        of: any text
    """
    return of or "none"


def fails(at: str) -> str:
    """Raises.

    Args:
        at: what is not there
    """
    return {}[at]


def odd() -> object:
    """What JSON cannot hold."""
    return {1, 2}


async def exits(how: Literal["exit", "cancel", "timeout"]) -> str:
    """Would end the run.

    Args:
        how: by what
    """
    if how == "exit":
        sys.exit(0)
    raise asyncio.CancelledError if how == "cancel" else TimeoutError("no answer")


def sleeps(seconds: float) -> int:
    """Sleeps in a process.

    Args:
        seconds: how long
    """
    time.sleep(seconds)
    return os.getpid()


running: list[int] = []


async def waits(turns: int) -> int:
    """How many calls waited at the same time, this one counted.

    Args:
        turns: of the event loop
    """
    running.append(turns)
    for _ in range(turns):
        await asyncio.sleep(0)
    return len(running)


async def hangs() -> None:
    """Does not end."""
    await asyncio.sleep(100)


def compute(expression: str) -> str:
    """A sum, modulo 100 as the chains' tasks count.

    Args:
        expression: such as 37+8
    """
    for sign in "+-":
        a, found, b = expression.partition(sign)
        if found:
            return str((int(a) + int(sign + b)) % 100)
    raise ValueError(f"no sum: {expression}")


def bare(a, b):
    return a + b


def typed(a: int):
    """Has no Args."""


def many(*a: int):
    """Takes any.

    Args:
        a: numbers
    """

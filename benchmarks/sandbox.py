"""Throughput of honest programs in each sandbox: programs per second, alone and in groups, with 1 and 2 processes.

    python benchmarks/sandbox.py --out benchmarks/results/sandbox.json

A minute. Ratios are more stable than rates: both sides in one run.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from typing import Any

import common

from lyceum.reward.pool import WorkerPool
from lyceum.sandbox.backends import CONFINING, Backend
from lyceum.sandbox.limits import ProgramLimits
from lyceum.sandbox.run import fault_of

PROGRAM = "def f(x):\n    return x * 3 + {number}"
TESTS = [f"assert f({x}) - f(0) == {x * 3}" for x in range(4)]
DEFINITIONS = {
    "alone": "programs per second, each in a sandbox of its own, four tests each",
    "group_of_8": "the same where 8 programs with the same tests share a sandbox, each in a process of its own",
    "first_use_seconds": "the backend's self-test, once per process",
    "python_alone": "starts of the same Python per second that run nothing",
    "load": "processes that waited for a processor in the last minute, before and after",
}


def main() -> None:
    options = common.arguments(__doc__ or "").parse_args()
    groups = 1 if options.quick else 4
    result: dict[str, Any] = {"definitions": DEFINITIONS, "machine": common.machine(), "load": [os.getloadavg()[0]]}
    result["tool"] = {name: version(name) for name in ("bwrap", "unshare")}
    result["python_alone"] = round(starts(8 * groups), 1)
    rows = []
    for backend in (*CONFINING, "none"):
        began = time.perf_counter()
        fault = fault_of(backend)
        if fault is not None:
            result[backend] = {"fault": fault}
            continue
        first = round(time.perf_counter() - began, 3)
        rates = {
            f"{name}_{workers}": round(rate(backend, workers, each, groups), 1)
            for workers in (1, 2)
            for name, each in (("alone", 1), ("group_of_8", 8))
        }
        result[backend] = {"first_use_seconds": first, **rates}
        rows.append([backend, first, *rates.values()])
        common.say(f"{backend}: {rates}")
    result["load"].append(os.getloadavg()[0])
    common.table("programs per second", ["backend", "first use", "alone", "group", "alone x2", "group x2"], rows)
    common.write(result, options.out)


def rate(backend: Backend, workers: int, each: int, groups: int) -> float:
    settings = {"limits": ProgramLimits().model_dump(), "backend": backend}
    pool = WorkerPool("lyceum.sandbox.worker:judge", settings, workers=workers, timeout_seconds=120)

    async def ask(first: int) -> None:
        programs = [PROGRAM.format(number=number) for number in range(first, first + each)]
        found = await pool.run({"programs": programs, "tests": TESTS, "metered": False})
        assert all(all(verdict["tests"]) for verdict in found), found

    async def all_of_them() -> float:
        await asyncio.gather(*(ask(0) for _ in range(workers)))  # starts the processes
        began = time.perf_counter()
        await asyncio.gather(*(ask(each * group) for group in range(groups * 8 // each)))
        return groups * 8 / (time.perf_counter() - began)

    try:
        return asyncio.run(all_of_them())
    finally:
        pool.close()


def starts(number: int) -> float:
    began = time.perf_counter()
    for _ in range(number):
        subprocess.run([sys.executable, "-I", "-S", "-c", "pass"], check=True)
    return number / (time.perf_counter() - began)


def version(tool: str) -> str | None:
    try:
        return subprocess.run([tool, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    except OSError:  # not there, or in a folder of PATH that this user may not read
        return None


if __name__ == "__main__":
    main()

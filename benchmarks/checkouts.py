"""Two checkouts of lyceum against each other: CPU seconds of the same steps, in turns.

    python benchmarks/checkouts.py BEFORE [AFTER] --out checkouts.json [--quick]

For changes that are to change neither a result nor a speed. Both run the same recipes (the cases ``short`` and
``mixed`` of vs_trl) and the same requests to the engine, each by the code of its own checkout in a process of its own
with one thread; they take turns, a step each, while the other sleeps. Pairs are of neighbouring steps. Training is by
seed, so that a step does the same work in both as long as no result has changed (``lyceum same`` says so).
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

from cases import Case, all_cases
from common import HERE, Worker, base_folder, machine, say, table, write

PAIRS, QUICK_PAIRS = 30, 3
THREADS = 1
CASES = ("short", "mixed")
ENGINE = {"batch": 64, "short": 8, "long": 256, "samples": 8}

DEFINITIONS = {
    "ratio": "CPU seconds of BEFORE over those of AFTER: geometric mean over pairs (above 1: AFTER is faster)",
    "low, high": "95 % interval of that mean (Student's t on logarithms)",
    "cpu_seconds": "of a step, of all threads, median",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path, nargs="?", default=HERE.parent)
    parser.add_argument("--out", type=Path, help="JSON file")
    parser.add_argument("--quick", action="store_true", help="few pairs: shows that it works")
    options = parser.parse_args()
    checkouts = {"before": options.before.resolve(), "after": options.after.resolve()}
    pairs = QUICK_PAIRS if options.quick else PAIRS
    result: dict[str, Any] = {"benchmark": "checkouts", "quick": options.quick, "definitions": DEFINITIONS}
    result |= {"threads": THREADS, "machine": machine(), "rows": []}
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        base = base_folder("base")
        specs: dict[str, tuple[str, dict[str, Any], int]] = {
            "engine": ("engine_worker.py", {"model": str(base), **ENGINE}, 1)
        }
        for case in all_cases(options.quick, base, None, work):
            if case.name in CASES:
                specs[case.name] = ("lyceum_worker.py", {"case": case}, case.warm_up)
        for name, (script, spec, warm_up) in specs.items():
            seconds = in_turns(name, script, spec, checkouts, work, warm_up=warm_up, pairs=pairs)
            result["rows"].append({"case": name, **ratio(seconds["before"], seconds["after"])})
            write(result, options.out)
    columns = ("case", "ratio", "low", "high", "pairs")
    table("CPU seconds, before / after", columns, [[row[name] for name in columns] for row in result["rows"]])


def in_turns(
    name: str,
    script: str,
    spec: Mapping[str, Any],
    checkouts: Mapping[str, Path],
    work: Path,
    *,
    warm_up: int,
    pairs: int,
) -> dict[str, list[float]]:
    """CPU seconds of each step of both, those of the warm-up left out."""
    workers: dict[str, Worker] = {}
    seconds: dict[str, list[float]] = {side: [] for side in checkouts}
    try:
        for side, checkout in checkouts.items():
            of_side = of_case(spec["case"], work / side, warm_up + pairs + 2) if "case" in spec else dict(spec)
            place = checkout / "benchmarks" if "case" in spec else HERE
            workers[side] = Worker(
                place / script, of_side | {"checkout": str(checkout)}, threads=THREADS, src=checkout / "src"
            )
            workers[side].hear()
        for worker in workers.values():
            worker.ask("start")
        for pair in range(1, warm_up + pairs + 1):
            # Who goes first changes, so that neither always follows the other's cache.
            for side in sorted(workers, reverse=pair % 2 == 0):
                time.sleep(0.02)
                taken = workers[side].ask("go")["cpu_seconds"]
                if pair > warm_up:
                    seconds[side].append(taken)
            say(f"{name}: {pair - warm_up}/{pairs}")
    finally:
        for worker in workers.values():
            worker.end()
    return seconds


def of_case(case: Case, output: Path, steps: int) -> dict[str, Any]:
    """What lyceum_worker.py does, with as many steps as there are pairs."""
    recipe = case.recipe(output, 0)
    recipe["stages"][0]["steps"] = steps
    return {"recipe": recipe, "decoded": case.rows, "trained": min(4096, case.rows * 32)}


def ratio(before: Sequence[float], after: Sequence[float]) -> dict[str, Any]:
    from scipy.stats import t

    logs = [math.log(b / a) for b, a in zip(before, after, strict=True)]
    half = float(t.ppf(0.975, len(logs) - 1)) * stdev(logs) / math.sqrt(len(logs))
    mean = fmean(logs)
    return {
        **{"ratio": round(math.exp(mean), 4), "low": round(math.exp(mean - half), 4)},
        **{"high": round(math.exp(mean + half), 4), "pairs": len(logs)},
        "cpu_seconds": {"before": round(median(before), 4), "after": round(median(after), 4)},
    }


if __name__ == "__main__":
    main()

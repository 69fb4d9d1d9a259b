"""``make fuzz MINUTES=60``: cases until the time is over; those with faults are kept, and can be tried again.

::

    python tests/fuzz/fuzz.py --minutes 60 --out fuzz-found
    python tests/fuzz/fuzz.py fuzz-found/000.json
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path

from fuzz_agents import agent_cases, convert_cases, hostile_cases, picture_cases, result_cases
from fuzz_cases import Case, cases
from fuzzing import Fuzzing
from hypothesis import HealthCheck, Phase, given, seed, settings

QUICK = settings(
    max_examples=50, phases=[Phase.generate], database=None, deadline=None, suppress_health_check=list(HealthCheck)
)
"""Of the cases between two looks at the clock: none is made smaller, as a fault's words tell enough."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", type=Path, help="cases that were kept; none looks for new ones")
    parser.add_argument("--minutes", type=float, default=5.0, help="how long to look (minutes)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31), help="of the cases")
    parser.add_argument("--out", type=Path, default=Path("fuzz-found"), help="folder for cases with faults")
    parser.add_argument("--family", default="all", choices=FAMILIES, help="kind of cases to look for")
    given_ = parser.parse_args()
    with Fuzzing() as fuzzing:
        kept = [Case.from_json(file.read_text()) for file in given_.cases]
        found = (
            again(fuzzing, kept) if kept else look(fuzzing, given_.minutes * 60, given_.seed, given_.out, given_.family)
        )
        total = sum(fuzzing.codes.values())
        print(f"{total} cases, {found} with faults, {fuzzing.interrupted} sent Ctrl-C")
        for (kind, code), times in sorted(fuzzing.codes.items()):
            print(f"  {kind:12} exit code {code:4}: {times}")
    return int(found > 0)


def again(fuzzing: Fuzzing, kept: list[Case]) -> int:
    found = 0
    for case in kept:
        faults = fuzzing.faults(case)
        print(case.argv, *faults or ["holds"], sep="\n")
        found += bool(faults)
    return found


FAMILIES = {"all": cases() | hostile_cases(), "usual": cases(), "hostile": hostile_cases()} | {
    "agent": agent_cases(), "result": result_cases(), "convert": convert_cases(), "picture": picture_cases()
}  # fmt: skip


def look(fuzzing: Fuzzing, seconds: float, first_seed: int, out: Path, family: str) -> int:
    end, found, batch = time.monotonic() + seconds, 0, 0
    print(f"seed {first_seed}", flush=True)

    def one(case: Case) -> None:
        nonlocal found
        if time.monotonic() > end:
            return
        faults = fuzzing.faults(case)
        if faults:
            out.mkdir(exist_ok=True)
            file = out / f"{first_seed}-{found:03}.json"
            file.write_text(case.to_json())
            file.with_suffix(".txt").write_text("\n".join([repr(case.argv), repr(case.changes), *faults]))
            print(f"{file}: {' '.join(faults[0].splitlines()[0].split())}", flush=True)
            found += 1

    while time.monotonic() < end:
        seed(first_seed + batch)(QUICK(given(FAMILIES[family])(one)))()
        batch += 1
    return found


if __name__ == "__main__":
    sys.exit(main())

"""The maths verifier against answers whose verdict is known by construction (``tests/reward/maths_answers.py``).

    python benchmarks/verifiers.py --out results.json
    python benchmarks/verifiers.py --hostile --out results.json

A few minutes. The same answers are put to math-verify as it comes, for comparison. With ``--hostile`` instead, all
hostile completions of ``tests/reward/hostile_answers.py`` are put to every verifier.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import common

sys.path.insert(0, str(common.HERE.parent / "tests"))
sys.path.insert(0, str(common.HERE.parent / "tests" / "reward"))
from fake_task import NO_MODEL
from hostile_answers import Attack, attacks
from leaves import Source, leaf
from maths_answers import FAMILIES, Case, cases, sample

from lyceum.core.types import Grade
from lyceum.reward.base import Combined, combine
from lyceum.reward.math import FACTORY
from lyceum.reward.pool import WorkerError, WorkerPool

SECONDS = 5.0
DEFINITIONS = {
    "false_pass": "called right, and wrong by construction, or hostile",
    "false_failure": "called wrong, and right by construction",
    "ungraded": "no verdict: time, memory or nesting beyond the limit; right and wrong ones are counted alike",
    "false_failures": "each, with the task's answer and the completion's end; see the docstring of reward=math",
    "math_verify": "math-verify with its own settings: parse of \\boxed{answer} and of the completion, then verify",
}


def main() -> None:
    parser = common.arguments(__doc__ or "")
    parser.add_argument("--hostile", action="store_true", help="only hostile completions, of every verifier")
    options = parser.parse_args()
    if options.hostile:
        common.write(hostile(every=41 if options.quick else 1, workers=options.threads), options.out)
        return
    chosen = sample(cases(), every=19 if options.quick else 1)
    result: dict[str, Any] = {
        "definitions": DEFINITIONS,
        "machine": common.machine("math-verify", "latex2sympy2_extended", "sympy", "antlr4-python3-runtime"),
        "seconds_per_answer": SECONDS,
        "answers": len(chosen),
    }
    for name, factory in (("lyceum", FACTORY), ("math_verify", "verifiers:defaults")):
        common.say(f"{name}: {len(chosen)} answers")
        result[name] = counts(chosen, verdicts(factory, chosen, options.threads), listed=name == "lyceum")
    columns = ("right", "wrong", "ungraded", "false_pass", "false_failure")
    for name in ("lyceum", "math_verify"):
        rows = [[family, *(row[column] for column in columns)] for family, row in result[name]["families"].items()]
        common.table(name, ["family", *columns], rows)
    common.write(result, options.out)


def hostile(*, every: int, workers: int) -> dict[str, Any]:
    """Each verifier's verdicts on the completions that must not pass, and the longest time that one took."""
    graders: dict[str, Combined] = {}
    found: dict[str, Counter[str]] = defaultdict(Counter)
    longest: defaultdict[str, float] = defaultdict(float)
    reasons: dict[str, Counter[str]] = defaultdict(Counter)

    async def one(attack: Attack) -> None:
        key = attack.part.model_dump_json()
        if key not in graders:
            graders[key] = combine([attack.part], Source(attack.task))
        began = time.perf_counter()
        grades: list[Grade] = await graders[key](attack.task, [leaf(attack.completion, tokens=1)], NO_MODEL)
        longest[attack.verifier] = max(longest[attack.verifier], time.perf_counter() - began)
        passed = grades[0].correct or grades[0].outcome
        found[attack.verifier]["ungraded" if grades[0].outcome is None else "passed" if passed else "failed"] += 1
        if grades[0].outcome is None:
            reasons[attack.verifier][grades[0].reason or ""] += 1
        if passed:
            common.say(f"{attack.verifier}: passed: {attack.completion[:200]!r}")

    async def all_of_them() -> None:
        for number, attack in enumerate(attacks(timeout_seconds=SECONDS, workers=workers)):
            if number % every == 0:
                await one(attack)

    asyncio.run(all_of_them())
    rows = {
        name: {
            **{kind: kinds[kind] for kind in ("passed", "failed", "ungraded")},
            "longest": round(longest[name], 2),
            "ungraded_because": dict(reasons[name].most_common()),
        }
        for name, kinds in found.items()
    }
    columns = ("passed", "failed", "ungraded", "longest")
    common.table("hostile", ["verifier", *columns], [[name, *(row[c] for c in columns)] for name, row in rows.items()])
    told = {
        "passed, failed, ungraded": "verdicts on the hostile completions, none of which is correct",
        "longest": "seconds from handing a completion in to its grade, a new worker's start included",
        "ungraded_because": "reason -> completions",
    }
    completions = sum(kinds.total() for kinds in found.values())
    of_run = {"machine": common.machine(), "seconds_per_answer": SECONDS, "completions": completions}
    return {"definitions": told, **of_run, "verifiers": rows}


def defaults() -> Callable[[dict[str, Any]], bool]:
    """In a worker: what ``reward=math`` would say if it left all to math-verify."""
    from math_verify import parse, verify

    logging.getLogger("math_verify").setLevel(logging.ERROR)

    def check(job: dict[str, Any]) -> bool:
        [answer] = job["answers"]
        answer = answer if "\\boxed" in answer else f"\\boxed{{{answer}}}"
        found = parse(job["found"], parsing_timeout=0)
        return verify(parse(answer, parsing_timeout=0), found, timeout_seconds=0)

    return check


def verdicts(factory: str, chosen: Sequence[Case], workers: int) -> list[bool | None]:
    pool = WorkerPool(factory, {}, workers=workers, timeout_seconds=SECONDS, memory_mb=2048)

    async def ask(case: Case) -> bool | None:
        try:
            return await pool.run({"answers": [case.answer], "found": case.completion, "boxed": False})
        except WorkerError:
            return None

    async def all_of_them() -> list[bool | None]:
        return await asyncio.gather(*map(ask, chosen))

    return asyncio.run(all_of_them())


def counts(chosen: Sequence[Case], found: Sequence[bool | None], *, listed: bool) -> dict[str, Any]:
    families: dict[str, Counter[str]] = defaultdict(Counter)
    false: dict[str, list[list[str]]] = {"false_pass": [], "false_failure": []}
    for case, verdict in zip(chosen, found, strict=True):
        if verdict is None:
            kind = "ungraded"
        elif verdict == bool(case.right):
            kind = "right" if verdict else "wrong"
        else:
            kind = "false_pass" if verdict else "false_failure"
            false[kind].append([case.family, case.answer, case.completion[-120:]])
        families[case.family][kind] += 1
    totals = {kind: len(cases_of) for kind, cases_of in false.items()}
    totals["ungraded"] = sum(row["ungraded"] for row in families.values())
    kinds = ("right", "wrong", "ungraded", "false_pass", "false_failure")
    rows = {family: {kind: families[family][kind] for kind in kinds} for family in FAMILIES}
    lists = {"false_passes": false["false_pass"], "false_failures": false["false_failure"]} if listed else {}
    return totals | {"families": rows} | lists


if __name__ == "__main__":
    main()

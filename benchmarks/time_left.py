"""The time left that a run tells after its second step, against the time that it then takes: ten recipes.

    python benchmarks/time_left.py --out benchmarks/results/time_left.json

About twenty minutes on two cores that do nothing else; on a machine that does, the figures say how its load changed.
Each run is a process of its own and takes a minute or more: a shorter one is run again with more steps. What is in
``--out`` already is not measured again, so that an interrupted benchmark goes on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from statistics import median
from typing import Any

import common

ARMS = (
    *("grpo", "dapo", "dr-grpo", "rloo", "gspo", "ppo", "reinforce-plus-plus", "treerl", "sft"),
    "grpo evaluate.every=20 checkpoint_every=20",
)
STEPS, LEAST = 80, 60.0
"""Steps of a run's first try, and the seconds that it takes at least."""
TOLD_AFTER = 2
DEFINITIONS = {
    "told, took": "seconds left after step 2 as the display has them, and those until the command returned, with the "
    "last evaluation, the model and the report",
    "ratio": "told / took",
    "at_half": "the same after half of the steps",
    "told_at": "[step, seconds since the run began, seconds left] after each step",
}


def worker(arm: str, steps: int, output: str) -> None:
    """Train, and print what was told after each step and when the run ended."""
    import lyceum
    from lyceum.utils.progress import Progress

    told_at: list[tuple[int, float, float]] = []
    began, step = time.monotonic(), Progress.step

    def watched(progress: Progress, done: int, metrics: Any = None) -> None:
        step(progress, done, metrics)
        if (left := progress.seconds_left) is not None:
            told_at.append((done, round(time.monotonic() - began, 3), round(left, 3)))

    setattr(Progress, "step", watched)  # noqa: B010
    recipe, *keys = arm.split()
    keys = [f"steps={steps}", "evaluate.n=100", *keys]
    lyceum.train(recipe, keys, output=output, name="run", progress="silent")
    print(json.dumps({"seconds": round(time.monotonic() - began, 3), "told_at": told_at}))


def measured(arm: str, steps: int) -> dict[str, Any] | None:
    """One run; None where it failed."""
    with tempfile.TemporaryDirectory() as output:
        command = [sys.executable, __file__, "--worker", arm, str(steps), output]
        load, done = os.getloadavg()[0], subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        common.say(f"{arm}: failed\n{done.stderr[-2000:]}")
        return None
    return {"recipe": arm, "steps": steps, "load": round(load, 2)} | judged(json.loads(done.stdout.splitlines()[-1]))


def judged(found: dict[str, Any]) -> dict[str, Any]:
    """What was told after step 2, and half-way, against what the run then took."""

    def ratio(step: int) -> dict[str, float]:
        at, left = next((at, left) for done, at, left in found["told_at"] if done >= step)
        took = found["seconds"] - at
        return {"told": left, "took": round(took, 3), "ratio": round(left / took, 3)}

    last = found["told_at"][-1][0]
    return ratio(min(TOLD_AFTER, last)) | {"at_half": ratio(max(1, last // 2))["ratio"]} | found


def main() -> None:
    parser = common.arguments(__doc__ or "")
    parser.add_argument("--arms", nargs="+", default=list(ARMS), help="a recipe, and keys after it")
    parser.add_argument("--worker", nargs=3, help="of this program's own: a recipe, its steps, an output folder")
    args = parser.parse_args()
    if args.worker:
        return worker(args.worker[0], int(args.worker[1]), args.worker[2])
    result: dict[str, Any] = {"machine": common.machine(), "definitions": DEFINITIONS, "runs": []}
    if args.out and args.out.exists():
        result["runs"] = json.loads(args.out.read_text())["runs"]
    for arm in args.arms[:1] if args.quick else args.arms:
        if any(run["recipe"] == arm for run in result["runs"]):
            continue
        steps = 4 if args.quick else STEPS
        while (found := measured(arm, steps)) is not None and found["seconds"] < LEAST and not args.quick:
            steps = round(steps * max(1.5, 1.2 * LEAST / found["seconds"]))
        if found is None:
            continue
        result["runs"].append(found)
        result["summary"] = summary(result["runs"])
        common.say(f"{arm}: told / took {found['ratio']} after step 2, {found['at_half']} half-way")
        common.write(result, args.out)


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """How often the time told was within 20 %, and the ratios' range."""

    def of(name: str) -> dict[str, Any]:
        ratios = [run[name] for run in runs]
        fine = sum(abs(ratio - 1) <= 0.2 for ratio in ratios)
        return {"within": fine, "of": len(ratios), "least": min(ratios), "most": max(ratios), "median": median(ratios)}

    return {"after_step_2": of("ratio"), "half_way": of("at_half")}


if __name__ == "__main__":
    main()

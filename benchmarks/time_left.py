"""The time left that a run tells after its second step, against the time that it then takes: ten recipes.

    python benchmarks/time_left.py --out benchmarks/results/time_left.json [--models base random]

About twenty minutes for each model, on two cores that do nothing else; on a machine that does, the figures say how its
load changed. Each run is a process of its own and takes a minute or more: a shorter one is run again with more steps.
``base`` learns its tasks within that minute, after which most groups have no gradient and a step takes half the time:
nobody can tell that after the second. The other model has random weights and a reward that differs within every group,
so that only what is lyceum's is tried: loading, evaluation, checkpoints and what a step takes. What is in ``--out``
already is not measured again, so that an interrupted benchmark goes on.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from statistics import median
from typing import Any

import common
import sizes

ARMS = (
    *("grpo", "dapo", "dr-grpo", "rloo", "gspo", "ppo", "reinforce-plus-plus", "treerl", "sft"),
    "grpo evaluate.every=20 checkpoint_every=20",
)
MODELS: dict[str, tuple[int, tuple[str, ...]]] = {
    "base": (80, ("evaluate.n=100",)),
    "random": (20, ("evaluate.n=16", "evaluate.samples=4", "stages.0.tasks_per_step=8", "stages.0.learner.lr=1e-6")),
}
"""Model -> steps of a run's first try, and keys of every arm; the second is the smallest of sizes.py."""
QUICK = ("evaluate.n=4", "evaluate.samples=2", "evaluate.k=[1,2]", "stages.0.tasks_per_step=4")
LEAST = 60.0
"""Seconds that a run takes at least."""
TOLD_AFTER = 2
DEFINITIONS = {
    "told, took": "seconds left after step 2 as the display has them, and those until the command returned, with the "
    "last evaluation, the model and the report",
    "ratio": "told / took",
    "at_half": "the same after half of the steps",
    "told_at": "[step, seconds since the run began, seconds left] after each step",
}


def trained(arm: str, steps: int, output: str, model: str, quick: bool) -> dict[str, Any]:
    """What was told after each step of a run, and when it ended."""
    import lyceum
    from lyceum.utils.progress import Progress

    told_at: list[tuple[int, float, float]] = []
    began, step = time.monotonic(), Progress.step

    def watched(progress: Progress, done: int, metrics: Any = None) -> None:
        step(progress, done, metrics)
        if (left := progress.seconds_left) is not None:
            told_at.append((done, round(time.monotonic() - began, 3), round(left, 3)))

    setattr(Progress, "step", watched)  # noqa: B010
    recipe, *own = arm.split()
    keys = [f"steps={steps}", *MODELS[model][1], *own, *(QUICK if quick else ())]
    given: dict[str, Any] = {}
    if model == "random":
        keys.append(f"model.path={sizes.make_model('5M', common.CACHE / 'sizes')}")
        given["reward"] = sizes.odd
        keys += ["collect.keep=with-gradient"] * (recipe == "dapo")  # that reward says of no answer that it is correct
    lyceum.train(recipe, keys, output=output, name="run", progress="silent", **given)
    return {"seconds": round(time.monotonic() - began, 3), "told_at": told_at}


def measured(arm: str, steps: int, model: str, args: Any) -> dict[str, Any] | None:
    """One run; None where it failed."""
    load = os.getloadavg()[0]
    try:
        with tempfile.TemporaryDirectory() as output:
            found = common.in_own_process(common.processes(args), trained, arm, steps, output, model, args.quick)
    except Exception as error:
        common.say(f"{arm}: failed\n{error}")
        return None
    return {"model": model, "recipe": arm, "steps": steps, "load": round(load, 2)} | judged(found)


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
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    args = parser.parse_args()
    result: dict[str, Any] = {"machine": common.machine(), "definitions": DEFINITIONS, "runs": []}
    if args.out and args.out.exists():
        result["runs"] = json.loads(args.out.read_text())["runs"]
    for model in args.models[:1] if args.quick else args.models:
        for arm in args.arms[:1] if args.quick else args.arms:
            if any((run["model"], run["recipe"]) == (model, arm) for run in result["runs"]):
                continue
            steps = 4 if args.quick else MODELS[model][0]
            while (found := measured(arm, steps, model, args)) and found["seconds"] < LEAST and not args.quick:
                steps = round(steps * max(1.5, 1.2 * LEAST / found["seconds"]))
            if found is None:
                continue
            result["runs"].append(found)
            result["summary"] = {
                of: summary([run for run in result["runs"] if run["model"] == of])
                for of in dict.fromkeys(run["model"] for run in result["runs"])
            }
            common.say(f"{model}, {arm}: told / took {found['ratio']} after step 2, {found['at_half']} half-way")
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

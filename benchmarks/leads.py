"""The lead systems and their parts on word problems: GRPO, DAPO, PCuRL, Scaf-GRPO, DRM, Cascade RL, DeepSearch.

    python benchmarks/leads.py --out benchmarks/results/leads.json [--arms grpo pcurl] [--seeds 5] [--quick]

Every arm (``leads.yaml``) begins with the same base, samples as many tokens and is tried at the same three learning
rates on seed 0; the best of them is compared over all seeds. An arm with ``after`` begins with what that arm made of
the same seed at its best rate, which is kept in .cache/leads. Runs are done seed by seed, each a process and a row of
``--out``, so that an interrupted benchmark goes on, on another machine too: some minutes of one core for each.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml
from common import CACHE, arguments, machine, processes, say, table, write
from suites import acted, run_one

HERE = CACHE / "leads"
ARMS: dict[str, dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "leads.yaml").read_text())
LEARNING_RATES = ("3.0e-5", "1.0e-4", "3.0e-4")
TOKENS, QUICK_TOKENS = 1_000_000, 4_000
"""Sampled by a run."""
MEAN_SOLUTION = 110
"""Tokens of a solution at the trained levels, by which fine-tuning gets its steps."""
TRAINED, TESTED = [2, 3, 4, 5, 6], [2, 3, 4, 5, 6, 7, 8]
SHARED = (
    "model=base-stories",
    f"tasks={{kind: stories, levels: {TRAINED}}}",
    f"evaluate.tasks={{kind: stories, levels: {TESTED}}}",
    "evaluate.sampling.max_completion_tokens=300",
    "evaluate.n=280",
    "evaluate.samples=4",
    "evaluate.k=[1,4]",
    "evaluate.greedy=false",
    "evaluate.every=0",
    "checkpoint_every=0",
    "rollouts_every=1000",
)
COUNTED = (
    *("groups/with_gradient", "completion_tokens/mean", "groups_dropped", "curriculum/weight/mean"),
    *("reward/part/dynamic-length/acted", "reward/part/overlong", "guidance/scaffold/groups/guided", "pairs"),
    *("guidance/search-where-hard/searched/tasks", "rollout/mcts/right", "credit/drm/share", "reward/part/drm"),
)
"""What is kept of a run's metrics: their mean over its steps, where they are logged."""
DEFINITIONS = {
    "before, after": "held-out pass@1 at temperature 1, of the trained levels (2 to 6) and of each level",
    "rows": "one for each run: arm, learning rate, seed",
    "arms": "of each arm the rate that was best on seed 0, on the problems that are compared on, so that seed 0 is a "
    "little flattered, in every arm alike; interval: Student's 95 % over seeds",
    "difference": "to the first arm, or to the arm that goes on from the same model, paired by seed",
    "better": "probability of improvement: share of pairs of seeds in which the arm is above that one, ties half",
    "acted": "means over the steps of a run of what its mechanisms did",
    "tokens": "sampled by the run; trained, for fine-tuning",
}


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--rates", nargs="+", default=LEARNING_RATES, help="learning rates, of every arm")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=TOKENS, help="sampled tokens of a run")
    args = parser.parse_args()
    result: dict[str, Any] = {"benchmark": "leads", "definitions": DEFINITIONS, "tokens": args.tokens, "rows": []}
    if args.out and args.out.is_file():
        known = json.loads(args.out.read_text())
        if known["tokens"] != args.tokens:
            raise SystemExit(f"--tokens: got {args.tokens}; allowed with {args.out}: {known['tokens']}, as its runs")
        result["rows"] = known["rows"]
    result["machine"] = machine()
    rates, seeds = (args.rates[:1], 1) if args.quick else (args.rates, args.seeds)
    for seed in range(seeds):
        for arm in args.arms:
            for rate in rates if seed == 0 else [f"{best_rate(result['rows'], arm):.1e}"]:
                if any(of(row) == (arm, float(rate), seed) for row in result["rows"]):
                    continue
                row = run(arm, rate, seed, args, result["rows"])
                result["rows"].append(row)
                say(f"{arm}, {rate}, seed {seed}: {row['before']['trained']:.1%} -> {row['after']['trained']:.1%}")
                result["arms"] = compared(result["rows"])
                write(result, args.out)
    show(compared(result["rows"]))


def of(row: Mapping[str, Any]) -> tuple[str, float, int]:
    return row["arm"], row["rate"], row["seed"]


def run(arm: str, rate: str, seed: int, args: Any, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One run, and its row."""
    from lyceum.analysis.comparison.run import with_budget
    from lyceum.recipe.schema import load_recipe
    from lyceum.run.reader import read_run_folder

    tokens = QUICK_TOKENS if args.quick else args.tokens
    given = dict(ARMS[arm])
    before, keys = given.pop("after", None), [*SHARED, f"seed={seed}", f"output={HERE}"]
    if before is not None:
        keys.append(f"model={first_model(before, seed, args, rows)}")
    HERE.mkdir(parents=True, exist_ok=True)
    file = HERE / f"{arm}.yaml"
    file.write_text(yaml.safe_dump(given))
    name = folder_name(arm, float(rate), seed, quick=args.quick)
    if args.quick:
        keys += ["evaluate.n=7", "evaluate.samples=1", "evaluate.k=[1]"]
    recipe = load_recipe(str(file), [*keys, f"name={name}"])
    stages = [
        stage.model_copy(update={"learner": stage.learner.model_copy(update={"lr": float(rate)})})
        for stage in recipe.stages
    ]
    only: Any = stages[0]
    if arm == "sft":
        steps = max(1, tokens // (MEAN_SOLUTION * only.tasks_per_step))
        recipe = recipe.model_copy(update={"stages": (only.model_copy(update={"steps": steps}),)})
    else:
        recipe = with_budget(recipe.model_copy(update={"stages": tuple(stages)}), tokens, keep_steps=False)
    # A group that learns nothing is a result here.
    recipe = recipe.model_copy(update={"max_steps_without_signal": 0})
    with ProcessPoolExecutor(1, mp_context=processes(args)) as pool:
        seconds = pool.submit(run_one, json.dumps(recipe.resolved()), args.threads).result()
    found = read_run_folder(HERE / name)
    row = {
        "arm": arm,
        "rate": float(rate),
        "seed": seed,
        "before": shares(found.summary["before"]),
        "after": shares(found.summary["after"]),
        "tokens": found.summary.get("tokens_sampled") or found.summary["tokens_trained"],
        "seconds": round(seconds, 1),
        "acted": acted(found.metrics, COUNTED),
    }
    if not any(ARMS[other].get("after") == arm for other in ARMS):
        shutil.rmtree(HERE / name)
    return row


def first_model(arm: str, seed: int, args: Any, rows: Sequence[Mapping[str, Any]]) -> Path:
    """What another arm made of the same seed, at the rate that was best for it on seed 0; trained where not there."""
    rate = best_rate(rows, arm) if any(row["arm"] == arm for row in rows) else float(args.rates[0])
    model = HERE / folder_name(arm, rate, seed, quick=args.quick) / "model"
    if not model.is_dir():
        run(arm, str(rate), seed, args, rows)
    return model


def folder_name(arm: str, rate: float, seed: int, *, quick: bool) -> str:
    return f"{arm}-{rate:.1e}-{seed}{'-quick' if quick else ''}"


def shares(measured: Mapping[str, Any]) -> dict[str, Any]:
    levels = {level: round(interval["mean"], 4) for level, interval in measured["by_level"].items()}
    return {"trained": round(fmean(levels[str(level)] for level in TRAINED), 4), "by_level": levels}


def best_rate(rows: Sequence[Mapping[str, Any]], arm: str) -> float:
    """Of those tried on seed 0."""
    tried = [row for row in rows if row["arm"] == arm and row["seed"] == 0]
    return max(tried, key=lambda row: row["after"]["trained"])["rate"]


def compared(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of each arm, at its best rate: accuracy, difference to what it is held against, probability of improvement."""
    from lyceum.evaluation.intervals import mean_over_seeds

    found: dict[str, Any] = {}
    ends = {
        arm: {row["seed"]: row for row in rows if (row["arm"], row["rate"]) == (arm, best_rate(rows, arm))}
        for arm in ARMS
        if any(row["arm"] == arm for row in rows)
    }
    for arm, by_seed in ends.items():
        against = ends.get("grpo-on" if "after" in ARMS[arm] else "grpo", {})
        after = [row["after"]["trained"] for row in by_seed.values()]
        theirs = [row["after"]["trained"] for row in against.values()]
        paired = [
            row["after"]["trained"] - against[seed]["after"]["trained"]
            for seed, row in by_seed.items()
            if seed in against
        ]
        found[arm] = {
            "rate": best_rate(rows, arm),
            "seeds": len(by_seed),
            "after": mean_over_seeds(after).to_json() if len(after) > 1 else {"mean": after[0]},
            "difference": mean_over_seeds(paired).to_json() if len(paired) > 1 else None,
            "better": fmean((a > b) + (a == b) / 2 for a in after for b in theirs) if theirs else None,
            "by_level": {
                level: round(fmean(row["after"]["by_level"][level] for row in by_seed.values()), 4)
                for level in map(str, TESTED)
            },
        }
    return found


def show(arms: Mapping[str, Any]) -> None:
    table(
        "leads",
        ["arm", "rate", "seeds", "after", "difference [95 %]", *map(str, TESTED)],
        [
            [
                arm,
                f"{row['rate']:g}",
                row["seeds"],
                f"{row['after']['mean']:.1%}",
                ""
                if row["difference"] is None
                else "{mean:+.3f} [{low:+.3f}, {high:+.3f}]".format(**row["difference"]),
                *(f"{share:.0%}" for share in row["by_level"].values()),
            ]
            for arm, row in arms.items()
        ],
    )


if __name__ == "__main__":
    main()

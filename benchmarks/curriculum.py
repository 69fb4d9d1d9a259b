"""Curriculum and guidance: every recipe of the two rooms on the same ladder, and what guides give on a real cliff.

    python benchmarks/curriculum.py --out curriculum.json [--quick] [--suites cliff ladder elsewhere] [--jobs 2]

Each suite is a ``lyceum compare`` on equal terms: same model, tasks, seeds and sampled tokens. Runs stay in
``.cache/curriculum`` and are not run again; ``--fresh`` begins anew.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from typing import Any

from common import CACHE, arguments, cores, machine, say, smollm2, table, write

HERE = CACHE / "curriculum"
BINS = 10
DEFINITIONS = {
    "before, final": "held-out pass@1 without hints, mean over seeds with its 95 % interval, overall and by level",
    "tokens_sampled": "drawn by the engine in a run, hinted and discarded samples included; mean over seeds",
    "tokens_to_target": "tokens until the mean held-out curve stands at the first recipe's final accuracy, over the "
    "first recipe's own; null where it is never reached",
    "under_hints": "cliff only, first seed: share of right samples of held-out cliff tasks by the tier of the hint in "
    "their prompt, after training (base: before)",
    "difference": "final minus the first recipe's, paired by seed, with its 95 % interval (Student)",
    "share_with_gradient": f"groups whose rewards differ, in {BINS} equal parts of the run, mean over seeds",
    "completion_tokens": "mean length in training, over the same parts",
    "seconds": "of a run, on its share of the cores, evaluations included; mean over seeds",
}


@dataclass(frozen=True)
class Suite:
    """Arms on equal terms; the first is what the others are measured against."""

    name: str
    about: str
    tokens: int
    seeds: int
    shared: tuple[str, ...]
    arms: tuple[tuple[str, str, tuple[str, ...]], ...]
    """(label, recipe, overrides of its own)."""


LADDER_ARMS = (
    ("grpo", "grpo", ()),
    ("easy-to-hard", "easy-to-hard", ()),
    ("pcurl", "pcurl", ()),
    ("pcurl-unweighted", "pcurl", ("curriculum=uniform",)),
    ("pcurl-no-length", "pcurl", ("stages.2.reward=null",)),
    ("sec", "sec", ()),
    ("dump", "dump", ()),
    ("pcl", "pcl", ()),
    ("balanced-filtering", "balanced-filtering", ()),
    ("knapsack", "knapsack", ()),
    ("train-long-think-short", "train-long-think-short", ()),
    ("alp-gmm", "alp-gmm", ()),
    ("scaf-grpo", "scaf-grpo", ()),
    ("ghpo", "ghpo", ()),
    ("seele", "seele", ()),
    ("guide-grpo", "guide-grpo", ()),
    ("ruscarl", "ruscarl", ()),
    ("rl-plus", "rl-plus", ()),
    ("luffy", "luffy", ()),
    ("relift", "relift", ()),
)

CLIFF_ARMS = (
    ("grpo", "grpo", ()),
    ("scaf-grpo", "scaf-grpo", ()),
    ("scaf-no-knowledge", "scaf-grpo", ("guidance.0.tiers=[planning, solution]",)),
    ("scaf-no-planning", "scaf-grpo", ("guidance.0.tiers=[knowledge, solution]",)),
    ("scaf-no-solution", "scaf-grpo", ("guidance.0.tiers=[knowledge, planning]",)),
    ("scaf-unhinted", "scaf-grpo", ("guidance.0.treatment=unhinted",)),
    ("guide-grpo", "guide-grpo", ()),
    ("ghpo", "ghpo", ()),
    ("relift", "relift", ()),
)

CLIFF_TASKS = (
    "{kind: mixture, parts: [{tasks: {kind: chain, levels: [1, 2, 3, 4, 5, 6]}, weight: 3}, {tasks: cliff, weight: 1}]}"
)


def suites(args: Any) -> list[Suite]:
    quick = args.quick
    found = [
        Suite(
            "cliff",
            "chains of 1 to 6 operations, and a quarter of starred ones, whose rule the model follows only when told",
            30_000 if quick else args.cliff_tokens,
            1 if quick else 5,
            (f"model={HERE / 'cliff-start' / 'model'}", f"tasks={CLIFF_TASKS}", f"learner.lr={args.cliff_lr}"),
            CLIFF_ARMS[:2] if quick else CLIFF_ARMS,
        ),
        Suite(
            "ladder",
            "chains of 1 to 8 operations, as shipped",
            30_000 if quick else args.ladder_tokens,
            1 if quick else 3,
            (f"model={args.base}", "tasks=chain", f"learner.lr={args.ladder_lr}"),
            LADDER_ARMS[:3] if quick else LADDER_ARMS,
        ),
    ]
    return [suite for suite in found if suite.name in args.suites]


def cliff_model(args: Any) -> Path:
    """The cliff's model: the base after recipe ``cliff-start``, trained once."""
    from lyceum.api import train

    folder = HERE / "cliff-start"
    if not (folder / "model" / "model.safetensors").exists():
        say("training the cliff's model (lyceum train cliff-start)")
        shutil.rmtree(folder, ignore_errors=True)
        train("cliff-start", output=str(HERE), name="cliff-start", model=args.base, **{"evaluate.every": 0})
    return folder / "model"


def run_suite(suite: Suite, args: Any) -> dict[str, Any]:
    """Train what is missing, ``jobs`` runs at a time, and compare."""
    from lyceum.comparing import is_finished, plan
    from lyceum.evaluate.compare import compare

    if suite.name == "cliff":
        cliff_model(args)
    exam = ("evaluate.n=160", "evaluate.samples=8", "evaluate.greedy=false", "evaluate.every=8", "checkpoint_every=0")
    planned = plan(
        [f"{recipe}@{label}" for label, recipe, _ in suite.arms],
        [*suite.shared, *exam, "rollouts_every=50"],
        {label: own for label, _, own in suite.arms if own},
        seeds=suite.seeds,
        tokens=suite.tokens,
        name=f"{suite.name}{'-quick' if args.quick else ''}",
        output=str(HERE),
    )
    missing = [recipe for recipe in planned.recipes if not is_finished(recipe)]
    say(f"{suite.name}: {len(missing)} of {len(planned.recipes)} runs to do, {args.jobs} at a time")
    threads = max(1, args.threads // args.jobs)
    with ProcessPoolExecutor(args.jobs, mp_context=get_context("spawn")) as pool:
        runs = {pool.submit(run_one, json.dumps(recipe.resolved()), threads): recipe.name for recipe in missing}
        for done, run in enumerate(as_completed(runs), 1):
            say(f"{suite.name}: {runs[run]} took {run.result():.0f} s ({done}/{len(missing)})")
    folders = {
        label: [planned.folder / r.name for r in planned.recipes if r.label == label] for label in planned.labels
    }
    found = compare([folder for of_arm in folders.values() for folder in of_arm])
    found.write(planned.folder)
    rows = [
        row_of(suite, figures, folders[figures.recipe], folders[planned.labels[0]]) | {"recipe_file": recipe}
        for figures, (_, recipe, _) in zip(found.recipes, suite.arms, strict=True)
    ]
    settings = [relative(key) for key in suite.shared]
    result = {"about": suite.about, "tokens": suite.tokens, "settings": settings, "rows": rows}
    if suite.name == "cliff":
        result["base_under_hints"] = under_hints(cliff_model(args))
        for row in rows:
            row["under_hints"] = under_hints(folders[row["recipe"]][0] / "model")
    return result


def relative(setting: str) -> str:
    """Without this machine's folders."""
    return setting.replace(f"{CACHE.parent}/", "")


def under_hints(model: Path) -> dict[str, float]:
    """Share of right answers to held-out cliff tasks, by the hint in their prompt: none, or the first of each tier."""
    from lyceum.engine.embedded import EmbeddedEngine
    from lyceum.models.load import ModelSettings, load_policy
    from lyceum.rollout.flat import Flat
    from lyceum.runtime.in_process import InProcess, run_async
    from lyceum.tasks.cliff import Cliff
    from lyceum.types import Sampling, Task

    policy = load_policy(ModelSettings(path=str(model)))
    source = Cliff().build("heldout", 0)
    runtime = InProcess(policy, EmbeddedEngine(policy), source.grader(), seed=0)
    rollout = Flat(samples=16, sampling=Sampling(max_completion_tokens=80)).build()
    tasks = [source[i] for i in range(48)]

    def share(asked: Sequence[Task], key: str) -> float:
        trees = run_async(runtime.run(asked, rollout, key=key))
        return round(fmean(tree.solved or 0.0 for tree in trees), 4)

    found = {"none": share(tasks, "none")}
    for tier in ("knowledge", "planning", "solution"):
        hints = [next(hint for hint in task.columns["hints"] if hint["tier"] == tier) for task in tasks]
        found[tier] = share([source.hinted(task, hint) for task, hint in zip(tasks, hints, strict=True)], tier)
    return found


def run_one(recipe: str, threads: int) -> float:
    """One run in a process of its own; seconds."""
    import torch

    from lyceum.progress import using
    from lyceum.recipe import parse
    from lyceum.train import train

    torch.set_num_threads(threads)
    began = time.perf_counter()
    with using("silent"):
        train(parse(json.loads(recipe)), resume="auto")
    return time.perf_counter() - began


def row_of(suite: Suite, figures: Any, folders: Sequence[Path], first: Sequence[Path]) -> dict[str, Any]:
    from lyceum.evaluate.run_folder import read_run_folder

    runs, firsts = [read_run_folder(folder) for folder in folders], [read_run_folder(folder) for folder in first]
    return {
        "suite": suite.name,
        "recipe": figures.recipe,
        "seeds": len(runs),
        "tokens_sampled": figures.tokens_sampled,
        "tokens_trained": figures.tokens_trained,
        "seconds": round(fmean(run.seconds or 0.0 for run in runs), 1),
        "before": held_out([run.summary["before"] for run in runs]),
        "final": held_out([run.summary["after"] for run in runs]),
        "difference": differences([r.summary["after"] for r in runs], [r.summary["after"] for r in firsts]),
        "tokens_to_target": figures.tokens_ratio,
        "share_with_gradient": binned([run.metrics for run in runs], "share_with_gradient"),
        "completion_tokens": binned([run.metrics for run in runs], "completion_tokens/mean"),
        "by_seed": {str(run.summary["seed"]): by_name(run.summary["after"], lambda i: i["mean"]) for run in runs},
    }


def by_name(of: Mapping[str, Any], value: Any) -> dict[str, Any]:
    levels = {level: value(interval) for level, interval in of["by_level"].items()}
    return {"overall": value(of["overall"]), "by_level": levels}


def held_out(of_runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Mean over seeds of overall and each level, with Student's interval; of one seed, its own interval over tasks."""
    from lyceum.evaluate.intervals import mean_over_seeds

    def over_seeds(of: Sequence[Mapping[str, float]]) -> dict[str, float]:
        if len(of) == 1:
            return {name: of[0][name] for name in ("mean", "low", "high")}
        found = mean_over_seeds([interval["mean"] for interval in of])
        return {"mean": found.mean, "low": max(0.0, found.low), "high": min(1.0, found.high)}

    levels = of_runs[0]["by_level"]
    return {
        "overall": over_seeds([run["overall"] for run in of_runs]),
        "by_level": {level: over_seeds([run["by_level"][level] for run in of_runs]) for level in levels},
    }


def differences(ours: Sequence[Mapping[str, Any]], theirs: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Paired by seed, overall and by level; None of one seed."""
    from lyceum.evaluate.intervals import mean_over_seeds

    if len(ours) < 2:
        return None

    def of(pick: Any) -> dict[str, float]:
        found = mean_over_seeds([pick(a)["mean"] - pick(b)["mean"] for a, b in zip(ours, theirs, strict=True)])
        return {"mean": found.mean, "low": found.low, "high": found.high}

    levels = ours[0]["by_level"]
    return {
        "overall": of(lambda run: run["overall"]),
        "by_level": {level: of(lambda run, level=level: run["by_level"][level]) for level in levels},
    }


def binned(of_runs: Sequence[Sequence[Mapping[str, Any]]], key: str) -> list[float]:
    """A figure's mean over seeds in equal parts of each run's steps."""
    parts: list[list[float]] = [[] for _ in range(BINS)]
    for metrics in of_runs:
        known = [line[key] for line in metrics if line.get(key) is not None]
        for place, value in enumerate(known):
            parts[place * BINS // len(known)].append(value)
    return [round(fmean(part), 3) for part in parts if part]


# Elsewhere ------------------------------------------------------------------------------------------------------------

PLACES = ("countdown", "reasoning-gym:chain_sum", "reasoning-gym:gcd", "reasoning-gym:number_sorting")


def elsewhere(args: Any) -> list[dict[str, Any]]:
    """Two steps of each recipe, unchanged, on other tasks: what it says where the tasks lack what it needs."""
    rows = []
    recipes = [recipe for label, recipe, own in LADDER_ARMS if not own and recipe not in ("easy-to-hard", "alp-gmm")]
    for place in PLACES[:1] if args.quick else PLACES:
        rows += [try_out(recipe, place, f"model={args.base}") for recipe in (recipes[:4] if args.quick else recipes)]
    if not args.quick:
        data = gsm8k(HERE / "gsm8k-format.jsonl")
        columns = {"prompt": "question", "answer": "answer", "hints": "hints", "demonstration": "solution"}
        tasks = json.dumps({"kind": "dataset", "path": str(data), "columns": columns, "answer_after": "####"})
        for recipe in ("grpo", "pcurl", "sec", "pcl", "scaf-grpo", "guide-grpo", "relift"):
            own = ("curriculum.by=provenance",) if recipe == "sec" else ()
            rows.append(
                try_out(
                    recipe, tasks, f"model={smollm2(args.smollm2)}", "rollout.samples=4", *own,
                    "rollout.sampling.max_completion_tokens=48", "tasks_per_step=4", place="GSM8K format, SmolLM2",
                )
            )  # fmt: skip
    return rows


def try_out(recipe: str, tasks: str, *overrides: str, place: str | None = None) -> dict[str, Any]:
    from lyceum.component import RecipeError
    from lyceum.progress import using
    from lyceum.recipe import load_recipe
    from lyceum.train import train

    row: dict[str, Any] = {"recipe": recipe, "tasks": place or tasks, "outcome": "ran"}
    try:
        small = ("steps=2", "evaluate.n=0", f"output={HERE / 'elsewhere'}", "tasks_per_step=4")
        loaded = load_recipe(recipe, [f"tasks={tasks}", *small, *overrides])
        with using("silent"):
            folder = train(loaded, overwrite=True)
        summary = json.loads((folder / "summary.json").read_text("utf-8"))
        row |= {"steps": summary["steps"], "tokens_sampled": summary["tokens_sampled"]}
    except RecipeError as error:
        row |= {"outcome": "refused", "says": error.lines[0]}
    say(f"{recipe} on {row['tasks']}: {row['outcome']}")
    return row


def gsm8k(path: Path) -> Path:
    """Word problems made here in GSM8K's format, with hints: nothing is fetched."""
    import random

    lines = []
    for number in range(64):
        rng = random.Random(f"gsm8k/{number}")
        a, b, c = rng.randint(3, 40), rng.randint(2, 9), rng.randint(2, 9)
        total = a + b * c
        lines.append(
            {
                "question": f"A shelf holds {a} books. {b} boxes with {c} books each arrive. How many are there now?",
                "answer": f"The boxes hold {b}*{c}={b * c} books. Together {a}+{b * c}={total}.\n#### {total}",
                "solution": f"The boxes hold {b}*{c}={b * c} books. Together {a}+{b * c}={total}. #### {total}",
                "hints": [
                    {"tier": "knowledge", "text": "Boxes times books in a box is what arrives."},
                    {"tier": "planning", "text": "First what arrives, then add what was there."},
                    {"tier": "solution", "text": f"{b}*{c}={b * c} books arrive."},
                ],
            }
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return path


# ----------------------------------------------------------------------------------------------------------------------


def show(name: str, result: Mapping[str, Any]) -> None:
    levels = list(result["rows"][0]["final"]["by_level"])

    def cell(interval: Mapping[str, float]) -> str:
        return f"{100 * interval['mean']:.1f}"

    def gain(row: Mapping[str, Any]) -> str:
        of = row["difference"]
        return (
            ""
            if of is None
            else "{mean:+.1f} [{low:+.1f}, {high:+.1f}]".format(**{k: 100 * v for k, v in of["overall"].items()})
        )

    table(
        f"{name}: {result['about']}; {result['tokens']} tokens a run",
        ["recipe", "seeds", "all", "minus first [95 %]", *levels, "tokens to target", "with gradient", "seconds"],
        [
            [
                row["recipe"], row["seeds"], cell(row["final"]["overall"]), gain(row),
                *(cell(row["final"]["by_level"][level]) for level in levels),
                "-" if row["tokens_to_target"] is None else f"{row['tokens_to_target']:.2f}",
                f"{100 * fmean(row['share_with_gradient']):.0f} %", row["seconds"],
            ]
            for row in result["rows"]
        ],
    )  # fmt: skip


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--suites", nargs="+", default=["cliff", "ladder", "elsewhere"], help="which parts to run")
    parser.add_argument("--jobs", type=int, default=cores(), help="runs at a time; each gets its share of the threads")
    parser.add_argument("--fresh", action="store_true", help="forget the runs of an earlier call")
    parser.add_argument("--cliff-tokens", type=int, default=400_000, help="sampled tokens of a run")
    parser.add_argument("--cliff-lr", type=float, default=1e-4, help="of every arm")
    parser.add_argument("--ladder-tokens", type=int, default=200_000, help="sampled tokens of a run")
    parser.add_argument("--ladder-lr", type=float, default=3e-5, help="of every arm")
    args = parser.parse_args()
    if args.fresh:
        shutil.rmtree(HERE, ignore_errors=True)
    result: dict[str, Any] = {"benchmark": "curriculum", "quick": args.quick, "definitions": DEFINITIONS}
    result |= {"machine": machine(), "jobs": args.jobs, "suites": {}, "rows": []}
    for suite in suites(args):
        found = run_suite(suite, args)
        result["rows"] += found.pop("rows")
        result["suites"][suite.name] = found
        write(result, args.out)
        show(suite.name, found | {"rows": [row for row in result["rows"] if row["suite"] == suite.name]})
    if "elsewhere" in args.suites:
        result["elsewhere"] = elsewhere(args)
        table(
            "Two steps elsewhere, recipes unchanged",
            ["recipe", "tasks", "outcome"],
            [[row["recipe"], row["tasks"], row.get("says", row["outcome"])] for row in result["elsewhere"]],
        )
    write(result, args.out)


if __name__ == "__main__":
    main()

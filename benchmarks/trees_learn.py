"""The suite ``learn`` of benchmarks/trees.py: DeepSearch and its ablations against GRPO, at equal computed tokens."""

from __future__ import annotations

import shutil
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from common import CACHE, cores, table
from suites import Suite, folders_of, held_out, planned, run_suite

HERE = CACHE / "trees"
DEFINITIONS = {
    "before, final": "held-out pass@1, mean over seeds with its 95 % interval, overall and by level",
    "tokens_sampled": "drawn in a run, dropped tests and branches included, mean over seeds; one budget for all arms "
    "but grpo-longer, which has several times as much",
    "tokens_computed": "that went through the model to generate: what samples share is computed once; mean over seeds",
    "at_equal_computed": "held-out pass@1 at the computed tokens of the run that computed least, straight lines "
    "between evaluations; mean over seeds with its 95 % interval",
    "tokens_to_target": "sampled tokens until the mean held-out curve stands at grpo's final accuracy, over grpo's own",
    "computed_to_target": "the same in computed tokens; null where it is never reached",
    "best": "greatest mean held-out accuracy of an evaluation on the way or at the end",
    "computed_to_best": "computed tokens until the mean curve stands at the best of grpo and grpo-longer, over what "
    "that one needed for it; null where it is never reached",
    "steps": "of the loop, mean over seeds; deepsearch and grpo-8-updates make up to 8 updates in each, grpo one",
    "guide": "metrics of search-where-hard, mean over steps: tasks searched, found easy, with cached solutions (hits)",
}

SETTINGS = {
    "ladder": ("chains of 1 to 8 operations, as shipped", "chain"),
    "hard": (
        "chains of 8 to 10 operations alone, of which the base solves one sample in a hundred",
        "{kind: chain, levels: [8, 9, 10]}",
    ),
}
"""Name -> what it is, tasks. DeepSearch is made for the second: where direct samples mostly fail."""

ABLATIONS = (
    ("no-global-selection", ("rollout.selection=uct-from-root",)),
    ("no-entropy-guidance", ("rollout.negative=random",)),
    ("no-cache", ("guidance.0.cached_tasks=0",)),
)
ARMS = (
    ("grpo", "grpo", ()),
    ("deepsearch", "deepsearch", ()),
    ("grpo-8-updates", "grpo", ("learner.updates_per_step=8",)),
    *((f"deepsearch-{name}", "deepsearch", own) for name, own in ABLATIONS),
)


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--jobs", type=int, default=cores(), help="learn: runs at a time, each with its share of threads"
    )
    parser.add_argument("--fresh", action="store_true", help="learn: forget the runs of an earlier call")
    parser.add_argument("--seeds", type=int, default=3, help="learn: runs of each arm")
    parser.add_argument("--tokens", type=int, default=120_000, help="learn: sampled tokens of a run")
    parser.add_argument("--longer", type=int, default=3, help="learn: times as many for grpo-longer")
    parser.add_argument("--lr", type=float, default=1e-4, help="learn: of every arm")
    parser.add_argument(
        "--settings", nargs="+", choices=tuple(SETTINGS), default=list(SETTINGS), help="learn: whose tasks"
    )


def suites(setting: str, args: Any) -> list[Suite]:
    """All arms at one budget; GRPO alone at a larger one."""
    about, tasks = SETTINGS[setting]
    main = Suite(
        f"learn-{setting}",
        about,
        15_000 if args.quick else args.tokens,
        1 if args.quick else args.seeds,
        (f"model={args.base}", f"tasks={tasks}", f"learner.lr={args.lr}"),
        ARMS[:2] if args.quick else ARMS,
        ("evaluate.n=160", "evaluate.samples=4", "evaluate.k=[1,4]", "evaluate.greedy=false", "evaluate.every=4"),
    )
    longer = replace(
        main, name=f"learn-{setting}-longer", tokens=args.longer * main.tokens, arms=(("grpo-longer", "grpo", ()),)
    )
    return [main, longer]


def learn(args: Any, result: dict[str, Any]) -> None:
    if args.fresh:
        shutil.rmtree(HERE, ignore_errors=True)
    result["learn"] = {"definitions": DEFINITIONS, "settings": {}}
    for setting in args.settings:
        result["learn"]["settings"][setting] = learn_setting(setting, args)


def learn_setting(setting: str, args: Any) -> dict[str, Any]:
    result: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []
    curves: dict[str, list[Curve]] = {}
    for suite in suites(setting, args):
        found = run_suite(suite, args, HERE)
        folders = folders_of(planned(suite, args, HERE))
        for row in found.pop("rows"):
            runs = [read(folder) for folder in folders[row["recipe"]]]
            curves[row["recipe"]] = [curve(run) for run in runs]
            row |= {"tokens_computed": round(fmean(of[-1][0] for of in curves[row["recipe"]]))}
            row |= {"steps": fmean(len(run.metrics) for run in runs), "guide": guide([run.metrics for run in runs])}
            rows.append(row)
        result[suite.name] = found
    compare_computed(rows, curves)
    show(setting, rows)
    return result | {"rows": rows}


Curve = list[tuple[float, float]]
"""(tokens computed so far, held-out accuracy), from (0, before) on."""


def read(folder: Path) -> Any:
    from lyceum.run.reader import read_run_folder

    return read_run_folder(folder)


def curve(run: Any) -> Curve:
    points: Curve = [(0.0, run.summary["before"]["overall"]["mean"])]
    computed = 0.0
    for line in run.metrics:
        computed += line["tokens_computed/step"]
        if "heldout/overall" in line:
            points.append((computed, line["heldout/overall"]))
    return points if points[-1][0] == computed else [*points, (computed, run.summary["after"]["overall"]["mean"])]


def guide(of_runs: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, float]:
    """Means over all steps of all runs."""
    prefix = "guidance/search-where-hard/"
    lines = [line for metrics in of_runs for line in metrics]
    names = {name for line in lines for name in line if name.startswith(prefix)}
    return {
        name.removeprefix(prefix): round(fmean(line[name] for line in lines if line.get(name) is not None), 3)
        for name in sorted(names)
    }


def compare_computed(rows: Sequence[dict[str, Any]], curves: Mapping[str, Sequence[Curve]]) -> None:
    """Add to each row what it came to for equal computed tokens."""
    import numpy as np

    def at(of: Curve, tokens: float) -> float:
        return float(np.interp(tokens, [place for place, _ in of], [value for _, value in of]))

    def mean_curve(of_arm: Sequence[Curve]) -> Curve:
        end = min(of[-1][0] for of in of_arm)
        places = sorted({min(tokens, end) for of in of_arm for tokens, _ in of})
        return [(tokens, fmean(at(of, tokens) for of in of_arm)) for tokens in places]

    means = {label: mean_curve(of_arm) for label, of_arm in curves.items()}
    equal = min(of[-1][0] for label, of_arm in curves.items() for of in of_arm if label != "grpo-longer")
    target, own = means["grpo"][-1][1], means["grpo"]
    best_of = max(("grpo", "grpo-longer"), key=lambda label: max(value for _, value in means[label]))
    best = max(value for _, value in means[best_of])
    for row in rows:
        label = row["recipe"]
        there = [{"overall": {"mean": at(of, equal)}, "by_level": {}} for of in curves[label]]
        row["at_equal_computed"] = held_out(there)["overall"] if len(there) > 1 else there[0]["overall"]
        row["computed_to_target"] = over(reached(means[label], target), reached(own, target))
        row["best"] = round(max(value for _, value in means[label]), 4)
        row["computed_to_best"] = over(reached(means[label], best), reached(means[best_of], best))


def reached(of: Curve, target: float) -> float | None:
    """Tokens at which a curve first stands at the target, straight lines between its points."""
    for (before, low), (after, high) in pairwise(of):
        if high >= target:
            return before if low >= target else before + (after - before) * (target - low) / (high - low)
    return None


def over(tokens: float | None, own: float | None) -> float | None:
    return None if tokens is None or not own else round(tokens / own, 4)


def show(setting: str, rows: Sequence[Mapping[str, Any]]) -> None:
    def share(value: float | None) -> str:
        return "-" if value is None else f"{value:.2f}"

    def percent(of: Mapping[str, float]) -> str:
        return f"{100 * of['mean']:.1f}" + (f" [{100 * of['low']:.1f}, {100 * of['high']:.1f}]" if "low" in of else "")

    levels = list(rows[0]["final"]["by_level"])
    table(
        f"{setting}: held-out accuracy in %, thousands of tokens; computed tokens to grpo's final and best over its",
        ["arm", "final", "at equal computed", *levels[-5:], "sampled", "computed", "to final", "to best", "seconds"],
        [
            [
                row["recipe"], percent(row["final"]["overall"]), percent(row["at_equal_computed"]),
                *(f"{100 * row['final']['by_level'][level]['mean']:.0f}" for level in levels[-5:]),
                f"{row['tokens_sampled'] / 1000:.0f}", f"{row['tokens_computed'] / 1000:.0f}",
                share(row["computed_to_target"]), share(row["computed_to_best"]), row["seconds"],
            ]
            for row in rows
        ],
    )  # fmt: skip

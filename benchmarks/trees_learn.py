"""The suite ``learn`` of benchmarks/trees.py: DeepSearch and its ablations against GRPO, at equal sampled tokens."""

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
    "sampled_to_best, computed_to_best": "tokens until the mean curve stands at the best of grpo and grpo-longer, over "
    "what that one needed for it; null where it is never reached. The paper's claim is about a third",
    "steps": "of the loop, mean over seeds; every arm makes up to 8 updates in each",
    "mechanisms": "mean over the steps that have the metric: those of rollout/mcts per searched tree, others per step",
}
MECHANISMS = (
    *(f"rollout/mcts/{name}" for name in ("expansions", "uct_moves", "uct_moves_by_value", "frontier_moves")),
    *(f"rollout/mcts/{name}" for name in ("negatives", "negatives_with_choice", "backed_up", "right")),
    *(f"guidance/search-where-hard/{name}" for name in ("searched/tasks", "dropped/tasks", "used/hits")),
    *(f"guidance/search-where-hard/{name}" for name in ("used/solutions", "cached/tasks", "cached/solutions")),
    "credit/all_wrong_groups_trained",
    "curriculum/round",
    "groups/with_gradient",
    "correct/mean",
)

ABOUT = "chains of 8 to 10 operations, of which the base solves one sample in a hundred"
TASKS = "{kind: chain, levels: [8, 9, 10]}"
GRPO = ("learner.updates_per_step=8", "tasks_per_step=12")
"""As many updates per step as DeepSearch, on so many tasks that a step samples about as many tokens."""
ARMS = (
    ("grpo", "grpo", GRPO),
    ("deepsearch", "deepsearch", ()),
    ("no-frontier", "deepsearch", ("rollout.selection=uct-from-root",)),
    ("random-negative", "deepsearch", ("rollout.negative=random",)),
    ("no-cache-no-filter", "deepsearch", ("guidance=[]", "curriculum=uniform")),
)
LONGER = ("grpo-longer", "grpo", GRPO)
NAMES = tuple(label for label, _, _ in (*ARMS, LONGER))


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--jobs", type=int, default=cores(), help="learn: runs at a time, each with its share of threads"
    )
    parser.add_argument("--fresh", action="store_true", help="learn: forget the runs of an earlier call")
    parser.add_argument("--seeds", type=int, default=3, help="learn: runs of each arm")
    parser.add_argument("--arms", nargs="+", choices=NAMES, default=list(NAMES), help="learn: which arms")
    parser.add_argument("--tokens", type=int, default=240_000, help="learn: sampled tokens of a run")
    parser.add_argument("--longer", type=int, default=3, help="learn: times as many for grpo-longer")
    parser.add_argument("--lr", type=float, default=1e-4, help="learn: of every arm")


def suites(args: Any) -> list[Suite]:
    """All arms at one budget; GRPO alone at a larger one."""
    main = Suite(
        "learn",
        ABOUT,
        15_000 if args.quick else args.tokens,
        1 if args.quick else args.seeds,
        (f"model={args.base}", f"tasks={TASKS}", f"learner.lr={args.lr}"),
        tuple(arm for arm in ARMS if arm[0] in args.arms),
        ("evaluate.n=120", "evaluate.samples=4", "evaluate.k=[1,4]", "evaluate.greedy=false", "evaluate.every=8"),
    )
    longer = replace(main, name="learn-longer", tokens=args.longer * main.tokens, arms=(LONGER,))
    return [suite for suite in (main, longer) if suite.arms and set(args.arms) & {arm[0] for arm in suite.arms}]


def learn(args: Any, result: dict[str, Any]) -> None:
    """Finished runs are kept: with ``--arms`` they can be made a few at a time, and a last call has all in one file."""
    if args.fresh:
        shutil.rmtree(HERE, ignore_errors=True)
    rows: list[dict[str, Any]] = []
    curves: dict[str, dict[str, list[Curve]]] = {"computed": {}, "sampled": {}}
    result["learn"] = {"definitions": DEFINITIONS, "suites": [], "rows": rows}
    for suite in suites(args):
        found = run_suite(suite, args, HERE)
        folders = folders_of(planned(suite, args, HERE))
        for row in found.pop("rows"):
            label = row["recipe"]
            runs = [read(folder) for folder in folders[label]]
            for of, of_label in curves.items():
                of_label[label] = [curve(run, of) for run in runs]
            row |= {"tokens_computed": round(fmean(of[-1][0] for of in curves["computed"][label]))}
            row |= {"steps": fmean(len(run.metrics) for run in runs)}
            row |= {"mechanisms": mechanisms([run.metrics for run in runs])}
            rows.append(row)
        result["learn"]["suites"].append({"name": suite.name} | found)
    compare_tokens(rows, curves)
    show(rows)


Curve = list[tuple[float, float]]
"""(tokens so far, held-out accuracy), from (0, before) on."""


def read(folder: Path) -> Any:
    from lyceum.run.reader import read_run_folder

    return read_run_folder(folder)


def curve(run: Any, of: str) -> Curve:
    """Over tokens ``computed`` or ``sampled``."""
    points: Curve = [(0.0, run.summary["before"]["overall"]["mean"])]
    tokens = 0.0
    for line in run.metrics:
        tokens = line["tokens_sampled"] if of == "sampled" else tokens + line["tokens_computed/step"]
        if "heldout/overall" in line:
            points.append((tokens, line["heldout/overall"]))
    return points if points[-1][0] == tokens else [*points, (tokens, run.summary["after"]["overall"]["mean"])]


def mechanisms(of_runs: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, float]:
    """Means over all steps of all runs."""
    lines = [line for metrics in of_runs for line in metrics]
    known = {name: [line[name] for line in lines if line.get(name) is not None] for name in MECHANISMS}
    return {name: round(fmean(values), 3) for name, values in known.items() if values}


def compare_tokens(rows: Sequence[dict[str, Any]], curves: Mapping[str, Mapping[str, Sequence[Curve]]]) -> None:
    """Add to each row what it came to for equal computed tokens, and the tokens that it needed for GRPO's accuracy."""
    computed = curves["computed"]
    equal = min(of[-1][0] for label, of_arm in computed.items() for of in of_arm if label != "grpo-longer")
    for row in rows:
        label = row["recipe"]
        there = [{"overall": {"mean": at(of, equal)}, "by_level": {}} for of in computed[label]]
        row["at_equal_computed"] = held_out(there)["overall"] if len(there) > 1 else there[0]["overall"]
    for name, of_arms in curves.items():
        means = {label: mean_curve(of_arm) for label, of_arm in of_arms.items()}
        best = {label: max(value for _, value in mean) for label, mean in means.items()}
        rivals = [label for label in ("grpo", "grpo-longer") if label in means]
        strongest = max(rivals, key=lambda label: best[label], default=None)
        for row in rows:
            label = row["recipe"]
            row["best"] = round(best[label], 4)
            if name == "computed" and "grpo" in means:
                target = means["grpo"][-1][1]
                row["computed_to_target"] = over(reached(means[label], target), reached(means["grpo"], target))
            if strongest is not None:
                own = reached(means[strongest], best[strongest])
                row[f"{name}_to_best"] = over(reached(means[label], best[strongest]), own)


def at(of: Curve, tokens: float) -> float:
    import numpy as np

    return float(np.interp(tokens, [place for place, _ in of], [value for _, value in of]))


def mean_curve(of_arm: Sequence[Curve]) -> Curve:
    end = min(of[-1][0] for of in of_arm)
    places = sorted({min(tokens, end) for of in of_arm for tokens, _ in of})
    return [(tokens, fmean(at(of, tokens) for of in of_arm)) for tokens in places]


def reached(of: Curve, target: float) -> float | None:
    """Tokens at which a curve first stands at the target, straight lines between its points."""
    for (before, low), (after, high) in pairwise(of):
        if high >= target:
            return before if low >= target else before + (after - before) * (target - low) / (high - low)
    return None


def over(tokens: float | None, own: float | None) -> float | None:
    return None if tokens is None or not own else round(tokens / own, 4)


def show(rows: Sequence[Mapping[str, Any]]) -> None:
    def share(value: float | None) -> str:
        return "-" if value is None else f"{value:.2f}"

    def percent(of: Mapping[str, float]) -> str:
        return f"{100 * of['mean']:.1f}" + (f" [{100 * of['low']:.1f}, {100 * of['high']:.1f}]" if "low" in of else "")

    levels = list(rows[0]["final"]["by_level"])
    heads = [
        "final",
        "best",
        "at equal computed",
        *levels,
        "sampled",
        "computed",
        "sampled to best",
        "computed to best",
    ]
    table(
        f"{ABOUT}: held-out accuracy in %, thousands of tokens; tokens to grpo's best over its",
        ["arm", *heads, "seconds"],
        [
            [
                row["recipe"], percent(row["final"]["overall"]), f"{100 * row['best']:.1f}",
                percent(row["at_equal_computed"]),
                *(f"{100 * row['final']['by_level'][level]['mean']:.0f}" for level in levels),
                f"{row['tokens_sampled'] / 1000:.0f}", f"{row['tokens_computed'] / 1000:.0f}",
                share(row.get("sampled_to_best")), share(row.get("computed_to_best")), row["seconds"],
            ]
            for row in rows
        ],
    )  # fmt: skip
    table(
        "mechanisms: means over steps",
        ["arm", *(name.rpartition("mcts/")[2].removeprefix("guidance/search-where-hard/") for name in MECHANISMS)],
        [[row["recipe"], *(row["mechanisms"].get(name, "-") for name in MECHANISMS)] for row in rows],
    )

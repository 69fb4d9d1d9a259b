"""The suites ``learn`` and ``signs`` of benchmarks/trees.py: DeepSearch and its ablations against GRPO, at equal tokens
sampled, on chains whose failures show at the end and on chains where they show at once."""

from __future__ import annotations

import json
import shutil
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from common import CACHE, cores, say, table
from suites import Suite, folders_of, held_out, planned, run_one, run_suite

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

Arm = tuple[str, str, tuple[str, ...]]


@dataclass(frozen=True)
class Ground:
    """Tasks, and the settings of the arms on them; ``grpo`` is also run with several times the tokens."""

    name: str
    about: str
    tokens: int
    shared: tuple[str, ...]
    arms: tuple[Arm, ...]
    evaluation: tuple[str, ...]
    warm_start: tuple[str, ...] = ()
    """Of recipe ``sft``, which makes the model that all arms begin with; empty: the base."""


LONGER = "grpo-longer"


def arms_of(grpo: tuple[str, ...], search: tuple[str, ...] = ()) -> tuple[Arm, ...]:
    """GRPO with as many updates per step as DeepSearch; DeepSearch and its ablations."""
    own: Mapping[str, tuple[str, ...]] = {
        "deepsearch": (),
        "no-frontier": ("rollout.selection=uct-from-root",),
        "random-negative": ("rollout.negative=random",),
        "no-cache-no-filter": ("guidance=[]", "curriculum=uniform"),
    }
    grpo = ("learner.updates_per_step=8", *grpo)
    return (("grpo", "grpo", grpo), *((label, "deepsearch", (*search, *of)) for label, of in own.items()))


CHAINS = Ground(
    "learn",
    "chains of 8 to 10 operations, of which the base solves one sample in a hundred",
    240_000,
    ("tasks={kind: chain, levels: [8, 9, 10]}",),
    arms_of(("tasks_per_step=12",)),
    ("evaluate.n=120", "evaluate.samples=4", "evaluate.k=[1,4]", "evaluate.greedy=false", "evaluate.every=8"),
)
SEARCH = (
    "rollout={kind: mcts, trajectories: 8, width: 6, depth: 12, depth_weight: 1, step: {by: lines, tokens: 12}, "
    "sampling: {max_completion_tokens: 50}}",
    "guidance=[{kind: search-where-hard, direct: {kind: flat, samples: 8, sampling: {max_completion_tokens: 50}}}]",
)
"""A step is a line. With this weight of the depth the frontier's deepest node is the best; with the paper's, 0.01, a
shallow one is, since the decay makes a failure cost it less."""
DYNAMIC = (
    "learner.updates_per_step=8",
    "collect={keep: with-gradient, max_waves: 1000}",
    "rollout.sampling.max_completion_tokens=50",
    # Steps are few: the usual ten of warm-up would be all of them.
    "learner.warmup_steps=1",
)
"""GRPO that samples until its groups have a gradient (dynamic sampling, DAPO): as many groups per step as the search
has trees; or two, so that the same tokens make more steps where one group in thirty has one."""
SIGNS = Ground(
    "signs",
    "chains of 8 operations without signs: a wrong one ends the text, and a few samples in a thousand are right",
    60_000,
    ("tasks={kind: signs, levels: [8]}", "reward=task"),
    (
        # Of grpo as many tasks per step as sample about as many tokens.
        *arms_of(("tasks_per_step=24", "rollout.sampling.max_completion_tokens=50"), SEARCH),
        ("depth-as-paper", "deepsearch", (*SEARCH, "rollout.depth_weight=0.01")),
        ("no-all-wrong", "deepsearch", (*SEARCH, "credit.equal=skip")),
        ("grpo-dynamic", "grpo", (*DYNAMIC, "tasks_per_step=8")),
        ("grpo-dynamic-small", "grpo", (*DYNAMIC, "tasks_per_step=2")),
    ),
    ("evaluate.n=100", "evaluate.samples=2", "evaluate.k=[1,2]", "evaluate.greedy=false", "evaluate.every=8"),
    (
        "tasks={kind: signs, levels: [0, 1, 2, 3, 4, 8]}",
        "steps=220",
        "tasks_per_step=24",
        "learner.lr=1e-3",
        "learner.betas=[0.9,0.98]",
        "evaluate.n=0",
    ),
)
GROUNDS = {ground.name: ground for ground in (CHAINS, SIGNS)}
NAMES = (*dict.fromkeys(arm[0] for ground in GROUNDS.values() for arm in ground.arms), LONGER)


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--jobs", type=int, default=cores(), help="learn, signs: runs at a time, each with its share of threads"
    )
    parser.add_argument("--fresh", action="store_true", help="learn, signs: forget the runs of an earlier call")
    parser.add_argument("--seeds", type=int, default=3, help="learn, signs: runs of each arm")
    parser.add_argument("--arms", nargs="+", choices=NAMES, default=list(NAMES), help="learn, signs: which arms")
    parser.add_argument("--tokens", type=int, help="learn, signs: sampled tokens of a run (240000, 60000)")
    parser.add_argument("--longer", type=int, default=3, help="learn, signs: times as many for grpo-longer")
    parser.add_argument("--lr", type=float, default=1e-4, help="learn, signs: of every arm")


def suites(args: Any, ground: Ground) -> list[Suite]:
    """All arms at one budget; GRPO alone at a larger one."""
    model = fine_tuned(ground.name, ground.warm_start, args) if ground.warm_start else args.base
    main = Suite(
        ground.name,
        ground.about,
        3_000 if args.quick else args.tokens or ground.tokens,
        1 if args.quick else args.seeds,
        (f"model={model}", *ground.shared, f"learner.lr={args.lr}"),
        tuple(arm for arm in ground.arms if arm[0] in args.arms),
        ground.evaluation,
    )
    longer = (LONGER, *ground.arms[0][1:])
    more = replace(main, name=f"{ground.name}-longer", tokens=args.longer * main.tokens, arms=(longer,))
    return [suite for suite in (main, more) if suite.arms and set(args.arms) & {arm[0] for arm in suite.arms}]


def fine_tuned(name: str, settings: tuple[str, ...], args: Any) -> str:
    """The model that recipe ``sft`` makes of the base with these settings; made once."""
    from lyceum.recipe.schema import load_recipe

    model = HERE / f"{name}-start" / "model"
    if not model.exists():
        given = [f"model={args.base}", *settings, f"name={name}-start", f"output={HERE}"]
        say(f"{name}-start: took {run_one(json.dumps(load_recipe('sft', given).resolved()), args.threads):.0f} s")
    return str(model)


def learn(args: Any, result: dict[str, Any], ground: Ground) -> None:
    """Finished runs are kept: with ``--arms`` they can be made a few at a time, and a last call has all in one file."""
    if args.fresh:
        shutil.rmtree(HERE, ignore_errors=True)
    rows: list[dict[str, Any]] = []
    curves: dict[str, dict[str, list[Curve]]] = {"computed": {}, "sampled": {}}
    result[ground.name] = {"definitions": DEFINITIONS, "suites": [], "rows": rows}
    for suite in suites(args, ground):
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
        result[ground.name]["suites"].append({"name": suite.name} | found)
    compare_tokens(rows, curves)
    show(ground.about, rows)


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
    ends = {label: min(of[-1][0] for of in of_arm) for label, of_arm in computed.items()}
    equal = min((end for label, end in ends.items() if label != LONGER), default=ends.get(LONGER, 0.0))
    for row in rows:
        label = row["recipe"]
        there = [{"overall": {"mean": at(of, equal)}, "by_level": {}} for of in computed[label]]
        row["at_equal_computed"] = held_out(there)["overall"] if len(there) > 1 else there[0]["overall"]
    for name, of_arms in curves.items():
        means = {label: mean_curve(of_arm) for label, of_arm in of_arms.items()}
        best = {label: max(value for _, value in mean) for label, mean in means.items()}
        rivals = [label for label in ("grpo", LONGER) if label in means]
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


def show(about: str, rows: Sequence[Mapping[str, Any]]) -> None:
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
        f"{about}: held-out accuracy in %, thousands of tokens; tokens to grpo's best over its",
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

"""Training benchmarks: several recipes with several seeds on equal terms, each run a process, and a row for each.

Runs stay in their folder and are not run again; what was stopped goes on where it was.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from common import CACHE, processes, say, table

BINS = 10
QUICK = ("evaluate.n=16", "evaluate.samples=2", "evaluate.every=0")
"""How held-out accuracy is measured where only whether it works is asked."""


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
    evaluation: tuple[str, ...] = ("evaluate.n=160", "evaluate.samples=8", "evaluate.greedy=false", "evaluate.every=8")
    """How held-out accuracy is measured, before, on the way and after."""


def planned(suite: Suite, args: Any, here: Path) -> Any:
    from lyceum.analysis.comparison.run import plan

    return plan(
        [f"{recipe}@{label}" for label, recipe, _ in suite.arms],
        [*suite.shared, *suite.evaluation, *(QUICK if args.quick else ()), "checkpoint_every=0", "rollouts_every=50"],
        {label: own for label, _, own in suite.arms if own},
        seeds=suite.seeds,
        tokens=suite.tokens,
        name=f"{suite.name}{'-quick' if args.quick else ''}",
        output=str(here),
    )


def folders_of(plan: Any) -> dict[str, list[Path]]:
    """Run folders of each arm, by seed."""
    return {label: [plan.folder / r.name for r in plan.recipes if r.label == label] for label in plan.labels}


def first_folder(suite: Suite, args: Any, here: Path, label: str) -> Path:
    """Of an arm's first seed."""
    return folders_of(planned(suite, args, here))[label][0]


def run_suite(suite: Suite, args: Any, here: Path) -> dict[str, Any]:
    """Train what is missing, ``jobs`` runs at a time, and compare."""
    from lyceum.analysis.comparison.result import compare
    from lyceum.analysis.comparison.run import is_finished

    plan = planned(suite, args, here)
    missing = [recipe for recipe in plan.recipes if not is_finished(recipe)]
    say(f"{suite.name}: {len(missing)} of {len(plan.recipes)} runs to do, {args.jobs} at a time")
    threads = max(1, args.threads // args.jobs)
    with ProcessPoolExecutor(args.jobs, mp_context=processes(args)) as pool:
        runs = {pool.submit(run_one, json.dumps(recipe.resolved()), threads): recipe.name for recipe in missing}
        for done, run in enumerate(as_completed(runs), 1):
            say(f"{suite.name}: {runs[run]} took {run.result():.0f} s ({done}/{len(missing)})")
    folders = folders_of(plan)
    found = compare([folder for of_arm in folders.values() for folder in of_arm])
    found.write(plan.folder)
    rows = [
        row_of(suite, result, folders[result.recipe], folders[plan.labels[0]]) | {"recipe_file": recipe}
        for result, (_, recipe, _) in zip(found.recipes, suite.arms, strict=True)
    ]
    settings = [relative(key) for key in suite.shared]
    return {"about": suite.about, "tokens": suite.tokens, "settings": settings, "rows": rows}


def relative(setting: str) -> str:
    """Without this machine's folders."""
    return setting.replace(f"{CACHE.parent}/", "")


def run_one(recipe: str, threads: int) -> float:
    """One run in a process of its own; seconds."""
    import torch

    from lyceum.recipe.schema import parse
    from lyceum.training.train import train
    from lyceum.utils.progress import using

    torch.set_num_threads(threads)
    began = time.perf_counter()
    with using("silent"):
        train(parse(json.loads(recipe)), resume="auto")
    return time.perf_counter() - began


def row_of(suite: Suite, result: Any, folders: Sequence[Path], first: Sequence[Path]) -> dict[str, Any]:
    from lyceum.run.reader import read_run_folder

    runs, firsts = [read_run_folder(folder) for folder in folders], [read_run_folder(folder) for folder in first]
    return {
        "suite": suite.name,
        "recipe": result.recipe,
        "seeds": len(runs),
        "tokens_sampled": result.tokens_sampled,
        "tokens_trained": result.tokens_trained,
        "seconds": round(fmean(run.seconds or 0.0 for run in runs), 1),
        "before": held_out([run.summary["before"] for run in runs]),
        "final": held_out([run.summary["after"] for run in runs]),
        "difference": differences([r.summary["after"] for r in runs], [r.summary["after"] for r in firsts]),
        "tokens_to_target": result.tokens_ratio,
        "with_gradient": fmean(binned([run.metrics for run in runs], "groups/with_gradient")),
        "groups/with_gradient": binned([run.metrics for run in runs], "groups/with_gradient"),
        "completion_tokens": binned([run.metrics for run in runs], "completion_tokens/mean"),
        "by_seed": {str(run.summary["seed"]): by_name(run.summary["after"], lambda i: i["mean"]) for run in runs},
    }


def by_name(of: Mapping[str, Any], value: Any) -> dict[str, Any]:
    levels = {level: value(interval) for level, interval in of["by_level"].items()}
    return {"overall": value(of["overall"]), "by_level": levels}


def held_out(of_runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Mean over seeds of overall and each level, with Student's interval; of one seed, its own interval over tasks."""
    levels = of_runs[0]["by_level"]
    return {
        "overall": over_seeds([run["overall"] for run in of_runs]),
        "by_level": {level: over_seeds([run["by_level"][level] for run in of_runs]) for level in levels},
    }


def over_seeds(of: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Mean of shares over seeds, with Student's 95 % interval; of one seed, its own interval."""
    from lyceum.evaluation.intervals import mean_over_seeds

    if len(of) == 1:
        return {name: of[0][name] for name in ("mean", "low", "high")}
    found = mean_over_seeds([interval["mean"] for interval in of])
    return {"mean": found.mean, "low": max(0.0, found.low), "high": min(1.0, found.high)}


def acted(metrics: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, float]:
    """What mechanisms did: means over the steps of a run, of those that log it."""
    logged = {name: [line[name] for line in metrics if isinstance(line.get(name), int | float)] for name in names}
    return {name: round(fmean(values), 4) for name, values in logged.items() if values}


def differences(ours: Sequence[Mapping[str, Any]], theirs: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Paired by seed, overall and by level; None of one seed."""
    from lyceum.evaluation.intervals import mean_over_seeds

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
    for result in of_runs:
        known = [line[key] for line in result if line.get(key) is not None]
        for place, value in enumerate(known):
            parts[place * BINS // len(known)].append(value)
    return [round(fmean(part), 3) for part in parts if part]


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
                f"{100 * fmean(row['groups/with_gradient']):.0f} %", row["seconds"],
            ]
            for row in result["rows"]
        ],
    )  # fmt: skip

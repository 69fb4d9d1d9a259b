"""Arms of a training benchmark, tuned alike: each at every learning rate on the first seed, then at its best one.

A row is a run (arm, rate, seed). Tasks that no result is of choose an arm's rate (``tuning``), which the further seeds
have alone. A row that is there is not made again.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from multiprocessing import get_context
from statistics import fmean
from typing import Any

from common import in_own_process
from suites import acted, over_seeds, run_one

Row = Mapping[str, Any]
NO_RATE = "0"
"""Of the base, which is not trained."""


def run_arms(
    known: Sequence[Row],
    arms: Sequence[str],
    rates: Sequence[str],
    seeds: int,
    run: Callable[[str, str, int], dict[str, Any]],
    done: Callable[[list[dict[str, Any]]], None],
) -> None:
    """Make the rows that are missing, the first seed of every arm first.

    Args:
        known: rows that are there.
        run: of an arm, a rate and a seed, what its row has beside them; with a ``mean`` in ``tuning``.
        done: takes all rows, after each.
    """
    rows = [dict(row) for row in known]
    for seed in range(seeds):
        plan = [("base", NO_RATE), *((arm, rate) for rate in rates for arm in arms)]
        if seed:
            plan = [("base", NO_RATE), *((arm, best_rate(rows, arm)) for arm in arms)]
        for arm, rate in plan:
            if not any((row["arm"], row["rate"], row["seed"]) == (arm, rate, seed) for row in rows):
                rows.append({"arm": arm, "rate": rate, "seed": seed, **run(arm, rate, seed)})
                done(rows)


def trained(made: Any, threads: int = 1, context: Any = None) -> Any:
    """The run of a recipe, which is trained in a process of its own where it is not there yet. A finished run's
    checkpoints are removed: of SmolLM2 they are 3 GB.

    Args:
        context: how the process is started; None: spawned.
    """
    from lyceum.analysis.comparison.run import folder_of, is_finished
    from lyceum.run.reader import read_run_folder

    if not is_finished(made):
        in_own_process(context or get_context("spawn"), run_one, json.dumps(made.resolved()), threads)
    shutil.rmtree(folder_of(made) / "checkpoints", ignore_errors=True)
    return read_run_folder(folder_of(made))


def mean_tokens(words: Any, texts: Iterable[str]) -> float:
    """Of worked solutions, with the end of the text.

    Args:
        words: the tokenizer.
    """
    return 1 + fmean(len(words(text)["input_ids"]) for text in texts)


def told(run: Any, logged: Sequence[str]) -> dict[str, Any]:
    """What a run says of itself.

    Args:
        logged: metrics whose means are kept.
    """
    return {
        "steps": run.summary["steps"],
        "tokens_sampled": run.summary.get("tokens_sampled", 0),
        "seconds": round(sum(run.summary["seconds"].get(phase, 0.0) for phase in ("generate", "train")), 1),
        "acted": acted(run.metrics, logged),
    }


def best_rate(rows: Sequence[Row], arm: str) -> str:
    """By the tuning tasks of the first seed."""
    of = [row for row in rows if row["arm"] == arm and row["seed"] == 0]
    return max(of, key=lambda row: row["tuning"]["mean"])["rate"]


def chosen(rows: Sequence[Row], arm: str) -> list[Row]:
    """Rows of an arm at its best rate."""
    of = [row for row in rows if row["arm"] == arm]
    return [row for row in of if row["rate"] == best_rate(rows, arm)] if of else []


def summary(rows: Sequence[Row], arms: Sequence[str], measured: str, shown: Sequence[str]) -> list[dict[str, Any]]:
    """Of each arm, and of the base, at its own rate: means over seeds with Student's interval, of one seed over tasks.

    Args:
        arms: the first is what the others are held against.
        measured: the accuracy by which they are compared: ``difference``, paired by seed, and from two seeds on
            ``better``, the share of pairs of any two seeds in which the arm is above the first, ties half.
        shown: intervals that are averaged.
    """
    from lyceum.evaluation.intervals import Interval, difference_of_intervals, mean_over_seeds

    found: list[dict[str, Any]] = []
    firsts = {row["seed"]: row[measured] for row in chosen(rows, arms[0])}
    for arm in ("base", *arms):
        if not (of := chosen(rows, arm)):
            continue
        line: dict[str, Any] = {"arm": arm, "rate": of[0]["rate"], "seeds": len(of)}
        line |= {name: over_seeds([row[name] for row in of]) for name in shown}
        ends = {row["seed"]: row[measured] for row in of}
        paired = [(ends[seed], first) for seed, first in firsts.items() if seed in ends and arm != arms[0]]
        if len(paired) == 1:
            line["difference"] = difference_of_intervals(*(Interval(**of) for of in reversed(paired[0]))).to_json()
        elif paired:
            line["difference"] = mean_over_seeds([ours["mean"] - first["mean"] for ours, first in paired]).to_json()
            both = [(ours["mean"], first["mean"]) for ours in ends.values() for first in firsts.values()]
            line["better"] = fmean((ours > first) + (ours == first) / 2 for ours, first in both)
        found.append(line)
    return found


def in_percent(of: Mapping[str, float] | None, sign: str = "") -> str:
    """A mean and its interval; a dash for none."""
    if of is None:
        return "-"
    mean, low, high = (100 * of[name] for name in ("mean", "low", "high"))
    return f"{mean:{sign}.1f} [{low:{sign}.1f}, {high:{sign}.1f}]"

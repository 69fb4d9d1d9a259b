"""Cascade RL against each of its stages alone and against the reverse order.

    python benchmarks/cascade.py --out benchmarks/results/cascade.json [--seeds 5] [--jobs 2] [--quick] [--fresh]

All arms begin with the recipe's short fine-tuning. Two tables: at equal sampled tokens, and at equal seconds, where the
tokens of each arm are scaled by what the first table took. Runs stay in ``.cache/cascade`` and are not run again; what
was stopped goes on where it was; ``--fresh`` begins anew.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from statistics import fmean
from typing import Any

from common import CACHE, arguments, cores, machine, say, table, write
from suites import held_out, run_one

HERE = CACHE / "cascade"
TASKS = "chain"
DEFINITIONS = {
    "before, final": "held-out pass@1, mean over seeds with its 95 % interval (of one seed: over tasks)",
    "tokens_sampled": "drawn in a run, mean over seeds; a stage ends with the 16 tasks in which its tokens are spent",
    "seconds": "of sampling and training, evaluations and files left out, mean over seeds",
    "by_seed": "final held-out pass@1 of each seed",
    "tokens": "sampled tokens allowed to a run",
}
ARMS = {
    "cascade": ("offline", "online"),
    "cascade-all-problems": ("offline", "online"),
    "cascade-short-offline": ("offline", "online"),
    "offline-only": ("offline",),
    "online-only": ("online",),
    "reverse": ("online", "offline"),
}
"""Stages after the fine-tuning, in order. Online, only ``cascade`` draws the problems that its offline stage solved
sometimes, as the recipe does; the others draw all."""
OFFLINE_SHARE = {"cascade": 0.4, "cascade-all-problems": 0.4, "cascade-short-offline": 0.2, "reverse": 0.4}
"""Share of an arm's tokens that its offline stage has, where it has another stage too."""


def recipe(arm: str, seed: int, tokens: int, name: str) -> Any:
    """An arm as the stages of the recipe, each with its share of the tokens and with as many steps as they last."""
    from lyceum.recipe.files import read_raw
    from lyceum.recipe.schema import load_recipe

    start, offline, online = read_raw("cascade-rl")["stages"]
    given: dict[str, int] = dict.fromkeys(ARMS[arm], tokens)
    if len(given) == 2:
        given["offline"] = round(OFFLINE_SHARE[arm] * tokens)
        given["online"] = tokens - given["offline"]
    # Many more steps than the tokens last; 16 tasks at a time, so that little is sampled beyond them.
    data = {"kind": "sampled", "tasks": 10_000, "part": 16}
    stages = {
        "offline": offline | {"steps": 10_000, "max_tokens": given.get("offline"), "data": data},
        "online": online | {"steps": 10_000, "max_tokens": given.get("online"), "tasks_per_step": 16},
    }
    if arm != "cascade":
        stages["online"]["curriculum"] = "uniform"
    return load_recipe(
        "cascade-rl",
        [
            ("stages", [start, *(stages[stage] for stage in ARMS[arm])]),
            *("evaluate.n=160", "evaluate.samples=4", "evaluate.k=[1,4]", "evaluate.greedy=false"),
            *("checkpoint_every=20", "rollouts_every=1000", "keep_stages=false", "track=[]"),
            *(f"tasks={TASKS}", f"seed={seed}", f"name={name}", f"label={arm}", f"output={HERE}"),
        ],
    )


def trained(budgets: Mapping[str, int], seeds: int, args: Any, table_name: str) -> dict[str, list[Any]]:
    """Train what is missing, ``jobs`` runs at a time; the runs of each arm by seed."""
    from lyceum.comparison.run import folder_of, is_finished
    from lyceum.run.reader import read_run_folder

    plan = {
        (arm, seed): recipe(arm, seed, tokens, f"{table_name}-{arm}-{tokens}-{seed}")
        for seed in range(seeds)
        for arm, tokens in budgets.items()
    }
    missing = [of for of in plan.values() if not is_finished(of)]
    say(f"{table_name}: {len(missing)} of {len(plan)} runs to do, {args.jobs} at a time")
    with ProcessPoolExecutor(args.jobs, mp_context=get_context("spawn")) as pool:
        threads = max(1, args.threads // args.jobs)
        runs = {pool.submit(run_one, json.dumps(of.resolved()), threads): of.name for of in missing}
        for done, run in enumerate(as_completed(runs), 1):
            say(f"{table_name}: {runs[run]} took {run.result():.0f} s ({done}/{len(missing)})")
    return {arm: [read_run_folder(folder_of(of)) for (other, _), of in plan.items() if other == arm] for arm in budgets}


def seconds_of(runs: Sequence[Any]) -> float:
    return fmean(run.summary["seconds"]["generate"] + run.summary["seconds"]["train"] for run in runs)


def row(arm: str, tokens: int, runs: Sequence[Any]) -> dict[str, Any]:
    after = held_out([run.summary["after"] for run in runs])
    return {
        "recipe": arm,
        "tasks": TASKS,
        "seeds": len(runs),
        "tokens": tokens,
        "tokens_sampled": round(fmean(run.summary["tokens_sampled"] for run in runs)),
        "seconds": round(seconds_of(runs), 1),
        "before": held_out([run.summary["before"] for run in runs])["overall"],
        "final": after["overall"],
        "by_level": after["by_level"],
        "by_seed": [run.summary["after"]["overall"]["mean"] for run in runs],
    }


def show(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    def accuracy(of: Mapping[str, float]) -> str:
        return "{mean:.1f} [{low:.1f}, {high:.1f}]".format(**{name: 100 * of[name] for name in ("mean", "low", "high")})

    names = ("recipe", "seeds", "tokens_sampled", "seconds")
    cells = [[*(row[name] for name in names), accuracy(row["before"]), accuracy(row["final"])] for row in rows]
    table(title, ["arm", "seeds", "tokens sampled", "seconds", "before, %", "final, %"], cells)


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5, help="runs of each arm")
    parser.add_argument("--tokens", type=int, default=100_000, help="sampled tokens of a run in the first table")
    parser.add_argument("--jobs", type=int, default=cores(), help="runs at a time, each with its share of threads")
    parser.add_argument("--fresh", action="store_true", help="forget the runs of an earlier call")
    args = parser.parse_args()
    if args.fresh:
        shutil.rmtree(HERE, ignore_errors=True)
    tokens, seeds = (20_000, 1) if args.quick else (args.tokens, args.seeds)
    result: dict[str, Any] = {"machine": machine(), "definitions": DEFINITIONS, "offline_share": OFFLINE_SHARE}

    budgets = dict.fromkeys(ARMS, tokens)
    at_tokens = trained(budgets, seeds, args, "tokens")
    result["rows"] = [row(arm, budgets[arm], runs) for arm, runs in at_tokens.items()]
    show("at equal sampled tokens", result["rows"])
    write(result, args.out)

    target = seconds_of(at_tokens["cascade"])
    scaled = {arm: round(tokens * target / seconds_of(runs), -3) for arm, runs in at_tokens.items() if arm != "cascade"}
    budgets |= {arm: max(1000, int(given)) for arm, given in scaled.items()}
    at_seconds = {"cascade": at_tokens["cascade"]} | trained(
        {arm: budgets[arm] for arm in ARMS if arm != "cascade"}, seeds, args, "seconds"
    )
    result["rows_at_equal_seconds"] = [row(arm, budgets[arm], runs) for arm, runs in at_seconds.items()]
    show("at equal seconds", result["rows_at_equal_seconds"])
    write(result, args.out)


if __name__ == "__main__":
    main()

"""Cascade RL against each of its stages alone and against the reverse order.

    python benchmarks/cascade.py --out benchmarks/results/cascade.json [--on chain sums] [--seeds 5] [--jobs 2]

On the ladder of chains with the small base, all arms after the recipe's short fine-tuning; on the sums of the recipe
``smollm2-sums`` with SmolLM2-135M-Instruct, which its makers fine-tuned. Two tables: at equal sampled tokens, and at
equal seconds, where the tokens of each arm are scaled by what the first table took. Rows of tasks that are not asked
for stay in the file. Runs stay in ``.cache/cascade`` and are not run again; what was stopped goes on where it was;
``--fresh`` begins anew.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any, Literal

from common import CACHE, arguments, cores, machine, processes, say, smollm2, table, write
from suites import held_out, run_one

HERE = CACHE / "cascade"
DEFINITIONS = {
    "tasks": "chain: the ladder, small base; sums: two terms of one or two digits, SmolLM2-135M-Instruct",
    "before, final": "held-out pass@1, mean over seeds with its 95 % interval (of one seed: over tasks)",
    "tokens_sampled": "drawn in a run, mean over seeds; a stage ends with the step in which its tokens are spent",
    "seconds": "of sampling and training, evaluations and files left out, mean over seeds; chain: wall time; sums: "
    "processor time of the run's one thread",
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
"""Stages in order. Online, only ``cascade`` draws the problems that its offline stage solved sometimes, as the paper
does; the others draw all."""
OFFLINE_SHARE = {"cascade": 0.4, "cascade-all-problems": 0.4, "cascade-short-offline": 0.2, "reverse": 0.4} | {
    "offline-only": 1.0
}
"""Share of an arm's tokens that its offline stage has."""


@dataclass(frozen=True)
class Suite:
    """Model and tasks on which the arms are compared, and what differs from the recipe's stages there."""

    tokens: int
    """Sampled tokens of a run in the first table."""
    arms: tuple[str, ...]
    clock: Literal["wall", "cpu"]
    shared: tuple[Any, ...]
    start: bool
    """Whether the recipe's short fine-tuning comes first."""
    wave: int
    """Tasks that are sampled at a time, so that little is sampled beyond the tokens."""
    beyond: int = 0
    """Tokens that a stage samples beyond its share on average, which is therefore made smaller by them."""
    offline: Mapping[str, Any] = field(default_factory=dict)
    online: Mapping[str, Any] = field(default_factory=dict)


def suites(args: Any) -> dict[str, Suite]:
    from lyceum.recipe.files import read_merged

    chain = Suite(
        tokens=4_000 if args.quick else 100_000,
        arms=tuple(ARMS),
        clock="wall",
        shared=("tasks=chain", f"evaluate.n={16 if args.quick else 160}", "evaluate.samples=4", "evaluate.k=[1,4]"),
        start=True,
        wave=16,
        online={"tasks_per_step": 16},
    )
    if "sums" not in args.on:
        return {"chain": chain}
    given = read_merged("smollm2-sums")
    rollout = {"kind": "flat", "samples": 8, "sampling": {"max_completion_tokens": 24}}
    learner = {"lr": 2.0e-5, "betas": [0.9, 0.95], "warmup_steps": 2, "micro_batch_tokens": 512}
    sums = Suite(
        tokens=2_000 if args.quick else 4_000,
        # The offline stage has sampled about a dozen problems: too few to leave some out.
        arms=("cascade-all-problems", "offline-only", "online-only", "reverse"),
        clock="cpu",
        shared=(
            *((key, given[key]) for key in ("tasks", "reward")),
            *(f"model={smollm2(args.smollm2)}", "evaluate.n=128", "evaluate.samples=1", "evaluate.k=[1]"),
        ),
        start=False,
        wave=4,
        beyond=260,
        # Two groups per update in both; learning rates by one run of each stage, with a seed that is in no table.
        offline={"tasks_per_step": 2, "rollout": rollout, "learner": learner},
        online={"tasks_per_step": 4, "rollout": rollout, "learner": learner | {"updates_per_step": 2}},
    )
    return {"chain": chain, "sums": sums}


def recipe(suite: Suite, arm: str, seed: int, tokens: int, folder: Path, name: str) -> Any:
    """An arm as the stages of the recipe, each with its share of the tokens and with as many steps as they last."""
    from lyceum.recipe.files import read_merged
    from lyceum.recipe.schema import load_recipe

    start, offline, online = read_merged("cascade-rl")["stages"]
    given: dict[str, int] = dict.fromkeys(ARMS[arm], tokens)
    if len(given) == 2:
        given["offline"] = round(OFFLINE_SHARE[arm] * tokens)
        given["online"] = tokens - given["offline"]
    # Many more steps than the tokens last.
    given = {stage: share - suite.beyond for stage, share in given.items()}
    data = {"kind": "sampled", "tasks": 10_000, "part": suite.wave}
    stages = {
        "offline": offline | {"steps": 10_000, "max_tokens": given.get("offline"), "data": data} | suite.offline,
        "online": online | {"steps": 10_000, "max_tokens": given.get("online")} | suite.online,
    }
    if arm == "cascade":
        stages["online"]["curriculum"] = {"kind": "middling", "from_stage": "offline", "low": 0.2, "high": 0.8}
    return load_recipe(
        "cascade-rl",
        [
            ("stages", [*([start] if suite.start else []), *(stages[stage] for stage in ARMS[arm])]),
            *("evaluate.greedy=false", "checkpoint_every=20", "rollouts_every=1000", "keep_stages=false", "track=[]"),
            *suite.shared,
            *(f"seed={seed}", f"name={name}", f"label={arm}", f"output={folder}"),
        ],
    )


def trained(on: str, suite: Suite, budgets: Mapping[str, int], args: Any, table_name: str) -> dict[str, list[Any]]:
    """Train what is missing, ``jobs`` runs at a time; the runs of each arm by seed."""
    from lyceum.analysis.comparison.run import folder_of, is_finished
    from lyceum.run.reader import read_run_folder

    folder = HERE if on == "chain" else HERE / on
    plan = {
        (arm, seed): recipe(suite, arm, seed, tokens, folder, f"{table_name}-{arm}-{tokens}-{seed}")
        for seed in range(1 if args.quick else args.seeds)
        for arm, tokens in budgets.items()
    }
    missing = [of for of in plan.values() if not is_finished(of)]
    say(f"{on}, {table_name}: {len(missing)} of {len(plan)} runs to do, {args.jobs} at a time")
    with ProcessPoolExecutor(args.jobs, mp_context=processes(args)) as pool:
        threads = max(1, args.threads // args.jobs)
        run = run_one if suite.clock == "wall" else run_one_by_cpu
        runs = {pool.submit(run, json.dumps(of.resolved()), threads): of.name for of in missing}
        for done, finished in enumerate(as_completed(runs), 1):
            say(f"{table_name}: {runs[finished]} took {finished.result():.0f} s ({done}/{len(missing)})")
    return {arm: [read_run_folder(folder_of(of)) for (other, _), of in plan.items() if other == arm] for arm in budgets}


def run_one_by_cpu(recipe: str, threads: int) -> float:
    """``run_one`` whose phases are timed by this process's processor time: on a crowded machine the wall's says
    nothing."""
    import time

    from lyceum.run import folder

    folder.time = SimpleNamespace(**(vars(time) | {"perf_counter": time.process_time}))
    return run_one(recipe, threads)


def seconds_of(runs: Sequence[Any]) -> float:
    return fmean(run.summary["seconds"]["generate"] + run.summary["seconds"]["train"] for run in runs)


def row(on: str, suite: Suite, arm: str, tokens: int, runs: Sequence[Any]) -> dict[str, Any]:
    after = held_out([run.summary["after"] for run in runs])
    return {
        "recipe": arm,
        "tasks": on,
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


def compared(on: str, suite: Suite, args: Any) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Name and rows of each table, as soon as its runs are done."""
    budgets = dict.fromkeys(suite.arms, suite.tokens)
    at_tokens = trained(on, suite, budgets, args, "tokens")
    yield "rows", [row(on, suite, arm, budgets[arm], runs) for arm, runs in at_tokens.items()]

    first, target = suite.arms[0], seconds_of(at_tokens[suite.arms[0]])
    others = {
        arm: max(1000, int(round(suite.tokens * target / seconds_of(runs), -3 if suite.tokens > 10_000 else -2)))
        for arm, runs in at_tokens.items()
        if arm != first
    }
    at_seconds = {first: at_tokens[first]} | trained(on, suite, others, args, "seconds")
    budgets |= others
    yield "rows_at_equal_seconds", [row(on, suite, arm, budgets[arm], runs) for arm, runs in at_seconds.items()]


def main() -> None:
    parser = arguments((__doc__ or "").partition("\n")[0])
    parser.add_argument("--on", nargs="+", choices=("chain", "sums"), default=["chain", "sums"], help="which tasks")
    parser.add_argument("--seeds", type=int, default=5, help="runs of each arm")
    parser.add_argument("--jobs", type=int, default=cores(), help="runs at a time, each with its share of threads")
    parser.add_argument("--fresh", action="store_true", help="forget the runs of an earlier call")
    args = parser.parse_args()
    if args.fresh:
        shutil.rmtree(HERE, ignore_errors=True)
    kept = json.loads(args.out.read_text()) if args.out is not None and args.out.exists() else {}
    result: dict[str, Any] = {
        "machine": dict(kept.get("machine", {})),
        "definitions": DEFINITIONS,
        "offline_share": OFFLINE_SHARE,
        "rows": kept.get("rows", []),
        "rows_at_equal_seconds": kept.get("rows_at_equal_seconds", []),
    }
    for on, suite in suites(args).items():
        if on not in args.on:
            continue
        result["machine"][on] = machine()
        for name, rows in compared(on, suite, args):
            show(f"{on}: {name}", rows)
            result[name] = [*(row for row in result[name] if row["tasks"] != on), *rows]
            write(result, args.out)


if __name__ == "__main__":
    main()

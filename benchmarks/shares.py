"""How loud each source of a recipe's advantages is: its share of their variance, over a run.

    python benchmarks/shares.py --out benchmarks/results/shares.json [--steps N] [--tasks N] [RECIPE...]

Every recipe whose stages mix sources, by their settings, is run as its line in ``tests/recipe/proofs.py`` says, but for
more steps in those stages: half an hour on a busy core. Recipes that are named replace their rows in the file; the
others stay. How long a row's run was is in its ``command``.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common import HERE, machine, say, write

sys.path.insert(0, str(HERE.parent / "tests/recipe"))

from proofs import PROOFS

from lyceum.analysis.proving import metrics, mixed, share_metrics, train_before
from lyceum.recipe.schema import load_recipe
from lyceum.training.train import train
from lyceum.utils.numbers import mean

USUAL = ("evaluate.n=0", "track=[]")
STEPS, TASKS = 12, 16
QUICK = 2, 4
WHOLE = ("implicit-prm", "prlcoder", "tp-grpo")
"""Recipes whose stages before are run as shipped: how loud a reward model or a judge is follows what it has learnt."""

DEFINITIONS = {
    "share": "cov(a_s, a) / var(a) over a step's trained tokens (docs/metrics.md), the mean over the steps that log it",
    "steps": "that log it, of those of the stage: none is logged where nothing differs",
    "keys": "of the run, beside tests/recipe/proofs.py's for what goes before it",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="*", metavar="RECIPE", help="by default all that mix sources")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--steps", type=int, default=STEPS, help="of each stage that mixes sources, by default %(default)s"
    )
    parser.add_argument("--tasks", type=int, default=TASKS, help="of each of those steps, by default %(default)s")
    parser.add_argument("--quick", action="store_true", help="one recipe, two small steps: to check that it works")
    parser.add_argument("--out", type=Path, help="JSON file; rows of other recipes in it stay")
    options = parser.parse_args()
    names = (
        ["dapo"]
        if options.quick
        else options.recipes or [name for name, proof in PROOFS.items() if proof.needs is None and mixed(name)]
    )
    rows: list[dict[str, Any]] = []
    if options.out is not None and options.out.exists():
        rows = [row for row in json.loads(options.out.read_text())["rows"] if mixed(row["recipe"])]
    result = {"benchmark": "shares", "definitions": DEFINITIONS, "machine": machine(), "rows": rows}
    for name in names:
        with tempfile.TemporaryDirectory() as work:
            steps, tasks = QUICK if options.quick else (options.steps, options.tasks)
            found = measured(name, options.seed, Path(work), steps=steps, tasks=tasks)
        rows = sorted([row for row in rows if row["recipe"] != name] + found, key=lambda row: row["recipe"])
        result["rows"] = rows
        write(result, options.out)
        say(f"{name}: " + ", ".join(f"{row['source']} {row['share']}" for row in found))


def measured(name: str, seed: int, work: Path, *, steps: int, tasks: int) -> list[dict[str, Any]]:
    """A row for each stage and source."""
    proof = PROOFS[name]
    train_before(name, proof, work)
    brief = () if name in WHOLE else proof.keys
    own = [key.replace("{beside}", str(work / "beside" / name)) for key in brief]
    sized = [f"stages.{place}.{key}" for place in mixed(name) for key in (f"steps={steps}", f"tasks_per_step={tasks}")]
    run = train(load_recipe(name, [*USUAL, *own, *sized, f"seed={seed}", f"output={work / 'run'}"]))
    lines = metrics(run)
    command = " ".join(["lyceum train", name, *USUAL, *brief, *sized, f"seed={seed}"])
    return [
        {"recipe": name, "stage": stage, **row, "seed": seed, "command": command}
        for stage, sources in mixed(name).values()
        for row in of_stage([line for line in lines if line["stage"] == stage], sources)
    ]


def of_stage(lines: Sequence[dict[str, Any]], sources: tuple[str, ...]) -> list[dict[str, Any]]:
    logged = [found for line in lines if (found := share_metrics(line, sources))]
    names = dict.fromkeys(name for found in logged for name in found) or dict.fromkeys(sources)
    return [
        {
            "source": name,
            "share": round(mean([found.get(name, 0.0) for found in logged]), 4) if logged else None,
            "steps": [len(logged), len(lines)],
        }
        for name in names
    ]


if __name__ == "__main__":
    main()

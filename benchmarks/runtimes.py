"""Whether each recipe trains the same bits in a worker process as in one process.

    python benchmarks/runtimes.py --out benchmarks/results/runtimes.json [--quick] [--only RECIPE...]

Every recipe of ``tests/recipe/proofs.py`` that runs on the built-in tasks is trained twice, as briefly as its line
there says: in one process, and with ``runtime=processes`` (one worker, staleness 0). Their digests of each step are
compared: draw, generation, grades, forest, credit, loss and weights, and the metrics. Workers are forks, which have
imported everything. The result is written after each recipe; a further call trains those that are not in the file, or
that are named.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from common import HERE, machine, say, write
from forked import forked_workers

sys.path.insert(0, str(HERE.parent / "tests/recipe"))

from proofs import PROOFS

from lyceum.recipe.schema import load_recipe
from lyceum.run.digests import first_difference, read_digests
from lyceum.training.proving import metrics, train_before, trained
from lyceum.utils.errors import RecipeError, RunError

QUICK = ("grpo",)
WORKER = (
    "runtime=processes",
    "runtime.workers=1",
    "runtime.order=fixed",
    "runtime.staleness=0",
    "runtime.at_once=null",
)
BRIEF = ("track=[]", "checkpoint_every=0", "threads=1")
OF_MACHINE = ("seconds", "time", "memory", "tokens_per_second", "idle", "peak")
"""Beginnings of names of metrics that differ each time."""
DEFINITIONS = {
    "steps": "of the run",
    "differs": "the first step and part that are not the same; null: all bits are",
    "metrics": "those of a step that are not the same: what a grader counts as it grades is lost in a worker",
    "refused": "what a recipe says of workers where it has no use for them; null: it takes them",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--quick", action="store_true", help=f"{', '.join(QUICK)} alone")
    options = parser.parse_args()
    there = options.out is not None and options.out.exists()
    rows: dict[str, dict[str, Any]] = (
        {row["recipe"]: row for row in json.loads(options.out.read_text())["rows"]} if there else {}
    )
    able = [name for name, proof in PROOFS.items() if proof.needs is None]
    names = options.only or (QUICK if options.quick else [name for name in sorted(able) if name not in rows])
    for number, name in enumerate(names):
        row = rows[name] = compared(name)
        say(f"{number + 1}/{len(names)} {name}: {row['steps']} steps, {row['refused'] or row['differs'] or 'the same'}")
        written = [rows[recipe] for recipe in sorted(rows)]
        write({"machine": machine(), "definitions": DEFINITIONS, "rows": written}, options.out)


def compared(name: str) -> dict[str, Any]:
    """A recipe's row."""
    proof = PROOFS[name]
    with tempfile.TemporaryDirectory() as folder:
        one, other = Path(folder, "one"), Path(folder, "other")
        try:
            load_recipe(name, [*proof.keys, *WORKER[:1]])
        except RecipeError as error:
            return {"recipe": name, "steps": 0, "differs": None, "metrics": [], "refused": error.lines[0]}
        train_before(name, proof, Path(folder))
        here = trained(name, proof, one, *BRIEF, "runtime=in-process")
        digests = read_digests(here)
        try:
            with forked_workers():
                found = first_difference(digests, read_digests(trained(name, proof, other, *BRIEF, *WORKER)))
        except (RecipeError, RunError) as error:
            why = " | ".join(error.lines)
            return {"recipe": name, "steps": len(digests), "differs": why, "metrics": [], "refused": None}
        lines = [[plain(line) for line in metrics(run / name)] for run in (one, other)]
    names = "" if found is None else ", ".join(list(found.values)[:4])
    differs = None if found is None else f"step {found.step}, {found.part}: {names}"
    lost = sorted({key for a, b in zip(*lines, strict=True) for key in a.keys() | b.keys() if a.get(key) != b.get(key)})
    return {"recipe": name, "steps": len(digests), "differs": differs, "metrics": lost, "refused": None}


def plain(line: dict[str, Any]) -> dict[str, Any]:
    """A step's metrics without those of time and memory."""
    return {key: value for key, value in line.items() if not key.startswith(OF_MACHINE)}


if __name__ == "__main__":
    main()

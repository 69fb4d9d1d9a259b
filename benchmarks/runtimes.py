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

from lyceum.analysis.differences import first_difference, read_digests
from lyceum.analysis.proving import brief_keys, metrics, train_before, trained
from lyceum.recipe.schema import load_recipe
from lyceum.utils.errors import RecipeError

QUICK = ("grpo",)
WORKER = (
    "runtime=processes",
    "runtime.workers=1",
    "runtime.order=fixed",
    "runtime.staleness=0",
    "runtime.at_once=null",
    "runtime.ratio=step",
)
BRIEF = ("track=[]", "checkpoint_every=0", "threads=1")
OF_MACHINE = ("seconds", "time", "memory", "tokens_per_second", "idle", "peak")
"""Beginnings of names of metrics that differ each time."""
DEFINITIONS = {
    "steps": "of the run",
    "differs": "the first step and part that are not the same, or an error; null: all bits are",
    "metrics": "those of a step that are not the same: what a grader counts as it grades is lost in a worker",
    "refused": "what a recipe says of workers where it has no use for them; null: it takes them",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--quick", action="store_true", help=f"{', '.join(QUICK)} alone")
    options = parser.parse_args()
    rows: dict[str, dict[str, Any]] = {}
    if options.out is not None and options.out.exists():
        rows = {row["recipe"]: row for row in json.loads(options.out.read_text())["rows"]}
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
    row = {"recipe": name, "steps": 0, "differs": None, "metrics": [], "refused": None}
    with tempfile.TemporaryDirectory() as folder:
        try:
            train_before(name, proof, Path(folder))
            load_recipe(name, [*brief_keys(name, proof, Path(folder, "other")), WORKER[0]])
        except RecipeError as error:
            return row | {"refused": error.lines[0]}
        try:
            one = trained(name, proof, Path(folder, "one"), *BRIEF, "runtime=in-process")
            with forked_workers():
                other = trained(name, proof, Path(folder, "other"), *BRIEF, *WORKER)
        except Exception as error:
            return row | {"differs": f"{type(error).__name__}: {error}"}
        digests = read_digests(one)
        found = first_difference(digests, read_digests(other))
        lines = [[plain(line) for line in metrics(run)] for run in (one, other)]
    if found is not None:
        row["differs"] = f"step {found.step}, {found.part}: {', '.join(list(found.values)[:4])}"
    lost = sorted({key for a, b in zip(*lines, strict=True) for key in a.keys() | b.keys() if a.get(key) != b.get(key)})
    return row | {"steps": len(digests), "metrics": lost}


def plain(line: dict[str, Any]) -> dict[str, Any]:
    """A step's metrics without those of time and memory."""
    return {key: value for key, value in line.items() if not key.startswith(OF_MACHINE)}


if __name__ == "__main__":
    main()

"""Which recipes let their mechanism act, how often, and what the same run is without it.

    python benchmarks/mechanisms.py --out benchmarks/results/mechanisms.json [--quick] [--only RECIPE...]
    python benchmarks/mechanisms.py --page benchmarks/results/mechanisms.json > docs/mechanisms.md

Every recipe of ``tests/recipe/proofs.py`` that runs on the built-in tasks is run briefly, as its line there says, once
as shipped and once for each way of switching its mechanism off, at equal seed; what acts later than that, in a longer
run. Recipes that are named replace their rows in the file; the others stay. The page begins with ``mends.json`` beside
that file: what was wrong or idle, with a figure before and after.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from common import HERE, machine, say, write

sys.path.insert(0, str(HERE.parent / "tests/recipe"))

from proofs import PROOFS

from lyceum.analysis.differences import first_difference, read_digests
from lyceum.analysis.proving import acted, metrics, train_before, without_metrics
from lyceum.recipe.proof import Proof
from lyceum.recipe.schema import load_recipe
from lyceum.run.reader import read_summary
from lyceum.training.train import train
from lyceum.utils.errors import RunError

USUAL = ("evaluate.n=0", "track=[]", "digests=true")

QUICK = ("grpo", "scaf-grpo", "treepo")

DEFINITIONS = {
    "metric": "what shows that the mechanism acts; above 0 where it says no other bound",
    "acted": "steps in which it did, of the steps that log it",
    "shipped": "sum over the steps of a count; mean over them of any other number",
    "groups, samples": "of the whole run, groups dropped included: what counts are counted among",
    "off": "the same with the mechanism switched off by these keys; null: not logged any more",
    "differs": "the first step, and the first part of it, in which that run is another one",
    "late": "metrics of a longer run with `keys`: acted, logged, shipped as above, `then` without that part by `off`",
}

HEAD = """# Mechanism checks

<!-- Made by `python benchmarks/mechanisms.py --page`. -->

For every recipe: does its mechanism do anything? Each is run on the built-in tasks, mostly for two steps of four tasks,
once as shipped and once with the mechanism switched off at equal seed; further ways to switch it off are in
[all results](../benchmarks/results/mechanisms.json). Two steps show that a mechanism acts, not that it helps: see
[Choosing a method](choosing.md).

"""
MENDS = """## Wrong or idle before, and after

What a comparison with the authors' code and counters of each mechanism found, and the same after it was mended. Figures
of one seed show that it acts now, not that it helps. The command of each row is in
[all mends](../benchmarks/results/mends.json).

| recipe | what was wrong | metric | before | after | seeds |
|---|---|---|---|---|---|
"""
TABLE = """## All recipes

*Metric* is what shows the mechanism, *acted* in how many steps it did (*later*: in a longer run, since this part needs
more steps), *as shipped* a count's sum over the steps, or the mean of any other number, *then* the same without that
part of the mechanism, and *differs in* the first part of a step in which that run is another one. *Unchanged* is a
count of what the mechanism works on, and not of what it does with it, as `GIVEN` and `given` in
`tests/recipe/proofs.py` say: there *differs in* alone tells the runs apart.
How briefly a recipe runs is in `tests/recipe/proofs.py`; recipes that need SmolLM2 are left out.

| recipe | metric | acted in steps | as shipped | groups, samples | switched off by | then | differs in |
|---|---|---|---|---|---|---|---|
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="*", metavar="RECIPE", help="by default all")
    parser.add_argument("--only", nargs="+", default=[], metavar="RECIPE", help="the same")
    parser.add_argument("--out", type=Path, help="JSON file; rows of other recipes in it stay")
    parser.add_argument("--quick", action="store_true", help=f"without named recipes only {', '.join(QUICK)}")
    parser.add_argument("--page", type=Path, help="print this result as the page of the documentation")
    options = parser.parse_args()
    if options.page is not None:
        print(page(*read(options.page)), end="")
        return
    only = [*options.recipes, *options.only]
    every = QUICK if options.quick else [name for name, proof in PROOFS.items() if proof.needs is None]
    names = only or every
    known: dict[str, Any] = {}
    if options.out is not None and options.out.exists() and only:
        known = {row["recipe"]: row for row in json.loads(options.out.read_text())["rows"]}
    result: dict[str, Any] = {"benchmark": "mechanisms", "definitions": DEFINITIONS, "machine": machine(), "rows": []}
    for name in names:
        with tempfile.TemporaryDirectory() as work:
            known[name] = measured(name, PROOFS[name], Path(work))
        result["rows"] = [known[each] for each in sorted(known)]
        write(result, options.out)
        say(f"{name}: {known[name]['cpu_seconds']} s")


def measured(name: str, proof: Proof, work: Path) -> dict[str, Any]:
    """A recipe's row."""
    began = time.process_time()
    train_before(name, proof, work)
    run = trained(name, proof, work / "shipped", ())
    lines = metrics(run)
    expected = without_metrics(read_digests(run))
    row: dict[str, Any] = {
        "recipe": name,
        "keys": list(proof.keys),
        "steps": len(lines),
        "groups": sum(line.get("groups", 0) + line.get("groups_dropped", 0) for line in lines),
        "samples": read_summary(run).get("trajectories"),
        "metrics": [{"metric": metric, **counted(metric, lines)} for metric in proof.acted],
        "off": [],
        "late": [],
    }
    for number, off in enumerate(proof.off):
        keys = (off,) if isinstance(off, str) else off
        folder = work / f"off-{number}"
        without: dict[str, Any] = {"keys": list(keys)}
        try:
            trained(name, proof, folder, keys)
        except RunError as error:  # without its mechanism a method may come to nothing after some steps
            without["ended"] = error.lines[0]
        lines = metrics(folder / name)
        found = first_difference(expected, without_metrics(read_digests(folder / name)))
        without["values"] = [counted(metric, lines)["shipped"] for metric in proof.acted]
        without["differs"] = None if found is None else {"step": found.step, "part": found.part}
        row["off"].append(without)
    if proof.late:
        longer = replace(proof, keys=proof.longer)
        run = trained(name, longer, work / "longer", ())
        lines = metrics(run)
        for number, (metric, off) in enumerate(proof.late.items()):
            of_off = metrics(trained(name, longer, work / f"late-{number}", (off,)))
            found = {"metric": metric, **counted(metric, lines), "keys": list(proof.longer), "off": off}
            samples = read_summary(run).get("trajectories")
            row["late"].append(found | {"samples": samples, "then": counted(metric, of_off)["shipped"]})
    return row | {"cpu_seconds": round(time.process_time() - began, 1)}


def trained(name: str, proof: Proof, folder: Path, off: Sequence[str]) -> Path:
    keys = [key.replace("{beside}", str(folder.parent / "beside" / name)) for key in proof.keys]
    return train(load_recipe(name, [*USUAL, *keys, *off, f"output={folder}"]))


def counted(metric: str, lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """In how many steps a metric is within its bound, of how many that log it; and its sum, or mean."""
    name = metric.partition(" ")[0]
    values = [line[name] for line in lines if line.get(name) is not None]
    inside = sum(acted(metric, [line]) for line in lines)
    whole = all(float(value).is_integer() for value in values)
    total = None if not values else sum(values) if whole else sum(values) / len(values)
    return {"acted": inside, "logged": len(values), "shipped": total, "count": whole}


def read(file: Path) -> tuple[Mapping[str, Any], list[Mapping[str, Any]]]:
    """The results, and the mends beside them."""
    mends = file.with_name("mends.json")
    return json.loads(file.read_text()), json.loads(mends.read_text()) if mends.exists() else []


def page(result: Mapping[str, Any], mends: Sequence[Mapping[str, Any]] = ()) -> str:
    mended = [
        line(
            f"`{mend['recipe']}`",
            *(mend[key] for key in ("what", "metric", "before", "after")),
            ", ".join(map(str, mend["seeds"])) or "no chance in it",
        )
        for mend in mends
    ]
    rows = [each for row in result["rows"] for each in lines_of(row)]
    return "".join([HEAD, *([MENDS, *mended, "\n"] if mended else []), TABLE, *rows])


def lines_of(row: Mapping[str, Any]) -> list[str]:
    """A line per metric, with the first way of switching the mechanism off that changes it, else with the first; the
    others are in the JSON file."""
    lines: list[str] = []
    name = f"`{row['recipe']}`"
    for number, shown in enumerate(row["metrics"]):
        moved = [off for off in row["off"] if off["values"] and off["values"][number] != shown["shipped"]]
        off = next(iter(moved or row["off"]), {"keys": [], "values": [], "differs": None})
        lines.append(
            line(
                name if not lines else "",
                f"`{shown['metric']}`",
                f"{shown['acted']} of {shown['logged']}",
                figure(shown["shipped"]),
                ", ".join(str(row[key] or "-") for key in ("groups", "samples")),
                " ".join(f"`{key}`" for key in off["keys"]),
                figure(off["values"][number]) if moved else "unchanged" if off["keys"] else "",
                off["differs"]["part"] if off["differs"] else "",
            )
        )
    for late in row.get("late", ()):
        lines.append(
            line(
                name if not lines else "",
                f"`{late['metric']}`",
                f"later: {late['acted']} of {late['logged']}",
                figure(late["shipped"]),
                f"-, {late['samples'] or '-'}",
                f"`{late['off']}`",
                figure(late["then"]),
                "",
            )
        )
    return lines


def line(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def figure(value: float | None) -> str:
    return "not logged" if value is None else f"{value:.4g}"


if __name__ == "__main__":
    main()

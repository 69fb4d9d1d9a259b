"""Where two runs, or the runs of two checkouts, first differ: the step, the part of it and the values."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lyceum.analysis.differences import first_difference, read_digests
from lyceum.recipe.files import recipe_names
from lyceum.run.folder import differences
from lyceum.run.reader import read_recipe, read_run_folder, read_summary
from lyceum.utils.numbers import to_json
from lyceum.utils.progress import Mode, track
from lyceum.utils.terminal import quoted

SHOWN = 8
"""Maximum number of differing names shown."""

USUAL = ("steps=2", "evaluate.n=0", "checkpoint_every=0", "track=[]")
"""Default keys for the runs of two checkouts."""

_TRAIN = """
import json, os, sys
import lyceum
names, keys, output = json.load(sys.stdin)
for name in names:
    try:
        lyceum.train(name, [*keys, "digests=true"], name=name, output=output, progress="silent")
        ended = None
    except Exception as error:
        ended = f"{type(error).__name__}: {error}"
    try:
        print(json.dumps(ended), flush=True)
    except BrokenPipeError:  # nobody waits any more
        os._exit(1)
"""
"""The program that each checkout's process runs: uses only what every version since ``digests`` has."""


def of_runs(name: str, a: Path, b: Path) -> dict[str, Any]:
    """Two runs' first difference, and differences of their recipes and versions."""
    digests = read_digests(a)
    found = first_difference(digests, read_digests(b))
    versions = [read_summary(run).get("versions") or {} for run in (a, b)]
    made_with = differences(read_recipe(a), read_recipe(b)) | differences(*versions)
    by_clock = any(read_summary(run).get("by_clock") for run in (a, b))
    differs = None
    if found is not None:
        stages = {line["step"]: line.get("stage") for line in read_run_folder(a).metrics}
        stage = stages.get(found.step) if len(set(stages.values())) > 1 else None
        differs = {"step": found.step, "stage": stage, "part": found.part, "values": dict(found.values)}
    return {"run": name, "steps": len(digests), "differs": differs, "by_clock": by_clock, "made_with": made_with}


def of_checkouts(a: Path, b: Path, words: Sequence[str], *, progress: Mode) -> list[dict[str, Any]]:
    """Train all recipes, or the named ones, for two steps with each of two checkouts, side by side."""
    recipes = [word for word in words if "=" not in word] or recipe_names()
    keys = [*USUAL, *(word for word in words if "=" in word)]
    with tempfile.TemporaryDirectory() as folder:
        sides = [Path(folder) / side for side in ("a", "b")]
        processes = [_start(*each, recipes, keys) for each in zip((a, b), sides, strict=True)]
        try:
            found: list[dict[str, Any]] = []
            for name in track(recipes, "training by both", mode=progress):
                ended = [_next(process) for process in processes]
                found.append(_of_ended(name, ended, [side / name for side in sides]))
            return found
        finally:
            for process in processes:
                process.kill()
                process.wait()


def _start(checkout: Path, output: Path, recipes: Sequence[str], keys: Sequence[str]) -> subprocess.Popen[str]:
    """A process that trains with a checkout's own code, on one thread, since two run at once."""
    source = str((checkout / "src").resolve())
    environment = {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", _TRAIN],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdin is not None
    process.stdin.write(to_json([list(recipes), list(keys), str(output)]))
    process.stdin.close()
    return process


def _next(process: subprocess.Popen[str]) -> str | None:
    """The error that the process's next run ended with; None if it succeeded."""
    assert process.stdout is not None
    line = process.stdout.readline()
    return json.loads(line) if line else f"the process died with status {process.wait()}"


def _of_ended(name: str, ended: Sequence[str | None], runs: Sequence[Path]) -> dict[str, Any]:
    """Compare two runs of one recipe; if both were refused, their messages."""
    if ended == [None, None]:
        return of_runs(name, *runs)
    values = None if ended[0] == ended[1] else {"ended": tuple(ended)}
    differs = None if values is None else {"step": 0, "stage": None, "part": "start", "values": values}
    return {"run": name, "steps": 0, "differs": differs, "made_with": {}, "ended": ended[0]}


def lines_of(found: Sequence[dict[str, Any]]) -> list[str]:
    """As text: one line per run that is the same, the first names and values of one that differs."""
    lines: list[str] = []
    for each in found:
        differs = each["differs"]
        if differs is None:
            lines.append(f"{each['run']}: " + (each.get("ended") or f"{each['steps']} steps the same"))
            continue
        stage = f" ({differs['stage']})" if differs["stage"] else ""
        lines.append(f"{each['run']}: first differs at step {differs['step']}{stage} in {differs['part']}")
        if each.get("by_clock"):
            lines.append("  its batches depend on the clock (waits=false): last bits differ from run to run")
        for title, what in (("", differs["values"]), ("  made with", each["made_with"])):
            lines += [title] if title and what else []
            shown = list(what.items())[:SHOWN]
            lines += [f"    {name}: {quoted(one)} | {quoted(other)}" for name, (one, other) in shown]
            if len(what) > len(shown):
                lines.append(f"    and {len(what) - len(shown)} more")
    return lines

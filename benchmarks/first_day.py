"""The commands of a first day, typed into fresh clones with the clock running: docs/first-day.md.

    python benchmarks/first_day.py --out first_day.json

It installs lyceum twice, from the package registry, and needs 5 GB in ``--folder``. Pages give the files; nothing else
is written there. On a machine that does other things too the CPU time is the figure to compare.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from common import HERE, cores, say

REPOSITORY = HERE.parent
FILES = {
    "own-data": ("problems.jsonl",),
    "own-reward": ("my_reward.py", "answers.jsonl"),
    "own-tools": ("my_tools.py",),
    "converting": ("grpo_script.py",),
    "method": ("my_median/credit_my_median.py",),
}
"""By page: the blocks that a newcomer copies into files, in the clone's folder."""
FIRST, SECOND = "lyceum", "another"
"""The two clones: in the second, ``make smollm2`` is the first command."""
LINES = 14
"""Last lines of what a command says that are kept."""
TOOL = '{kind: tools, functions: [my_tools.py:compute], notation: {end: "="}}'
OWN = "tasks=problems.jsonl reward=my_reward.py:score"
LOADED = "from transformers import pipeline; print(pipeline('text-generation', 'runs/longer/model')('3+4-2='))"
COMMANDS = (
    (FIRST, "make install"),
    (FIRST, "make demo"),
    (FIRST, "lyceum train grpo steps=20 --name first"),
    (FIRST, "lyceum train grpo --dry-run"),
    (FIRST, "lyceum recipes show grpo"),
    (FIRST, "lyceum view runs/first"),
    (FIRST, "lyceum eval runs/first --k 1,8"),
    (FIRST, "lyceum train grpo credit=leave-one-out steps=20 --name second"),
    (FIRST, "lyceum doctor base"),
    (FIRST, "lyceum compare grpo rloo --seeds 1 --tokens 20000"),
    (FIRST, "lyceum train grpo tasks=problems.jsonl steps=50 --name mine"),
    (FIRST, "lyceum grade answers.jsonl --reward my_reward.py:score --json"),
    (FIRST, "lyceum train grpo reward=my_reward.py:score steps=50 --name rewarded"),
    (FIRST, "lyceum train grpo reward=my_reward.py:trl_reward steps=50 --name rewarded-as-in-trl"),
    (FIRST, f"lyceum train grpo {OWN} steps=30 keep.every=10 --name day"),
    (FIRST, "lyceum eval runs/day/kept_models/step-10 --tasks problems.jsonl --reward my_reward.py:score --k 1,4"),
    (FIRST, f"lyceum train grpo model=runs/day {OWN} steps=10 --name longer"),
    (FIRST, "lyceum push runs/longer me/longer --dry-run"),
    (FIRST, f'python -c "{LOADED}"'),
    (FIRST, "lyceum convert grpo_script.py num_processes=8 --out converted.yaml"),
    (FIRST, "lyceum train converted.yaml model.path=base tasks=problems.jsonl evaluate.n=0 trust_code=true"),
    (FIRST, "lyceum train grpo credit=my_median/credit_my_median.py:Median credit.limit=0.5 steps=20 --name median"),
    (FIRST, f"lyceum train calculator rollout.environment='{TOOL}' steps=20 --name own-tool"),
    (FIRST, "lyceum train cascade-rl"),
    (FIRST, "lyceum train grpo tasks=probelms.jsonl"),
    (FIRST, "make smollm2"),
    (FIRST, "lyceum train smollm2-sums steps=3 --name smol"),
    (SECOND, "make smollm2"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="JSON file for the result")
    parser.add_argument("--folder", type=Path, help="where the clones go (a temporary folder)")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="first-day-", dir=args.folder))
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=REPOSITORY, text=True).strip()
    result: dict[str, Any] = {"commit": commit, "cores": cores(), "cpu": cpu(), "load": os.getloadavg()[0]}
    for clone in (FIRST, SECOND):
        subprocess.run(["git", "clone", "--quiet", REPOSITORY, folder / clone], check=True)
    for page, names in FILES.items():
        for name in names:
            file = folder / FIRST / name
            file.parent.mkdir(exist_ok=True)
            file.write_text(block(page, name), "utf-8")
    rows = result["commands"] = list[dict[str, Any]]()
    try:
        for clone, command in COMMANDS:
            rows.append(clocked(command, folder / clone))
            say(f"{rows[-1]['wall_seconds']:7.1f} s  {command}  [{rows[-1]['status']}]")
            args.out.write_text(json.dumps(result, indent=1, allow_nan=False) + "\n", "utf-8")
    finally:
        shutil.rmtree(folder)


def cpu() -> str:
    """The processor's name."""
    found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text("utf-8"))
    return found[1] if found else "unknown"


def block(page: str, name: str) -> str:
    """The block of a page that is to be copied into the file ``name``."""
    text = (REPOSITORY / f"docs/{page}.md").read_text("utf-8")
    found = re.search(rf'^```\w+ title="{re.escape(name)}"\n(.*?)^```$', text, re.DOTALL | re.MULTILINE)
    if found is None:
        raise SystemExit(f"docs/{page}.md has no block titled {name}")
    return found[1]


def clocked(command: str, folder: Path) -> dict[str, Any]:
    """Run a command as a newcomer would, in the clone's environment; what it took and its last lines."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment["PATH"] = f"{folder / '.venv/bin'}:{environment['PATH']}"
    load, before, began = os.getloadavg()[0], os.times(), time.perf_counter()
    done = subprocess.run(command, shell=True, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    took, after = time.perf_counter() - began, os.times()
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    said = [line for line in (done.stderr if done.returncode else done.stdout).splitlines() if line.strip()]
    return {
        "folder": folder.name,
        "command": command,
        "wall_seconds": round(took, 1),
        "cpu_seconds": round(seconds, 1),
        "load": round(load, 2),
        "status": done.returncode,
        "said": said[-LINES:],
    }


if __name__ == "__main__":
    main()

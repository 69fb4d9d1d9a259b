"""A replay store of a million trajectories: written, drawn from, and gone on with, in how much memory.

    python benchmarks/replay.py --out replay.json [--quick]

Trajectories are made up and short: what is measured is the store, ``replay: own``, as a stage uses it, without a model.
Each step stores its groups, and every eighth draws some; then a second process loads the index, as a resumed run does
from its checkpoint, and draws again what the first drew after it. Memory is that of the whole process.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from hashlib import blake2b
from pathlib import Path
from statistics import fmean
from typing import Any

from common import arguments, machine, peak_mib, resident_mib, say, table, write

SAMPLES, GROUPS, DRAWN, EVERY, AFTER = 8, 128, 32, 8, 5
"""Trajectories per group, groups stored per step, groups per draw, steps per draw, draws after the checkpoint."""
SEED = 3

DEFINITIONS = {
    "resident_mib": "of the process when it began, torch included",
    "peak_mib": "greatest resident memory of the process",
    "grown_mib": "peak_mib of the second half of the steps minus that of the first: what a longer run would add",
    "index_mib": "the index of all groups, as a checkpoint holds it",
    "store_seconds, draw_seconds": "of a step that does it, mean over all; making the trees up is in neither",
    "bytes_per_trajectory": "on the disk",
    "resumed_draws_alike": "draws after the checkpoint that are those of the process that went on",
}


def groups_of(step: int) -> list[Any]:
    """A step's trees: eight answers of 6 to 13 tokens under a prompt of 12."""
    from lyceum.core.tree import Node, Tree
    from lyceum.core.types import Continuation, Grade, Task

    trees = []
    for number in range(GROUPS):
        root = Node.prompt([(step + number + i) % 97 for i in range(12)], "12 tokens of prompt")
        for sample in range(SAMPLES):
            tokens = [(step * 31 + number * 7 + sample + i) % 97 for i in range(6 + sample)]
            logprob = [-0.125 * (1 + token % 8) for token in tokens]
            leaf = root.add_drawn(Continuation(tokens, logprob, logprob, [step] * len(tokens), "stop"), "an answer")
            leaf.grade = Grade(float((step + number + sample) % 3 == 0))
        task = Task(f"task-{step}-{number}", ({"role": "user", "content": "12 tokens of prompt"},), answer=number)
        trees.append(Tree(task, [root], sampled_tokens=76, mean_abs_advantage=(number % 5) / 5))
    return trees


def source(folder: Path) -> Any:
    from lyceum.buffer.own import Own

    settings = Own(most=10_000_000, priority="advantage")
    return settings.build(folder, seed=SEED, stage=0, first_step=0)


def drawn(store: Any, done: int) -> str:
    """A digest of what the step after ``done`` steps draws."""
    groups = store.draw(done, DRAWN)
    found = [(g.tree.task.id, g.age, [leaf.tokens for leaf in g.tree.trajectories]) for g in groups]
    return blake2b(json.dumps(found).encode(), digest_size=8).hexdigest()


def stored(folder: Path, steps: int) -> dict[str, Any]:
    """The first process: all steps, a checkpoint, and the draws of the steps after it."""
    import torch  # noqa: F401  (which a stage has loaded anyway)

    from lyceum.run import checkpoint

    began, first_half = resident_mib(), 0.0
    store, seconds = source(folder), {"store": list[float](), "draw": list[float]()}
    for done in range(steps):
        if done % EVERY == 1:
            started = time.perf_counter()
            drawn(store, done)
            seconds["draw"].append(time.perf_counter() - started)
        trees = groups_of(done + 1)
        started = time.perf_counter()
        store.observe(done + 1, trees, [1.0] * GROUPS)
        seconds["store"].append(time.perf_counter() - started)
        if done == steps // 2:
            first_half = peak_mib()
        if done % 100 == 99:
            say(f"{(done + 1) * GROUPS * SAMPLES:,} trajectories, {resident_mib():.0f} MiB")
    state = store.state_dict()["index"]
    checkpoint.save(folder / "checkpoints", steps, store.state_dict(), keep=1)
    files = sum(file.stat().st_size for file in (folder / "replay").iterdir())
    return {
        "trajectories": steps * GROUPS * SAMPLES,
        "groups": len(store.index),
        "resident_mib": round(began),
        "peak_mib": round(peak_mib()),
        "grown_mib": round(peak_mib() - first_half),
        "index_mib": round(sum(x.numel() * x.element_size() for x in state.values()) / 2**20, 2),
        "store_seconds": round(fmean(seconds["store"]), 4),
        "draw_seconds": round(fmean(seconds["draw"]), 4),
        "total_seconds": round(sum(map(sum, seconds.values())), 1),
        "bytes_per_trajectory": round(files / (steps * GROUPS * SAMPLES), 1),
        "draws": [drawn(store, steps + i) for i in range(AFTER)],
    }


def resumed(folder: Path, steps: int) -> dict[str, Any]:
    """The second process: the index back from the checkpoint, and the same draws."""
    from lyceum.run import checkpoint

    started = time.perf_counter()
    store = source(folder)
    found = checkpoint.latest(folder / "checkpoints")
    assert found is not None
    store.load_state_dict(checkpoint.load(found))
    loaded = time.perf_counter() - started
    return {
        "load_seconds": round(loaded, 4),
        "draws": [drawn(store, steps + i) for i in range(AFTER)],
        "peak_mib": round(peak_mib()),
    }


def in_a_process(what: str, folder: Path, steps: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--worker", what, str(folder), str(steps)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def main() -> int:
    if sys.argv[1:2] == ["--worker"]:
        what, folder, steps = sys.argv[2:5]
        print(json.dumps({"stored": stored, "resumed": resumed}[what](Path(folder), int(steps))))
        return 0
    given = arguments(__doc__ or "").parse_args()
    steps = 40 if given.quick else -(-1_000_000 // (GROUPS * SAMPLES))
    with tempfile.TemporaryDirectory() as name:
        first = in_a_process("stored", Path(name), steps)
        second = in_a_process("resumed", Path(name), steps)
    alike = sum(a == b for a, b in zip(first.pop("draws"), second.pop("draws"), strict=True))
    result = {"stored": first, "resumed": second, "resumed_draws_alike": alike, "of": AFTER}
    rows = [(name, str(value)) for part in (first, second) for name, value in part.items()]
    table("A million trajectories stored", ("measured", "value"), [*rows, ("draws alike", f"{alike} of {AFTER}")])
    write({"definitions": DEFINITIONS, "machine": machine(), **result}, given.out)
    return 0 if alike == AFTER else 1


if __name__ == "__main__":
    sys.exit(main())

"""What the run's own process does of each step, measured, and on how many GPUs it would be what a step waits for.

    python benchmarks/scaling.py --out benchmarks/results/scaling.json [--quick]

Two minutes, a thread. Workers draw and learners compute on GPUs; one process publishes the weights, and reads, checks
and orders the groups that workers send. Measured: seconds a gigabyte to write a version and to read it again, bytes and
seconds a token of a group's message, seconds of an admission. From these the share of a step on 8, 64 and more GPUs, at
the speed that AReaL publishes for its own asynchronous runs, taken as proportional to the GPUs. Not in it: building a
forest of the groups.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import common
import torch

from lyceum.core.tree import Node, Tree
from lyceum.core.types import Continuation, Grade, Origin, Task
from lyceum.run.trees import pack_trees, unpack_trees
from lyceum.runtime.admission import to_train
from lyceum.runtime.processes import read_state, write_state

PUBLISHED = (
    {"parameters": 1.5e9, "nodes": 16, "hours": 14.8},
    {"parameters": 7e9, "nodes": 24, "hours": 25.4},
)
"""AReaL: blog/AReaL_v0_3.md in inclusionAI/AReaL (table 2), 1,000 steps on nodes of 8 GPUs."""
PROMPTS, ANSWERS = 512, 16
"""Of a step: AReaL says 16 answers."""
LENGTHS = (2048, 8192)
"""Mean tokens of an answer: AReaL allows 27,000 and does not say how many they are."""
GPUS = (8, 64, 128, 512)
DEFINITIONS = {
    "snapshot.write, .read": "seconds a gigabyte of float32 weights, into shared memory where there is some and back",
    "message.bytes": "of a trained token in a group's message",
    "message.pack, .unpack": "seconds a million tokens, in the worker and in the run's process",
    "admission": "seconds of one choice of a step's 512 groups among 4,608 that are finished",
    "step": "seconds of a step, published and proportional to the GPUs",
    "run": "seconds of a step in which the run's process unpacks its groups, chooses them and writes the weights once",
    "share": "run over step: 1 is where a step waits for it, whatever is added",
    "bytes_per_second": "groups' messages and one copy of the weights, into and out of the run's process",
}


def main() -> None:
    options = common.arguments(__doc__ or "").parse_args()
    torch.set_num_threads(options.threads)
    repeats = 1 if options.quick else 5
    tokens = 64 if options.quick else 4096
    measured = {
        "snapshot": snapshot(2**22 if options.quick else 2**28, repeats),
        "message": message(tokens, repeats),
        "admission": admission(repeats),
    }
    common.say(f"measured: {measured}")
    rows = [needed(of, gpus, length, measured) for of in PUBLISHED for length in LENGTHS for gpus in GPUS]
    result = {"benchmark": "scaling", "definitions": DEFINITIONS, "machine": common.machine(), "published": PUBLISHED}
    common.write({**result, "measured": measured, "needed": rows}, options.out)
    columns = ["parameters", "tokens", "gpus", "step", "run", "share", "bytes_per_second"]
    common.table("a step", columns, [[f"{row[name]:.3g}" for name in columns] for row in rows])


def seconds(repeats: int, do: Callable[[], Any]) -> float:
    """The median of several calls."""
    taken = list[float]()
    for _ in range(repeats):
        began = time.perf_counter()
        do()
        taken.append(time.perf_counter() - began)
    return median(taken)


def snapshot(numbers: int, repeats: int) -> dict[str, float]:
    """As a version is published (``Workers.publish``) and read by a worker."""
    state = {"weights": torch.randn(numbers)}
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as folder:
        file, gigabytes = Path(folder) / "weights.safetensors", 4 * numbers / 1e9
        write = seconds(repeats, lambda: write_state(file, state))
        # Read when it is copied into the worker's model: the file is mapped.
        read = seconds(repeats, lambda: state["weights"].copy_(read_state(file)["weights"]))
    return {"write": round(write / gigabytes, 4), "read": round(read / gigabytes, 4)}


def message(tokens: int, repeats: int) -> dict[str, float]:
    """Of one group, as a worker sends it."""
    tree, n = group(tokens), ANSWERS * tokens
    packed = pack_trees([tree])
    return {
        "bytes": round(len(packed) / n, 2),
        "pack": round(1e6 * seconds(repeats, lambda: pack_trees([tree])) / n, 4),
        "unpack": round(1e6 * seconds(repeats, lambda: unpack_trees(packed)) / n, 4),
    }


def group(tokens: int) -> Tree:
    """A prompt of 256 tokens and its answers, drawn at random."""
    draw = random.Random(0)
    root = Node(None, [draw.randrange(150_000) for _ in range(256)], Origin.PROMPT, text="p" * 1024)
    for number in range(ANSWERS):
        logprobs = [float(torch.tensor(-draw.expovariate(2.0))) for _ in range(tokens)]
        drawn = [draw.randrange(150_000) for _ in range(tokens)]
        leaf = root.add_drawn(Continuation(drawn, logprobs, logprobs, [3] * tokens, "stop"), "a" * 4 * tokens)
        leaf.grade = Grade(float(number % 2), bool(number % 2))
    return Tree(Task("0", ({"role": "user", "content": "p" * 1024},), answer="7"), [root])


def admission(repeats: int) -> float:
    draw = random.Random(0)
    ready = [draw.randrange(8, 16) for _ in range(9 * PROMPTS)]
    return round(seconds(repeats, lambda: to_train(ready, [16] * PROMPTS, 8, size=PROMPTS)), 5)


def needed(of: Mapping[str, Any], gpus: int, length: int, measured: Mapping[str, Any]) -> dict[str, Any]:
    """Of a step with this many GPUs."""
    step = of["hours"] * 3.6 * of["nodes"] * 8 / gpus
    tokens, gigabytes = PROMPTS * ANSWERS * length, 4 * of["parameters"] / 1e9
    run = measured["message"]["unpack"] * tokens / 1e6 + measured["admission"]
    run += measured["snapshot"]["write"] * gigabytes
    moved = tokens * measured["message"]["bytes"] + 1e9 * gigabytes
    return {
        "case": f"{of['parameters'] / 1e9:g} billion, {length:,} tokens an answer",
        **{"parameters": of["parameters"], "tokens": length, "gpus": gpus, "step": round(step, 2)},
        **{"run": round(run, 3), "share": round(run / step, 4), "bytes_per_second": round(moved / step)},
    }


if __name__ == "__main__":
    main()

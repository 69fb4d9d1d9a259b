"""What the run's own process does of each step, measured, and on how many GPUs it would be what a step waits for.

    python benchmarks/scaling.py --out benchmarks/results/scaling.json [--quick]

Three minutes, a thread. Workers draw and learners compute on GPUs; one process publishes the weights, reads, checks and
orders the groups that workers send, and builds a forest of them. Measured: seconds a gigabyte to write a version and to
read it again, bytes and seconds a token of a group's message, seconds a token of a forest, seconds of an admission.
From these the share of a step on 8, 64 and more GPUs, at the speeds that AReaL and verl publish for their own
asynchronous runs; and how fast ``order: ready`` would be with the phases that verl publishes, simulated with its rule
of admission. With several learners the first one's process does all of it, and sends the others the forest.
"""

from __future__ import annotations

import math
import random
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean, median
from typing import Any

import common
import torch
from asynchrony import simulate

from lyceum.core.forest import build_forest
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Continuation, Grade, Origin, Task
from lyceum.run.trees import pack_trees, unpack_trees
from lyceum.runtime.admission import to_train
from lyceum.runtime.processes import read_state, write_state

PROMPTS, ANSWERS = 512, 16
"""Of a step, as verl's; AReaL says 16 answers."""
PUBLISHED: Mapping[str, Mapping[str, Any]] = {
    "AReaL, 1.5 billion": {"parameters": 1.5e9, "steps": {128: 14.8 * 3.6}, "synchronous": {128: 41.0 * 3.6}},
    "AReaL, 7 billion": {"parameters": 7e9, "steps": {192: 25.4 * 3.6}, "synchronous": {192: 57.7 * 3.6}},
    "verl, 7.6 billion": {
        "parameters": 7.6e9,
        "steps": {32: 294.77, 64: 189.26, 128: 150.63},
        "synchronous": {32: 790.10, 64: 365.28, 128: 356.30},
        "generation": {32: 357.41, 64: 150.72, 128: 177.85},
        "updates": {32: 313.81, 64: 156.98, 128: 113.16},
    },
}
"""GPUs: seconds of a step, asynchronous and synchronous. AReaL: blog/AReaL_v0_3.md in inclusionAI/AReaL (table 2),
hours of 1,000 steps on 16 and 24 nodes of 8 H800. verl: docs/advance/fully_async.md in verl-project/verl (Asynchronous
Training on 7B Model), on H20; generation of a synchronous step, and updates of an asynchronous one on half of the
GPUs."""
LONGEST = 28 * 1024
"""Tokens of an answer that verl allows; AReaL 27,000. How many they are on average, neither says."""
LENGTHS = (2048, 8192)
"""Mean tokens of an answer, as assumed."""
GPUS = (8, 64, 128, 512)
DEFINITIONS = {
    "snapshot.write, .read": "seconds a gigabyte of float32 weights, into shared memory where there is some and back",
    "message.bytes": "of a trained token in a group's message",
    "message.pack, .unpack": "seconds a million tokens, in the worker and in the run's process",
    "forest": "seconds a million tokens of a forest and its rows",
    "admission": "seconds of one choice of a step's 512 groups among 4,608 that are finished",
    "needed.step": "seconds of a step, as published for the nearest number of GPUs, and proportional to them",
    "needed.run": "seconds of a step in which the run's process unpacks its groups, chooses them, builds their "
    "forest and writes the weights once",
    "needed.share": "run over step: 1 is where a step waits for it, whatever is added",
    "needed.bytes_per_second": "groups' messages and one copy of the weights, into and out of the run's process",
    "simulated.step": "seconds of a step of order: ready with such a bound on staleness. Answers have lognormal "
    "tokens (sigma 1), at most 28 x 1,024, and a group takes as long as its longest; the longest possible takes slower "
    "times as long as verl publishes for all of a synchronous step, on all GPUs; updates take as long as verl "
    "publishes for its asynchronous ones, on half of the GPUs, and run seconds more",
    "simulated.slower": "1: half of the GPUs draw as fast as all (short of work for each); 2: they take twice as long",
    "simulated.faster": "the published synchronous step over it; verl: over verl's asynchronous one, as published",
}


def main() -> None:
    options = common.arguments(__doc__ or "").parse_args()
    torch.set_num_threads(options.threads)
    repeats = 1 if options.quick else 5
    tokens = 64 if options.quick else 4096
    measured = {
        "snapshot": snapshot(2**22 if options.quick else 2**28, repeats),
        "message": message(tokens, repeats),
        "forest": forest(tokens, repeats),
        "admission": admission(repeats),
    }
    common.say(f"measured: {measured}")
    rows = [needed(name, gpus, length, measured) for name in PUBLISHED for length in LENGTHS for gpus in GPUS]
    steps = 3 if options.quick else 100
    ready = [
        simulated(gpus, length, slower, staleness, measured, steps)
        for length in LENGTHS
        for gpus in PUBLISHED["verl, 7.6 billion"]["steps"]
        for slower in (1, 2)
        for staleness in (1, 4)
    ]
    result = {"benchmark": "scaling", "definitions": DEFINITIONS, "machine": common.machine(), "published": PUBLISHED}
    common.write({**result, "measured": measured, "needed": rows, "simulated": ready}, options.out)
    for title, found in (("a step", rows), ("order: ready", ready)):
        columns = [*found[0]]
        common.table(title, columns, [[str(row[name]) for name in columns] for row in found])


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


def forest(tokens: int, repeats: int) -> float:
    """Of one group, seconds a million tokens."""
    tree = group(tokens)
    return round(1e6 * seconds(repeats, lambda: build_forest([tree]).rows()) / (ANSWERS * tokens), 4)


def busy(parameters: float, length: int, measured: Mapping[str, Any]) -> float:
    """Seconds of a step in which the run's process works alone."""
    per_million = measured["message"]["unpack"] + measured["forest"]
    return (
        per_million * PROMPTS * ANSWERS * length / 1e6
        + measured["admission"]
        + measured["snapshot"]["write"] * 4 * parameters / 1e9
    )


def needed(name: str, gpus: int, length: int, measured: Mapping[str, Any]) -> dict[str, Any]:
    """Of a step with this many GPUs."""
    parameters, steps = PUBLISHED[name]["parameters"], PUBLISHED[name]["steps"]
    nearest = min(steps, key=lambda known: abs(math.log(known / gpus)))
    step, run = steps[nearest] * nearest / gpus, busy(parameters, length, measured)
    moved = PROMPTS * ANSWERS * length * measured["message"]["bytes"] + 4 * parameters
    return {
        "case": f"{name}, {length:,} tokens an answer",
        **{"gpus": gpus, "step": round(step, 2), "run": round(run, 3), "share": round(run / step, 4)},
        "bytes_per_second": round(moved / step),
    }


def simulated(
    gpus: int, length: int, slower: int, staleness: int, measured: Mapping[str, Any], steps: int
) -> dict[str, Any]:
    """A step of ``order: ready``, two seeds."""
    of = PUBLISHED["verl, 7.6 billion"]
    longest = slower * of["generation"][gpus]
    middle = math.log(length) - 0.5

    def durations(draw: random.Random) -> tuple[float, float]:
        tokens = min(LONGEST, max(draw.lognormvariate(middle, 1) for _ in range(ANSWERS)))
        return longest * tokens / LONGEST, 0.0

    learning = of["updates"][gpus] + busy(of["parameters"], length, measured)
    how: dict[str, Any] = {"steps": steps, "learning": learning, "size": PROMPTS, "at_once": PROMPTS}
    ended = [simulate("ready", staleness, durations, seed=seed, **how).ended for seed in range(2)]
    step = fmean((each[-1] - each[0]) / (steps - 1) for each in ended)
    synchronous = of["synchronous"][gpus]
    return {
        "case": f"{gpus} GPUs, {length:,} tokens an answer",
        **{"slower": slower, "staleness": staleness, "step": round(step, 1), "faster": round(synchronous / step, 2)},
        "verl": round(synchronous / of["steps"][gpus], 2),
    }


if __name__ == "__main__":
    main()

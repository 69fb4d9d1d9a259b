"""Asynchronous training: what is equal to the bit, and what staleness and waiting cost in accuracy, lengths and time.

    python benchmarks/asynchrony.py --out benchmarks/results/asynchrony.json [--parts exact lengths learning time]

exact: staleness 0 in a worker process against one process, by digests. learning: held-out accuracy after equal numbers
of updates, by staleness and correction, in one process that samples under the weights of k updates before (the rule of
``order: fixed``, which no clock changes). lengths: how a bound on staleness is kept, simulated with the library's own
rule of admission and heavy-tailed durations, against discarding, which does not ship. time: verifiers that sleep
(Pareto), synchronous runs against both orders: seconds a step and until an accuracy, and what could be. Rows of parts
that are not asked for stay in the file, and rows that are there are not measured again.
"""

from __future__ import annotations

import heapq
import json
import math
import os
import random
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Literal

from common import arguments, machine, say, table, write

from lyceum import evaluate
from lyceum.analysis.differences import first_difference, read_digests
from lyceum.core.settings import Composition, RuntimeSettings
from lyceum.core.waves import Grown, Grows, Wave
from lyceum.recipe.schema import load_recipe
from lyceum.run.reader import read_run_folder, read_summary
from lyceum.runtime.admission import may_begin, should_begin, to_train
from lyceum.training.train import train
from lyceum.utils.aio import run_async

PARTS = ("exact", "lengths", "learning", "time")
DEFINITIONS = {
    "exact": "whether all digests of a run with a worker process are those of one in one process",
    "lengths.rule": "ready: runtime/admission.py; eager: the same without its should_begin; count: begun - trained "
    "bounded alone (AReaL's), oldest first; discard: groups older than the bound are thrown away, the others trained "
    "in the order in which they finish",
    "lengths.trained_to_drawn": "mean duration of the groups that were trained, relative to that of all that began",
    "lengths.p95": "the same of the 95th percentile",
    "lengths.discarded": "share of the finished groups that were thrown away",
    "lengths.most": "largest staleness that was trained (updates)",
    "lengths.mean": "mean staleness of what was trained (updates)",
    "lengths.idle": "share of the learner's time in which it waits",
    "learning.final": "held-out accuracy after the last update, mean over seeds, with its standard error",
    "learning.correction": "none: ratios against the start of the step, uncorrected (refused by lyceum); behaviour: "
    "against what drew the tokens; decoupled: a truncated weight beside the ratios",
    "time.verifier": "seconds that a verifier sleeps on average (Pareto, shape 2, ten times as long at most); 0: none",
    "time.idle": "share of a run's time in which it waits for groups; idle_workers: metric idle/workers, mean",
    "time.seconds_to": "seconds after the first step until the models of a step and of the two after it have so much "
    "held-out accuracy on average (100 tasks, 4 samples each, measured after the run); null: never",
    "bounds.faster": "seconds a step of the faster synchronous run over those of the case",
    "bounds.of_simulated": "seconds a step of the order's rule over the measured ones, simulated (simulated_fixed, "
    "simulated_ready) with a worker and a learner as fast as they are where nothing else runs",
    "bounds.of_as_busy": "the same, with a worker and a learner that take as long as they were busy in the case",
    "bounds.of_busy": "the same of those in which the learner of that synchronous run is not idle",
}


class Virtual(RuntimeSettings):
    """In this process, each wave whole as it begins: staleness as ``order: fixed`` has it, any correction or none."""

    kind: Literal["virtual"] = "virtual"
    staleness: int = 0
    ratio: Literal["step", "behaviour"] = "step"

    @property
    def lag(self) -> int:
        return self.staleness

    @property
    def off_policy(self) -> bool:
        return self.ratio == "behaviour"

    def check(self, stage: Composition) -> list[str]:
        return []

    def build(self, here: Grows, start: Callable[[], Mapping[str, Any]]) -> VirtualRuntime:
        return VirtualRuntime(here)


class VirtualRuntime:
    def __init__(self, here: Grows) -> None:
        self.here = here
        self.grow, self.publish, self.close = here.grow, here.publish, here.close

    def start(self, wave: Wave) -> Future[Grown]:
        grown: Future[Grown] = Future()
        grown.set_result(run_async(self.here.grow(wave, lambda: None)))
        return grown


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--staleness", type=int, nargs="+", default=[0, 1, 2, 4, 8, 16])
    options = parser.parse_args()
    if options.quick:
        options.seeds, options.steps, options.staleness = 1, 3, [0, 2]
    result: dict[str, Any] = {part: [] for part in PARTS}
    if options.out is not None and options.out.exists():
        result |= json.loads(options.out.read_text())
    for part in options.parts:
        known = {json.dumps(row["case"], sort_keys=True) for row in result[part]}
        for case, measure in MEASURED[part](options):
            if json.dumps(case, sort_keys=True) in known:
                continue
            row = {"case": case, **measure()}
            say(f"{part}: {row}")
            result[part].append({**row, "load": round(os.getloadavg()[0], 1)})
            parts = {part: result[part] for part in PARTS} | {"bounds": bounds(result["time"])}
            write({"definitions": DEFINITIONS, "machine": machine(), **parts}, options.out)
    show(result)


Cases = Iterator[tuple[dict[str, Any], Callable[[], dict[str, Any]]]]

# Bits ----------------------------------------------------------------------------------------------------------------


def exact(options: Any) -> Cases:
    steps = 2 if options.quick else 6
    for name in ("grpo", "dapo"):
        yield {"recipe": name, "steps": steps}, lambda name=name: same_bits(name, steps)


def same_bits(name: str, steps: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as work:
        runs = [
            train(load_recipe(name, [*brief(work, where), f"steps={steps}", "digests=true", f"runtime={where}"]))
            for where in ("in-process", "processes")
        ]
        return {"equal": first_difference(*map(read_digests, runs)) is None}


def brief(work: str, name: str) -> list[str]:
    return [*("evaluate.n=0", "track=[]", "threads=1", "tasks_per_step=8"), f"output={work}", f"name={name}"]


# Lengths -------------------------------------------------------------------------------------------------------------


SIZE, AT_ONCE = 32, 64
"""Groups of a step, and that are drawn at once, as ``lengths`` simulates them."""


def lengths(options: Any) -> Cases:
    steps, seeds = (40, 1) if options.quick else (400, 5)
    for generation in (0.7, 1.6):
        rules = {"ready": (0, 1, 2, 4, 8, 16), "eager": (1, 2, 4, 8, 16)} | dict.fromkeys(
            ("count", "discard"), (1, 2, 4, 8)
        )
        for rule, bounds in rules.items():
            for staleness in bounds:
                case = {"rule": rule, "staleness": staleness, "generation": generation, "steps": steps, "seeds": seeds}
                yield case, lambda case=case: averaged(case)


def averaged(case: Mapping[str, Any]) -> dict[str, Any]:
    mean = case["generation"] * AT_ONCE / SIZE

    def durations(draw: random.Random) -> tuple[float, float]:
        return draw.lognormvariate(0, 1) * mean / math.exp(0.5), 0.0

    found = [
        simulate(case["rule"], case["staleness"], durations, steps=case["steps"], seed=seed)
        for seed in range(case["seeds"])
    ]
    names = ("trained_to_drawn", "p95", "discarded", "most", "mean", "idle")
    return {name: (max if name == "most" else fmean)(getattr(each, name) for each in found) for name in names}


@dataclass
class Simulated:
    """What :func:`simulate` finds: the definitions of ``lengths``, and when each step ended."""

    ended: list[float]
    trained_to_drawn: float
    p95: float
    discarded: float
    most: int
    mean: float
    idle: float


def simulate(
    rule: str,
    bound: int,
    durations: Callable[[random.Random], tuple[float, float]],
    *,
    steps: int,
    seed: int,
    learning: float = 1.0,
    size: int = SIZE,
    at_once: int = AT_ONCE,
    last: int = 10**9,
) -> Simulated:
    """Discrete events: groups are drawn, so many at once, and graded, as long as ``durations`` says.

    Args:
        durations: of drawing a group, and of grading it.
        learning: duration of a step's updates.
        size: groups of a step.
        last: steps of the stage, after which no groups are needed.
    """
    draw = random.Random(seed)
    now = busy = 0.0
    version = number = discarded = finished = 0
    drawing: list[tuple[float, int, int, float, float]] = []  # end, number, version, duration, further duration
    grading: list[tuple[float, int, int, float]] = []  # end, number, version, duration
    ready: list[tuple[int, int, float]] = []  # number, version, duration
    drawn: list[float] = []
    trained: list[tuple[int, float]] = []  # staleness, duration
    ended: list[float] = []
    ends: float | None = None
    while version < steps:
        allowed = at_once - len(drawing)
        if rule != "discard":
            outstanding = len(drawing) + len(grading) + len(ready) + (size if ends is not None else 0)
            allowed = min(allowed, may_begin(outstanding, version, steps=last, size=size, staleness=bound))
        if rule == "ready":
            allowed = should_begin(allowed, len(ready), 0, size=size)
        for _ in range(allowed):
            takes, further = durations(draw)
            drawn.append(takes)
            heapq.heappush(drawing, (now + takes, number, version, takes, further))
            number += 1
        if ends is None:
            if rule == "discard":
                old = [each for each in ready if version - each[1] > bound]
                discarded += len(old)
                ready = [each for each in ready if each not in old]
                chosen = list(range(size)) if len(ready) >= size else None
            elif rule == "count":
                ready.sort()
                chosen = list(range(size)) if len(ready) >= size else None
            else:
                ready.sort()
                under_way = [each[2] + bound for each in (*drawing, *grading)]
                chosen = to_train([each[1] + bound for each in ready], under_way, version, size=size)
            if chosen is not None:
                taken = [ready[i] for i in chosen]
                ready = [each for i, each in enumerate(ready) if i not in set(chosen)]
                trained += [(version - each[1], each[2]) for each in taken]
                ends, busy = now + learning, busy + learning
                continue
        now = min(time for time in (ends, *(queue[0][0] for queue in (drawing, grading) if queue)) if time is not None)
        if ends is not None and ends <= now:
            ended.append(now)
            ends, version = None, version + 1
        while drawing and drawing[0][0] <= now:
            _, which, begun, took, further = heapq.heappop(drawing)
            heapq.heappush(grading, (now + further, which, begun, took))
        while grading and grading[0][0] <= now:
            _, which, begun, took = heapq.heappop(grading)
            ready.append((which, begun, took))
            finished += 1
    lengths_trained = [took for _, took in trained]
    return Simulated(
        ended,
        round(fmean(lengths_trained) / fmean(drawn), 3),
        round(quantile(lengths_trained, 0.95) / quantile(drawn, 0.95), 3),
        round(discarded / finished, 3),
        max(staleness for staleness, _ in trained),
        round(fmean(staleness for staleness, _ in trained), 2),
        round(1 - busy / now, 3),
    )


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[int(share * (len(values) - 1))]


# Learning ------------------------------------------------------------------------------------------------------------

CORRECTIONS = {
    "none": [],
    "behaviour": ["runtime.ratio=behaviour"],
    "decoupled": ["objective.importance.mode=truncate"],
}


def learning(options: Any) -> Cases:
    for seed in range(options.seeds):
        for staleness in options.staleness:
            for correction in CORRECTIONS if staleness else ("none",):
                case = {"staleness": staleness, "correction": correction, "steps": options.steps, "seed": seed}
                yield case, lambda case=case: learnt(case)


def learnt(case: Mapping[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as work:
        keys = [
            *("track=[]", "threads=1", "evaluate.n=200", "evaluate.samples=4", "tasks_per_step=16"),
            f"output={work}",
        ]
        keys += [f"steps={case['steps']}", f"seed={case['seed']}", "name=run", "learner.updates_per_step=2"]
        keys += ["runtime=virtual", f"runtime.staleness={case['staleness']}", *CORRECTIONS[case["correction"]]]
        run = train(load_recipe("grpo", keys))
        accuracy = read_summary(run)["after"]["overall"]["mean"]
        metrics = read_run_folder(run).metrics
        return {
            "final": round(accuracy, 4),
            "last_ten": round(fmean(line["correct/mean"] for line in metrics[-10:]), 4),
            "tokens": metrics[-1]["tokens_sampled"],
        }


# Time ----------------------------------------------------------------------------------------------------------------

TASKS_OF_TIME, UPDATES_OF_TIME = 64, 4
"""Of a step, so many that the learner is worth keeping busy: 512 completions."""
LEVELS = (0.7, 0.8, 0.9)
"""Held-out accuracies, the time until which is measured."""
SLEEPS = """
import asyncio, random

async def score(completion, id):
    await asyncio.sleep(SECONDS * min(10.0, 0.5 * random.Random(completion + id).paretovariate(2)))
    return 0.0
"""
"""A verifier elsewhere, 0.25 to 5 s after it is asked (0.5 s on average), beside the tasks' own reward."""


def time_(options: Any) -> Cases:
    steps = 3 if options.quick else 24
    sleeps: list[tuple[list[str], float]] = [(["threads=1"], 0.0), (["threads=1"], 0.5), (["threads=2"], 0.5)]
    for staleness in (1,) if options.quick else (1, 2, 4, 8, 16):
        more = [f"runtime.staleness={staleness}", "runtime.ratio=behaviour", "threads=1"]
        sleeps += [(["runtime=processes", f"runtime.order={order}", *more], 0.5) for order in ("fixed", "ready")]
    for seed in range(options.seeds):
        for keys, seconds in sleeps:
            case = {"keys": keys, "verifier": seconds, "steps": steps, "seed": seed}
            yield case, lambda case=case: waited(case)


def waited(case: Mapping[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as work:
        (Path(work) / "own.py").write_text(SLEEPS.replace("SECONDS", str(case["verifier"])))
        reward = json.dumps([{"kind": "task"}, {"function": f"{work}/own.py:score"}])
        keys = [f"reward={reward}", "trust_code=true", f"seed={case['seed']}", f"steps={case['steps']}", "keep.every=1"]
        keys += [f"tasks_per_step={TASKS_OF_TIME}", f"learner.updates_per_step={UPDATES_OF_TIME}", *case["keys"]]
        run = train(load_recipe("grpo", [*brief(work, "run"), *keys]))
        first, *metrics = read_run_folder(run).metrics  # the first step waits for the worker to load
        seconds = metrics[-1]["time"] - first["time"]
        workers = [line["idle/workers"] for line in metrics if "idle/workers" in line]
        generating = fmean(line["seconds/generate"] for line in metrics)
        models = [*(run / "kept_models" / f"step-{line['step']}" for line in metrics[:-1]), run / "model"]
        accuracy = [held_out(model) for model in models]
        return {
            "seconds_per_step": round(seconds / len(metrics), 3),
            "generating": round(generating, 3),
            "idle": round(generating * len(metrics) / seconds, 3),
            "idle_workers": None if not workers else round(fmean(workers), 3),
            "staleness": round(fmean(line.get("staleness/mean", 0.0) for line in metrics), 2),
            "seconds_to": {
                level: until(level, accuracy, [line["time"] - first["time"] for line in metrics])
                for level in map(str, LEVELS)
            },
            "accuracy": accuracy,
        }


def held_out(model: Path) -> float:
    """Accuracy of 4 samples of each of 100 held-out tasks."""
    return round(
        evaluate(model, "chain", k=(1,), n=100, samples=4, greedy=False, progress="silent")["overall"]["mean"], 4
    )


def until(level: str, accuracy: Sequence[float], seconds: Sequence[float]) -> float | None:
    """Seconds after the first step until the model of a step and the two after it are, on average, so good."""
    smooth = [fmean(accuracy[n : n + 3]) for n in range(len(accuracy) - 2)]
    return next((round(at, 1) for mean, at in zip(smooth, seconds, strict=False) if mean >= float(level)), None)


def bounds(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Of each seed and case, measured speed over what could be: as its rule is simulated, and with a learner that is
    always busy, as it is in the faster of the synchronous runs."""
    found: list[dict[str, Any]] = []
    for seed in sorted({row["case"]["seed"] for row in rows}):
        of = [row for row in rows if row["case"]["seed"] == seed]
        alone = [row for row in of if not row["case"]["verifier"]]
        synchronous = [row for row in of if row["case"]["verifier"] and "runtime=processes" not in row["case"]["keys"]]
        if not alone or not synchronous:
            continue
        drawing, step = alone[0]["generating"], alone[0]["seconds_per_step"]
        fastest = min(synchronous, key=lambda row: row["seconds_per_step"])
        for row in of:
            keys = dict(key.split("=") for key in row["case"]["keys"])
            if "runtime.order" not in keys:
                continue
            staleness = int(keys["runtime.staleness"])
            order, measured = keys["runtime.order"], row["seconds_per_step"]
            rule = simulated_fixed if order == "fixed" else simulated_ready
            how: dict[str, Any] = {"steps": row["case"]["steps"], "seed": seed}
            simulated = rule(staleness, drawing, step - drawing, **how)
            worked, learnt = (measured * (1 - row[idle]) for idle in ("idle_workers", "idle"))
            as_busy = rule(staleness, worked, learnt, **how)
            busy = fastest["seconds_per_step"] * (1 - fastest["idle"])
            found.append(
                {
                    "order": order,
                    "staleness": staleness,
                    "seed": seed,
                    "faster": round(fastest["seconds_per_step"] / measured, 2),
                    "of_simulated": round(simulated / measured, 3),
                    "of_as_busy": round(as_busy / measured, 3),
                    "of_busy": round(busy / measured, 3),
                }
            )
    return found


def simulated_fixed(staleness: int, drawing: float, learning: float, *, steps: int, seed: int) -> float:
    """Seconds a step of ``order: fixed`` with one worker, which draws a wave while those before it are graded.

    Args:
        drawing, learning: seconds of a wave and of a step's updates.
    """
    draw = random.Random(seed)
    trained: list[float] = []
    drawn = 0.0
    for step in range(steps):
        published = trained[step - staleness - 1] if step > staleness else 0.0
        drawn = max(drawn, published) + drawing
        slowest = max(slept(draw) for _ in range(8 * TASKS_OF_TIME))
        trained.append(max(drawn + slowest, trained[-1] if trained else 0.0) + learning)
    return (trained[-1] - trained[0]) / (steps - 1)


def simulated_ready(staleness: int, drawing: float, learning: float, *, steps: int, seed: int) -> float:
    """Seconds a step of ``order: ready`` with one worker, of whose places each group takes one for ``drawing`` seconds.

    Args:
        drawing, learning: seconds of a step's groups together, and of its updates.
    """

    def durations(draw: random.Random) -> tuple[float, float]:
        return drawing, max(slept(draw) for _ in range(8))

    size = TASKS_OF_TIME
    found = simulate(
        "ready", staleness, durations, steps=steps, seed=seed, learning=learning, size=size, at_once=size, last=steps
    )
    return (found.ended[-1] - found.ended[0]) / (steps - 1)


def slept(draw: random.Random) -> float:
    """Seconds that a verifier of :data:`SLEEPS` takes, where it takes half a second on average."""
    return min(5.0, 0.25 * draw.paretovariate(2))


MEASURED = {"exact": exact, "lengths": lengths, "learning": learning, "time": time_}


def show(result: Mapping[str, Any]) -> None:
    rows = [[row["case"]["recipe"], row["equal"]] for row in result["exact"]]
    table("exact", ["recipe", "same bits"], rows)
    columns = ["trained_to_drawn", "p95", "discarded", "most", "mean", "idle"]
    rows = [
        [f"{row['case']['rule']}, bound {row['case']['staleness']}, generation {row['case']['generation']}"]
        + [round(row[column], 3) for column in columns]
        for row in result["lengths"]
    ]
    table("lengths", ["rule", *columns], rows)
    of: dict[tuple[int, str], list[float]] = {}
    for row in result["learning"]:
        of.setdefault((row["case"]["staleness"], row["case"]["correction"]), []).append(row["final"])
    table(
        "learning",
        ["staleness, correction", "final", "standard error", "seeds"],
        [
            [f"{k}, {how}", round(fmean(v), 3), round(stdev(v) / math.sqrt(len(v)), 3) if len(v) > 1 else "", len(v)]
            for (k, how), v in sorted(of.items())
        ],
    )
    columns = ["seconds_per_step", "idle", "idle_workers", "staleness"]
    rows = [
        [
            f"{' '.join(row['case']['keys'])}, verifier {row['case']['verifier']} s, seed {row['case']['seed']}",
            *(row[column] for column in columns),
            *row["seconds_to"].values(),
        ]
        for row in result["time"]
    ]
    table("time", ["keys", *columns, *(f"s to {level}" for level in LEVELS)], rows)
    columns = ["order", "staleness", "seed", "faster", "of_simulated", "of_as_busy", "of_busy"]
    table("time against bounds", columns, [[row[column] for column in columns] for row in bounds(result["time"])])


if __name__ == "__main__":
    main()

"""Runs, workers and graders, killed in chosen states: whether a group is lost, trained twice or graded wrong.

    python benchmarks/faults.py --out benchmarks/results/faults.json [--kills 200] [--graders 24] [--seed 0]

Each run trains a new small model (4 groups of 4 samples a step), and one process of it is ended once by SIGKILL in one
state, at a step that is drawn (of graders one in each step from there on); a run that was killed itself is resumed. In
fixed order and in one process the result is compared with that of a run that nothing disturbed, bit for bit. In ready
order each group has to be trained once, whole, by its deadline. Runs whose graders are killed have a reward that is
known for every completion. All processes but graders are forks of one that has imported everything. The result is
written after each run, and a further call goes on where the file ends.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import fault_graders
from common import machine, say, table, write
from forked import Forked, forked_workers

STEPS, GROUPS, SAMPLES, STALENESS = 5, 4, 4, 2
STATES = {
    "worker loads": "a worker, as it is started",
    "worker has just been asked": "a worker, before it has sampled",
    "worker samples or grades": "a worker, as it says what it has sampled so far",
    "worker as weights are published": "a worker, as it is told of new weights, idle or not",
    "run waits": "the run, before it has a step's groups",
    "run has the groups": "the run, before the update",
    "run learns": "the run, after the update and before the workers have the weights",
    "run has published": "the run, after the workers have the weights",
    "run begins a checkpoint": "the run, before a checkpoint is written",
    "run has a checkpoint": "the run, after it",
}
"""State -> who is killed, and when."""
DEFINITIONS = {
    "kills": "processes ended by SIGKILL in this state",
    "lost": "groups that were drawn and neither trained nor dropped by the stage's rule",
    "twice": "groups that were trained in two steps of the final run",
    "short": "groups with fewer samples than the recipe says",
    "late": "groups with a token older than the bound on staleness",
    "misgraded": "completions with no grade, or another than an undisturbed grader gives; where graders are killed",
    "other_bits": "runs in fixed order or one process whose digests are not those of the undisturbed run",
    "missed": "runs that ended before the state came at the step drawn: no kill",
}
COUNTS = ("kills", "lost", "twice", "short", "late", "other_bits", "missed", "misgraded")


def keys(order: str, folder: str, name: str, state: str | None) -> list[str]:
    own: list[str] = []
    if order != "one process":
        workers = 1 if state in fault_graders.STATES else 2  # each starts graders of its own, which takes seconds
        own += ["runtime=processes", f"runtime.workers={workers}", f"runtime.staleness={STALENESS}"]
        own += ["runtime.ratio=behaviour"]
    own += ["runtime.order=ready"] if order == "ready" else ["digests=true"]
    if state in fault_graders.STATES:
        own += fault_graders.keys(folder, fault_graders.in_sandbox(state), 2 if order == "one process" else 1)
    return [
        *("model=scratch", "evaluate.n=0", "track=[]", f"tasks_per_step={GROUPS}", f"rollout.samples={SAMPLES}"),
        *(f"steps={STEPS}", "threads=1", "rollout.sampling.max_completion_tokens=6", "trees_every=1"),
        *("checkpoint_every=1", "max_steps_without_signal=0", f"output={folder}", f"name={name}", *own),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--kills", type=int, default=200, help="runs of which the run or a worker is killed")
    parser.add_argument("--graders", type=int, default=24, help="runs of which a grader is killed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="one kill in each order")
    options = parser.parse_args()
    import lyceum.training.worker  # noqa: F401  # once, for all processes that are forked from this one

    wanted = {"runs": 2, "grader_runs": 3} if options.quick else {"runs": options.kills, "grader_runs": options.graders}
    result: dict[str, Any] = {"rows": [], "runs": 0, "grader_runs": 0}
    if options.out is not None and options.out.exists():
        result |= json.loads(options.out.read_text())
    rows = {f"{row['order']}: {row['state']}": row for row in result["rows"]}
    with tempfile.TemporaryDirectory() as work:
        fault_graders.prepare(work)
        whole: dict[str, Path] = {}
        for part, order, state, number in kills_left(result, wanted):
            graders = state in fault_graders.STATES
            at = random.Random(options.seed * 10_000 + number).randrange(2 if graders else STEPS - 1)
            like = f"{order}, {fault_graders.in_sandbox(state)}" if graders else ""
            if order != "ready" and like not in whole:
                whole[like] = run(order, work, f"undisturbed-{len(whole)}", state, at, undisturbed=True)
            found = killed(order, state, at, work, f"{part}-{number}", whole.get(like))
            row = rows.setdefault(f"{order}: {state}", {"order": order, "state": state, **dict.fromkeys(COUNTS, 0)})
            for count in COUNTS:
                row[count] = row.get(count, 0) + found.get(count, 0)
            say(f"{number + 1}/{wanted[part]} {order}, {state}, step {at}: {found}")
            result |= {"definitions": DEFINITIONS, "states": STATES | fault_graders.STATES, "seed": options.seed}
            # What the others ran on stays theirs.
            result |= {"machine": machine()} if part == "runs" else {"grader_machine": machine()}
            write(result | {part: number + 1, "rows": list(rows.values())}, options.out)
    shown = [[name, *(row.get(count, 0) for count in COUNTS)] for name, row in rows.items()]
    table("kills", ["order: state", *COUNTS], shown)


def kills_left(done: dict[str, int], wanted: dict[str, int]) -> Iterator[tuple[str, str, str, int]]:
    """Part, order, state and number of each run that is to come; orders and states take turns."""
    cases = {
        "runs": [(order, state) for state in STATES for order in ("fixed", "ready")],
        "grader_runs": [(order, state) for state in fault_graders.STATES for order in fault_graders.ORDERS],
    }
    for part, of in cases.items():
        for number in range(done[part], wanted[part]):
            done[part] = number + 1
            yield part, *of[number % len(of)], number


def run(
    order: str,
    work: str,
    name: str,
    state: str | None = None,
    at: int = 0,
    *,
    resume: bool = False,
    undisturbed: bool = False,
) -> Path:
    """A run in a process of its own, to its end or until it is killed; ``undisturbed`` kills nobody."""
    folder, said = Path(work, name), Path(work, f"{name}.log")
    with open(said, "wb") as out:
        code = Forked(lambda: child(order, work, name, state, at, resume, undisturbed), out).wait()
    if code not in (0, -signal.SIGKILL):
        raise RuntimeError(f"{order}, {state}: exit code {code}\n{said.read_text()[-3000:]}")
    if code:
        if undisturbed or resume or state in fault_graders.STATES:
            raise RuntimeError(f"{name} was killed by somebody else")
        return run(order, work, name, state, resume=True, undisturbed=True)
    return folder


def killed(order: str, state: str, at: int, work: str, name: str, whole: Path | None) -> dict[str, int]:
    """What became of the groups of a run that was killed once."""
    from lyceum.analysis.differences import first_difference, read_digests
    from lyceum.run.trees import read_trees
    from lyceum.training.stages._ready import NUMBER

    folder = run(order, work, name, state, at)
    kills = len([*Path(work).glob(f"{name}.killed*")])
    found = {"kills": kills, "missed": int(not kills)}
    groups = [
        (step, group)
        for step, file in enumerate(sorted((folder / "trees").glob("*.parquet")))
        for group in read_trees(file).groups
    ]
    if state in fault_graders.STATES:
        sandbox = fault_graders.in_sandbox(state)
        graded = [(leaf, group.tree.task.id) for _, group in groups for leaf in group.tree.trajectories]
        found["misgraded"] = sum(fault_graders.misgraded(*each, sandbox) for each in graded)
        found["short"] = STEPS * GROUPS * SAMPLES - len(graded)
    if order != "ready":
        assert whole is not None
        return found | {"other_bits": int(first_difference(*map(read_digests, (whole, folder))) is not None)}
    numbers: list[int] = []
    short = late = 0
    for step, group in groups:
        numbers.append(group.tree.metadata[NUMBER])
        short += len(group.tree.trajectories) < SAMPLES
        late += step - min(version for node in group.tree.nodes() for version in node.version) > STALENESS
    lost = len(set(range(STEPS * GROUPS)) - {*numbers})
    return found | {"lost": lost, "twice": len(numbers) - len({*numbers}), "short": short, "late": late}


def child(order: str, work: str, name: str, state: str | None, at: int, resume: bool, undisturbed: bool) -> None:
    """Train, and kill who is to be killed."""
    from lyceum.recipe.schema import load_recipe
    from lyceum.reward.base import allow_code
    from lyceum.run.folder import Run
    from lyceum.runtime import processes
    from lyceum.runtime.processes import Worker, Workers
    from lyceum.training.stages._groups import SampledGroups
    from lyceum.training.stages._ready import ReadyGroups
    from lyceum.training.stages.online import OnlineRun
    from lyceum.training.train import train

    processes.usable_cores = lambda: max(2, os.cpu_count() or 1)
    mark, step = Path(work, f"{name}.killed"), Path(work, f"{name}.step")
    os.environ["FAULT"] = str(mark.with_suffix(".now"))
    steps = {"taken": 0}

    def due() -> int | None:
        # A file, for workers that ask.
        return int(step.read_text()) if step.exists() else None

    def kill(pid: int) -> None:
        if not mark.exists() and steps["taken"] >= at:
            mark.touch()
            os.kill(pid, signal.SIGKILL)

    def taken(_: Any) -> None:
        steps["taken"] += 1
        if steps["taken"] >= at:
            step.with_suffix(".part").write_text(str(steps["taken"]))
            step.with_suffix(".part").rename(step)

    itself = os.getpid()
    places: Mapping[str, Callable[[], Any]] = {
        "worker loads": lambda: after(Worker, "_begin", lambda worker: kill(worker.pid)),
        "worker has just been asked": lambda: after(Worker, "ask", lambda worker: kill(worker.pid)),
        "worker samples or grades": lambda: before(Worker, "_tell", lambda worker: kill(worker.pid)),
        "worker as weights are published": lambda: after(
            Workers, "publish", lambda workers: kill(workers.workers[0].pid)
        ),
        "run waits": lambda: [
            before(source, "take", lambda _: kill(itself)) for source in (SampledGroups, ReadyGroups)
        ],
        "run has the groups": lambda: before(OnlineRun, "flatten", lambda _: kill(itself)),
        "run learns": lambda: before(Workers, "publish", lambda _: kill(itself) if steps["taken"] else None),
        "run has published": lambda: after(Workers, "publish", lambda _: kill(itself) if steps["taken"] else None),
        "run begins a checkpoint": lambda: before(Run, "checkpoint", lambda _: kill(itself)),
        "run has a checkpoint": lambda: after(Run, "checkpoint", lambda _: kill(itself)),
    }
    if state in ("worker loads", "grader loads") or at == 0:
        steps["taken"] = at  # they are started once
        step.write_text("0")
    if state is not None and not undisturbed:
        if state in fault_graders.STATES:
            fault_graders.Graders(state, due, mark).watch()
        else:
            places[state]()
    before(OnlineRun, "observe", taken)
    with forked_workers(), allow_code():
        train(load_recipe("grpo", keys(order, work, name, state)), resume=resume)


def before(owner: type, method: str, act: Callable[..., None]) -> None:
    """Have ``act`` called on the object before each call of a method."""
    original = getattr(owner, method)

    def patched(self: Any, *args: Any, **how: Any) -> Any:
        act(self)
        return original(self, *args, **how)

    setattr(owner, method, patched)


def after(owner: type, method: str, act: Callable[..., None]) -> None:
    """The same after it."""
    original = getattr(owner, method)

    def patched(self: Any, *args: Any, **how: Any) -> Any:
        result = original(self, *args, **how)
        act(self)
        return result

    setattr(owner, method, patched)


if __name__ == "__main__":
    main()

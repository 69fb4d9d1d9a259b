"""Worlds in which agents act: what is earned without learning, what the base earns, and what methods make of it.

    python benchmarks/worlds.py --out benchmarks/results/worlds.json [--parts world base arms] [--seeds 5] [--quick]

``world`` needs no model and takes seconds. ``base`` trains it, by the recipe ``rooms-base``; ``arms`` go on from it, at
equal sampled tokens, each at the same learning rates: some minutes of one core for each run. Runs stay in .cache/worlds
and are not run again; what was stopped goes on where it was.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from common import CACHE, arguments, machine, say, table, write
from suites import QUICK, Suite, run_suite, show

from lyceum.core.types import Task
from lyceum.tasks.rooms import Rooms, house_of, legal, played

PARTS = ("world", "base", "arms")
TURNS = 16
BASE = "rooms-base"
LEARNING_RATES = ("1.0e-4", "3.0e-4", "1.0e-3")
TOKENS = 60_000
DEFINITIONS = {
    "levels": "of each number of rooms, shares of held-out tasks in which the thing is fetched within 16 commands",
    "random": "legal commands at random",
    "first_door": "what a visitor does who has nothing but the habit of the worked episodes",
    "fixed": "the commands that fetch the thing in most tasks, of those that a random and a sensible visitor gave in "
    "40 tasks each",
    "shown": "the worked episodes that the base imitates",
    "sensible": "the same visitor without the habit, who does not know the plan of the house",
    "base": "the recipe's evaluation after training: samples at temperature 1, and greedy",
    "rows": "arms: a recipe and a learning rate, from the base, at equal sampled tokens; see suites.py",
}


def rollout(kind: str = "turns", more: str = "") -> str:
    return (
        f"stages.0.rollout={{kind: {kind}, samples: 8, environment: {{kind: rooms, max_turns: {TURNS}}}, "
        f"sampling: {{max_completion_tokens: 64}}{more}}}"
    )


METHODS: dict[str, tuple[str, tuple[str, ...]]] = {
    "grpo": ("grpo", (rollout(),)),
    "gigpo": ("gigpo", (rollout(), "stages.0.credit.state=marked")),
    "arpo": ("arpo", (rollout("branching-turns", ", whole: 4, first_tokens: 3, entropy_weight: 5.0"),)),
    "archer": ("archer", (rollout(), "stages.0.value.warm_up_steps=2")),
    "salt": ("salt", (rollout(),)),
    "empg": ("empg", (rollout(),)),
}
"""Method -> recipe and keys that move it to the rooms; the first is what the others are measured against."""


def suite(model: Path, methods: Sequence[str], rates: Sequence[str], seeds: int, tokens: int) -> Suite:
    arms = tuple(
        (f"{name}-{float(rate):g}", METHODS[name][0], (*METHODS[name][1], f"stages.0.learner.lr={rate}"))
        for name in methods
        for rate in rates
    )
    shared = (
        f"model={model}",
        "tasks=rooms",
        "stages.0.tasks_per_step=8",
        "stages.0.learner.warmup_steps=2",
        f"evaluate.environment={{kind: rooms, max_turns: {TURNS}}}",
        "evaluate.sampling.max_completion_tokens=64",
    )
    evaluation = ("evaluate.n=160", "evaluate.samples=4", "evaluate.k=[1,4]", "evaluate.every=0")
    return Suite("rooms", "methods on a house to walk through", tokens, seeds, shared, arms, evaluation)


def by_chance(task: Task) -> list[str]:
    """Legal commands at random."""
    rng, house = random.Random(task.id), house_of(task)
    place, said = house.begin, list[str]()
    while place.stage != "fetched" and len(said) < TURNS:
        command, place = rng.choice([*legal(house, place).items()])
        said.append(command)
    return said


def shown(level: int, **settings: float) -> Callable[[Task], list[str]]:
    source = Rooms.model_validate({"levels": [level], **settings}).build("heldout", 0)
    return lambda task: [said for said, _ in source.episode(task)]


def fetched(tasks: Sequence[Task], commands: Callable[[Task], Sequence[str]]) -> float:
    ends = [played(house_of(task), commands(task)[:TURNS]) for task in tasks]
    return sum(end.stage == "fetched" for end in ends) / len(tasks)


def without_learning(level: int, n: int) -> dict[str, float]:
    """Of one level; see DEFINITIONS."""
    source = Rooms.model_validate({"levels": [level]}).build("heldout", 0)
    tasks = [source[i] for i in range(n)]
    sensible = shown(level, wander=0)
    scripts = [of(task) for of in (by_chance, sensible) for task in tasks[:40]]
    return {
        "random": fetched(tasks, by_chance),
        "first_door": fetched(tasks, shown(level, wander=1)),
        "fixed": max(fetched(tasks[:200], lambda _, said=said: said) for said in scripts),
        "shown": fetched(tasks, shown(level)),
        "sensible": fetched(tasks, sensible),
        "shortest": sum(task.columns["shortest"] for task in tasks) / n,
    }


def trained_base(*, quick: bool) -> Path:
    """The run folder of the base, which is trained where it is not there yet."""
    import lyceum

    folder = CACHE / "worlds" / ("quick" if quick else BASE)
    if not (folder / "model").is_dir():
        brief = ("stages.0.steps=2", *QUICK, "evaluate.k=[1,2]") if quick else ()
        lyceum.train(BASE, [f"name={folder.name}", f"output={folder.parent}", *brief], resume="auto")
    return folder


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--rates", nargs="+", default=LEARNING_RATES, help="learning rates, of every method")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=TOKENS, help="sampled tokens of a run")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--model", type=Path, help="folder of the base; by default one that is trained here")
    args = parser.parse_args()
    result: dict[str, Any] = {"benchmark": "worlds", "machine": machine(), "definitions": DEFINITIONS}
    if args.out and args.out.is_file():
        result = json.loads(args.out.read_text()) | result
    if "world" in args.parts:
        n = 40 if args.quick else 1000
        result["levels"] = {}
        for level in (4, 5, 6, 7):
            result["levels"][str(level)] = without_learning(level, n)
            say(f"{level} rooms: {result['levels'][str(level)]}")
        columns = list(result["levels"]["4"])
        table(
            "rooms", ["rooms", *columns], [[k, *(f"{v[c]:.3f}" for c in columns)] for k, v in result["levels"].items()]
        )
        write(result, args.out)
    if not {"base", "arms"} & {*args.parts}:
        return
    base = args.model or trained_base(quick=args.quick)
    summary = base / "summary.json"
    if summary.is_file():
        measured = json.loads(summary.read_text())
        result["base"] = {key: measured["after"][key] for key in ("overall", "by_level", "greedy", "tasks")}
        result["base"] |= {key: measured[key] for key in ("steps", "tokens_trained", "seed")}
        say(f"base: {measured['after']['overall']}")
        write(result, args.out)
    if "arms" in args.parts:
        given = suite(base / "model", args.methods, args.rates, args.seeds, 2_000 if args.quick else args.tokens)
        if args.quick:
            given = replace(given, seeds=1, arms=given.arms[:1])
        result["arms"] = run_suite(given, args, CACHE / "worlds")
        show(given.name, result["arms"])
        write(result, args.out)


if __name__ == "__main__":
    main()

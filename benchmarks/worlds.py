"""Worlds in which agents act: what is earned without learning, what the base earns, and what methods make of it.

    python benchmarks/worlds.py --out benchmarks/results/worlds.json [--parts world base arms] [--seeds 5] [--quick]

``world`` needs no model and takes seconds. ``base`` trains it, by the recipe ``rooms-base``; ``arms`` go on from it, at
equal sampled tokens, see ``world_arms.py``: some minutes of one core for each run. A row that is in the file is not
made again, and a run that was stopped goes on where it was (.cache/worlds).
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import world_arms
from common import CACHE, arguments, machine, say, table, write
from suites import QUICK
from world_arms import TURNS

from lyceum.core.types import Task
from lyceum.tasks.rooms import Rooms, house_of, legal, played

PARTS = ("world", "base", "arms")
BASE = "rooms-base"
DEFINITIONS = {
    "levels": "of each number of rooms, shares of held-out tasks in which the thing is fetched within 16 commands",
    "random": "legal commands at random",
    "first_door": "what a visitor does who has nothing but the habit of the worked episodes",
    "fixed": "the commands that fetch the thing in most tasks, of those that a random and a sensible visitor gave in "
    "40 tasks each",
    "shown": "the worked episodes that the base imitates",
    "sensible": "the same visitor without the habit, who does not know the plan of the house",
    "base": "the recipe's evaluation after training: samples at temperature 1, and greedy",
    "arms": world_arms.DEFINITIONS,
}


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
    parser.add_argument("--arms", nargs="+", choices=world_arms.ARMS, default=list(world_arms.ARMS))
    parser.add_argument("--rates", nargs="+", default=world_arms.RATES, help="learning rates, of every arm in seed 0")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=world_arms.TOKENS, help="sampled tokens of a run")
    parser.add_argument("--model", type=Path, help="folder of the base; by default one that is trained here")
    args = parser.parse_args()
    result: dict[str, Any] = {"benchmark": "worlds", "definitions": DEFINITIONS}
    if args.out and args.out.is_file():
        result = json.loads(args.out.read_text()) | result
    if "world" in args.parts:
        n = 40 if args.quick else 1000
        result["levels"] = {}
        for level in world_arms.LEVELS:
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
        on_arms(result, base / "model", args)


def on_arms(result: dict[str, Any], base: Path, args: Any) -> None:
    """What is missing of the arms; the file is written after each run."""

    def done(rows: list[dict[str, Any]]) -> None:
        result["arms"] = {"machine": machine(), "rows": rows, "summary": world_arms.means(rows)}
        write(result, args.out)

    asked, rates, seeds, tokens, houses = args.arms, args.rates, args.seeds, args.tokens, world_arms.HOUSES
    if args.quick:
        asked, rates, seeds, tokens, houses = asked[:1], rates[:1], 1, 2_000, 4
    known = result.get("arms", {}).get("rows", ())
    folder = CACHE / "worlds" / ("quick-arms" if args.quick else "arms")
    world_arms.run_all(known, asked, rates, seeds, tokens, base, folder, done, houses=houses)
    world_arms.show_arms(result["arms"]["rows"])


if __name__ == "__main__":
    main()

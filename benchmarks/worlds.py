"""Worlds in which agents act: what is earned without learning, what the base earns, and what methods make of it.

    python benchmarks/worlds.py --out benchmarks/results/worlds.json [--worlds rooms] [--parts world base arms]

``world`` needs no model and takes seconds. ``base`` trains it: the recipes ``rooms-base`` and ``archive-base``, and
the fine-tuning of ``scalinginter-rl``, moved to the numbers of ``guess``. ``arms`` go on from it, at equal sampled
tokens, see ``world_arms.py``: some minutes of one core for each run. A row that is in the file is not made again, and a
run that was stopped goes on where it was (.cache/worlds).
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import world_arms
from common import CACHE, arguments, machine, say, table, write
from suites import QUICK
from world_arms import WORLDS, World

from lyceum.core.component import find
from lyceum.core.types import Task
from lyceum.recipe.files import read_merged
from lyceum.tasks import archive
from lyceum.tasks.guess import LARGER, GuessDemonstrations, said
from lyceum.tasks.rooms import Rooms, house_of, legal, played

PARTS = ("world", "base", "arms")
DEFINITIONS = {
    "levels": "of each world and level (number of rooms, of relations, of digits), shares of held-out tasks that are "
    "solved within the limit on turns",
    "random": "legal commands at random; in guess, any number of the range",
    "habit": "what somebody does who has nothing but the habit of the worked episodes; in guess that is random",
    "fixed": "the commands that solve most tasks, of those that a random and a sensible player gave in 40 tasks each",
    "shown": "the worked episodes that the base imitates",
    "sensible": "the same player without the habit; in rooms one who does not know the plan of the house",
    "base": "held-out tasks that are solved after its training: samples at temperature 1, and greedy",
    "arms": world_arms.DEFINITIONS,
}
Player = Callable[[Task], Sequence[str]]


# Without learning ----------------------------------------------------------------------------------------------------


def in_rooms(level: int) -> tuple[Mapping[str, Player], Callable[[Task, Sequence[str]], bool]]:
    """Of one level, who gives the commands, and whether they solve a task."""

    def by_chance(task: Task) -> list[str]:
        # The task itself was drawn from its id.
        rng, house = random.Random(f"{task.id}/commands"), house_of(task)
        place, said = house.begin, list[str]()
        while place.stage != "fetched" and len(said) < WORLDS["rooms"].turns:
            command, place = rng.choice([*legal(house, place).items()])
            said.append(command)
        return said

    def shown(**settings: float) -> Player:
        source = Rooms.model_validate({"levels": [level], **settings}).build("heldout", 0)
        return lambda task: [command for command, _ in source.episode(task)]

    players = {"random": by_chance, "habit": shown(wander=1), "shown": shown(), "sensible": shown(wander=0)}
    return players, lambda task, commands: played(house_of(task), commands).stage == "fetched"


def in_archive(level: int) -> tuple[Mapping[str, Player], Callable[[Task, Sequence[str]], bool]]:
    """The same of questions."""

    def by_chance(task: Task) -> list[str]:
        rng, papers = random.Random(f"{task.id}/commands"), archive.papers_of(task)
        now, given = archive.Findings(), list[str]()
        while not now.answer and len(given) < WORLDS["archive"].turns:
            given.append(rng.choice(archive.choices(papers, now)))
            now = archive.after(papers, now, given[-1])
        return given

    def shown(**settings: float) -> Player:
        source = archive.Archive.model_validate({"levels": [level], **settings}).build("heldout", 0)
        return lambda task: [command for command, _ in source.episode(task)]

    players = {"random": by_chance, "habit": shown(vague=1), "shown": shown(), "sensible": shown(vague=0)}
    return players, lambda task, commands: archive.played(archive.papers_of(task), commands).answer == task.answer


def in_guess(level: int) -> tuple[Mapping[str, Player], Callable[[Task, Sequence[str]], bool]]:
    """The same of numbers."""

    imitated = WORLDS["guess"].imitated

    def shown(careful: float) -> Player:
        settings = GuessDemonstrations.model_validate({**imitated, "levels": [level], "careful": careful})
        source = settings.build("heldout", 0)
        return lambda task: guesses(task, source.next_guess)

    def halving(rng: random.Random, all: tuple[int, int], possible: tuple[int, int]) -> int:
        return sum(possible) // 2

    players = {"random": shown(0), "habit": shown(0), "shown": shown(imitated["careful"])}
    players["sensible"] = lambda task: guesses(task, halving)
    return players, lambda task, commands: task.answer in commands


def guesses(task: Task, next_guess: Callable[[random.Random, tuple[int, int], tuple[int, int]], int]) -> list[str]:
    """Guesses at a number until it is found or the turns are over."""
    rng, number, given = random.Random(f"{task.id}/guesses"), int(task.answer), list[str]()
    least, most = all = task.columns["low"], task.columns["high"]
    while str(number) not in given and len(given) < WORLDS["guess"].turns:
        guess = next_guess(rng, all, (least, most))
        given.append(str(guess))
        if said(number, guess) == LARGER:
            least = max(least, guess + 1)
        else:
            most = min(most, guess - 1)
    return given


PLAYERS = {"rooms": in_rooms, "archive": in_archive, "guess": in_guess}


def without_learning(name: str, level: int, n: int) -> dict[str, float]:
    """Of one level; see DEFINITIONS."""
    world = WORLDS[name]
    settings = find("tasks", world.tasks["kind"])
    assert settings is not None
    source: Any = settings.model_validate({**world.tasks, "levels": [level]})
    source = source.build("heldout", 0)
    tasks = [source[i] for i in range(n)]
    players, is_solved = PLAYERS[name](level)

    def solved(tasks: Sequence[Task], player: Player) -> float:
        return sum(is_solved(task, player(task)[: world.turns]) for task in tasks) / len(tasks)

    scripts = [players[kind](task) for kind in ("random", "sensible") for task in tasks[:40]]
    fixed = max(solved(tasks[:200], lambda _, script=script: script) for script in scripts)
    return {kind: solved(tasks, player) for kind, player in players.items()} | {"fixed": fixed}


# Training ------------------------------------------------------------------------------------------------------------


def trained_base(name: str, world: World, *, quick: bool) -> Path:
    """The run folder of the base, which is trained where it is not there yet."""
    import lyceum

    folder = CACHE / "worlds" / f"{name}-{'quick' if quick else 'base'}"
    if not (folder / "model").is_dir():
        recipe, changes = guess_base(world) if name == "guess" else (f"{name}-base", {})
        stages = range(len(changes.get("stages") or read_merged(recipe)["stages"]))
        brief = [*(f"stages.{n}.steps=2" for n in stages), *QUICK, "evaluate.k=[1,2]"] if quick else ()
        given = {"name": folder.name, "output": str(folder.parent), **changes}
        lyceum.train(recipe, [*given.items(), *brief], resume="auto")
    return folder


def guess_base(world: World) -> tuple[str, dict[str, Any]]:
    """The fine-tuning of scalinginter-rl, with the numbers of this world."""
    recipe = "scalinginter-rl"
    stage = {**read_merged(recipe)["stages"][0], "tasks": world.imitated}
    evaluate = {"n": 200, "samples": 4, "environment": {"kind": world.environment, "max_turns": world.turns}}
    return recipe, {"stages": [stage], "tasks": world.tasks, "evaluate": evaluate}


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--worlds", nargs="+", choices=WORLDS, default=list(WORLDS))
    parser.add_argument("--arms", nargs="+", choices=world_arms.ARMS, default=list(world_arms.ARMS))
    parser.add_argument("--rates", nargs="+", default=world_arms.RATES, help="learning rates, of every arm in seed 0")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=world_arms.TOKENS, help="sampled tokens of a run")
    parser.add_argument("--model", type=Path, help="folder of the base; by default one that is trained here")
    args = parser.parse_args()
    if args.model and len(args.worlds) > 1:
        parser.error("--model is of one of --worlds")
    result: dict[str, Any] = {"benchmark": "worlds", "definitions": DEFINITIONS}
    if args.out and args.out.is_file():
        result = json.loads(args.out.read_text()) | result
    for name in args.worlds:
        if "world" in args.parts:
            on_levels(result, name, 40 if args.quick else 1000)
            write(result, args.out)
        if {"base", "arms"} & {*args.parts}:
            base = args.model or trained_base(name, WORLDS[name], quick=args.quick)
            if (summary := base / "summary.json").is_file():
                measured = json.loads(summary.read_text())
                found = {key: measured["after"][key] for key in ("overall", "by_level", "greedy", "tasks")}
                found |= {key: measured[key] for key in ("steps", "tokens_trained", "seed")}
                result.setdefault("base", {})[name] = found
                say(f"{name}, base: {found['overall']}")
                write(result, args.out)
            if "arms" in args.parts:
                on_arms(result, name, base / "model", args)


def on_levels(result: dict[str, Any], name: str, n: int) -> None:
    """What is earned without learning."""
    levels: dict[str, dict[str, float]] = {}
    result.setdefault("levels", {})[name] = levels
    for level in WORLDS[name].tasks["levels"]:
        levels[str(level)] = without_learning(name, level, n)
        say(f"{name}, level {level}: {levels[str(level)]}")
    columns = list(next(iter(levels.values())))
    lines = [[level, *(f"{of[column]:.3f}" for column in columns)] for level, of in levels.items()]
    table(name, ["level", *columns], lines)


def on_arms(result: dict[str, Any], name: str, base: Path, args: Any) -> None:
    """What is missing of the arms; the file is written after each run."""
    of_all = result.setdefault("arms", {})

    def done(rows: list[dict[str, Any]]) -> None:
        of_all[name] = {"machine": machine(), "rows": rows, "summary": world_arms.means(rows)}
        write(result, args.out)

    asked, rates, seeds, tokens, tasks = args.arms, args.rates, args.seeds, args.tokens, world_arms.TASKS
    if args.quick:
        asked, rates, seeds, tokens, tasks = asked[:1], rates[:1], 1, 2_000, 4
    known = of_all.get(name, {}).get("rows", ())
    folder = CACHE / "worlds" / f"{name}-{'quick-arms' if args.quick else 'arms'}"
    world_arms.run_all(WORLDS[name], known, asked, rates, seeds, tokens, base, folder, done, tasks=tasks)
    world_arms.show_arms(name, of_all[name]["rows"])


if __name__ == "__main__":
    main()

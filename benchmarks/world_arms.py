"""The part of ``worlds.py`` that trains: methods for agents that go on from one base, in the houses of ``rooms``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from typing import Any

from arms import Row, chosen, in_percent, run_arms, summary
from common import say, table
from suites import acted, run_one

TURNS = 16
TOKENS = 60_000
RATES = ("3e-4", "1e-3", "3e-3")
HOUSES, SAMPLES = 200, 4
LEVELS = (4, 5, 6, 7)
DEFINITIONS = {
    "tokens": "sampled tokens of a run, after which it ends with its step; imitation has as many episodes as grpo "
    "samples tokens for",
    "sampled": "held-out houses in which the thing is fetched, by trajectories at temperature 1, mean and interval",
    "greedy": "the same of the most likely commands",
    "by_level": "sampled, by the number of rooms",
    "tuning": "as sampled, of other houses: what the learning rate of an arm is chosen by",
    "turns": "of a trajectory in training, mean over its last ten steps",
    "computed": "tokens that the engine computed in training, those of prompts and of what the world said included",
    "acted": "means over the steps that log it",
}
LOGGED = (
    *("groups/with_gradient", "credit/steps", "credit/steps_compared", "credit/steps_shared", "credit/imitation"),
    *("credit/imitated", "replay/groups", "rollout/branching-turns/branches", "value/loss/last"),
    "credit/advantage/mean_abs",
)


def rollout(turns: int = TURNS, kind: str = "turns", **more: Any) -> dict[str, Any]:
    world = {"kind": "rooms", "max_turns": turns}
    sampling = {"max_completion_tokens": 64}
    return {"kind": kind, "samples": 8, "environment": world, "sampling": sampling, **more}


def stage(**changes: Any) -> dict[str, Any]:
    """Changes of a recipe's only stage."""
    return {"rollout": rollout(), **changes}


ARMS: dict[str, tuple[str, Sequence[Mapping[str, Any]], Mapping[str, Any]]] = {
    "grpo": ("grpo", [stage()], {}),
    "grpo-4-updates": ("grpo", [stage(learner={"updates_per_step": 4})], {}),
    "gigpo": ("gigpo", [stage(credit={"state": "marked"})], {}),
    "salt": ("salt", [stage()], {}),
    "empg": ("empg", [stage()], {}),
    "archer": ("archer", [stage(value={"warm_up_steps": 2})], {}),
    "arpo": ("arpo", [stage(rollout=rollout(kind="branching-turns", whole=4, first_tokens=3, entropy_weight=5.0))], {}),
    # 8, 12, 16 commands, each for a third of the tokens
    "growing": ("grpo", [stage(name=f"turns-{turns}", rollout=rollout(turns)) for turns in (8, 12, TURNS)], {}),
    "self-imitation": ("spear", [stage(credit={"warm_up_steps": 20})], {"reward": ["task"]}),
    "imitation": ("sft", [{"max_completion_tokens": 64}], {}),
}
"""Arm -> recipe, changes of its stage (several: a stage each), and of the recipe; the first is what the others are held
against."""


def run_all(
    known: Sequence[Row],
    arms: Sequence[str],
    rates: Sequence[str],
    seeds: int,
    tokens: int,
    base: Path,
    folder: Path,
    done: Callable[[list[dict[str, Any]]], None],
    *,
    houses: int = HOUSES,
) -> None:
    """Train and evaluate what is missing; rows of other tokens or houses are made again."""

    def run(arm: str, rate: str, seed: int) -> dict[str, Any]:
        row: dict[str, Any] = {"tokens": tokens, "houses": houses}
        if arm == "base":
            model = base
        else:
            made = recipe(arm, rate, seed, tokens, base, folder)
            row |= trained(made)
            model = folder / made.name / "model"
        row |= evaluated(model, seed, houses)
        say(f"{arm} at {rate}, seed {seed}: {row['sampled']['mean']:.1%}, greedy {row['greedy']['mean']:.1%}")
        return row

    run_arms(
        [row for row in known if (row["tokens"], row["houses"]) == (tokens, houses)], arms, rates, seeds, run, done
    )


def recipe(arm: str, rate: str, seed: int, tokens: int, base: Path, folder: Path) -> Any:
    from lyceum.recipe.files import merged, read_merged
    from lyceum.recipe.schema import load_recipe

    name, changes, of_recipe = ARMS[arm]
    first = read_merged(name)["stages"][0]
    learner = {"lr": float(rate), "warmup_steps": 2, "schedule": "constant"}
    sized: dict[str, Any] = {"steps": 10_000, "max_tokens": tokens // len(changes), "tasks_per_step": 8}
    if first["kind"] == "sft":
        sized = {"steps": max(1, round(tokens / demonstrated_tokens(seed) / 8)), "tasks_per_step": 8}
    stages = [merged(merged(first, {**sized, "learner": learner}), change) for change in changes]
    given = {"stages": stages, "model": str(base), "tasks": "rooms", "seed": seed, **of_recipe}
    given |= {"name": f"{arm}-{rate}-{tokens}-{seed}", "output": str(folder)}
    world = f"evaluate.environment={{kind: rooms, max_turns: {TURNS}}}"
    return load_recipe(name, [*given.items(), world, "evaluate.n=0", "checkpoint_every=10", "rollouts_every=1000"])


def demonstrated_tokens(seed: int) -> float:
    """Of the commands of a worked episode, on average."""
    from lyceum.models.scratch_words import world_tokenizer
    from lyceum.tasks.rooms import Rooms

    source, words = Rooms.model_validate({}).build("train", seed), world_tokenizer()
    episodes = [source.episode(source[n]) for n in range(100)]
    return fmean(sum(1 + len(words(said)["input_ids"]) for said, _ in episode) for episode in episodes)


def trained(made: Any) -> dict[str, Any]:
    """What a run says of itself; it is trained where it is not there yet."""
    from lyceum.analysis.comparison.run import folder_of, is_finished
    from lyceum.run.reader import read_run_folder

    if not is_finished(made):
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            pool.submit(run_one, json.dumps(made.resolved()), 1).result()
    run = read_run_folder(folder_of(made))
    names = ("rollout/turns/mean", "rollout/branching-turns/mean")
    turns = [line[name] for line in run.metrics for name in names if name in line]
    return {
        "steps": run.summary["steps"],
        "tokens_sampled": run.summary.get("tokens_sampled", 0),
        "computed": round(sum(line.get("tokens_computed/step", 0) for line in run.metrics)),
        "turns": round(fmean(turns[-10:]), 2) if turns else None,
        "seconds": round(sum(run.summary["seconds"].get(phase, 0.0) for phase in ("generate", "train")), 1),
        "acted": acted(run.metrics, LOGGED),
    }


def evaluated(model: Path, seed: int, houses: int) -> dict[str, Any]:
    def accuracy(draws: int, *, greedy: bool) -> Any:
        import lyceum

        world = f"environment={{kind: rooms, max_turns: {TURNS}}}"
        usual = {"k": (1,), "n": houses, "samples": SAMPLES, "max_completion_tokens": 64, "progress": "silent"}
        return lyceum.evaluate(model, "rooms", [world], seed=draws, greedy=greedy, **usual)

    def rounded(interval: Mapping[str, float]) -> dict[str, float]:
        return {name: round(interval[name], 4) for name in ("mean", "low", "high")}

    found, tuning = accuracy(seed, greedy=True), accuracy(1000 + seed, greedy=False) if seed == 0 else None
    return {
        "sampled": rounded(found["overall"]),
        "greedy": rounded(found["greedy"]["overall"]),
        "by_level": {level: rounded(interval) for level, interval in found["by_level"].items()},
    } | ({} if tuning is None else {"tuning": rounded(tuning["overall"])})


def means(rows: Sequence[Row]) -> list[dict[str, Any]]:
    found = summary(rows, [*ARMS], "sampled", ("sampled", "greedy"))
    for line in found:
        of = chosen(rows, line["arm"])
        for key in ("tokens_sampled", "computed", "turns", "seconds"):
            if all(row.get(key) for row in of):
                line[key] = round(fmean(row[key] for row in of), 1)
    return found


def show_arms(rows: Sequence[Row]) -> None:
    columns = ("arm", "rate", "seeds", "fetched, %", "minus grpo", "better", "greedy", "turns", "computed")
    lines = [
        (
            *(line["arm"], line["rate"], line["seeds"], in_percent(line["sampled"])),
            *(in_percent(line.get("difference"), "+"), f"{line['better']:.2f}" if "better" in line else "-"),
            *(in_percent(line["greedy"]), line.get("turns", "-"), line.get("computed", "-")),
        )
        for line in means(rows)
    ]
    table("methods in the rooms", columns, lines)

"""The part of ``worlds.py`` that trains: methods for agents that go on from one base, in each world for itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from arms import Row, chosen, in_percent, run_arms, summary, told, trained
from common import say, table

TOKENS = 60_000
RATES = ("3e-4", "1e-3")
TASKS_PER_STEP = 8
TASKS, SAMPLES = 200, 4
DEFINITIONS = {
    "tokens": "sampled tokens of a run, after which it ends with its step; imitation has as many episodes as grpo "
    "samples tokens for",
    "sampled": "held-out tasks that are solved, by trajectories at temperature 1, mean and interval",
    "greedy": "the same of the most likely commands",
    "by_level": "sampled, by level: the number of rooms, of relations, of digits",
    "tuning": "as sampled, of other tasks: what the learning rate of an arm is chosen by",
    "turns": "of a trajectory in training, mean over its last ten steps",
    "computed": "tokens that the engine computed in training, those of prompts and of what the world said included",
    "acted": "means over the steps that log it",
}
LOGGED = (
    *("groups/with_gradient", "credit/steps", "credit/steps_compared", "credit/steps_shared", "credit/imitation"),
    *("credit/imitated", "replay/groups", "rollout/branching-turns/branches", "value/loss/last"),
    *("credit/advantage/mean_abs", "credit/turns_with_gain", "reward/part/answer-gain/after"),
)


@dataclass(frozen=True)
class World:
    """What differs between the worlds.

    Attributes:
        tasks: the recipe's.
        environment: its kind.
        horizons: the limits on turns of the growing arm, each for a third of the tokens; the last is that of all.
        command_tokens: the most tokens of a command.
        branch_tokens: the first tokens of a command, whose entropy says where ``arpo`` branches.
        imitated: tasks that show how it is done, as the base has seen it.
        answers: what a command begins with that gives the answer; None: in this world there is none.
    """

    tasks: Mapping[str, Any]
    environment: str
    horizons: tuple[int, int, int]
    command_tokens: int
    branch_tokens: int
    imitated: Mapping[str, Any]
    answers: str | None = None

    @property
    def turns(self) -> int:
        return self.horizons[-1]

    def rollout(self, turns: int | None = None, kind: str = "turns", **more: Any) -> dict[str, Any]:
        environment = {"kind": self.environment, "max_turns": turns or self.turns}
        sampling = {"max_completion_tokens": self.command_tokens}
        return {"kind": kind, "samples": 8, "environment": environment, "sampling": sampling, **more}

    def stage(self, **changes: Any) -> dict[str, Any]:
        """Changes of a recipe's only stage."""
        return {"rollout": self.rollout(), **changes}


WORLDS = {
    "rooms": World(
        tasks={"kind": "rooms", "levels": [4, 5, 6, 7]},
        environment="rooms",
        horizons=(8, 12, 16),
        command_tokens=64,
        branch_tokens=3,
        imitated={"kind": "rooms"},
    ),
    "archive": World(
        tasks={"kind": "archive", "levels": [2, 3, 4]},
        environment="archive",
        horizons=(4, 6, 8),
        command_tokens=64,
        branch_tokens=3,
        imitated={"kind": "archive"},
        answers="answer ",
    ),
    "guess": World(
        tasks={"kind": "guess", "levels": [7, 8, 9, 10]},
        environment="guess-user",
        horizons=(2, 3, 4),
        command_tokens=16,
        branch_tokens=1,
        imitated={"kind": "guess-demonstrations", "levels": [7, 8, 9, 10], "guesses": 4, "careful": 0.2},
        answers="",
    ),
}
Stages = Sequence[Mapping[str, Any]]


def arms_of(world: World) -> dict[str, tuple[str, Stages, Mapping[str, Any]]]:
    """Arm -> recipe, changes of its stage (several: a stage each), and of the recipe; the first is what the others are
    held against."""
    stage, rollout = world.stage, world.rollout
    more = {"learner": {"updates_per_step": 4}}
    branching = {"whole": 4, "first_tokens": world.branch_tokens, "entropy_weight": 5.0}
    imitated = {"tasks": world.imitated, "max_completion_tokens": world.command_tokens}
    gain = [{"kind": "task", "steps": False}, {"kind": "answer-gain", "before": world.answers}]
    igpo = {} if world.answers is None else {"igpo": ("igpo", [stage()], {"reward": gain})}
    return {
        "grpo": ("grpo", [stage()], {}),
        "grpo-4-updates": ("grpo", [stage(**more)], {}),
        "gigpo": ("gigpo", [stage(credit={"state": "marked"})], {}),
        "gigpo-4-updates": ("gigpo", [stage(credit={"state": "marked"}, **more)], {}),
        "salt": ("salt", [stage()], {}),
        "empg": ("empg", [stage()], {}),
        **igpo,
        "archer": ("archer", [stage(value={"warm_up_steps": 2})], {}),
        "arpo": ("arpo", [stage(rollout=rollout(kind="branching-turns", **branching))], {}),
        "arpo-4-updates": ("arpo", [stage(rollout=rollout(kind="branching-turns", **branching), **more)], {}),
        "growing": ("grpo", [stage(name=f"turns-{turns}", rollout=rollout(turns)) for turns in world.horizons], {}),
        "self-imitation": ("spear", [stage(credit={"warm_up_steps": 20})], {"reward": ["task"]}),
        "self-imitation-4-updates": ("spear", [stage(credit={"warm_up_steps": 20}, **more)], {"reward": ["task"]}),
        "imitation": ("sft", [imitated], {}),
    }


ARMS = tuple(arms_of(WORLDS["archive"]))  # where there is an answer, so that all are


def run_all(
    world: World,
    known: Sequence[Row],
    arms: Sequence[str],
    rates: Sequence[str],
    seeds: int,
    tokens: int,
    base: Path,
    folder: Path,
    done: Callable[[list[dict[str, Any]]], None],
    *,
    tasks: int = TASKS,
) -> None:
    """Train and evaluate what is missing; rows of other tokens or numbers of tasks are made again."""

    def run(arm: str, rate: str, seed: int) -> dict[str, Any]:
        row: dict[str, Any] = {"tokens": tokens, "tasks": tasks}
        if arm == "base":
            model = base
        else:
            made = recipe(world, arm, rate, seed, tokens, base, folder)
            run = trained(made)
            row |= told(run, LOGGED) | of_turns(run)
            model = folder / made.name / "model"
        row |= evaluated(world, model, seed, tasks)
        say(f"{arm} at {rate}, seed {seed}: {row['sampled']['mean']:.1%}, greedy {row['greedy']['mean']:.1%}")
        return row

    kept = [row for row in known if (row["tokens"], row["tasks"]) == (tokens, tasks)]
    run_arms(kept, [arm for arm in arms if arm in arms_of(world)], rates, seeds, run, done)


def recipe(world: World, arm: str, rate: str, seed: int, tokens: int, base: Path, folder: Path) -> Any:
    from lyceum.recipe.files import merged, read_merged
    from lyceum.recipe.schema import load_recipe

    name, changes, of_recipe = arms_of(world)[arm]
    first = read_merged(name)["stages"][0]
    learner = {"lr": float(rate), "warmup_steps": 2, "schedule": "constant"}
    sized: dict[str, Any] = {"steps": 10_000, "max_tokens": tokens // len(changes)}
    if first["kind"] == "sft":
        sized = {"steps": max(1, round(tokens / demonstrated_tokens(world, base, seed) / TASKS_PER_STEP))}
    sized |= {"tasks_per_step": TASKS_PER_STEP, "learner": learner}
    stages = [merged(merged(first, sized), change) for change in changes]
    given = {"stages": stages, "model": str(base), "tasks": world.tasks, "seed": seed, **of_recipe}
    given |= {"name": f"{arm}-{rate}-{tokens}-{seed}", "output": str(folder)}
    usual = ("evaluate.n=0", "checkpoint_every=10", "rollouts_every=1000")
    return load_recipe(name, [*given.items(), played_in(world, "evaluate."), *usual])


def played_in(world: World, of: str = "") -> str:
    return f"{of}environment={{kind: {world.environment}, max_turns: {world.turns}}}"


def demonstrated_tokens(world: World, base: Path, seed: int) -> float:
    """That are imitated of a task, on average, with the ends of texts."""
    from transformers import AutoTokenizer

    from lyceum.core.component import find
    from lyceum.core.sources import ShowsEpisodes

    settings = find("tasks", world.imitated["kind"])
    assert settings is not None
    source: Any = settings.model_validate(world.imitated)
    source, tokens = source.build("train", seed), AutoTokenizer.from_pretrained(base)

    def shown(task: Any) -> list[str]:
        if isinstance(source, ShowsEpisodes):
            return [said for said, _ in source.episode(task)]
        return [task.columns["demonstration"]]

    texts = [text for n in range(100) for text in shown(source[n])]
    return sum(1 + len(tokens(text, add_special_tokens=False)["input_ids"]) for text in texts) / 100


def of_turns(run: Any) -> dict[str, Any]:
    """What a run says of its turns and of what they cost."""
    names = ("rollout/turns/mean", "rollout/branching-turns/mean")
    turns = [line[name] for line in run.metrics for name in names if name in line]
    return {
        "computed": round(sum(line.get("tokens_computed/step", 0) for line in run.metrics)),
        "turns": round(fmean(turns[-10:]), 2) if turns else None,
    }


def evaluated(world: World, model: Path, seed: int, tasks: int) -> dict[str, Any]:
    def accuracy(draws: int, *, greedy: bool) -> Any:
        import lyceum

        usual = {"k": (1,), "n": tasks, "samples": SAMPLES, "progress": "silent"}
        usual |= {"max_completion_tokens": world.command_tokens}
        return lyceum.evaluate(model, world.tasks, [played_in(world)], seed=draws, greedy=greedy, **usual)

    def rounded(interval: Mapping[str, float]) -> dict[str, float]:
        return {name: round(interval[name], 4) for name in ("mean", "low", "high")}

    found, tuning = accuracy(seed, greedy=True), accuracy(1000 + seed, greedy=False) if seed == 0 else None
    return {
        "sampled": rounded(found["overall"]),
        "greedy": rounded(found["greedy"]["overall"]),
        "by_level": {level: rounded(interval) for level, interval in found["by_level"].items()},
    } | ({} if tuning is None else {"tuning": rounded(tuning["overall"])})


def means(rows: Sequence[Row]) -> list[dict[str, Any]]:
    found = summary(rows, ARMS, "sampled", ("sampled", "greedy"))
    for line in found:
        of = chosen(rows, line["arm"])
        for key in ("tokens_sampled", "computed", "turns", "seconds"):
            if all(row.get(key) for row in of):
                line[key] = round(fmean(row[key] for row in of), 1)
    return found


def show_arms(world: str, rows: Sequence[Row]) -> None:
    columns = ("arm", "rate", "seeds", "solved, %", "minus grpo", "better", "greedy", "turns", "computed")
    lines = [
        (
            *(line["arm"], line["rate"], line["seeds"], in_percent(line["sampled"])),
            *(in_percent(line.get("difference"), "+"), f"{line['better']:.2f}" if "better" in line else "-"),
            *(in_percent(line["greedy"]), line.get("turns", "-"), line.get("computed", "-")),
        )
        for line in means(rows)
    ]
    table(f"methods in the world {world}", columns, lines)

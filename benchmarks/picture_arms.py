"""The part of ``pictures.py`` that trains: PCuRL, Cascade RL and their parts against GRPO and fine-tuning, on pictures.

One base per seed; every arm goes on from it, at equal sampled tokens. The first seed is trained at each learning rate;
questions that no result is of choose each arm's rate, which the further seeds have alone. Each run is a process, and a
row (arm, rate, seed) that is in the file is not trained again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from arms import Row, chosen, in_percent, run_arms, summary, told
from common import say, table

TASKS = {"kind": "pictures", "asks": ["where"], "levels": [2, 3]}
"""One look decides the answer. The base sees some of it: eight samples hold the answer far more often than eight
guesses would, which ``picture_questions.py`` measures for every question. Not level 1, whose pictures are so few that
those of training are learnt by heart: 58 % correct there, 23 % of held-out ones."""
SAMPLES, ANSWER = 8, 24
"""Of a group, and the most tokens of one."""
TASKS_PER_STEP = 32
UPDATES = 1
"""Per step. With four, each of 8 groups, the policy's entropy is gone before it sees more."""
WARMUP = 10
"""Steps. With two, the first updates at 3e-4 took the entropy from 0.34 to 0.20 in one of two seeds, which did not
learn."""
SETTING = {
    "tasks": TASKS,
    "samples": SAMPLES,
    "tasks_per_step": TASKS_PER_STEP,
    "updates_per_step": UPDATES,
    "warmup_steps": WARMUP,
}
TOKENS = 120_000
RATES = ("3e-4", "1e-4")
QUESTIONS = 600
DEFINITIONS = {
    "tokens": "sampled tokens of a run; a stage ends with the step in which its share is spent. Fine-tuning samples "
    "none: it has one demonstration for each question that grpo samples (x8: for each sample)",
    "own, blank, swapped": "greedy answers to the same held-out questions under the task's own picture, a blank one, "
    "another task's: share that is correct and its 95 % Wilson interval",
    "sampled": "the same with own pictures and one sample at temperature 1 per question",
    "tuning": "as own, of other questions: what the learning rate of an arm is chosen by",
    "by": "own by what is asked and by level",
    "acted": "means over the steps that log it",
}
LOGGED = (
    "reward/part/dynamic-length/acted",
    "reward/part/dynamic-length",
    "credit/dynamic-length/share",
    "curriculum/weight/mean",
    "groups/with_gradient",
    "completion_tokens/mean",
    "mpo/quality",
)


@dataclass(frozen=True)
class Arm:
    """Stages of a recipe after the base, by name, each with its share of the sampled tokens; what differs in them."""

    recipe: str
    shares: Mapping[str, float]
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


PCURL = {"easy": 0.25, "medium": 0.25, "hard": 0.5}
UNIFORM = {"curriculum": {"kind": "uniform"}}
CASCADE = {"offline": 0.4, "online": 0.6}
ARMS: dict[str, Arm] = {
    "grpo": Arm("grpo", {"online": 1}),
    "pcurl": Arm("pcurl-pictures", PCURL),
    "pcurl-without-length": Arm("pcurl-pictures", PCURL, {"hard": {"reward": None}}),
    "pcurl-without-weights": Arm("pcurl-pictures", PCURL, dict.fromkeys(PCURL, UNIFORM)),
    "cascade": Arm("cascade-pictures", CASCADE),
    "mpo": Arm("cascade-pictures", {"offline": 1}),
    "gspo": Arm("cascade-pictures", {"online": 1}),
    "sft": Arm("pictures-base", {"sft": 1}),
    "sft-x8": Arm("pictures-base", {"sft": SAMPLES}),
}


def run_all(
    known: Sequence[Row],
    arms: Sequence[str],
    rates: Sequence[str],
    seeds: int,
    tokens: int,
    questions: int,
    folder: Path,
    base_of: Callable[[int], Path],
    run_of: Callable[[Any], Any],
    done: Callable[[list[dict[str, Any]]], None],
) -> None:
    """Train and evaluate what is missing; rows of other tokens or questions are made again.

    Args:
        base_of: the model of a seed, which is trained where it is not there yet.
        run_of: a recipe's run, the same.
    """

    def run(arm: str, rate: str, seed: int) -> dict[str, Any]:
        row: dict[str, Any] = {"tokens": tokens, "questions": questions}
        model = base = base_of(seed)
        if arm != "base":
            made = recipe(ARMS[arm], rate, seed, tokens, base, folder, f"{arm}-{rate}-{tokens}-{seed}")
            row |= told(run_of(made), LOGGED)
            model = folder / made.name / "model"
        row |= evaluated(model, seed, questions)
        say(f"{arm} at {rate}, seed {seed}: {row['own']['mean']:.1%}, sampled {row['sampled']['mean']:.1%}")
        return row

    kept = [row for row in known if (row["tokens"], row["questions"]) == (tokens, questions)]
    run_arms(kept, arms, rates, seeds, run, done)


# Training ------------------------------------------------------------------------------------------------------------


def recipe(
    arm: Arm,
    rate: str,
    seed: int,
    tokens: int,
    base: Path,
    folder: Path,
    name: str,
    tasks: Mapping[str, Any] = TASKS,
) -> Any:
    """The arm's stages, with as many steps as their share of the tokens lasts."""
    from lyceum.recipe.files import merged, read_merged
    from lyceum.recipe.schema import load_recipe

    learner = {"lr": float(rate), "warmup_steps": WARMUP}
    rollout = {"samples": SAMPLES, "sampling": {"max_completion_tokens": ANSWER}}
    stages: list[dict[str, Any]] = []
    for stage in read_merged(arm.recipe)["stages"]:
        stage_name = stage.get("name", stage["kind"])
        if stage_name not in arm.shares:
            continue
        budget = round(arm.shares[stage_name] * tokens)
        sized = {"steps": 10_000, "max_tokens": budget, "tasks_per_step": TASKS_PER_STEP, "rollout": rollout}
        if stage["kind"] == "online":
            sized["learner"] = learner | {"updates_per_step": UPDATES}
        elif stage["kind"] == "offline":
            data = {"kind": "sampled", "tasks": 10_000, "part": TASKS_PER_STEP}
            sized |= {"data": data, "tasks_per_step": 16, "learner": learner}
        else:
            steps = max(1, round(budget / SAMPLES / demonstrated_tokens(seed, tasks) / TASKS_PER_STEP))
            constant = learner | {"schedule": "constant"}
            sized = {"steps": steps, "tasks_per_step": TASKS_PER_STEP, "learner": constant}
        stages.append(merged(merged(stage, sized), arm.changes.get(stage_name, {})))
    given = {"stages": stages, "model": str(base), "tasks": tasks, "seed": seed, "name": name, "output": str(folder)}
    usual = ("evaluate.n=0", "checkpoint_every=0", "rollouts_every=1000", "track=[]")
    return load_recipe(arm.recipe, [*given.items(), *usual])


def demonstrated_tokens(seed: int, tasks: Mapping[str, Any]) -> float:
    """Of a question, on average, with the end of the text."""
    from lyceum.tasks.pictures import Pictures

    source = Pictures.model_validate(tasks).build("train", seed)
    return 1 + fmean(len(source[n].columns["demonstration"]) for n in range(240))


# Evaluation ----------------------------------------------------------------------------------------------------------


def evaluated(model: Path, seed: int, questions: int) -> dict[str, Any]:
    from lyceum.models.load import ModelSettings, load_policy

    policy = load_policy(ModelSettings(path=str(model), device="cpu"))
    tasks = questions_of(seed, questions)
    own = correct(policy, tasks)
    cells: dict[str, list[bool]] = {}
    for task, right in zip(tasks, own, strict=True):
        ask, level = task.columns["ask"], task.columns["level"]
        for cell in (ask, f"level {level}", f"{ask} {level}"):
            cells.setdefault(cell, []).append(right)
    return {
        "own": share(own),
        "sampled": share(correct(policy, tasks, temperature=1.0)),
        "blank": share(correct(policy, questions_of(seed, questions, shown="blank"))),
        "swapped": share(correct(policy, questions_of(seed, questions, shown="swapped"))),
        "tuning": share(correct(policy, questions_of(seed, questions, first=questions))),
        "by": {name: share(of) for name, of in sorted(cells.items())},
    }


def questions_of(
    seed: int, questions: int, *, first: int = 0, shown: str = "own", tasks: Mapping[str, Any] = TASKS
) -> list[Any]:
    from lyceum.tasks.pictures import Pictures

    source = Pictures.model_validate({**tasks, "shown": shown}).build("heldout", seed)
    return [source[first + n] for n in range(questions)]


def correct(policy: Any, tasks: Sequence[Any], *, temperature: float = 0.0) -> list[bool]:
    """Whether one answer to each task is right."""
    from lyceum.engine.embedded import EmbeddedConfig, EmbeddedEngine

    engine = EmbeddedEngine(policy, EmbeddedConfig.model_validate({}))
    prompts = [policy.render(task.messages) for task in tasks]
    samples = asyncio.run(answers(engine, prompts, temperature))
    return [
        sample.finish == "stop" and policy.decode(sample.tokens).partition("#")[2].strip() == task.answer
        for task, sample in zip(tasks, samples, strict=True)
    ]


async def answers(engine: Any, prompts: Sequence[list[int]], temperature: float = 0.0) -> list[Any]:
    from lyceum.core.types import Request, Sampling

    sampling = Sampling(temperature=temperature, max_completion_tokens=ANSWER)
    found = await asyncio.gather(*(engine.extend(Request(prompt, [n], sampling)) for n, prompt in enumerate(prompts)))
    return [sample for [sample] in found]


def share(right: Sequence[bool]) -> dict[str, float]:
    from lyceum.evaluation.intervals import wilson

    found = wilson(fmean(right), len(right))
    return {"mean": round(found.mean, 4), "low": round(found.low, 4), "high": round(found.high, 4)}


# Results -------------------------------------------------------------------------------------------------------------


def means(rows: Sequence[Row]) -> list[dict[str, Any]]:
    found = summary(rows, [*ARMS], "own", ("own", "sampled", "blank", "swapped"))
    for line in found:
        if line["arm"] != "base":
            of = chosen(rows, line["arm"])
            line |= {key: round(fmean(row[key] for row in of)) for key in ("tokens_sampled", "seconds")}
    return found


def show_arms(rows: Sequence[Row]) -> None:
    columns = ("arm", "rate", "seeds", "own, %", "minus grpo", "sampled", "blank", "swapped", "tokens", "s")
    lines = [
        (
            *(line["arm"], line["rate"], line["seeds"], in_percent(line["own"])),
            in_percent(line.get("difference"), "+"),
            *(f"{100 * line[name]['mean']:.1f}" for name in ("sampled", "blank", "swapped")),
            *(line.get(name, "-") for name in ("tokens_sampled", "seconds")),
        )
        for line in means(rows)
    ]
    table("training on pictures, from one base per seed", columns, lines)

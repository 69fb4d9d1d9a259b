"""The part of ``pictures.py`` about rates: what a router of rates gains over chance, and what it costs.

One base; each seed adds a second rate to it by the recipe ``vico`` and answers its own held-out questions. An answer
depends on its own picture's rate alone, so the accuracy of any choice of rates follows from the answers with all
pictures full and all compressed; four choices are run, to be timed. A seed that is in the file is not run again, and a
run that is in the cache is not trained again.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, cast

import picture_arms
from common import say, table

ASKS = ("colour", "compare", "where", "count")
TASKS = {"kind": "pictures", "asks": [*ASKS]}
SIZES = {"base_steps": 400, "consistency_steps": 200, "router_steps": 60, "tasks_per_step": 32, "lr": 2e-3}
QUICK = {"base_steps": 4, "consistency_steps": 2, "router_steps": 2, "tasks_per_step": 4, "lr": 2e-3}
TOGETHER = 120
"""Questions asked together: about a step's tasks."""
ROUNDS = 2
WAYS = ("full", "compressed", "random", "routed", "routed one by one")
SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
DEFINITIONS = {
    "sizes": "of the base (pictures-base), which all seeds share, and of the recipe vico after it",
    "ways": "each run on all questions, 120 together: accuracy, share of pictures compressed, tokens of a picture and "
    "of a prompt (means), processor and wall time of rendering, routing and answering, best of 2 interleaved rounds; "
    "'encoded': pictures through the vision tower in a round. 'random' compresses as many as 'routed', by a hash; "
    "'routed one by one': no pictures go through the tower together to be routed",
    "curve": "at each share of compressed pictures: tokens of a picture, mean; accuracy where the router's lowest "
    "logits are compressed, and what is expected where as many are drawn at random",
    "by_ask": "accuracy with all pictures full, with all compressed, as the router says; the share that it compresses",
    "summary": "means over seeds with Student's 95 % interval; 'above_random' is paired by seed",
}


def run_rates(
    known: Sequence[Mapping[str, Any]],
    seeds: int,
    questions: int,
    sizes: Mapping[str, float],
    trained: Callable[..., Path],
    name: str,
    done: Callable[[list[dict[str, Any]]], None],
) -> None:
    """Train and answer what is missing.

    Args:
        known: rows that are there; of other sizes or questions they are made again.
        trained: the model of a run, by its name, recipe and keys.
        name: begins the runs' names.
        done: takes all rows, after each seed.
    """
    rows = [dict(row) for row in known if (row.get("sizes"), row.get("questions")) == (sizes, questions)]
    for seed in range(seeds):
        if any(row["seed"] == seed for row in rows):
            continue
        row = {"seed": seed, "sizes": dict(sizes), "questions": questions}
        row |= measured(model_of(seed, sizes, trained, name), seed, questions)
        rows = sorted([*rows, row], key=lambda each: each["seed"])
        told = ", ".join(f"{way} {of['accuracy']:.1%}" for way, of in row["ways"].items())
        say(f"seed {seed}: {told}")
        done(rows)


def model_of(seed: int, sizes: Mapping[str, float], trained: Callable[..., Path], name: str) -> Path:
    tasks = f"tasks={json.dumps(TASKS)}"
    batch = f"tasks_per_step={sizes['tasks_per_step']}"
    base = trained(f"{name}-base", "pictures-base", "seed=0", tasks, f"steps={sizes['base_steps']}", batch)
    unchanged = ("stages.start.steps=1", "stages.start.learner.lr=1e-9", "stages.start.learner.warmup_steps=0")
    learner = (f"lr={sizes['lr']:g}", "schedule=cosine", "final_lr_share=0.05")
    stage = (
        f"steps={sizes['consistency_steps'] + sizes['router_steps']}",
        f"router_steps={sizes['router_steps']}",
        batch,
        *(f"learner.{key}" for key in learner),
    )
    vico = (f"seed={seed}", f"model.path={base}", tasks, "checkpoint_every=0")
    return trained(f"{name}-vico-{seed}", "vico", *vico, *unchanged, *(f"stages.vico.{key}" for key in stage))


# One seed ------------------------------------------------------------------------------------------------------------


def measured(model: Path, seed: int, questions: int) -> dict[str, Any]:
    from lyceum.models.load import ModelSettings, load_policy
    from lyceum.tasks.pictures import Pictures

    policy = load_policy(ModelSettings(path=str(model), device="cpu"))
    source = Pictures.model_validate(TASKS).build("heldout", seed)
    tasks = [source[n] for n in range(questions)]
    logits = logits_of(policy, tasks)
    ways = in_rounds(policy, tasks, share=fmean(logit <= 0 for logit in logits))
    right = {way: of.pop("right") for way, of in ways.items()}
    full, compressed, routed = (right[way] for way in ("full", "compressed", "routed"))
    tokens = [ways[way]["picture_tokens"] for way in ("full", "compressed")]
    asks = [task.columns["ask"] for task in tasks]
    return {
        "ways": ways,
        "curve": curve(logits, full, compressed, *tokens),
        "by_ask": {
            ask: {
                "full": share_of(full, asks, ask),
                "compressed": share_of(compressed, asks, ask),
                "routed": share_of(routed, asks, ask),
                "share": share_of([logit <= 0 for logit in logits], asks, ask),
            }
            for ask in ASKS
        },
    }


def logits_of(policy: Any, tasks: Sequence[Any]) -> list[float]:
    """The router's, of each task's picture."""
    import torch

    from lyceum.core.pictures import pictures_among

    ids = [pictures_among(policy.render(task.messages))[0] for task in tasks]
    with torch.no_grad():
        return [float(policy.sight.rates.logit(patches)) for id in ids for patches in policy.sight.patches([id])]


def curve(
    logits: Sequence[float], full: Sequence[bool], compressed: Sequence[bool], most: float, least: float
) -> list[dict[str, float]]:
    """Accuracy against mean tokens of a picture, of choices of rates.

    Args:
        logits: of each picture; the lowest are compressed first, of equal ones the first.
        full, compressed: whether the answer is right at either rate.
        most, least: tokens of a picture, full and compressed.
    """
    order = sorted(range(len(logits)), key=lambda n: logits[n])
    found: list[dict[str, float]] = []
    for share in SHARES:
        number = round(share * len(order))
        chosen = sum(compressed[n] for n in order[:number]) + sum(full[n] for n in order[number:])
        exact = number / len(order)
        line = {
            "share": exact,
            "picture_tokens": most + exact * (least - most),
            "routed": chosen / len(order),
            "random": exact * fmean(compressed) + (1 - exact) * fmean(full),
        }
        found.append({name: round(value, 4) for name, value in line.items()})
    return found


def share_of(of: Sequence[bool], names: Sequence[str], name: str) -> float:
    return round(fmean(each for each, at in zip(of, names, strict=True) if at == name), 4)


def in_rounds(policy: Any, tasks: Sequence[Any], share: float) -> dict[str, dict[str, Any]]:
    """Each way of choosing rates, in turns."""
    rounds = [{way: answered(policy, tasks, way, share) for way in WAYS} for _ in range(ROUNDS)]
    for way in WAYS:
        if any(each[way]["right"] != rounds[0][way]["right"] for each in rounds):
            raise RuntimeError(f"{way}: other answers in another round")
    times = ("cpu_seconds", "wall_seconds")
    return {way: of | {name: round(min(each[way][name] for each in rounds), 3) for name in times}
            for way, of in rounds[0].items()}  # fmt: skip


def answered(policy: Any, tasks: Sequence[Any], way: str, share: float) -> dict[str, Any]:
    """Greedy answers to all tasks with rates chosen in one way."""
    from lyceum.core.pictures import COMPRESSED, FULL, id_and_place, is_picture, rate_of
    from lyceum.engine.embedded import EmbeddedConfig, EmbeddedEngine
    from lyceum.models.picture_tokens import one_by_one
    from lyceum.models.sight import RateName, give_rate
    from lyceum.utils.seeds import counter_seed

    sight = policy.sight
    give_rate(policy, cast(RateName, way.partition(" ")[0]))
    if way == "random":
        sight.pictures.rates = one_by_one(lambda id: COMPRESSED if counter_seed("random", id) < share * 2**63 else FULL)
    engine = EmbeddedEngine(policy, EmbeddedConfig.model_validate({}))
    if way == "routed one by one":
        sight.at_once = 1
    sight.forget()
    sight.encoded = 0
    prompts: list[list[int]] = []
    samples: list[Any] = []
    wall, cpu = time.perf_counter(), time.process_time()
    for first in range(0, len(tasks), TOGETHER):
        some = [policy.render(task.messages) for task in policy.foreseen(tasks[first : first + TOGETHER])]
        prompts += some
        samples += asyncio.run(picture_arms.answers(engine, some))
    seconds = {"cpu_seconds": time.process_time() - cpu, "wall_seconds": time.perf_counter() - wall}
    right = [
        sample.finish == "stop" and policy.decode(sample.tokens).partition("#")[2].strip() == task.answer
        for task, sample in zip(tasks, samples, strict=True)
    ]
    shown = [[token for token in prompt if is_picture(token)] for prompt in prompts]
    return seconds | {
        "right": right,
        "accuracy": round(fmean(right), 4),
        "compressed": round(fmean(rate_of(id_and_place(tokens[0])[0]) == COMPRESSED for tokens in shown), 4),
        "picture_tokens": round(fmean(map(len, shown)), 3),
        "prompt_tokens": round(fmean(map(len, prompts)), 3),
        "encoded": sight.encoded,
    }


# Over seeds ----------------------------------------------------------------------------------------------------------


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of two seeds or more."""
    if len(rows) < 2:
        return {}
    numbers = ("accuracy", "compressed", "picture_tokens", "cpu_seconds", "wall_seconds")
    lines = [[row["curve"][n] for row in rows] for n in range(len(SHARES))]
    return {
        "seeds": len(rows),
        "ways": {way: {name: mean_of([row["ways"][way][name] for row in rows]) for name in numbers} for way in WAYS},
        "routed_above_random": mean_of([above(row["ways"]["routed"], row) for row in rows]),
        "curve": [
            {
                "share": share,
                "picture_tokens": round(fmean(line["picture_tokens"] for line in of), 3),
                "routed": mean_of([line["routed"] for line in of]),
                "random": mean_of([line["random"] for line in of]),
                "above_random": mean_of([line["routed"] - line["random"] for line in of]),
            }
            for share, of in zip(SHARES, lines, strict=True)
        ],
        "by_ask": {
            ask: {
                name: mean_of([row["by_ask"][ask][name] for row in rows])
                for name in ("full", "compressed", "routed", "share")
            }
            for ask in ASKS
        },
    }


def above(routed: Mapping[str, float], row: Mapping[str, Any]) -> float:
    """The router's accuracy minus what is expected where as many pictures are compressed at random."""
    full, compressed = (row["ways"][way]["accuracy"] for way in ("full", "compressed"))
    return routed["accuracy"] - full - routed["compressed"] * (compressed - full)


def mean_of(values: Sequence[float]) -> dict[str, float]:
    from lyceum.evaluation.intervals import mean_over_seeds

    found = mean_over_seeds(values)
    return {"mean": round(found.mean, 4), "low": round(found.low, 4), "high": round(found.high, 4)}


def show_rates(rows: Sequence[Mapping[str, Any]]) -> None:
    columns = ("seed, rates", "accuracy", "compressed", "picture tokens", "CPU s", "wall s", "encoded")
    lines = [
        (
            f"{row['seed']}, {way}",
            f"{of['accuracy']:.1%}",
            f"{of['compressed']:.0%}",
            f"{of['picture_tokens']:.1f}",
            *(f"{of[name]:.2f}" for name in ("cpu_seconds", "wall_seconds")),
            of["encoded"],
        )
        for row in rows
        for way, of in row["ways"].items()
    ]
    table("rates of pictures", columns, lines)
    found = summary(rows)
    if found:
        columns = ("compressed", "picture tokens", "routed", "random", "routed minus random, %")
        lines = [
            (
                f"{line['share']:.0%}",
                f"{line['picture_tokens']:.1f}",
                *(f"{line[name]['mean']:.1%}" for name in ("routed", "random")),
                "{mean:+.1f} [{low:+.1f}, {high:+.1f}]".format(
                    **{name: 100 * value for name, value in line["above_random"].items()}
                ),
            )
            for line in found["curve"]
        ]
        table(f"accuracy against tokens, {found['seeds']} seeds", columns, lines)

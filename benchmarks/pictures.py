"""Pictures: what methods learn, tokens saved by rates, the learner's two layouts, an encoder in a process of its own.

    python benchmarks/pictures.py --out benchmarks/results/pictures.json [--on CASE ...] [--quick]

``rates``: a router of rates against chance, see ``picture_rates.py``; about two minutes of a core for each seed, and
as long for the base. Runs stay in ``.cache/pictures`` and are not trained again. ``layout``: a step of the learner on
groups of 8 samples under a picture of 256 tokens. ``encoder``: one answer to each of 64 new pictures, with the vision
tower in the engine's process and in its own, where it costs a quarter of what prefill and decoding do, as much, and
four times as much; all prompts prefilled together, or 8 after another. ``arms``: methods that go on from one base per
seed, see ``picture_arms.py``; half a minute of a core for each run. ``questions``: GRPO on each question alone, see
``picture_questions.py``; a minute of a core for each. What is not asked for stays in the file.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import picture_arms
import picture_questions
import picture_rates
from arms import trained as run_of_recipe
from common import (
    CACHE,
    arguments,
    in_own_process,
    machine,
    peak_mib,
    processes,
    reset_peak,
    resident_mib,
    say,
    table,
    write,
)
from layout import stepper
from suites import run_one

HERE = CACHE / "pictures"
DEFINITIONS = {
    "accuracy": "greedy answers that are correct, of held-out questions, and its 95 % Wilson interval",
    "compressed": "share of pictures at the compressed rate; 'random' has the router's share, by a hash of the picture",
    "picture_tokens": "of a prompt, mean; 16 at the full rate, 4 compressed",
    "prompt_tokens": "of a prompt, mean, the picture's among them",
    "cpu_seconds": "processor time of rendering, routing and answering all questions, best of the rounds",
    "time_ratio": "processor time of a step in the tree layout over that in padded rows, median over pairs",
    "memory_mib": "peak memory of a step above what was resident before it",
    "encoded": "pictures that went through the vision tower in a step of the learner, or in all rounds of a case",
    "throughput_ratio": "pictures per second with the process over without, wall time, median of interleaved pairs",
    "cost_ratio": "processor time of the vision tower over that of prefill and decoding",
    "best_ratio": "(tower + rest) / max(tower, rest): what complete overlap on idle cores would give",
}
GROUPS, SAMPLES, ANSWER, SIDE = 4, 8, 16, 192
"""Of the layout's forest: pictures, samples under each, their tokens, pixels of a picture."""


CASES = ("rates", "layout", "encoder", "arms", "questions")
PICTURES, BATCH, TOKENS, SEEN_SIDE = 64, 8, 16, 96
"""Of the encoder's: new pictures in a round, prompts prefilled together, tokens of an answer, pixels of a picture."""
COSTS = (0.25, 1.0, 4.0)
MOST_TOKENS = 160
"""Of an answer, where it has to be longer for the rest to cost enough."""


def main() -> None:
    parser = arguments(__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--on", nargs="+", choices=CASES, default=[*CASES])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--questions", type=int, help="held-out questions of each seed")
    parser.add_argument("--arms", nargs="+", choices=picture_arms.ARMS, default=[*picture_arms.ARMS])
    parser.add_argument("--learning-rates", nargs="+", default=picture_arms.RATES, help="of every arm, in seed 0")
    parser.add_argument("--tokens", type=int, default=picture_arms.TOKENS, help="sampled tokens of a run of the arms")
    options = parser.parse_args()
    import torch

    torch.set_num_threads(options.threads)
    result: dict[str, Any] = {"benchmark": "pictures", "quick": options.quick, "definitions": DEFINITIONS}
    if options.out is not None and options.out.exists():
        before = json.loads(options.out.read_text())
        result |= {case: before[case] for case in CASES if case in before}
    if "layout" in options.on:
        result["layout"] = layouts(pairs=2 if options.quick else 7) | {"machine": machine()}
        write(result, options.out)
    if "rates" in options.on:
        on_rates(result, options)
    if "encoder" in options.on:
        costs = COSTS[1:2] if options.quick else COSTS
        rows = [row for cost in costs for row in encoders(cost, pairs=2 if options.quick else 7)]
        result["encoder"] = {"machine": machine(), "rows": rows}
        write(result, options.out)
    if "arms" in options.on:
        on_arms(result, options)
    if "questions" in options.on:
        on_questions(result, options)
    show(result)


def on_rates(result: dict[str, Any], options: Any) -> None:
    """What is missing of the rates; the file is written after each seed."""

    def done(rows: list[dict[str, Any]]) -> None:
        facts = {"definitions": picture_rates.DEFINITIONS, "tasks": picture_rates.TASKS, "machine": machine()}
        result["rates"] = facts | {"rows": rows, "summary": picture_rates.summary(rows)}
        write(result, options.out)

    questions = options.questions or (12 if options.quick else 480)
    sizes = picture_rates.QUICK if options.quick else picture_rates.SIZES
    name = "rates-quick" if options.quick else "rates"
    known = result.get("rates", {}).get("rows", ())
    picture_rates.run_rates(known, options.seeds, questions, sizes, partial(trained, options), name, done)


def on_arms(result: dict[str, Any], options: Any) -> None:
    """What is missing of the arms; the file is written after each run."""
    folder = HERE / ("arms-quick" if options.quick else "arms")

    def done(rows: list[dict[str, Any]]) -> None:
        facts = {"definitions": picture_arms.DEFINITIONS, "setting": picture_arms.SETTING, "machine": machine()}
        result["arms"] = facts | {"rows": rows, "summary": picture_arms.means(rows)}
        write(result, options.out)

    arms, rates, tokens = options.arms, options.learning_rates, options.tokens
    questions = options.questions or (12 if options.quick else picture_arms.QUESTIONS)
    if options.quick:
        arms, rates, tokens = ("grpo", "sft"), rates[:1], 1000
    before = result.get("arms", {})
    known = before["rows"] if before.get("setting") == picture_arms.SETTING else ()
    base_of = partial(base_of_arms, options)
    run_of = partial(run_of_recipe, context=processes(options))
    picture_arms.run_all(known, arms, rates, options.seeds, tokens, questions, folder, base_of, run_of, done)


def on_questions(result: dict[str, Any], options: Any) -> None:
    """GRPO on each question alone, what is missing of it; the file is written after each."""
    asks, rates, steps = picture_questions.ASKS, picture_questions.RATES, picture_questions.STEPS
    questions = options.questions or (4 if options.quick else picture_questions.QUESTIONS)
    if options.quick:
        asks, rates, steps = asks[:1], rates[:1], 1
    folder = HERE / ("questions-quick" if options.quick else "questions")

    def done(rows: list[dict[str, Any]]) -> None:
        facts = {"definitions": picture_questions.DEFINITIONS, "machine": machine()}
        result["questions"] = facts | {"rows": rows}
        write(result, options.out)

    known = result.get("questions", {}).get("rows", ())
    base, run_of = base_of_arms(options, 0), partial(run_of_recipe, context=processes(options))
    picture_questions.run_questions(known, asks, rates, steps, questions, base, folder, run_of, done)


def base_of_arms(options: Any, seed: int) -> Path:
    """That of a seed, which is trained where it is not there yet."""
    named = f"{'arms-quick' if options.quick else 'arms'}-base-{seed}"
    steps = ("steps=4", "tasks_per_step=4") if options.quick else ()
    return trained(options, named, "pictures-base", f"seed={seed}", *steps)


def trained(options: Any, name: str, recipe: str, *keys: str) -> Path:
    """The model of a run, which is trained where it is not there yet."""
    from lyceum.recipe.schema import load_recipe

    run = HERE / name
    if not (run / "model").is_dir():
        shutil.rmtree(run, ignore_errors=True)
        made = load_recipe(recipe, [f"name={name}", f"output={HERE}", "evaluate.n=0", "track=[]", *keys])
        seconds = in_own_process(processes(options), run_one, json.dumps(made.resolved()), options.threads)
        say(f"{name} took {seconds:.0f} s")
    return run / "model"


# Layout --------------------------------------------------------------------------------------------------------------


def layouts(pairs: int) -> dict[str, Any]:
    """One step of the learner on the same forest in both layouts, in turns."""
    import torch

    from lyceum.core.types import Credited
    from lyceum.models.policy import Policy
    from lyceum.models.scratch_pictures import build_scratch_pictures

    policy = Policy(*build_scratch_pictures(side=SIDE, context=1024))
    assert policy.sight is not None
    forest = under_pictures(policy)
    rows = forest.rows()
    generator = torch.Generator().manual_seed(0)
    credited = Credited(torch.randn(rows.index.shape, generator=generator) * forest.trainable(rows))
    steps = {layout: stepper(policy, forest, credited, layout) for layout in ("tree", "rows")}
    memory, encoded = {}, {}
    for layout, step in steps.items():
        reset_peak()
        before = resident_mib()
        step()
        memory[layout] = round(peak_mib() - before, 1)
        encoded[layout], policy.sight.trained = policy.sight.trained, 0
    seconds: dict[str, list[float]] = {"tree": [], "rows": []}
    for _ in range(pairs):
        for layout, step in steps.items():
            seconds[layout].append(cpu_seconds(step))
    ratios = sorted(a / b for a, b in zip(seconds["tree"], seconds["rows"], strict=True))
    say(f"{SAMPLES} samples under a picture of 256 tokens: tree takes {median(ratios):.2f} of the rows' time")
    return {
        "unique_tokens": forest.n_tokens,
        "padded_tokens": rows.index.numel(),
        "time_ratio": round(median(ratios), 3),
        "time_ratio_range": [round(ratios[0], 3), round(ratios[-1], 3)],
        "cpu_seconds": {layout: round(median(found), 3) for layout, found in seconds.items()},
        "memory_mib": memory,
        "encoded": encoded,
    }


def under_pictures(policy: Any) -> Any:
    """Groups of random answers, each under a picture of noise."""
    import numpy as np

    from lyceum.core.forest import build_forest
    from lyceum.core.tree import Node, Tree
    from lyceum.core.types import Continuation, Grade, Task
    from lyceum.models.see import data_uri

    rng, trees = random.Random(0), []
    for number in range(GROUPS):
        pixels = np.random.default_rng(number).integers(0, 256, (SIDE, SIDE, 3)).astype(np.uint8)
        parts = [{"type": "image", "image": data_uri(pixels)}, {"type": "text", "text": "count?"}]
        tree = Tree(Task(str(number), ()), [Node.prompt(policy.render([{"role": "user", "content": parts}]))])
        for _ in range(SAMPLES):
            drawn = [rng.randrange(10, 90) for _ in range(ANSWER)]
            logprob = [-rng.random() for _ in drawn]
            leaf = tree.root.add_drawn(Continuation(drawn, logprob, logprob, [0] * ANSWER, "stop"))
            leaf.grade = Grade(rng.random())
        trees.append(tree)
    return build_forest(trees)


# Encoder -------------------------------------------------------------------------------------------------------------


def encoders(cost: float, pairs: int) -> list[dict[str, Any]]:
    """A row for each way to prefill, at one cost of the vision tower to that of the rest."""
    import torch

    from lyceum.models.policy import Policy
    from lyceum.models.scratch_pictures import build_scratch_pictures

    def policy_of(layers: int) -> Any:
        return Policy(*build_scratch_pictures(side=SEEN_SIDE, vision_layers=layers, context=256))

    def tower(policy: Any, ids: Sequence[int]) -> float:
        with torch.inference_mode():
            return min(cpu_seconds(lambda: policy.sight.encode(ids)) for _ in range(3))

    def tower_of(policy: Any) -> float:
        return tower(policy, [id for prompt in new_prompts(policy, 0) for id in pictures_of(prompt)])

    # The rest is told from the smallest tower: beside a large one it would be a small difference of large numbers.
    smallest = policy = policy_of(1)
    prompts = new_prompts(smallest, 0)
    ask(smallest, built(smallest, process=False, together=BATCH), prompts[:1])  # what is loaded at the first use
    least = tower_of(smallest)

    def rest_of(tokens: int) -> float:
        engine = built(smallest, process=False, together=BATCH)
        return min(ask(smallest, engine, prompts, tokens)["cpu"] for _ in range(3)) - least

    layers, tokens, of_tower, rest = 1, TOKENS, least, rest_of(TOKENS)
    while of_tower < 0.95 * cost * rest:
        layers = max(layers + 1, round(layers * cost * rest / of_tower))
        policy = policy_of(layers)
        of_tower = tower_of(policy)
    while of_tower > 1.1 * cost * rest and tokens < MOST_TOKENS:  # some answers end sooner: in steps
        tokens = min(MOST_TOKENS, round(tokens * of_tower / (cost * rest)))
        rest = rest_of(tokens)
    rows: list[dict[str, Any]] = []
    for together in (BATCH, PICTURES):
        engines = {apart: built(policy, process=apart, together=together) for apart in (False, True)}
        prompts = new_prompts(policy, 10_000 + together)
        warm = {apart: ask(policy, engine, prompts, tokens) for apart, engine in engines.items()}
        same, before = warm[False]["said"] == warm[True]["said"], policy.sight.encoded
        seconds: dict[bool, list[float]] = {False: [], True: []}
        for pair in range(pairs):
            prompts = new_prompts(policy, 1 + pair)
            order = ((False, True), (True, False))[pair % 2]
            turns = {apart: ask(policy, engines[apart], prompts, tokens) for apart in order}
            same &= turns[False]["said"] == turns[True]["said"]
            for apart, turn in turns.items():
                seconds[apart].append(turn["wall"])
        ratios = sorted(joined / apart for joined, apart in zip(seconds[False], seconds[True], strict=True))
        row = {
            "asked": cost,
            "cost_ratio": round(of_tower / rest, 2),
            "together": together,
            "layers": layers,
            "tokens": tokens,
            "throughput_ratio": round(median(ratios), 3),
            "throughput_ratio_range": [round(ratios[0], 3), round(ratios[-1], 3)],
            "best_ratio": round((of_tower + rest) / max(of_tower, rest), 2),
            "pictures_per_second": {
                name: round(PICTURES / median(seconds[apart]), 1)
                for name, apart in (("joined", False), ("apart", True))
            },
            "equal": same,
            "encoded": [policy.sight.encoded - before, 2 * pairs * PICTURES],
            "load": round(os.getloadavg()[0], 1),
        }
        rows.append(row)
        faster = f"{row['throughput_ratio']:.2f} times as fast with a process"
        say(f"tower at {row['cost_ratio']} of the rest, {together} prefilled together: {faster}")
    return rows


def built(policy: Any, *, process: bool, together: int) -> Any:
    from lyceum.engine.embedded import EmbeddedConfig

    encoder = {"process": process, "at_once": BATCH, "ahead": PICTURES}
    return EmbeddedConfig.model_validate({"prefill_tokens": together * 75, "encoder": encoder}).build(policy)


def new_prompts(policy: Any, seed: int) -> list[list[int]]:
    """Questions under pictures of noise, all different."""
    import numpy as np

    from lyceum.models.see import data_uri

    prompts: list[list[int]] = []
    for number in range(PICTURES):
        pixels = np.random.default_rng((seed, number)).integers(0, 256, (SEEN_SIDE, SEEN_SIDE, 3)).astype(np.uint8)
        parts = [{"type": "image", "image": data_uri(pixels)}, {"type": "text", "text": "count?"}]
        prompts.append(policy.render([{"role": "user", "content": parts}]))
    return prompts


def pictures_of(prompt: Sequence[int]) -> list[int]:
    from lyceum.core.pictures import pictures_among

    return pictures_among(prompt)


def ask(policy: Any, engine: Any, prompts: Sequence[list[int]], tokens: int = TOKENS) -> dict[str, Any]:
    """One sample under each prompt, and what it took. Pictures are encoded again in each call."""
    from lyceum.core.types import Request, Sampling

    sampling = Sampling(max_completion_tokens=tokens)

    async def answers() -> list[Any]:
        return await asyncio.gather(
            *(engine.extend(Request(prompt, [n], sampling)) for n, prompt in enumerate(prompts))
        )

    began = time.perf_counter(), time.process_time()
    said = [(sample.tokens, sample.model_logprob) for [sample] in asyncio.run(answers())]
    return {"wall": time.perf_counter() - began[0], "cpu": time.process_time() - began[1], "said": said}


def cpu_seconds(call: Callable[[], Any]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


def show(result: Mapping[str, Any]) -> None:
    if "arms" in result:
        picture_arms.show_arms(result["arms"]["rows"])
    if "questions" in result:
        picture_questions.show_questions(result["questions"]["rows"])
    if "rates" in result:
        picture_rates.show_rates(result["rates"]["rows"])
    if "encoder" in result:
        columns = ("tower / rest", "together", "layers", "speed with the process", "range", "at best", "same bits")
        rows = [
            (
                row["cost_ratio"],
                row["together"],
                row["layers"],
                f"{row['throughput_ratio']:.2f}",
                f"{row['throughput_ratio_range'][0]:.2f} to {row['throughput_ratio_range'][1]:.2f}",
                f"{row['best_ratio']:.2f}",
                "yes" if row["equal"] else "no",
            )
            for row in result["encoder"]["rows"]
        ]
        table("the encoder in a process of its own", columns, rows)
    if "layout" in result:
        found, measured = result["layout"], ("cpu_seconds", "memory_mib", "encoded")
        rows = [
            (layout, found[f"{tokens}_tokens"], *(found[name][layout] for name in measured))
            for layout, tokens in (("tree", "unique"), ("rows", "padded"))
        ]
        table(f"{SAMPLES} samples under a picture", ("layout", "tokens", "CPU s", "MiB", "pictures encoded"), rows)


if __name__ == "__main__":
    main()

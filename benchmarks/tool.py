"""SmolLM2-135M-Instruct with a calculator, before and after: GRPO against more fine-tuning, with the tool and without.

    python benchmarks/tool.py --out benchmarks/results/tool.json [--seeds 2] [--rates 1e-5 3e-5] [--smollm2 FOLDER]

Sums and differences of three or four numbers of three digits. Graders read what the model wrote itself: the calculator
answers at ``=``, and the model has to write the result once more. SmolLM2 first sees ``SHOWN`` steps of 16 worked sums
in this form. From there all arms go on for the same tokens: GRPO with the calculator, GRPO that computes by itself,
more fine-tuning. Some minutes a run; a row (arm, rate, seed) that is in the file is not trained again.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from arms import Row, in_percent, mean_tokens, run_arms, summary, told, trained
from common import CACHE, arguments, machine, processes, say, smollm2, table, write

HERE = CACHE / "tool"
ENVIRONMENT = {"kind": "calculator", "notation": {"end": "=", "before": " "}}
ARMS = ("fine-tuning", "calculator", "alone")
"""The first is what the others are held against."""
SHOWN, SHOWN_PER_STEP = 6, 16
TASKS_PER_STEP, SAMPLES, LONGEST = 4, 8, 48
TOKENS, RATES, PROBLEMS = 15_000, ("1e-5", "3e-5"), 64
DEFINITIONS = {
    "before": "SmolLM2 as it is; base: after the worked sums that all arms have seen",
    "calculator": "held-out sums that are right where the calculator answers, one sample of two at temperature 1 each",
    "alone": "the same where nothing answers",
    "greedy": "of the arm's own way, the most likely answers",
    "tuning": "other sums, in the arm's own way: what its learning rate is chosen by",
    "tokens": "sampled by a run, or of the worked sums that further fine-tuning sees",
}
LOGGED = ("rollout/turns/calls", "rollout/turns/failed_calls", "groups/with_gradient", "completion_tokens/mean")


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--rates", nargs="+", default=RATES, help="learning rates, of every arm in seed 0")
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    tokens, problems = (200, 2) if options.quick else (TOKENS, PROBLEMS)
    if options.quick:
        options.rates, options.seeds = options.rates[:1], 1
    setting = {"tokens": tokens, "problems": problems, "shown": [SHOWN, SHOWN_PER_STEP]}
    result: dict[str, Any] = {"benchmark": "tool", "definitions": DEFINITIONS, "setting": setting, "rows": []}
    if options.out and options.out.is_file():
        known = json.loads(options.out.read_text())
        result = known if known["setting"] == setting else result
    result["machine"] = machine()
    folder = HERE / ("quick" if options.quick else "runs")
    files = {name: sums(folder, name, seed, n) for name, seed, n in (("train", 1, 4000), ("held_out", 2, 400))}
    model = "base-stories" if options.quick else str(smollm2(options.smollm2))

    def run_of(made: Any) -> Any:
        return trained(made, options.threads, processes(options))

    def measured(of: Path | str, seed: int, *, calculator: bool) -> Any:
        import lyceum

        keys: dict[str, Any] = {"environment": ENVIRONMENT} if calculator else {}
        usual = {"reward": "number", "n": problems, "samples": 2, "k": (1,), "progress": "silent"}
        usual["max_completion_tokens"] = LONGEST
        return lyceum.evaluate(str(of), str(files["held_out"]), seed=seed, **usual, **keys)

    shown = run_of(recipe("shown", "1e-5", 0, 0, model, files["train"], folder)).path / "model"
    if "before" not in result:
        found = {way: measured(model, 0, calculator=way == "calculator") for way in ("calculator", "alone")}
        result["before"] = {
            way: {"sampled": rounded(of["overall"]), "greedy": rounded(of["greedy"]["overall"])}
            for way, of in found.items()
        }
        say(f"before: {json.dumps(result['before'])}")
        write(result, options.out)

    def run(arm: str, rate: str, seed: int) -> dict[str, Any]:
        row: dict[str, Any] = {}
        of = shown
        if arm != "base":
            done = run_of(recipe(arm, rate, seed, tokens, str(shown), files["train"], folder))
            of, row = done.path / "model", told(done, LOGGED)
        found = {way: measured(of, seed, calculator=way == "calculator") for way in ("calculator", "alone")}
        own = found["alone" if arm == "alone" else "calculator"]
        row |= {way: rounded(of_way["overall"]) for way, of_way in found.items()}
        row["greedy"] = rounded(own["greedy"]["overall"])
        if seed == 0:
            row["tuning"] = rounded(measured(of, 1000, calculator=arm != "alone")["overall"])
        say(f"{arm} at {rate}, seed {seed}: {row['calculator']['mean']:.1%} with it, {row['alone']['mean']:.1%} alone")
        return row

    def done(rows: list[dict[str, Any]]) -> None:
        result["rows"], result["summary"] = rows, means(rows)
        write(result, options.out)

    run_arms(result["rows"], ARMS, options.rates, options.seeds, run, done)
    show(result["rows"])


def sums(folder: Path, name: str, seed: int, n: int) -> Path:
    """A file of problems, with the answer and a worked solution each."""

    def rows() -> Iterator[dict[str, str]]:
        draws = random.Random(seed)
        for _ in range(n):
            first, *others = (draws.randint(100, 999) for _ in range(draws.choice((3, 4))))
            text, value = str(first), first
            for number in others:
                sign = draws.choice("+-")
                text, value = f"{text} {sign} {number}", value + (number if sign == "+" else -number)
            solution = f"{text} = {value}\n\nAnswer: {value}"
            yield {"prompt": f"What is {text}?", "answer": str(value), "demonstration": solution}

    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows()))
    return file


def recipe(arm: str, rate: str, seed: int, tokens: int, model: str, tasks: Path, folder: Path) -> Any:
    from lyceum.recipe.schema import load_recipe

    learner = {"lr": float(rate), "warmup_steps": 2, "schedule": "constant"}
    fine_tuned = arm in ("shown", "fine-tuning")
    if fine_tuned:
        steps = SHOWN if arm == "shown" else max(1, round(tokens / demonstrated_tokens(model, tasks) / SHOWN_PER_STEP))
        stage: dict[str, Any] = {"steps": steps, "tasks_per_step": SHOWN_PER_STEP, "max_completion_tokens": LONGEST}
        stage["objective"] = {"aggregate": "token"}
    else:
        kind = {"kind": "flat"} if arm == "alone" else {"kind": "turns", "environment": ENVIRONMENT}
        rollout = {**kind, "samples": SAMPLES, "sampling": {"max_completion_tokens": LONGEST}}
        stage = {"steps": 1000, "max_tokens": tokens, "tasks_per_step": TASKS_PER_STEP, "rollout": rollout}
    given = {f"stages.0.{key}": value for key, value in (stage | {"learner": learner}).items()}
    given |= {"model": model, "tasks": str(tasks), "reward": "number", "seed": seed}
    given |= {"name": f"{arm}-{rate}-{tokens}-{seed}", "output": str(folder)}
    usual = ("evaluate.n=0", "tasks.heldout_share=0", "checkpoint_every=10", "max_steps_without_signal=0", "track=[]")
    return load_recipe("sft" if fine_tuned else "grpo", [*given.items(), *usual])


def demonstrated_tokens(model: str, tasks: Path) -> float:
    """Of a worked sum, on average, with the end of the text."""
    from lyceum.models.load import ModelSettings, load_tokenizer

    lines = tasks.read_text().splitlines()[:240]
    return mean_tokens(load_tokenizer(ModelSettings(path=model)), (json.loads(line)["demonstration"] for line in lines))


def rounded(interval: Mapping[str, float]) -> dict[str, float]:
    return {name: round(interval[name], 4) for name in ("mean", "low", "high")}


def means(rows: Sequence[Row]) -> list[dict[str, Any]]:
    return summary(rows, ARMS, "calculator", ("calculator", "alone", "greedy"))


def show(rows: Sequence[Row]) -> None:
    columns = ("arm", "rate", "seeds", "with it, %", "minus fine-tuning", "alone, %", "greedy, %")
    lines = [
        (
            *(line["arm"], line["rate"], line["seeds"], in_percent(line["calculator"])),
            *(in_percent(line.get("difference"), "+"), in_percent(line["alone"]), in_percent(line["greedy"])),
        )
        for line in means(rows)
    ]
    table("SmolLM2 with a calculator", columns, lines)


if __name__ == "__main__":
    main()

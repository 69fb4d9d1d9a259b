"""lyceum's online stage against TRL's GRPOTrainer: steps per second, memory, and what was learnt.

    python benchmarks/vs_trl.py --out vs_trl.json [--quick] [--cases short mixed ...]

Both systems get the same model folder, prompts in the same order, number of samples, sampling settings, reward
function, advantage, loss and optimiser. Each runs in a process of its own with all cores; they take turns, a step
each, while the other sleeps. See README.md for what is equal, what is not, and how to read the metrics.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

import limits
import rewards
from cases import OPTIMISER, Case, all_cases
from common import Worker, arguments, base_folder, paired, say, smollm2, table, version, write

NAMES = ("short", "mixed", "long_prompt", "smollm2")

DEFINITIONS = {
    "steps_per_second_ratio": "lyceum's steps per second over TRL's: median over pairs of neighbouring steps",
    "peak_memory_ratio": "lyceum's peak resident memory over TRL's, of the whole process (below 1: less)",
    "cpu_seconds_per_step": "of all threads; far below seconds times threads, something else was running",
    "share_of_limit": "seconds that flops_least would take at the best matrix-multiply rate, over those taken",
    "flops_least": "of a step, mean over those written down: each unique token once, 2 FLOPs a weight to generate and "
    "6 to train, and attention; rows without a gradient are not trained",
}


def main() -> None:
    parser = arguments(__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--cases", nargs="+", choices=NAMES, default=list(NAMES))
    options = parser.parse_args()
    model = smollm2(options.smollm2) if "smollm2" in options.cases else None
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        cases = all_cases(options.quick, base_folder(options.base), model, work)
        result: dict[str, Any] = {"benchmark": "vs_trl", "quick": options.quick, "definitions": DEFINITIONS}
        result |= {"trl": version("trl"), "machine": None, "cases": {}}
        for case in cases:
            if case.name in options.cases:
                found, result["machine"] = compare(case, work, options.threads)
                result["cases"][case.name] = found
                write(result, options.out)  # after each: a long run that is ended keeps what it has
    show(result)


def compare(case: Case, work: Path, threads: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """One case's metrics, and the machine."""
    say(f"{case.name}: {case.about}")
    choice, tried = fastest(case, work, threads)
    runs = [run(case, work, threads, seed, choice) for seed in case.seeds]
    ours = [s for one in runs for s in one["seconds"]["lyceum"]]
    theirs = [s for one in runs for s in one["seconds"]["trl"]]
    ratio = paired(ours, theirs)
    seconds = {"lyceum": round(median(ours), 4), "trl": round(median(theirs), 4)}
    least = {key: fmean(one["flops"][key] for one in runs) for key in runs[0]["flops"]}
    rate = max(max(one["matmul_gflops"].values()) for one in runs)
    memory = {name: max(one["peak_mib"][name] for one in runs) for name in ("lyceum", "trl")}
    found = {
        "about": case.about,
        "steps_per_second_ratio": ratio["ratio"],
        "steps_per_second_ratio_range": [ratio["min"], ratio["max"]],
        "pairs": ratio["pairs"],
        "peak_memory_ratio": round(memory["lyceum"] / memory["trl"], 3),
        "seconds_per_step": seconds,
        "cpu_seconds_per_step": {
            name: round(median(s for one in runs for s in one["cpu_seconds"][name]), 4) for name in seconds
        },
        "peak_memory_mib": {name: round(value) for name, value in memory.items()},
        "imported_memory_mib": {name: round(value) for name, value in runs[0]["loaded_mib"].items()},
        "flops_least": {key: round(value) for key, value in least.items()},
        "matmul_gflops": runs[0]["matmul_gflops"] | {"limit": rate},
        "share_of_limit": {name: round(least["total"] / (rate * 1e9) / s, 4) for name, s in seconds.items()},
        "rollouts": {name: averages([one["metrics"][name] for one in runs]) for name in ("lyceum", "trl")},
        "settings": settings(case),
        "trl_setting": {"generation": choice[0], "rows_in_a_micro_batch": choice[1]},
        "trl_candidates": tried,
    }
    if case.evaluation:
        found["ratio_over_training"] = over_training(runs)
        found["accuracy"] = accuracy(case, runs, threads)
    return found, runs[0]["machine"]


def settings(case: Case) -> dict[str, Any]:
    return {
        "prompts": case.prompts,
        "samples": case.samples,
        "max_new_tokens": case.max_tokens,
        "temperature": 1.0,
        "steps": case.steps,
        "warm_up": case.warm_up,
        "seeds": list(case.seeds),
        "loss": "GRPO: clipped 0.2, mean over rows of the mean over tokens; no KL; advantage / (std + 1e-4), ddof 1",
        "optimiser": {"kind": "AdamW", "lr": case.lr, "schedule": "constant", **OPTIMISER},
        "lyceum_micro_batch_tokens": case.micro_batch_tokens,
    }


# Running -------------------------------------------------------------------------------------------------------------


def trl_spec(case: Case, work: Path, seed: int, choice: tuple[str, int], steps: int, save: Path | None) -> Any:
    """What trl_worker.py does; its prompts are those that lyceum's curriculum draws, in that order."""
    from lyceum.curriculum.uniform import UniformCurriculum
    from lyceum.recipe.schema import parse

    recipe = parse(case.recipe(work, seed))
    tasks = UniformCurriculum(recipe.tasks.build("train", seed), seed=seed).draw(case.prompts * case.steps)
    lengths = prompt_lengths(case, tasks)
    rows = work / f"{case.name}-{seed}-prompts.jsonl"
    rows.write_text(
        "".join(json.dumps({"prompt": list(task.messages), "answer": task.answer}) + "\n" for task in tasks)
    )
    return {
        "model": str(case.model),
        "rows": str(rows),
        "prompt_tokens": max(lengths.values()),
        "prompts": case.prompts,
        "samples": case.samples,
        "max_tokens": case.max_tokens,
        "steps": steps,
        "seed": seed,
        "generation": choice[0],
        "batch": choice[1],
        "lr": case.lr,
        **OPTIMISER,
        "reward": case.trl_reward,
        "output": str(work / "trl"),
        "save": None if save is None else str(save),
    }, lengths


def prompt_lengths(case: Case, tasks: Sequence[Any]) -> dict[str, int]:
    """Tokens of each task's rendered prompt, by task id."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(case.model)
    return {
        task.id: len(
            tokenizer.apply_chat_template(
                list(task.messages), add_generation_prompt=True, tokenize=True, return_dict=True
            )["input_ids"]
        )
        for task in tasks
    }


def fastest(case: Case, work: Path, threads: int) -> tuple[tuple[str, int], list[dict[str, Any]]]:
    """TRL's fastest setting here: each candidate alone, a step of warm-up and one that counts."""
    if len(case.candidates) == 1:
        return case.candidates[0], []
    tried: list[dict[str, Any]] = []
    for choice in case.candidates:
        one: dict[str, Any] = {"generation": choice[0], "rows_in_a_micro_batch": choice[1]}
        spec, _ = trl_spec(case, work, 0, choice, steps=3, save=None)
        worker = Worker("trl_worker.py", spec, threads=threads)
        try:
            worker.hear()
            worker.ask("start")
            one["seconds"] = round(worker.ask("go")["seconds"], 4)
        except RuntimeError as error:  # a way that does not work here is no candidate; the reason is in the result
            one["error"] = str(error)[-500:]
        finally:
            worker.end()
        say(f"{case.name}: TRL {choice[0]}, {choice[1]} rows at once: {one.get('seconds', 'failed')} s")
        tried.append(one)
    timed = [one for one in tried if "seconds" in one]
    if not timed:
        raise RuntimeError(f"{case.name}: no way of running TRL works here: {tried}")
    best = min(timed, key=lambda one: one["seconds"])
    return (best["generation"], best["rows_in_a_micro_batch"]), tried


def run(case: Case, work: Path, threads: int, seed: int, choice: tuple[str, int]) -> dict[str, Any]:
    """Both systems through all steps, in turns."""
    saved = work / f"{case.name}-{seed}-trl" if case.evaluation else None
    spec, lengths = trl_spec(case, work, seed, choice, case.steps, saved)
    recipe = {"recipe": case.recipe(work, seed), "decoded": case.rows, "trained": min(4096, case.rows * 32)}
    seconds: dict[str, list[float]] = {"lyceum": [], "trl": []}
    cpu: dict[str, list[float]] = {"lyceum": [], "trl": []}
    workers: dict[str, Worker] = {}
    try:
        # One after the other: while the first measures the machine's rate, nothing else runs.
        workers["lyceum"] = Worker("lyceum_worker.py", recipe, threads=threads)
        ready = {"lyceum": workers["lyceum"].hear()}
        workers["trl"] = Worker("trl_worker.py", spec, threads=threads)
        ready["trl"] = workers["trl"].hear()
        last = {name: worker.ask("start") for name, worker in workers.items()}
        for step in range(2, case.steps + 1):
            for name, worker in workers.items():
                time.sleep(0.05)  # threads of the other spin for a moment after its last product
                last[name] = worker.ask("go")
                if step > case.warm_up:
                    seconds[name].append(last[name]["seconds"])
                    cpu[name].append(last[name]["cpu_seconds"])
            timing = ", ".join(f"{name} {last[name]['seconds']:.3f} s" for name in workers)
            say(f"{case.name}, seed {seed}, step {step}/{case.steps}: {timing}")
        done = {name: worker.ask("go") for name, worker in workers.items()}
    finally:
        for worker in workers.values():
            worker.end()
    ours, theirs = done["lyceum"]["steps"][case.warm_up :], done["trl"]["steps"][case.warm_up :]
    written = read_rollouts(Path(done["lyceum"]["run"]), lengths)
    check_rewards(case, Path(done["lyceum"]["run"]))
    config = json.loads((case.model / "config.json").read_text())
    return {
        "seconds": seconds,
        "cpu_seconds": cpu,
        "machine": ready["lyceum"]["machine"],
        "matmul_gflops": ready["lyceum"]["matmul_gflops"],
        "loaded_mib": {name: ready[name]["loaded_mib"] for name in workers},
        "peak_mib": {name: last[name]["peak_mib"] for name in workers},
        "flops": averages(limits.of_step(limits.Size.of(config), rows) for rows in written),
        "metrics": {
            "lyceum": averages(
                {
                    "completion_tokens": step["completion_tokens/mean"],
                    "reward": step["reward/mean"],
                    "groups_with_gradient": step["groups/with_gradient"],
                    "shared_tokens": step["shared_tokens"],
                    "seconds_generate": step["seconds/generate"],
                    "seconds_train": step["seconds/train"],
                }
                for step in ours
            ),
            "trl": averages(
                {
                    "completion_tokens": step["completion_tokens"],
                    "reward": step["reward"],
                    "groups_with_gradient": 1 - step["share_without_gradient"],
                }
                for step in theirs
            ),
        },
        "models": {"lyceum": done["lyceum"]["model"], "trl": done["trl"]["model"]},
    }


def averages(rows: Any) -> dict[str, float]:
    rows = list(rows)
    return {key: round(fmean(row[key] for row in rows), 4) for key in rows[0]}


def read_rollouts(folder: Path, lengths: Mapping[str, int]) -> list[list[limits.Row]]:
    """The rows of each step that lyceum wrote down: how many groups learn differs from step to step."""
    return [
        [
            limits.Row(row["task_id"], lengths[row["task_id"]], row["token_texts"], abs(row["advantage"] or 0) > 0)
            for row in rows
        ]
        for rows in rollouts(folder)
    ]


def rollouts(folder: Path) -> list[list[dict[str, Any]]]:
    import pyarrow.parquet as parquet

    return [parquet.read_table(file).to_pylist() for file in sorted((folder / "rollouts").glob("*.parquet"))]


def check_rewards(case: Case, folder: Path) -> None:
    """TRL's reward function must say of lyceum's completions what lyceum's verifier said."""
    if case.trl_reward != "chain":
        return  # the others are one function, called by both
    from lyceum.tasks.chain import Chain, ChainSource

    written = rollouts(folder)[-1]
    source = ChainSource(Chain.model_validate({}), "train", int(folder.name.rpartition("-")[2]))
    answers = [source[int(row["task_id"].rpartition("/")[2])].answer for row in written]
    said = rewards.chain(
        [row["completion"] for row in written], [[1 if row["finish"] == "stop" else 0] for row in written], answers
    )
    if said != [row["outcome"] for row in written]:
        raise RuntimeError("the two systems' rewards differ on the same completions")


# What was learnt -----------------------------------------------------------------------------------------------------


def over_training(runs: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The ratio in the first and in the last quarter of the steps: fewer groups have a gradient towards the end."""
    parts: dict[str, list[float]] = {"first_quarter": [], "last_quarter": []}
    for one in runs:
        ratios = [b / a for a, b in zip(one["seconds"]["lyceum"], one["seconds"]["trl"], strict=True)]
        quarter = max(1, len(ratios) // 4)
        parts["first_quarter"] += ratios[:quarter]
        parts["last_quarter"] += ratios[-quarter:]
    return {name: round(median(ratios), 3) for name, ratios in parts.items()}


def accuracy(case: Case, runs: Sequence[Mapping[str, Any]], threads: int) -> dict[str, Any]:
    """Held-out pass@1 before, and after the same number of steps of each system; a mean over seeds, and each seed's."""
    say(f"{case.name}: held-out accuracy of {1 + 2 * len(runs)} models")
    worker = Worker("evaluation_worker.py", {**case.evaluation, "max_tokens": case.max_tokens}, threads=threads)
    try:
        before = worker.ask(str(case.model))["overall"]
        after = {name: [worker.ask(one["models"][name])["overall"] for one in runs] for name in ("lyceum", "trl")}
    finally:
        worker.end()
    means = {name: round(fmean(ci["mean"] for ci in each), 4) for name, each in after.items()}
    return {"steps": case.steps, **case.evaluation, "before": before, "after": means, "after_by_seed": after}


def show(result: Mapping[str, Any]) -> None:
    rows = []
    for name, case in result["cases"].items():
        low, high = case["steps_per_second_ratio_range"]
        seconds, limit, rollouts = case["seconds_per_step"], case["share_of_limit"], case["rollouts"]
        learnt = "-"
        if "accuracy" in case:
            before, after = case["accuracy"]["before"]["mean"], case["accuracy"]["after"]
            learnt = f"{before:.1%} to {after['lyceum']:.1%} / {after['trl']:.1%}"
        rows.append(
            (
                name,
                f"{case['steps_per_second_ratio']:.2f} ({low:.2f} to {high:.2f})",
                f"{seconds['lyceum']:.3f} / {seconds['trl']:.3f}",
                f"{case['peak_memory_ratio']:.2f}",
                f"{case['flops_least']['total'] / 1e9:.1f}",
                f"{limit['lyceum']:.1%} / {limit['trl']:.1%}",
                f"{rollouts['lyceum']['completion_tokens']:.1f} / {rollouts['trl']['completion_tokens']:.1f}",
                learnt,
            )
        )
    columns = ("case", "steps/s, times TRL's", "seconds a step", "peak memory, of TRL's", "least GFLOP")
    columns += ("share of limit", "tokens a completion", "accuracy")
    table("lyceum / TRL " + str(result["trl"]), columns, rows)


if __name__ == "__main__":
    main()

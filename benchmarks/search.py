"""Test-time search: every strategy at several sizes, accuracy against tokens, with the verifier asked only afterwards.

    python benchmarks/search.py --out search.json [--quick] [--models base smollm2] [--values likelihood model]

``base`` is the small model on the ladder's hard levels, ``smollm2`` SmolLM2-135M-Instruct on sums. Trajectories and
steps are ranked by the policy's own likelihood, and for ``base`` also by a value model that is trained here: on samples
of training tasks, each of whose steps is worth the share of right ones among the samples that go through it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from common import arguments, base_folder, machine, say, smollm2, table, write

DEFINITIONS = {
    "size": "trajectories that a strategy finishes for each task",
    "accuracy": "share of tasks whose chosen answer is right, with its 95 % interval; null where nothing was graded",
    "pass_oracle": "share of tasks with a right trajectory: what only the verifier could choose",
    "tokens_sampled": "drawn, a task",
    "tokens_computed": "fed to the policy, a task: what samples share, prompts among it, counts once",
    "tokens_valued": "of the paths that the value model read, a task; the likelihood reads none",
    "tokens_spent": "computed and valued",
    "seconds": "of all tasks together, without grading",
    "at_equal_tokens": "accuracy between the measured sizes, linear in the logarithm of the tokens spent a task; null "
    "outside of them",
    "value_model": "tasks and samples that it was trained on, its seconds, and how it fits its last epoch",
}

LEVELS = (5, 6, 7, 8)
LONGEST = {"base": 80, "smollm2": 24}
STEPS: Mapping[str, Mapping[str, Any]] = {
    # A step of the chain is a result and the next operation.
    "base": {
        "step.by": "marker",
        "step.markers": ["="],
        "step.tokens": 8,
        # As the recipe deepsearch: trajectories are drawn to their end and cut where the policy was unsure.
        "mcts.step": {"by": "entropy", "nats": 0.5, "tokens": 80, "markers": []},
    },
    "smollm2": {"step.by": "tokens", "step.tokens": 4},
}
SUMS = {
    "kind": "reasoning-gym",
    "dataset": "chain_sum",
    "config": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 2},
    "instruction": "Reply with the number alone.",
    "answer": "whole",
}
COLUMNS = (
    *("strategy", "size", "accuracy", "pass_oracle", "by_level", "tokens_spent", "tokens_sampled", "tokens_computed"),
    *("tokens_valued", "trajectories", "seconds", "tasks", "ungraded", "unanswered"),
)


def main() -> None:
    parser = arguments(__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--models", nargs="+", choices=("base", "smollm2"), default=["base", "smollm2"])
    parser.add_argument("--values", nargs="+", choices=("likelihood", "model"), default=["likelihood", "model"])
    parser.add_argument("--strategies", nargs="+", default=["all"], help="kinds, or all")
    options = parser.parse_args()
    import torch

    torch.set_num_threads(options.threads)
    result: dict[str, Any] = {"benchmark": "search", "quick": options.quick, "definitions": DEFINITIONS}
    result |= {"machine": machine(), "settings": {"levels": LEVELS, "longest": LONGEST, "steps": STEPS, "sums": SUMS}}
    result |= {"value_model": None, "rows": [], "at_equal_tokens": [], "notes": []}
    for model in options.models:
        folder = base_folder(options.base) if model == "base" else smollm2(options.smollm2)
        for value in options.values if model == "base" else ["likelihood"]:
            with tempfile.TemporaryDirectory() as place:
                trained = value
                if value == "model":
                    result["value_model"] = train_value(folder, Path(place) / "value", options.quick)
                    trained = str(Path(place) / "value")
                searched(model, folder, value, trained, options, result)
            write(result, options.out)
    show(result)


def searched(model: str, folder: Path, value: str, trained: str, options: Any, result: dict[str, Any]) -> None:
    """All strategies at all sizes, added to the result."""
    import lyceum

    small = model == "base"
    n = 8 if options.quick else (200 if small else 64)
    sizes = (1, 4) if options.quick else (1, 4, 16, 64) if small else (1, 4, 16)
    say(f"{model}, ranked by {value}: {n} tasks, sizes {', '.join(map(str, sizes))}")
    keys: dict[str, Any] = dict(STEPS[model]) | {"max_completion_tokens": LONGEST[model]}
    found = lyceum.search(
        str(folder),
        {"kind": "chain", "levels": LEVELS} if small else SUMS,
        strategies=options.strategies,
        sizes=sizes,
        value=trained,
        n=n,
        reward=None if small else "number",
        **keys,
    )
    whose = {"model": model, "value": value}
    result["rows"] += [whose | {key: result[key] for key in COLUMNS} for result in found["results"]]
    result["at_equal_tokens"] += [whose | row for row in found["at_equal_tokens"]]
    result["notes"] += [f"{model}, {value}: {note}" for note in found["notes"]]


def train_value(folder: Path, target: Path, quick: bool) -> dict[str, Any]:
    """A value model of the policy's own size, from the outcomes of samples, whatever a prefix was followed by."""
    from lyceum.core.types import Example, Sampling
    from lyceum.engine.embedded import EmbeddedEngine
    from lyceum.models.load import ModelSettings, load_policy
    from lyceum.rollout.flat import Flat
    from lyceum.runtime.in_process import InProcess
    from lyceum.tasks.chain import Chain
    from lyceum.utils.aio import run_async
    from lyceum.value.model import PathModel

    began = time.perf_counter()
    tasks, samples = (64, 4) if quick else (800, 8)
    policy = load_policy(ModelSettings(path=str(folder), device="cpu"))
    source = Chain.model_validate({"levels": LEVELS}).build("train", 0)
    rollout = Flat(samples=samples, sampling=Sampling(max_completion_tokens=LONGEST["base"])).build()
    runtime = InProcess(policy, EmbeddedEngine(policy), source.grader(), seed=0)
    trees = run_async(runtime.run([source[i] for i in range(tasks)], rollout, key="value"))
    outcomes: dict[tuple[int, ...], list[float]] = {}
    for tree in trees:
        for leaf, grade, _ in tree.graded_with_outcome():
            for path in prefixes(leaf, policy.decode):
                outcomes.setdefault(path, []).append(float(bool(grade.verdict)))
    examples = [Example(path, fmean(of)) for path, of in outcomes.items()]
    say(f"value model: {len(examples)} prefixes of {tasks * samples} samples")
    model = PathModel(lr=1e-4, epochs=1 if quick else 2, loss="bce").build(policy, seed=0)
    metrics = model.fit(examples)
    model.save(target)
    return {"tasks": tasks, "samples": samples, "seconds": round(time.perf_counter() - began, 1), **metrics}


def prefixes(leaf: Any, decode: Any) -> list[tuple[int, ...]]:
    """The path up to the end of each of its steps, as the search cuts them, and the whole path."""
    prompt, tokens = leaf.path()[0].tokens, leaf.completion_tokens
    ends = [i + 1 for i, token in enumerate(tokens) if "=" in decode([token])]
    return [(*prompt, *tokens[:end]) for end in dict.fromkeys([*ends, len(tokens)])]


def show(result: Mapping[str, Any]) -> None:
    table(
        "test-time search",
        ("strategy", "model, value", "size", "accuracy, %", "pass@n, %", "tokens", "for values", "seconds"),
        [
            (
                row["strategy"],
                f"{row['model']}, {row['value']}",
                row["size"],
                percent(row["accuracy"]),
                percent(row["pass_oracle"]),
                f"{row['tokens_spent']:.0f}",
                f"{row['tokens_valued']:.0f}",
                f"{row['seconds']:.1f}",
            )
            for row in result["rows"]
        ],
    )
    for whose in dict.fromkeys((row["model"], row["value"]) for row in result["at_equal_tokens"]):
        rows = [row for row in result["at_equal_tokens"] if (row["model"], row["value"]) == whose]
        table(
            f"accuracy at equal tokens, %: {whose[0]}, {whose[1]}",
            ("strategy", *(f"{row['tokens']:.0f}" for row in rows)),
            [(kind, *(percent(row["accuracy"][kind]) for row in rows)) for kind in rows[0]["accuracy"]],
        )
    for note in result["notes"]:
        print(f"note: {note}")


def percent(found: Mapping[str, float] | None) -> str:
    return "-" if found is None else f"{100 * found['mean']:.1f} [{100 * found['low']:.0f}, {100 * found['high']:.0f}]"


if __name__ == "__main__":
    main()

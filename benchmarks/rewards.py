"""Right for the right reason: what rewards beside the verifier do to accuracy and to the steps under it.

    python benchmarks/rewards.py --out results.json

Each arm trains the base model on tasks whose verdict does not see the steps (chain-compare), with several seeds, and is
then sampled on the same held-out tasks. Whether every step holds is what the tasks' own rule says, which no arm is
trained with; a slip that the completion corrects counts as right.

The file also holds the rewards of the other comparisons, as TRL calls them; lyceum takes the same functions
(``reward: {kind: trl}``).
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

ARMS: dict[str, tuple[str, list[str]]] = {
    "verifier": ("drm", ["stages.0.reward=[task]", "stages.0.credit=group"]),
    "verifier + drm": ("drm", []),
}
"""Name -> recipe, and keys of it that make the arm. Arms differ in reward and credit alone."""
DEFINITIONS = {
    "recipe": "an arm: see ARMS; base is the model before training",
    "tasks": "of the recipe; 'held_out' of them are sampled after training, 'samples' times each",
    "seeds": "of tasks, weights' updates and samples; each trains once",
    "tokens_sampled": "in training, per seed; mean, low, high as below",
    "accuracy": "share of the held-out samples that the verifier calls correct",
    "every_step_right": "share of the held-out samples whose every step, and the answer, hold by the tasks' rule",
    "wrong_step_if_correct": "share of the correct held-out samples that rest on a step that does not hold",
    "mean, low, high": "over seeds, with Student's 95 % interval; with one seed over tasks, by bootstrap",
}
SECONDS = "seconds"


def text(completion: Any) -> str:
    """A completion's text, where it comes as a chat message too."""
    return completion if isinstance(completion, str) else completion[0]["content"]


def chain(
    completions: Sequence[Any], completion_ids: Sequence[Sequence[int]], answer: Sequence[str], **_: Any
) -> list[float]:
    """What lyceum's chain tasks give: 1 where all that follows ``#`` is the answer and the completion ended itself."""
    end = 1  # <eos> of the small model
    return [
        float(ids[-1] == end and text(completion).partition("#")[2].strip() == right)
        for completion, ids, right in zip(completions, completion_ids, answer, strict=True)
    ]


def last_number(completions: Sequence[Any], answer: Sequence[str], **_: Any) -> list[float]:
    """1 where the last whole number of the completion is the answer."""
    found = [re.findall(r"-?\d+", text(completion)) for completion in completions]
    return [float(bool(numbers) and numbers[-1] == right) for numbers, right in zip(found, answer, strict=True)]


def even_characters(completions: Sequence[Any], **_: Any) -> list[float]:
    """Share of characters with an even code: all completions of a group differ, so that every row has a gradient.

    No system gains by leaving rows out where nothing is to be learnt.
    """
    return [
        sum(ord(character) % 2 == 0 for character in text(completion)) / max(1, len(text(completion)))
        for completion in completions
    ]


def main() -> None:
    import common

    parser = common.arguments(__doc__ or "")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, help="of training (the recipes')")
    parser.add_argument("--held-out", type=int, default=200, help="tasks sampled after training")
    parser.add_argument("--arms", default=",".join(ARMS), help="names of ARMS, with commas")
    options = parser.parse_args()
    if options.quick:
        options.seeds, options.steps, options.held_out = 1, options.steps or 10, 60
    import torch

    torch.set_num_threads(options.threads)
    steps = [f"steps={options.steps}"] if options.steps else []
    rows = [row("base", [measured("base", "chain-compare", seed=0, n=options.held_out) | {"tokens_sampled": [0.0]}])]
    for arm in options.arms.split(","):
        recipe, keys = ARMS[arm]
        found = []
        for seed in range(options.seeds):
            common.say(f"{arm}: seed {seed}")
            found.append(trained(recipe, [*keys, *steps], seed, options))
        rows.append(row(arm, found))
    shown = ("tokens_sampled", "accuracy", "every_step_right", "wrong_step_if_correct")
    common.table(
        "mean [low, high]",
        ["recipe", *shown],
        [[of["recipe"], *("{mean:.4g} [{low:.4g}, {high:.4g}]".format(**of[name]) for name in shown)] for of in rows],
    )
    result = {"definitions": DEFINITIONS, "machine": common.machine(), "arms": ARMS, "rows": rows}
    common.write(result, options.out)


def trained(recipe: str, keys: Sequence[str], seed: int, options: Any) -> dict[str, Any]:
    """Train an arm with a seed; what its model then does on held-out tasks, and what it cost."""
    import json

    from lyceum.recipe.schema import load_recipe
    from lyceum.training.train import train

    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        usual = [f"seed={seed}", "evaluate.n=0", "track=[]", "checkpoint_every=0", f"output={folder}"]
        loaded = load_recipe(recipe, [*usual, *keys])
        run = train(loaded)
        summary = json.loads((run / "summary.json").read_text())
        # The held-out tasks are those of seed 0 in every run: seeds differ in training alone.
        found = measured(str(run / "model"), loaded.tasks.kind, seed=0, n=options.held_out)
    return found | {"tokens_sampled": [float(summary["tokens_sampled"])], SECONDS: time.perf_counter() - began}


def measured(model: str, tasks: str, *, seed: int, n: int, samples: int = 8) -> dict[str, Any]:
    """Of each held-out task the accuracy of its samples, and the share whose every step is right."""
    import lyceum
    from lyceum.core.component import kinds

    source = kinds("tasks")[tasks]().build("heldout", seed)  # pyright: ignore[reportAttributeAccessIssue]
    found = lyceum.evaluate(
        model, tasks, n=n, samples=samples, k=(1,), greedy=False, seed=seed, max_completion_tokens=80, progress="off"
    )
    of_tasks: dict[str, list[float]] = {"accuracy": [], "every_step_right": [], "wrong_step_if_correct": []}
    correct = resting = 0
    for tree in found.trees:
        right = [bool(leaf.grade is not None and leaf.grade.verdict) for leaf in tree.trajectories]
        held = [every_step_right(source, tree.task, leaf.completion) for leaf in tree.trajectories]
        of_tasks["accuracy"].append(fmean(right))
        of_tasks["every_step_right"].append(fmean(a and b for a, b in zip(right, held, strict=True)))
        correct, resting = correct + sum(right), resting + sum(a and not b for a, b in zip(right, held, strict=True))
    return {**of_tasks, "wrong_step_if_correct": [resting / correct if correct else 0.0], "tasks": tasks}


def every_step_right(source: Any, task: Any, completion: str) -> bool:
    """Whether a completion has steps, and every one holds as it stands in the end."""
    steps = source.judged_steps(task, completion)
    return bool(steps) and all(step.reward == 1 for step in steps)


def row(arm: str, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """An arm's runs as means with intervals."""
    names = ("tokens_sampled", "accuracy", "every_step_right", "wrong_step_if_correct")
    of_runs = {name: [fmean(run[name]) for run in runs] if len(runs) > 1 else runs[0][name] for name in names}
    seconds = [run[SECONDS] for run in runs if SECONDS in run]
    return {
        "recipe": arm,
        "tasks": runs[0]["tasks"],
        "seeds": len(runs),
        **{name: interval(values, of_seeds=len(runs) > 1) for name, values in of_runs.items()},
        "seconds_per_seed": round(fmean(seconds), 1) if seconds else 0.0,
    }


def interval(values: Sequence[float], *, of_seeds: bool) -> dict[str, float]:
    """The mean with its 95 % interval; the mean alone where there is one value."""
    from lyceum.evaluation.intervals import mean_interval, mean_over_seeds

    if len(values) == 1:
        return {"mean": values[0], "low": values[0], "high": values[0]}
    return (mean_over_seeds if of_seeds else mean_interval)(values).to_json()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()

"""Curriculum and guidance: every recipe of the two rooms on the same ladder, and what guides give on a real cliff.

    python benchmarks/curriculum.py --out curriculum.json [--quick] [--suites cliff ladder elsewhere] [--jobs 2]

Each suite is a ``lyceum compare`` on equal terms: same model, tasks, seeds and sampled tokens. Runs stay in
``.cache/curriculum`` and are not run again; ``--fresh`` begins anew.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from common import CACHE, arguments, cores, machine, say, smollm2, table, write
from suites import BINS, Suite, first_folder, run_suite, show

HERE = CACHE / "curriculum"
DEFINITIONS = {
    "before, final": "held-out pass@1 without hints, mean over seeds with its 95 % interval, overall and by level",
    "tokens_sampled": "drawn by the engine in a run, hinted and discarded samples included; mean over seeds",
    "tokens_to_target": "tokens until the mean held-out curve stands at the first recipe's final accuracy, over the "
    "first recipe's own; null where it is never reached",
    "under_hints": "cliff only, first seed: share of right samples of held-out cliff tasks by the tier of the hint in "
    "their prompt, after training (base: before)",
    "difference": "final minus the first recipe's, paired by seed, with its 95 % interval (Student)",
    "groups/with_gradient": f"groups whose rewards differ, in {BINS} equal parts of the run, mean over seeds",
    "with_gradient": "the mean of groups/with_gradient",
    "completion_tokens": "mean length in training, over the same parts",
    "seconds": "of a run, on its share of the cores, evaluations included; mean over seeds",
}


LADDER_ARMS = (
    ("grpo", "grpo", ()),
    ("grpo-2-updates", "grpo", ("learner.updates_per_step=2",)),
    ("grpo-4-updates", "grpo", ("learner.updates_per_step=4",)),
    ("easy-to-hard", "easy-to-hard", ()),
    ("sec", "sec", ()),
    ("dump", "dump", ()),
    ("pcl", "pcl", ()),
    ("balanced-filtering", "balanced-filtering", ()),
    ("knapsack", "knapsack", ()),
    ("train-long-think-short", "train-long-think-short", ()),
    ("alp-gmm", "alp-gmm", ()),
    ("scaf-grpo", "scaf-grpo", ()),
    ("ghpo", "ghpo", ()),
    ("seele", "seele", ()),
    ("guide-grpo", "guide-grpo", ()),
    ("ruscarl", "ruscarl", ()),
    ("rl-plus", "rl-plus", ()),
    ("luffy", "luffy", ()),
    ("relift", "relift", ()),
)

CLIFF_ARMS = (
    ("grpo", "grpo", ()),
    ("scaf-grpo", "scaf-grpo", ()),
    ("scaf-no-knowledge", "scaf-grpo", ("guidance.0.tiers=[planning, solution]",)),
    ("scaf-no-planning", "scaf-grpo", ("guidance.0.tiers=[knowledge, solution]",)),
    ("scaf-no-solution", "scaf-grpo", ("guidance.0.tiers=[knowledge, planning]",)),
    ("scaf-unhinted", "scaf-grpo", ("guidance.0.treatment=unhinted",)),
    ("guide-grpo", "guide-grpo", ()),
    ("ghpo", "ghpo", ()),
    ("relift", "relift", ()),
)

CLIFF_TASKS = (
    "{kind: mixture, parts: [{tasks: {kind: chain, levels: [1, 2, 3, 4, 5, 6]}, weight: 3}, {tasks: cliff, weight: 1}]}"
)


def suites(args: Any) -> list[Suite]:
    quick = args.quick
    found = [
        Suite(
            "cliff",
            "chains of 1 to 6 operations, and a quarter of starred ones, whose rule the model follows only when told",
            3_000 if quick else args.cliff_tokens,
            1 if quick else 5,
            (f"model={HERE / 'cliff-start' / 'model'}", f"tasks={CLIFF_TASKS}", f"learner.lr={args.cliff_lr}"),
            CLIFF_ARMS[:2] if quick else CLIFF_ARMS,
        ),
        Suite(
            "ladder",
            "chains of 1 to 8 operations, as shipped",
            3_000 if quick else args.ladder_tokens,
            1 if quick else 3,
            (f"model={args.base}", "tasks=chain", f"learner.lr={args.ladder_lr}"),
            LADDER_ARMS[:3] if quick else LADDER_ARMS,
        ),
    ]
    return [suite for suite in found if suite.name in args.suites]


def cliff_model(args: Any) -> Path:
    """The cliff's model: the base after recipe ``cliff-start``, trained once."""
    from lyceum.api import train

    folder = HERE / "cliff-start"
    if not (folder / "model" / "model.safetensors").exists():
        say("training the cliff's model (lyceum train cliff-start)")
        shutil.rmtree(folder, ignore_errors=True)
        train("cliff-start", [f"output={HERE}", "name=cliff-start", f"model={args.base}", "evaluate.every=0"])
    return folder / "model"


def run(suite: Suite, args: Any) -> dict[str, Any]:
    if suite.name == "cliff":
        cliff_model(args)
    result = run_suite(suite, args, HERE)
    if suite.name == "cliff":
        result["base_under_hints"] = under_hints(cliff_model(args))
        for row in result["rows"]:
            row["under_hints"] = under_hints(first_folder(suite, args, HERE, row["recipe"]) / "model")
    return result


def under_hints(model: Path) -> dict[str, float]:
    """Share of right answers to held-out cliff tasks, by the hint in their prompt: none, or the first of each tier."""
    from lyceum.core.solution import ladder_of
    from lyceum.core.types import Sampling, Task
    from lyceum.engine.embedded import EmbeddedEngine
    from lyceum.models.load import ModelSettings, load_policy
    from lyceum.rollout.flat import Flat
    from lyceum.runtime.in_process import InProcess
    from lyceum.tasks.cliff import Cliff
    from lyceum.utils.aio import run_async

    policy = load_policy(ModelSettings(path=str(model)))
    source = Cliff.model_validate({}).build("heldout", 0)
    runtime = InProcess(policy, EmbeddedEngine(policy), source.grader(), seed=0)
    rollout = Flat(samples=16, sampling=Sampling(max_completion_tokens=80)).build()
    tasks = [source[i] for i in range(48)]

    def share(asked: Sequence[Task], key: str) -> float:
        trees = run_async(runtime.run(asked, rollout, key=key))
        return round(fmean(tree.solved or 0.0 for tree in trees), 4)

    found = {"none": share(tasks, "none")}
    for tier in ("knowledge", "planning", "solution"):
        hints = [next(hint for hint in ladder_of(task) if hint.tier == tier) for task in tasks]
        found[tier] = share([source.hinted(task, hint) for task, hint in zip(tasks, hints, strict=True)], tier)
    return found


# Elsewhere ------------------------------------------------------------------------------------------------------------

PLACES = ("countdown", "reasoning-gym:chain_sum", "reasoning-gym:gcd", "reasoning-gym:number_sorting")


def elsewhere(args: Any) -> list[dict[str, Any]]:
    """Two steps of each recipe, unchanged, on other tasks: what it says where the tasks lack what it needs."""
    rows = []
    recipes = [recipe for label, recipe, own in LADDER_ARMS if not own and recipe not in ("easy-to-hard", "alp-gmm")]
    for place in PLACES[:1] if args.quick else PLACES:
        rows += [try_out(recipe, place, f"model={args.base}") for recipe in (recipes[:4] if args.quick else recipes)]
    if not args.quick:
        data = gsm8k(HERE / "gsm8k-format.jsonl")
        columns = {"prompt": "question", "answer": "answer", "hints": "hints", "demonstration": "solution"}
        tasks = json.dumps({"kind": "dataset", "path": str(data), "columns": columns, "answer_after": "####"})
        for recipe in ("grpo", "sec", "pcl", "scaf-grpo", "guide-grpo", "relift"):
            own = ("curriculum.by=provenance",) if recipe == "sec" else ()
            rows.append(
                try_out(
                    recipe, tasks, f"model={smollm2(args.smollm2)}", "rollout.samples=4", *own,
                    "rollout.sampling.max_completion_tokens=48", "tasks_per_step=4", place="GSM8K format, SmolLM2",
                )
            )  # fmt: skip
    return rows


def try_out(recipe: str, tasks: str, *overrides: str, place: str | None = None) -> dict[str, Any]:
    from lyceum.recipe.schema import load_recipe
    from lyceum.training.train import train
    from lyceum.utils.errors import RecipeError
    from lyceum.utils.progress import using

    row: dict[str, Any] = {"recipe": recipe, "tasks": place or tasks, "outcome": "ran"}
    try:
        small = ("steps=2", "evaluate.n=0", f"output={HERE / 'elsewhere'}", "tasks_per_step=4")
        loaded = load_recipe(recipe, [f"tasks={tasks}", *small, *overrides])
        with using("silent"):
            folder = train(loaded, overwrite=True)
        summary = json.loads((folder / "summary.json").read_text("utf-8"))
        row |= {"steps": summary["steps"], "tokens_sampled": summary["tokens_sampled"]}
    except RecipeError as error:
        row |= {"outcome": "refused", "says": error.lines[0]}
    say(f"{recipe} on {row['tasks']}: {row['outcome']}")
    return row


def gsm8k(path: Path) -> Path:
    """Word problems made here in GSM8K's format, with hints: nothing is fetched."""
    import random

    lines = []
    for number in range(64):
        rng = random.Random(f"gsm8k/{number}")
        a, b, c = rng.randint(3, 40), rng.randint(2, 9), rng.randint(2, 9)
        total = a + b * c
        lines.append(
            {
                "question": f"A shelf holds {a} books. {b} boxes with {c} books each arrive. How many are there now?",
                "answer": f"The boxes hold {b}*{c}={b * c} books. Together {a}+{b * c}={total}.\n#### {total}",
                "solution": f"The boxes hold {b}*{c}={b * c} books. Together {a}+{b * c}={total}. #### {total}",
                "hints": [
                    {"tier": "knowledge", "text": "Boxes times books in a box is what arrives."},
                    {"tier": "planning", "text": "First what arrives, then add what was there."},
                    {"tier": "solution", "text": f"{b}*{c}={b * c} books arrive."},
                ],
            }
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return path


# ----------------------------------------------------------------------------------------------------------------------


def main() -> None:
    parser = arguments((__doc__ or "").partition("\n")[0])
    parser.add_argument("--suites", nargs="+", default=["cliff", "ladder", "elsewhere"], help="which parts to run")
    parser.add_argument("--jobs", type=int, default=cores(), help="runs at a time; each gets its share of the threads")
    parser.add_argument("--fresh", action="store_true", help="forget the runs of an earlier call")
    parser.add_argument("--cliff-tokens", type=int, default=400_000, help="sampled tokens of a run")
    parser.add_argument("--cliff-lr", type=float, default=1e-4, help="of every arm")
    parser.add_argument("--ladder-tokens", type=int, default=200_000, help="sampled tokens of a run")
    parser.add_argument("--ladder-lr", type=float, default=3e-5, help="of every arm")
    args = parser.parse_args()
    if args.fresh:
        shutil.rmtree(HERE, ignore_errors=True)
    result: dict[str, Any] = {"benchmark": "curriculum", "quick": args.quick, "definitions": DEFINITIONS}
    result |= {"machine": machine(), "jobs": args.jobs, "suites": {}, "rows": []}
    for suite in suites(args):
        found = run(suite, args)
        result["rows"] += found.pop("rows")
        result["suites"][suite.name] = found
        write(result, args.out)
        show(suite.name, found | {"rows": [row for row in result["rows"] if row["suite"] == suite.name]})
    if "elsewhere" in args.suites:
        result["elsewhere"] = elsewhere(args)
        table(
            "Two steps elsewhere, recipes unchanged",
            ["recipe", "tasks", "outcome"],
            [[row["recipe"], row["tasks"], row.get("says", row["outcome"])] for row in result["elsewhere"]],
        )
    write(result, args.out)


if __name__ == "__main__":
    main()

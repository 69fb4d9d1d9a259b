"""The lead systems and their parts on word problems: GRPO, DAPO, PCuRL, Scaf-GRPO, DRM, Cascade RL, DeepSearch.

    python benchmarks/leads.py --out benchmarks/results/leads.json [--arms grpo pcurl] [--seeds 5] [--quick]

Every arm (``leads.yaml``) goes on from one base and samples as many tokens. The first seed is trained at each learning
rate; problems that no result is of choose each arm's rate, which the further seeds have alone. Arms of ``ON`` begin
with what GRPO made of the same seed, and are held against GRPO going on from there. Each run is a process, some
minutes of one core, and a row (arm, rate, seed) that is in the file is not trained again.

The base is ``base-stories`` with a habit: 80 steps of fine-tuning on solutions in plain wording that stop after three
in ten of the numbers that they find, and answer with these. Of 300 held-out problems of levels 2 to 6 it solves 13 %
with one sample at temperature 1, 45 % with one of eight, 37 % greedily. ``base-stories`` itself is not for this: what
it samples is 0.12 nats per token, and GRPO gained 5 points in 1,000,000 tokens at 1e-4 and 2 in 300,000 at 3e-4
(levels 2 and 3: 55 to 57 %).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml
from arms import Row, best_rate, chosen, in_percent, mean_tokens, run_arms, summary, told, trained
from common import CACHE, arguments, machine, processes, say, table, write

HERE = CACHE / "leads"
LEVELS = [2, 3, 4, 5, 6]
TASKS = {"kind": "stories", "levels": LEVELS, "variety": 0}
HABIT = {**TASKS, "haste": 0.3}
"""What the base is fine-tuned on, before all arms."""
HABIT_STEPS = 80
SAMPLES, SOLUTION = 8, 300
"""Of a group, and the most tokens of one."""
TASKS_PER_STEP, PAIRED_PER_STEP = 16, 8
"""Of an online step; of an update offline, which has each group once and leaves out those that are solved or failed as
a whole."""
WARMUP = 10
"""Steps of an arm's first stage; the further ones have none, as in PCuRL's recipe."""
TOKENS, QUICK_TOKENS = 250_000, 4_000
"""Sampled by a run."""
RATES = ("1e-4", "3e-4", "3e-5")
PROBLEMS = 240
DEFINITIONS = {
    "tokens": "sampled tokens of a run; a stage ends with the step in which its share is spent. Fine-tuning samples "
    "none: it has as many tokens of worked solutions",
    "sampled": "held-out problems solved, by SAMPLES at temperature 1 for each, and the 95 % interval",
    "greedy": "the same of the most likely solutions",
    "by_level": "sampled, by the number of calculations",
    "tuning": "as sampled, of other problems: what the learning rate of an arm is chosen by",
    "acted": "means over the steps that log it",
}
LOGGED = (
    *("groups/with_gradient", "completion_tokens/mean", "entropy", "groups", "groups_dropped", "truncated"),
    *("curriculum/weight/mean", "reward/part/dynamic-length/acted", "credit/dynamic-length/share"),
    *("reward/part/overlong", "credit/overlong/share", "credit/drm/share", "reward/drm/abstained/share", "pairs"),
    *("guidance/scaffold/groups/failed", "guidance/scaffold/groups/guided", "guidance/scaffold/solved_by/nothing"),
    *("guidance/search-where-hard/searched/tasks", "guidance/search-where-hard/used/hits", "rollout/mcts/right"),
)


@dataclass(frozen=True)
class Arm:
    """A recipe's stages after the base, by name, each with its share of the tokens; what differs in them, and in it."""

    recipe: str
    shares: Mapping[str, float] = field(default_factory=lambda: {"online": 1})
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    of_recipe: Mapping[str, Any] = field(default_factory=dict)


ARMS = {name: Arm(**of) for name, of in yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text()).items()}
ON = ("grpo-on", "deepsearch", "deepsearch-depth")
FROM_BASE = tuple(arm for arm in ARMS if arm not in ON)


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=[*ARMS])
    parser.add_argument("--rates", nargs="+", default=RATES, help="learning rates, of every arm in seed 0")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=TOKENS, help="sampled tokens of a run")
    args = parser.parse_args()
    if args.quick:
        args.rates, args.seeds, args.tokens = args.rates[:1], 1, QUICK_TOKENS
    problems = 2 * len(LEVELS) if args.quick else PROBLEMS
    setting = {"tasks": TASKS, "tokens": args.tokens, "problems": problems, "base": [HABIT, HABIT_STEPS]}
    result: dict[str, Any] = {"benchmark": "leads", "definitions": DEFINITIONS, "setting": setting, "rows": []}
    if args.out and args.out.is_file():
        before = json.loads(args.out.read_text())
        result["rows"] = before["rows"] if before["setting"] == setting else []
    result["machine"] = machine()
    folder = HERE / ("quick" if args.quick else "runs")

    def run_of(made: Any) -> Any:
        return trained(made, args.threads, processes(args))

    base = run_of(base_recipe(folder, quick=args.quick)).path / "model"

    def run(arm: str, rate: str, seed: int) -> dict[str, Any]:
        row: dict[str, Any] = {}
        first = model = base
        if arm in ON:
            before = recipe("grpo", best_rate(result["rows"], "grpo"), seed, args.tokens, base, folder)
            first = run_of(before).path / "model"
        if arm != "base":
            of = run_of(recipe(arm, rate, seed, args.tokens, first, folder))
            model = of.path / "model"
            row |= told(of, LOGGED)
        row |= evaluated(model, seed, problems)
        say(f"{arm} at {rate}, seed {seed}: {row['sampled']['mean']:.1%}, greedy {row['greedy']['mean']:.1%}")
        return row

    def done(rows: list[dict[str, Any]]) -> None:
        result["rows"], result["summary"] = rows, means(rows)
        write(result, args.out)

    # Those that go on from GRPO begin at its best rate: it is known when the others' first seed is done.
    for seeds in range(1, args.seeds + 1):
        for group in (FROM_BASE, ON):
            if asked := [arm for arm in group if arm in args.arms]:
                run_arms(result["rows"], asked, args.rates, seeds, run, done)
    show(result["rows"])


# Training ------------------------------------------------------------------------------------------------------------


def base_recipe(folder: Path, *, quick: bool) -> Any:
    from lyceum.recipe.schema import load_recipe

    learner = {"lr": 3e-4, "warmup_steps": 5, "schedule": "constant"}
    stage = {
        "steps": 1 if quick else HABIT_STEPS,
        "tasks_per_step": 4 if quick else 32,
        "objective": {"aggregate": "token"},
        "max_completion_tokens": SOLUTION,
        "learner": learner,
    }
    given = {"stages.0." + key: value for key, value in stage.items()}
    given |= {"model": "base-stories", "tasks": HABIT, "name": "base", "output": str(folder), "evaluate.n": 0}
    return load_recipe("sft", [*given.items()])


def recipe(arm: str, rate: str, seed: int, tokens: int, model: Path, folder: Path) -> Any:
    """The arm's stages, with as many steps as their share of the tokens lasts."""
    from lyceum.recipe.files import merged, read_merged
    from lyceum.recipe.schema import load_recipe

    of, stages = ARMS[arm], list[dict[str, Any]]()
    rollout = {"kind": "flat", "samples": SAMPLES, "sampling": {"max_completion_tokens": SOLUTION}}
    for stage in read_merged(of.recipe)["stages"]:
        name = stage.get("name", stage["kind"])
        if name not in of.shares:
            continue
        budget = round(of.shares[name] * tokens)
        learner = {"lr": float(rate), "warmup_steps": 0 if stages else WARMUP, "schedule": "constant"}
        sized: dict[str, Any] = {"tasks_per_step": TASKS_PER_STEP, "learner": learner}
        if stage["kind"] == "sft":
            steps = max(1, round(budget / demonstrated_tokens(seed) / TASKS_PER_STEP))
            sized |= {"steps": steps, "max_completion_tokens": SOLUTION, "objective": {"aggregate": "token"}}
        else:
            sized |= {"steps": 10_000, "max_tokens": budget, "rollout": rollout}
        if stage["kind"] == "online":
            sized["learner"] = learner | {"updates_per_step": 1}
        elif stage["kind"] == "offline":
            sized["data"] = {"kind": "sampled", "tasks": 10_000, "part": TASKS_PER_STEP}
            sized["tasks_per_step"] = PAIRED_PER_STEP
        stages.append(merged(merged(stage, sized), of.changes.get(name, {})))
    given = {"stages": stages, "model": str(model), "tasks": TASKS, "seed": seed, **of.of_recipe}
    given |= {"name": f"{arm}-{rate}-{tokens}-{seed}", "output": str(folder)}
    # A group that learns nothing is a result here.
    usual = ("evaluate.n=0", "checkpoint_every=10", "rollouts_every=1000", "max_steps_without_signal=0")
    return load_recipe(of.recipe, [*given.items(), *usual])


def demonstrated_tokens(seed: int) -> float:
    """Of a worked solution, on average, with the end of the text."""
    from lyceum.models.scratch_words import story_tokenizer
    from lyceum.tasks.stories import Stories

    source = Stories.model_validate(TASKS).build("train", seed)
    return mean_tokens(story_tokenizer(), (source[n].columns["demonstration"] for n in range(240)))


# Evaluation and results ----------------------------------------------------------------------------------------------


def evaluated(model: Path, seed: int, problems: int) -> dict[str, Any]:
    def accuracy(draws: int, *, greedy: bool) -> Any:
        import lyceum

        usual = {"k": (1,), "n": problems, "samples": 2, "max_completion_tokens": SOLUTION, "progress": "silent"}
        return lyceum.evaluate(model, TASKS, seed=draws, greedy=greedy, **usual)

    def rounded(interval: Mapping[str, float]) -> dict[str, float]:
        return {name: round(interval[name], 4) for name in ("mean", "low", "high")}

    found = accuracy(seed, greedy=True)
    row = {
        "sampled": rounded(found["overall"]),
        "greedy": rounded(found["greedy"]["overall"]),
        "by_level": {level: rounded(interval) for level, interval in found["by_level"].items()},
    }
    return row if seed else row | {"tuning": rounded(accuracy(1000, greedy=False)["overall"])}


def means(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Of all arms; those that go on from GRPO against GRPO going on."""
    found = summary(rows, FROM_BASE, "sampled", ("sampled", "greedy"))
    found += [line for line in summary(rows, ON, "sampled", ("sampled", "greedy")) if line["arm"] != "base"]
    for line in found:
        of = chosen(rows, line["arm"])
        line["by_level"] = {str(n): round(fmean(row["by_level"][str(n)]["mean"] for row in of), 4) for n in LEVELS}
        line |= {key: round(fmean(row[key] for row in of)) for key in ("tokens_sampled", "seconds") if key in of[0]}
    return found


def show(rows: Sequence[Row]) -> None:
    columns = ("arm", "rate", "seeds", "solved, %", "minus grpo", "better", "greedy", *map(str, LEVELS), "tokens", "s")
    lines = [
        (
            *(line["arm"], line["rate"], line["seeds"], in_percent(line["sampled"])),
            *(in_percent(line.get("difference"), "+"), f"{line['better']:.2f}" if "better" in line else "-"),
            *(f"{100 * line['greedy']['mean']:.1f}", *(f"{100 * of:.0f}" for of in line["by_level"].values())),
            *(line.get(name, "-") for name in ("tokens_sampled", "seconds")),
        )
        for line in means(rows)
    ]
    table("word problems, from one base", columns, lines)


if __name__ == "__main__":
    main()

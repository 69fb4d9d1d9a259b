"""The lead systems and their parts on word problems: GRPO, DAPO, PCuRL, Scaf-GRPO, DRM, Cascade RL, DeepSearch.

    python benchmarks/leads.py --out benchmarks/results/leads.json [--arms grpo pcurl] [--seeds 5] [--quick]
    python benchmarks/leads.py --world sums --seeds 3 --out benchmarks/results/leads_sums.json [--smollm2 FOLDER]

Every arm (``leads.yaml``, ``leads_sums.yaml``) goes on from one base and samples as many tokens, if its line says no
other. The first seed is trained at each learning rate; problems that no result is of choose each arm's rate, which the
further seeds have alone. Arms of ``ON`` begin with what GRPO made of the same seed, and are held against GRPO going on
from there. Each run is a process, some minutes of one core, and a row (arm, rate, seed) that is in the file is not
trained again.

In the world of word problems the base is ``base-stories`` with a habit: 80 steps of fine-tuning on solutions in plain
wording that stop after three in ten of the numbers that they find, and answer with these. Of 300 held-out problems of
levels 2 to 6 it solves 13 % with one sample at temperature 1, 45 % with one of eight, 37 % greedily. ``base-stories``
itself is not for this: what it samples is 0.12 nats per token, and GRPO gained 5 points in 1,000,000 tokens at 1e-4 and
2 in 300,000 at 3e-4 (levels 2 and 3: 55 to 57 %).

The world ``sums`` is that of the recipe ``smollm2-sums``: reasoning-gym's ``chain_sum`` of two numbers below 100, here
those whose result is not negative. The base is SmolLM2-135M-Instruct as it is. One learning rate, the recipe's.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml
from arms import Row, best_rate, chosen, in_percent, mean_tokens, run_arms, summary, told, trained
from common import CACHE, arguments, machine, processes, say, smollm2, table, write

HERE = CACHE / "leads"
SAMPLES = 8
"""Of a group."""
QUICK_TOKENS = 4_000
DEFINITIONS = {
    "tokens": "sampled tokens of a run; a stage ends with the step in which its share is spent. Fine-tuning samples "
    "none: its tokens are those of worked solutions, some 1,300 of the sums",
    "sampled": "held-out problems solved, by SAMPLES at temperature 1 for each, and the 95 % interval",
    "greedy": "the same of the most likely solutions",
    "by_level": "sampled, by the number of calculations, or of digits of the sums",
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
    """A recipe's stages after the base, by name, each with its share of the tokens; what differs in them, and in it.

    Args:
        tokens: sampled by a run; None: as the world has it.
    """

    recipe: str
    shares: Mapping[str, float] = field(default_factory=lambda: {"online": 1})
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    of_recipe: Mapping[str, Any] = field(default_factory=dict)
    tokens: int | None = None


@dataclass(frozen=True)
class Sizes:
    """Of a world's runs.

    Args:
        tasks_per_step: of an online step.
        paired_per_step: of an update offline, which has each group once and leaves out those that are solved or failed
            as a whole.
        warmup: steps of an arm's first stage; the further ones have none, as in PCuRL's recipe.
        longest: the most tokens of a solution.
        tokens: sampled by a run.
        problems: held out.
    """

    tasks_per_step: int
    paired_per_step: int
    warmup: int
    longest: int
    tokens: int
    problems: int


@dataclass(frozen=True)
class World:
    """Problems, what all arms begin with, and the arms.

    Args:
        base: the fine-tuning before all arms: its tasks, steps, tasks per step and learning rate; None: there is none.
        rates: learning rates of an arm on the first seed.
    """

    tasks: Mapping[str, Any]
    levels: Sequence[int]
    model: str
    base: Mapping[str, Any] | None
    rates: Sequence[str]
    sizes: Sizes
    arms: Mapping[str, Arm]


WORLDS = {"stories": "leads.yaml", "sums": "leads_sums.yaml"}
ON = ("grpo-on", "deepsearch", "deepsearch-depth")
LONG = ("grpo-long", "cascade-2000")
"""Arms that sample more than the others; as those of ``ON``, they are held against the first of them."""


def world_of(args: argparse.Namespace, folder: Path) -> World:
    """A world as its file has it, and the command changes it."""
    given = yaml.safe_load((Path(__file__).parent / WORLDS[args.world]).read_text())
    arms = {arm: Arm(**of) for arm, of in given.pop("arms").items()}
    world = World(**given | {"sizes": Sizes(**given["sizes"]), "arms": arms})
    if args.world == "sums":
        tasks = {**world.tasks, **sums(folder, 200 if args.quick else 3_000)}
        # A quick run is of the small model of word problems, which knows nothing of these.
        model = "base-stories" if args.quick else str(smollm2(args.smollm2))
        world = replace(world, tasks=tasks, model=model)
    if args.quick:
        base = world.base and {**world.base, "steps": 1, "tasks_per_step": 4}
        sizes = replace(world.sizes, tokens=QUICK_TOKENS, problems=2 * len(world.levels))
        return replace(world, base=base, sizes=sizes, rates=world.rates[:1])
    return replace(world, sizes=replace(world.sizes, tokens=args.tokens)) if args.tokens else world


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--world", choices=WORLDS, default="stories")
    parser.add_argument("--arms", nargs="+", help="default: all of the world's file; of a quick run the first")
    parser.add_argument("--rates", nargs="+", help="learning rates, of every arm in seed 0; default: the world's")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tokens", type=int, help="sampled tokens of a run; default: the world's")
    args = parser.parse_args()
    folder = HERE / args.world / ("quick" if args.quick else "runs")
    world = world_of(args, folder)
    if unknown := {*(args.arms or ())} - {*world.arms}:
        parser.error(f"--arms: got {', '.join(sorted(unknown))}; allowed: {', '.join(world.arms)}")
    arms, rates, sizes = args.arms or [*world.arms][: 1 if args.quick else None], args.rates or world.rates, world.sizes
    tasks = {key: value for key, value in world.tasks.items() if not key.endswith("path")}
    setting: dict[str, Any] = {"tasks": tasks, "tokens": sizes.tokens, "problems": sizes.problems}
    setting["base"] = world.base and [world.base["tasks"], world.base["steps"]]
    result: dict[str, Any] = {"benchmark": "leads", "definitions": DEFINITIONS, "setting": setting, "rows": []}
    if args.out and args.out.is_file():
        before = json.loads(args.out.read_text())
        result["rows"] = before["rows"] if before["setting"] == setting else []
    result["machine"] = machine()

    def run_of(made: Any) -> Any:
        return trained(made, args.threads, processes(args))

    base = run_of(base_recipe(world, folder)).path / "model" if world.base else Path(world.model)

    def run(arm: str, rate: str, seed: int) -> dict[str, Any]:
        row: dict[str, Any] = {}
        first = model = base
        if arm in ON:
            before = recipe(world, "grpo", best_rate(result["rows"], "grpo"), seed, base, folder)
            first = run_of(before).path / "model"
        if arm != "base":
            of = run_of(recipe(world, arm, rate, seed, first, folder))
            model = of.path / "model"
            row |= told(of, LOGGED)
        row |= evaluated(world, model, seed)
        say(f"{arm} at {rate}, seed {seed}: {row['sampled']['mean']:.1%}, greedy {row['greedy']['mean']:.1%}")
        return row

    def done(rows: list[dict[str, Any]]) -> None:
        result["rows"], result["summary"] = rows, means(world, rows)
        write(result, args.out)

    # Those that go on from GRPO begin at its best rate: it is known when the others' first seed is done.
    for seeds in range(1, 2 if args.quick else args.seeds + 1):
        for later in (False, True):
            if asked := [arm for arm in arms if (arm in ON) == later]:
                run_arms(result["rows"], asked, rates, seeds, run, done)
    show(world, result["rows"])


# Training ------------------------------------------------------------------------------------------------------------


def sums(folder: Path, n: int) -> dict[str, str]:
    """Files of problems with answer, worked solution and hints; their paths, as settings of ``dataset``."""
    import reasoning_gym

    folder.mkdir(parents=True, exist_ok=True)
    paths = {"path": str(folder / "train.jsonl"), "heldout_path": str(folder / "heldout.jsonl")}
    sizes = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 2}
    # More are drawn than are wanted: some are negative, some are drawn again.
    rows: dict[str, dict[str, Any]] = {}
    for entry in reasoning_gym.create_dataset("chain_sum", size=4 * n, seed=1, **sizes):
        if int(entry["answer"]) >= 0:
            rows.setdefault(entry["question"], sum_of(entry["question"], entry["metadata"]["expression"]))
    lines = [json.dumps(row) + "\n" for row in rows.values()][:n]
    for path, of in zip(paths.values(), (lines[n // 10 :], lines[: n // 10]), strict=True):
        Path(path).write_text("".join(of))
    return paths


def sum_of(question: str, expression: str) -> dict[str, Any]:
    """A problem of two numbers.

    Args:
        expression: the numbers, and ``+`` or ``-`` between them.
    """
    first, sign, second = expression.split()
    value = int(first) + int(sign + second)
    hints = {
        "knowledge": "Say nothing but the result.",
        "planning": f"Begin with {first}, and {'add' if sign == '+' else 'take away'} {second}.",
        "solution": f"The last digit of the result is {value % 10}.",
    }
    return {
        "prompt": f"{question}\nReply with the number alone.",
        "answer": str(value),
        "demonstration": f"{expression} = {value}",
        "level": max(len(first), len(second)),
        "hints": [{"tier": tier, "text": text} for tier, text in hints.items() if str(value) not in text],
    }


def base_recipe(world: World, folder: Path) -> Any:
    from lyceum.recipe.schema import load_recipe

    assert world.base is not None
    stage = {
        "steps": world.base["steps"],
        "tasks_per_step": world.base["tasks_per_step"],
        "objective": {"aggregate": "token"},
        "max_completion_tokens": world.sizes.longest,
        "learner": {"lr": world.base["lr"], "warmup_steps": 5, "schedule": "constant"},
    }
    given = {"stages.0." + key: value for key, value in stage.items()}
    given |= {
        "model": world.model,
        "tasks": world.base["tasks"],
        "name": "base",
        "output": str(folder),
        "evaluate.n": 0,
    }
    return load_recipe("sft", [*given.items()])


def recipe(world: World, arm: str, rate: str, seed: int, model: Path, folder: Path) -> Any:
    """The arm's stages, with as many steps as their share of the tokens lasts."""
    from lyceum.recipe.files import merged, read_merged
    from lyceum.recipe.schema import load_recipe

    of, sizes, stages = world.arms[arm], world.sizes, list[dict[str, Any]]()
    tokens = of.tokens or sizes.tokens
    rollout = {"kind": "flat", "samples": SAMPLES, "sampling": {"max_completion_tokens": sizes.longest}}
    for stage in read_merged(of.recipe)["stages"]:
        name = stage.get("name", stage["kind"])
        if name not in of.shares:
            continue
        budget = round(of.shares[name] * tokens)
        learner = {"lr": float(rate), "warmup_steps": 0 if stages else sizes.warmup, "schedule": "constant"}
        sized: dict[str, Any] = {"tasks_per_step": sizes.tasks_per_step, "learner": learner}
        if stage["kind"] == "sft":
            steps = max(1, round(budget / demonstrated_tokens(world, seed) / sizes.tasks_per_step))
            sized |= {"steps": steps, "max_completion_tokens": sizes.longest, "objective": {"aggregate": "token"}}
        else:
            sized |= {"steps": 10_000, "max_tokens": budget, "rollout": rollout}
        if stage["kind"] == "online":
            sized["learner"] = learner | {"updates_per_step": 1}
        elif stage["kind"] == "offline":
            sized["data"] = {"kind": "sampled", "tasks": 10_000, "part": sizes.tasks_per_step}
            sized["tasks_per_step"] = sizes.paired_per_step
        stages.append(merged(merged(stage, sized), of.changes.get(name, {})))
    given = {"stages": stages, "model": str(model), "tasks": world.tasks, "seed": seed, **of.of_recipe}
    given |= {"name": f"{arm}-{rate}-{tokens}-{seed}", "output": str(folder)}
    # A group that learns nothing is a result here.
    usual = ("evaluate.n=0", "checkpoint_every=10", "rollouts_every=1000", "max_steps_without_signal=0")
    return load_recipe(of.recipe, [*given.items(), *usual])


def demonstrated_tokens(world: World, seed: int) -> float:
    """Of a worked solution, on average, with the end of the text."""
    from lyceum.models.load import load_tokenizer
    from lyceum.recipe.schema import load_recipe

    of = load_recipe("sft", [("tasks", world.tasks), ("model", world.model), ("evaluate.n", 0)])
    source = of.tasks.build("train", seed)
    return mean_tokens(
        load_tokenizer(of.model), (source[n].columns["demonstration"] for n in range(min(len(source), 240)))
    )


# Evaluation and results ----------------------------------------------------------------------------------------------


def evaluated(world: World, model: Path, seed: int) -> dict[str, Any]:
    def accuracy(draws: int, *, greedy: bool) -> Any:
        import lyceum

        usual = {"k": (1,), "n": world.sizes.problems, "samples": 2, "progress": "silent"}
        usual["max_completion_tokens"] = world.sizes.longest
        return lyceum.evaluate(model, world.tasks, seed=draws, greedy=greedy, **usual)

    def rounded(interval: Mapping[str, float]) -> dict[str, float]:
        return {name: round(interval[name], 4) for name in ("mean", "low", "high")}

    found = accuracy(seed, greedy=True)
    row = {
        "sampled": rounded(found["overall"]),
        "greedy": rounded(found["greedy"]["overall"]),
        "by_level": {level: rounded(interval) for level, interval in found["by_level"].items()},
    }
    return row if seed else row | {"tuning": rounded(accuracy(1000, greedy=False)["overall"])}


def means(world: World, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Of all arms, each group of them against its first."""
    found = list[dict[str, Any]]()
    for arms in ([arm for arm in world.arms if arm not in ON + LONG], ON, LONG):
        lines = summary(rows, arms, "sampled", ("sampled", "greedy"))
        found += [line for line in lines if not found or line["arm"] != "base"]
    for line in found:
        of = chosen(rows, line["arm"])
        line["by_level"] = {
            str(n): round(fmean(row["by_level"][str(n)]["mean"] for row in of), 4) for n in world.levels
        }
        line |= {key: round(fmean(row[key] for row in of)) for key in ("tokens_sampled", "seconds") if key in of[0]}
    return found


def show(world: World, rows: Sequence[Row]) -> None:
    columns = (
        "arm",
        "rate",
        "seeds",
        "solved, %",
        "minus grpo",
        "better",
        "greedy",
        *map(str, world.levels),
        "tokens",
        "s",
    )
    lines = [
        (
            *(line["arm"], line["rate"], line["seeds"], in_percent(line["sampled"])),
            *(in_percent(line.get("difference"), "+"), f"{line['better']:.2f}" if "better" in line else "-"),
            *(f"{100 * line['greedy']['mean']:.1f}", *(f"{100 * of:.0f}" for of in line["by_level"].values())),
            *(line.get(name, "-") for name in ("tokens_sampled", "seconds")),
        )
        for line in means(world, rows)
    ]
    table("from one base", columns, lines)


if __name__ == "__main__":
    main()

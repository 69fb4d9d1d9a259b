"""Tree rollouts against flat ones: fewer tokens for as many trajectories, what each strategy finds, what is learnt.

    python benchmarks/trees.py --out trees.json [--quick] [--models small smollm2] [--suites leaves strategies ...]

``leaves``: trees of segments whose every node branches in two, against as many flat samples of the same length. The end
of sequence ends nothing there and tokens are drawn hot, so that flat samples part at once and all lengths are known;
generation and one optimiser step are timed apart, in turns. ``strategies``: every kind of rollout on the tasks of the
ladder, with the same model and seeds. ``learn`` and ``signs``: DeepSearch and its ablations against GRPO, on long
chains and on chains whose signs are missing; runs as of ``lyceum compare``. All runs stay in ``.cache/trees`` and are
not run again; ``--fresh`` begins anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

import trees_learn
from common import alternate, arguments, base_folder, machine, say, smollm2, table, write
from layout import stepper

if TYPE_CHECKING:
    from lyceum.core.tree import Node
    from lyceum.core.types import Grade, GradingContext, Task

DEFINITIONS = {
    "trajectories": "finished ones, the same number in both",
    "shared_completion_tokens": "of the trajectories' tokens below their prompts, those that are another one's too",
    "tokens_computed": "fed to the model in generation: decoded, and prefilled (prompts, what was not kept)",
    "tokens_ratio": "tokens computed by the tree over those by flat samples, each with all that the engine shares",
    "time_ratio_generate": "the tree's seconds over flat samples', median over pairs (below 1: the tree is faster)",
    "time_ratio_train": "the same of one optimiser step on all trajectories, in the layout that the learner chooses",
    "occupancy": "slots (different prefixes) fed in a step of the engine: mean over all steps, and over each tenth "
    "of them, as a share of the most in any step of either",
    "right": "share of right trajectories",
    "distinct_right": "right completions of a task that differ in their text, mean over tasks",
    "low, high": "95 % interval of a mean over seeds (Student); each seed has tasks of its own",
    "pass@k": "chance that one of k trajectories of a task is right, unbiased where they are independent; those of a "
    "tree are not, and it is then the chance for k of its leaves",
    "with_gradient": "share of tasks whose trajectories do not all have the same reward",
    "computed_per_trajectory": "tokens computed over trajectories",
    "sampled_per_trajectory": "tokens drawn, those of dropped branches too, over trajectories",
}

STRATEGIES = ("grpo", "treepo", "latr", "cure", "treerl", "deepsearch")
"""Recipes whose first stage's rollout is compared; kinds of rollout that none of them has follow with ``OTHERS``."""
STEPS = {"by": "marker", "markers": ["=", "-", "+"], "tokens": 16}
"""A step of a chain: an operand or a result."""
OTHERS: dict[str, dict[str, Any]] = {
    "beam": {"beams": 4, "width": 2, "step": STEPS},
    "best-first": {"until_right": False, "width": 4, "step": STEPS},
    "value-mcts": {"iterations": 8, "step": STEPS},
}
"""Settings of kinds without a recipe here, beside what all have: 8 trajectories (where one can ask), 80 tokens."""
K = (1, 2, 4, 8)


@dataclass(frozen=True)
class Shape:
    """Trees of one kind: ``leaves`` trajectories of ``segments`` segments of ``run`` tokens, under ``prompts``."""

    prompts: int
    leaves: int
    segments: int
    run: int
    first: int = 1

    def __str__(self) -> str:
        return f"{self.prompts} x {self.leaves} trajectories of {self.segments} x {self.run} tokens"


def main() -> None:
    parser = arguments(__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--models", nargs="+", choices=("small", "smollm2"), default=["small", "smollm2"])
    suites = ("leaves", "strategies", *trees_learn.GROUNDS)
    parser.add_argument("--suites", nargs="+", choices=suites, default=list(suites), help="which parts to run")
    parser.add_argument("--pairs", type=int, help="repetitions of each side that count")
    trees_learn.add_options(parser)
    options = parser.parse_args()
    import torch

    torch.set_num_threads(options.threads)
    result: dict[str, Any] = {"benchmark": "trees", "quick": options.quick, "definitions": DEFINITIONS}
    result |= {"machine": machine(), "leaves": [], "strategies": [], "skipped": {}}
    if "leaves" in options.suites:
        for name in options.models:
            small = name == "small"
            folder = base_folder(options.base) if small else smollm2(options.smollm2)
            pairs = options.pairs or (2 if options.quick else 7 if small else 3)
            for shape in shapes(small, options.quick):
                result["leaves"].append({"model": name} | same_leaves(folder, shape, pairs, hot=3.0 if small else 1.5))
                write(result, options.out)
    if "strategies" in options.suites:
        strategies(base_folder(options.base), 16 if options.quick else 160, 2 if options.quick else 5, result)
        write(result, options.out)
    show(result)
    for name, ground in trees_learn.GROUNDS.items():
        if name in options.suites:
            trees_learn.learn(options, result, ground)
            write(result, options.out)


def shapes(small: bool, quick: bool) -> list[Shape]:
    """8 x 4 segments are half shared: 1 + 2 + 4 + 8 are computed. 64 trees of 8 are what the engine takes at once, so
    that few paths are open at first; with 256 trees others fill its batch, as where a step has many tasks."""
    if not small:
        return [Shape(2, 8, 4, 4)] if quick else [Shape(32, 8, 4, 8)]
    if quick:
        return [Shape(8, 8, 4, 8)]
    wide = [Shape(64, 8, 4, 8), Shape(256, 8, 4, 8)]
    return [*wide, Shape(32, 8, 4, 16), Shape(32, 16, 5, 8), Shape(64, 8, 3, 8, first=2)]


# Same leaves, fewer tokens -------------------------------------------------------------------------------------------


def same_leaves(folder: Path, shape: Shape, pairs: int, *, hot: float) -> dict[str, Any]:
    """Tokens and seconds of both ways to as many trajectories of one length."""
    from lyceum.core.types import Sampling
    from lyceum.models.load import ModelSettings, load_policy
    from lyceum.papers.treepo.rollout_segments import Segments
    from lyceum.rollout.flat import Flat
    from lyceum.utils.garbage_collection import only_new

    policy = load_policy(ModelSettings(path=str(folder), device="cpu"))
    policy.stop_ids = frozenset()  # lengths are prescribed
    sampling = Sampling(temperature=hot, max_completion_tokens=shape.segments * shape.run)
    settings = {"samples": shape.leaves, "segment_tokens": shape.run, "first_branches": (shape.first, shape.first)}
    tree = Segments.model_validate(settings | {"repeat_times": None, "sampling": sampling})
    sides = {
        "tree": Side(policy, tree, shape),
        "flat": Side(policy, Flat(samples=shape.leaves, sampling=sampling), shape),
    }
    with only_new():  # as in a run
        seconds = dict(zip(sides, alternate(*(side.generate for side in sides.values()), pairs=pairs), strict=True))
    generated = ratios(*seconds.values())
    forests = {name: side.forest() for name, side in sides.items()}
    train = {name: train_step(policy, forest) for name, forest in forests.items()}
    trained_seconds = dict(zip(train, alternate(*train.values(), pairs=pairs), strict=True))
    trained = ratios(*trained_seconds.values())
    most = max(max(side.slots) for side in sides.values())
    row = {
        "shape": str(shape),
        "trajectories": shape.prompts * shape.leaves,
        "shared_completion_tokens": {name: round(shared_below_prompts(f), 4) for name, f in forests.items()},
        "tokens_computed": {name: side.computed for name, side in sides.items()},
        "tokens_ratio": round(sides["tree"].computed / sides["flat"].computed, 4),
        "time_ratio_generate": generated["ratio"],
        "time_ratio_generate_range": generated["range"],
        "time_ratio_train": trained["ratio"],
        "time_ratio_train_range": trained["range"],
        "seconds_generate": {name: round(median(of), 4) for name, of in seconds.items()},
        "seconds_train": {name: round(median(of), 4) for name, of in trained_seconds.items()},
        "occupancy": {
            name: {
                "steps": len(side.slots),
                "mean": round(fmean(side.slots) / most, 4),
                "tenths": tenths(side.slots, most),
            }
            for name, side in sides.items()
        },
        "most_slots": most,
    }
    say(
        f"{shape}: {row['tokens_ratio']:.2f} of the tokens, {row['time_ratio_generate']:.2f} of the time to generate, "
        f"{row['time_ratio_train']:.2f} to train"
    )
    return row


class Side:
    """One rollout over the same prompts, an engine of its own; what its last run computed."""

    def __init__(self, policy: Any, rollout: Any, shape: Shape) -> None:
        from lyceum.core.types import Task
        from lyceum.engine.embedded import EmbeddedEngine

        self.policy, self.rollout = policy, rollout.build()
        self.engine = EmbeddedEngine(policy)
        questions = [f"{37 + n}+8-2+5-{n % 9 + 1}=" for n in range(shape.prompts)]
        self.tasks = [Task(str(n), ({"role": "user", "content": q},)) for n, q in enumerate(questions)]
        self.trees: list[Any] = []
        self.slots: list[int] = []
        self.computed = 0

    def generate(self) -> None:
        from lyceum.utils.aio import run_async

        run_async(self._generate())

    async def _generate(self) -> None:
        from lyceum.runtime.in_process import InProcess

        await self.engine.load(self.policy.module, self.engine.version + 1)  # what was kept is gone: every run is alike
        before = total_computed(self.engine)
        self.slots = noted(self.engine)
        self.trees = await InProcess(self.policy, self.engine, by_place, seed=0).run(
            self.tasks, self.rollout, key="bench"
        )
        self.computed = total_computed(self.engine) - before

    def forest(self) -> Any:
        from lyceum.core.forest import build_forest

        return build_forest(self.trees)


async def by_place(task: Task, leaves: Sequence[Node], context: GradingContext) -> list[Grade]:
    from lyceum.core.types import Grade

    return [Grade(float(i % 2)) for i in range(len(leaves))]


def total_computed(engine: Any) -> int:
    return engine.occupancy.computed + engine.occupancy.prefilled


def noted(engine: Any) -> list[int]:
    """The slots of every step that the engine takes from now on."""
    slots: list[int] = []
    step = type(engine)._step

    def counted() -> None:
        before = engine.occupancy.computed
        step(engine)
        slots.append(engine.occupancy.computed - before)

    engine._step = counted
    return slots


def tenths(slots: Sequence[int], most: int) -> list[float]:
    edges = [round(len(slots) * i / 10) for i in range(11)]
    return [round(fmean(slots[a:b]) / most, 3) for a, b in pairwise(edges) if b > a]


def shared_below_prompts(forest: Any) -> float:
    """1 - unique / all, of the tokens that the policy wrote."""
    from lyceum.core.types import Origin

    unique = int((forest.origin == int(Origin.POLICY)).sum())
    return 1 - unique / int(forest.trainable(forest.rows()).sum())


def train_step(policy: Any, forest: Any) -> Callable[[], Any]:
    import torch

    from lyceum.core.types import Credited

    rows = forest.rows()
    advantage = torch.randn(rows.index.shape, generator=torch.Generator().manual_seed(0)) * forest.trainable(rows)
    return stepper(policy, forest, Credited(advantage), "auto")


def ratios(tree: Sequence[float], flat: Sequence[float]) -> dict[str, Any]:
    of = sorted(a / b for a, b in zip(tree, flat, strict=True))
    return {"ratio": round(median(of), 4), "range": [round(of[0], 4), round(of[-1], 4)]}


# What each strategy finds --------------------------------------------------------------------------------------------


def strategies(folder: Path, tasks: int, seeds: int, result: dict[str, Any]) -> None:
    """Every kind of rollout on the same tasks of the ladder, as its recipe has it where there is one."""
    from lyceum.models.load import ModelSettings, load_policy
    from lyceum.recipe.schema import load_recipe
    from lyceum.tasks.chain import Chain
    from lyceum.training.stages.online import Online
    from lyceum.utils.errors import RecipeError

    policy = load_policy(ModelSettings(path=str(folder), device="cpu"))
    rollouts: dict[str, Any] = {}
    for name in STRATEGIES:
        try:
            rollouts[name] = next(stage.rollout for stage in load_recipe(name, []).stages if isinstance(stage, Online))
        except RecipeError as error:
            result["skipped"][name] = error.lines[0]
    rollouts |= without_recipe()
    source = Chain.model_validate({}).build("train", 0)
    for name, rollout in rollouts.items():
        row: dict[str, Any] = {"strategy": name, "rollout": rollout.kind, "tasks": tasks, "seeds": seeds}
        of_seed = [
            found(policy, rollout, [source[seed * tasks + i] for i in range(tasks)], source.grader(), seed=seed)
            for seed in range(seeds)
        ]
        row |= {figure: over_seeds([of[figure] for of in of_seed]) for figure in of_seed[0]}
        say(
            f"{name}: {row['right']['mean']:.2f} right, "
            f"{row['computed_per_trajectory']['mean']:.1f} tokens computed a trajectory"
        )
        result["strategies"].append(row)


def without_recipe() -> dict[str, Any]:
    """Rollouts that none of the recipes has, by kind."""
    from lyceum.core.component import kinds
    from lyceum.core.types import Sampling

    rollouts: dict[str, Any] = {}
    for kind, given in OTHERS.items():
        settings = kinds("rollout")[kind]
        shared = {"trajectories": 8, "samples": 8, "sampling": Sampling(max_completion_tokens=80)}
        known = {name: value for name, value in shared.items() if name in settings.model_fields}
        rollouts[kind] = settings.model_validate(known | given)
    return rollouts


def over_seeds(values: Sequence[float | None]) -> dict[str, float] | None:
    """Mean and interval; None where a seed has no such figure."""
    from lyceum.evaluation.intervals import mean_over_seeds

    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    of = mean_over_seeds(known)
    return {"mean": round(of.mean, 4), "low": round(of.low, 4), "high": round(of.high, 4)}


def found(policy: Any, rollout: Any, tasks: Sequence[Any], grader: Any, *, seed: int) -> dict[str, float | None]:
    from lyceum.engine.embedded import EmbeddedEngine
    from lyceum.evaluation.statistics import pass_at_k
    from lyceum.runtime.in_process import InProcess
    from lyceum.utils.aio import run_async
    from lyceum.value.likelihood import Likelihood

    engine = EmbeddedEngine(policy)
    # For the kinds that ask: no model of its own, so that nothing was trained for any strategy.
    value = Likelihood().build(policy, seed=seed)
    began = time.perf_counter()
    trees = run_async(
        InProcess(policy, engine, grader, seed=seed, value=value).run(tasks, rollout.build(), key="bench")
    )
    seconds = time.perf_counter() - began
    graded = [[(leaf, bool(grade.verdict)) for leaf, grade, _ in tree.graded_with_outcome()] for tree in trees]
    rewards = [{outcome for _, _, outcome in tree.graded_with_outcome()} for tree in trees]
    count = sum(map(len, graded))
    right = [sum(verdict for _, verdict in leaves) for leaves in graded]
    at = {
        f"pass@{k}": [pass_at_k(len(of), c, k) for of, c in zip(graded, right, strict=True) if len(of) >= k] for k in K
    }
    return {
        "trajectories_per_task": count / len(trees),
        "right": sum(right) / max(1, count),
        "distinct_right": fmean(len({leaf.completion for leaf, v in of if v}) for of in graded),
        **{name: fmean(values) if values else None for name, values in at.items()},
        "with_gradient": fmean(len(of) > 1 for of in rewards),
        "computed_per_trajectory": total_computed(engine) / max(1, count),
        "sampled_per_trajectory": sum(tree.sampled_tokens for tree in trees) / max(1, count),
        "completion_tokens": fmean(len(leaf.completion_tokens) for of in graded for leaf, _ in of),
        "seconds": seconds,
    }


def show(result: Mapping[str, Any]) -> None:
    if result["leaves"]:
        columns = (
            "model, trajectories",
            "shared",
            "tokens",
            "time to generate",
            "time to train",
            "occupancy tree / flat",
        )
        table(
            "trees against flat samples, same trajectories",
            columns,
            [
                (
                    f"{row['model']}: {row['shape']}",
                    f"{row['shared_completion_tokens']['tree']:.0%}",
                    f"{row['tokens_ratio']:.2f}",
                    f"{row['time_ratio_generate']:.2f}",
                    f"{row['time_ratio_train']:.2f}",
                    f"{row['occupancy']['tree']['mean']:.2f} / {row['occupancy']['flat']['mean']:.2f}",
                )
                for row in result["leaves"]
            ],
        )
    if result["strategies"]:
        columns = ("strategy (rollout)", "trajectories", "right", "distinct right", *(f"pass@{k}" for k in K))
        columns += ("with gradient", "computed / trajectory", "drawn / trajectory", "seconds")
        names = ("trajectories_per_task", "right", "distinct_right", *(f"pass@{k}" for k in K), "with_gradient")
        names += ("computed_per_trajectory", "sampled_per_trajectory", "seconds")
        table(
            "rollout strategies on the ladder, mean over seeds and half its 95 % interval",
            columns,
            [
                (f"{row['strategy']} ({row['rollout']})", *(with_interval(row[name]) for name in names))
                for row in result["strategies"]
            ],
        )


def with_interval(of: Mapping[str, float] | None) -> str:
    if of is None:
        return "-"
    digits = 1 if of["mean"] >= 10 else 2
    return f"{of['mean']:.{digits}f} ± {(of['high'] - of['low']) / 2:.{digits}f}"


if __name__ == "__main__":
    main()

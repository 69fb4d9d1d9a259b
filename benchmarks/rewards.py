"""Right for the right reason: what rewards beside the verifier do to accuracy and to the steps under it.

    python benchmarks/rewards.py --out results.json
    python benchmarks/rewards.py --study smollm2 --out results.json

Each arm trains a model on tasks whose verdict does not see the steps, with several seeds, and is then sampled on the
same held-out tasks: the small base model on chain-compare; or SmolLM2-135M-Instruct (``make smollm2``) on sum-compare,
after a fine-tuning that shows it how a comparison is written. Whether every step holds is what the tasks' own rule
says, which no arm is trained with; a corrected slip counts as right. Finished runs are not repeated.

The file also holds the rewards of the other comparisons, as TRL calls them; lyceum takes the same functions
(``reward: {kind: trl}``).
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

STANDARDISED = (
    "stages.0.reward.1.normalise=group",
    "stages.0.reward.1.confidence.weight=0.5",
    "stages.0.reward.1.relevance={scorer: {kind: lexical}, weight: 0.5}",
)
"""DRM with relevance as shared pieces of text, and each dimension standardised within the group."""
SAID = "stages.0.reward=[task, {kind: model, cut: step, step: {by: marker, markers: ['='], tokens: 16}}]"
"""A trained model's score of each step; their mean is the part ``model/process``."""
ADDED = "stages.0.credit={kind: by-part, parts: {task: 1, model/process: 0.25}}"
"""The advantage of that mean is added to the verifier's, as DRM's score is."""


def filtered(by: str, samples: int = 16) -> tuple[str, ...]:
    """PROF: of the samples the half stays whose verdict and steps agree; the part is used for nothing else."""
    keep = f"stages.0.guidance=[{{kind: consistency-filter, samples: {samples}, keep: {samples // 2}, by: {by}}}]"
    return keep, f"stages.0.rollout.samples={samples}", "stages.0.credit=group"


@dataclass(frozen=True)
class Arm:
    recipe: str
    keys: tuple[str, ...] = ()
    judge: str | None = None
    """Of ``JUDGES``: the trained model that scores steps."""
    after: str | None = None
    """The arm whose model of the same seed it begins with, and whose sampled tokens are added to its own."""
    own: int = 0
    """Samples of the model before training, each of another task: where the verifier calls one correct, DRM's scorer of
    steps learns from it in place of a demonstration. Their tokens are added to the arm's own."""


IMITATED = ("stages.0.tasks_per_step=32", "stages.0.learner.schedule=constant")
"""As many tasks per update as the other arms, and their learning rate."""


OFFLINE = (
    "stages=[{kind: offline, steps: 30, epochs: 1, tasks_per_step: 32, data: {kind: sampled, tasks: 960}, "
    "rollout: {kind: flat, samples: 8, sampling: {max_completion_tokens: 80}}, "
    "reward: [{kind: task, weight: 0}, {kind: drm, confidence: {scorer: policy, weight: 0.1}, "
    "relevance: {scorer: {kind: lexical, measure: in-order, answer: 0}, weight: 2}, "
    "coherence: {scorer: step-consistency, weight: 1}}], credit: {kind: group, scale: std}, "
    "objective: {kind: mpo, beta: 0.1, preference: 1, quality: 0, generation: 1}, "
    "learner: {lr: 1.0e-4, betas: [0.9, 0.95], warmup_steps: 10}}]",
)
"""DRM's pairs as the paper has them: of samples drawn before training, with a fine-tuning term on the preferred."""
FAIR = 8
"""Updates that ``drm-fair`` is short of: as many samples are what its scorer of steps learns from."""
STEP = 32 * 8
"""Samples of an update."""


def dimension(name: str) -> tuple[str, ...]:
    """DRM with one dimension alone."""
    return tuple(f"stages.0.reward.1.{each}=null" for each in ("confidence", "relevance", "coherence") if each != name)


ARMS = {
    "verifier": Arm("grpo"),
    "fine-tuned": Arm("sft", IMITATED),
    "fine-tuned-256": Arm("sft", (*IMITATED, "stages.0.steps=8")),
    "fine-tuned-then-verifier": Arm("grpo", after="fine-tuned"),
    "drm": Arm("drm"),
    "relevance": Arm("drm", dimension("relevance")),
    "coherence": Arm("drm", dimension("coherence")),
    "confidence": Arm("drm", dimension("confidence")),
    "drm-fair": Arm("drm", (f"stages.0.steps={30 - FAIR}",), own=FAIR * STEP),
    "coherence-fair": Arm("drm", (f"stages.0.steps={30 - FAIR}", *dimension("coherence")), own=FAIR * STEP),
    "drm-dpo": Arm("drm-dpo"),
    "drm-dpo-offline": Arm("drm", OFFLINE),
    "prof": Arm("drm", filtered("drm")),
    "implicit": Arm("grpo", (SAID, ADDED), "implicit"),
    "process-model": Arm("grpo", (SAID, ADDED), "process"),
    "prof-by-process-model": Arm("grpo", (SAID, *filtered("model/process")), "process"),
    "drm-standardised": Arm("drm", STANDARDISED),
}
JUDGES = {
    "implicit": ("implicit-prm", "{kind: implicit, beta: 0.05, path: %s}"),
    "process": ("prof", "{kind: model, path: %s}"),
}
"""Name -> recipe whose first stage trains the model, once for each seed; the value model that it then is."""


@dataclass(frozen=True)
class Study:
    """What the arms train, on which tasks.

    Attributes:
        tasks: trained and measured on; ``held_out`` of them are sampled after training, ``samples`` times each.
        arms: they differ in what judges the steps, and in how that is used, alone.
        length: updates of every arm's policy.
        tokens: of the longest completion.
        keys: of every arm's recipe.
        fine_tuning: keys of the recipe ``sft`` that makes the model that all arms begin with; None: the recipe's own.
    """

    tasks: str
    arms: dict[str, Arm]
    length: int
    held_out: int
    samples: int
    tokens: int
    keys: tuple[str, ...] = ()
    fine_tuning: tuple[str, ...] | None = None


STUDIES = {
    "small": Study("chain-compare", ARMS, length=30, held_out=200, samples=8, tokens=80),
    "smollm2": Study(
        "sum-compare",
        {
            "verifier": Arm("grpo"),
            "drm": Arm("drm"),
            "prof": Arm("drm", filtered("drm", samples=8)),
        },
        length=10,
        held_out=100,
        samples=4,
        tokens=40,
        keys=(
            "stages.0.tasks_per_step=16",
            "stages.0.rollout.sampling.max_completion_tokens=40",
            "stages.0.learner={lr: 5.0e-6, warmup_steps: 2, autocast: bfloat16}",
        ),
        fine_tuning=(
            "model=models/smollm2-135m-instruct",
            "stages.0.steps=24",
            "stages.0.tasks_per_step=16",
            "stages.0.learner={lr: 5.0e-5, warmup_steps: 4, autocast: bfloat16}",
        ),
    ),
}
"""``smollm2``: every arm samples as much, PROF trains on half of it."""
ROUNDS = 6
"""Of 64 tasks, that a judge learns from."""
OWN = 1000
"""Seeds of the tasks of ``own_samples`` begin here."""
LABELS = "chain"
"""Tasks that the judges learn from: the same chains, whose verdict is of the result. No rule of steps is asked."""
FIRST = "verifier"
"""What the others are measured against."""
KEPT = ("tokens_sampled", "accuracy", "every_step_right", "wrong_step_if_correct")
DEFINITIONS = {
    "recipe": "an arm: see ARMS; base is the model before training",
    "tasks": "trained and measured on; 'held_out' of them are sampled after training, 'samples' times each",
    "seeds": "of tasks, weights' updates and samples; each trains once",
    "tokens_sampled": "in training, a reward model's too, per seed; mean, low, high as below",
    "accuracy": "share of the held-out samples that the verifier calls correct",
    "every_step_right": "share of the held-out samples whose every step, and the answer, hold by the tasks' rule",
    "wrong_step_if_correct": "share of the correct held-out samples that rest on a step that does not hold",
    "accuracy_gain, every_step_right_gain": f"minus {FIRST}'s, paired by seed",
    "mean, low, high": "over seeds, with Student's 95 % interval; with one seed over tasks, by bootstrap",
    "by_seed": "figures of each seed, the first one's first",
    "studies: arms": "of the last call; rows of other arms are of an earlier one",
    "studies: seeds, earlier": "run at this machine; machines of the seeds before them, and the base model there",
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
    parser.add_argument("--study", choices=STUDIES, default="small")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0, help="of the seeds; settings were tried with seed 100")
    parser.add_argument("--held-out", type=int, help="tasks sampled after training")
    parser.add_argument("--arms", help="names of the study's arms, with commas; by default all")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time; each gets its share of the threads")
    parser.add_argument("--fresh", action="store_true", help="forget the runs of an earlier call")
    parser.add_argument(
        "--beside",
        type=Path,
        help="an earlier result, whose rows of other tasks stay, and those of other arms with as many seeds; "
        "with --first-seed N, its rows of these tasks have seeds 0 to N - 1, and the new ones follow them",
    )
    options = parser.parse_args()
    kept = None if options.beside is None else json.loads(options.beside.read_text("utf-8"))
    study = STUDIES[options.study]
    held_out, length, rounds = options.held_out or study.held_out, study.length, ROUNDS
    if options.quick:
        options.seeds, held_out, length, rounds = 1, 16, 2, 1
    study = replace(study, held_out=held_out, length=length)
    arms = options.arms.split(",") if options.arms else list(study.arms)
    earlier: dict[str, dict[str, Any]] = {}
    if kept is not None and options.first_seed:
        earlier = {of["recipe"]: of for of in kept["rows"] if of["tasks"] == study.tasks}
        if wrong := [arm for arm in arms if earlier.get(arm, {}).get("seeds") != options.first_seed]:
            parser.error(f"--first-seed {options.first_seed}: {options.beside} has not so many of {', '.join(wrong)}")
    names = ["rewards", *([options.study] if options.study != "small" else []), *(["quick"] if options.quick else [])]
    here = common.CACHE / "-".join(names)
    if options.fresh:
        shutil.rmtree(here, ignore_errors=True)
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    threads = max(1, options.threads // options.jobs)
    found: dict[tuple[str, int], dict[str, Any]] = {}
    start = None if study.fine_tuning is None else str(fine_tuned(study, here, options.threads))
    with ProcessPoolExecutor(options.jobs, mp_context=common.processes(options)) as pool:
        judges = {
            (name, seed) for seed in seeds for name in JUDGES if any(study.arms[arm].judge == name for arm in arms)
        }
        for done in [pool.submit(judge, *each, here, rounds, threads) for each in sorted(judges)]:
            done.result()
        runs = {
            pool.submit(trained, study, arm, seed, here, start, rounds, threads): (arm, seed)
            for seed in seeds
            for arm in arms
        }
        for run in as_completed(runs):
            arm, seed = runs[run]
            found[arm, seed] = run.result()
            shares = {name: round(fmean(found[arm, seed][name]), 3) for name in KEPT[1:]}
            common.say(f"{arm}, seed {seed} ({len(found)}/{len(runs)}): {shares}")
    stay: list[dict[str, Any]] = []
    if kept is not None and not options.first_seed:
        of_study = [of for of in kept["rows"] if of["tasks"] == study.tasks and of["recipe"] not in ("base", *arms)]
        stay = [of for of in of_study if of["seeds"] == options.seeds]
    known = {of["recipe"]: of["by_seed"] for of in stay}
    base = measured(study, start or "base") | {"tokens_sampled": [0.0]}
    of_arms = {arm: [found[arm, seed] for seed in seeds] for arm in arms}
    of_seeds = {arm: with_earlier(figures(runs), earlier.get(arm)) for arm, runs in of_arms.items()}
    rows = [row("base", figures([base]), None, [base])]
    first = of_seeds.get(FIRST, known.get(FIRST))
    rows += [row(arm, of_seeds[arm], first, runs, earlier.get(arm)) for arm, runs in of_arms.items()]
    order = list(study.arms)
    rows = [rows[0], *sorted([*rows[1:], *stay], key=lambda of: order.index(of["recipe"]))]
    shown = (*KEPT, "accuracy_gain", "every_step_right_gain")
    common.table(
        "mean [low, high]",
        ["recipe", *shown],
        [
            [of["recipe"], *("{mean:.4g} [{low:.4g}, {high:.4g}]".format(**of[n]) if n in of else "" for n in shown)]
            for of in rows
        ],
    )
    told = {
        "machine": common.machine(),
        "seeds": list(seeds),
        "base": rows[0]["by_seed"],
        **asdict(study),
        "arms": {name: asdict(study.arms[name]) for name in arms},
    }
    result = {
        "definitions": DEFINITIONS,
        "rounds": rounds,
        "judges": JUDGES,
        "studies": {options.study: told},
        "rows": rows,
    }
    if kept is not None:
        if earlier:
            before = kept["studies"][options.study]
            own = {key: before[key] for key in ("machine", "seeds", "base") if key in before}
            told["earlier"] = [*before.get("earlier", []), own]
        others = [of for of in kept["rows"] if of["tasks"] != study.tasks]
        studies = kept.get("studies", {}) | result["studies"]
        result = kept | {"definitions": DEFINITIONS, "studies": studies, "rows": others + rows}
    common.write(result, options.out)


def judge(name: str, seed: int, here: Path, rounds: int, threads: int) -> tuple[Path, int]:
    """The folder of a model that scores steps, trained unless it is there, and the tokens sampled for it."""
    keys = [f"tasks={LABELS}", f"stages.0.steps={rounds}"]
    run = one_run(JUDGES[name][0], keys, here / f"judge-{name}-seed{seed}", seed, threads, stages=1)
    return run / "value", json.loads((run / "summary.json").read_text("utf-8"))["tokens_sampled"]


def own_samples(study: Study, n: int, model: str, seed: int, here: Path) -> tuple[Path, int]:
    """A file of the model's own samples that the verifier calls correct, as demonstrations; the tokens of all samples.

    The tasks are none of those that arms are measured on, nor of those that they train on.
    """
    import lyceum

    path, cost = here / f"own-{n}-seed{seed}.jsonl", here / f"own-{n}-seed{seed}.tokens"
    if not cost.is_file():
        found = lyceum.evaluate(
            model,
            study.tasks,
            n=n,
            samples=1,
            k=(1,),
            greedy=False,
            seed=OWN + seed,
            max_completion_tokens=study.tokens,
            progress="silent",
        )
        leaves = [(tree.task, leaf) for tree in found.trees for leaf in tree.trajectories]
        rows = [
            {"prompt": task.messages[-1]["content"], "answer": task.answer, "demonstration": leaf.completion}
            for task, leaf in leaves
            if leaf.grade is not None and leaf.grade.verdict
        ]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
        cost.write_text(str(sum(len(node.tokens) for _, leaf in leaves for node in leaf.path()[1:])), "utf-8")
    return path, int(cost.read_text("utf-8"))


def fine_tuned(study: Study, here: Path, threads: int) -> Path:
    """The model that all of a study's arms begin with, trained unless it is there."""
    assert study.fine_tuning is not None
    return one_run("sft", [f"tasks={study.tasks}", *study.fine_tuning], here / "fine-tuned", 0, threads) / "model"


def trained(
    study: Study, name: str, seed: int, here: Path, start: str | None, rounds: int, threads: int
) -> dict[str, Any]:
    """Train an arm with a seed, unless it is done; what its model then does on held-out tasks, and what it cost.

    Args:
        start: the model that every arm begins with; None: the recipe's.
    """
    began, arm = time.perf_counter(), study.arms[name]
    keys, before = [f"tasks={study.tasks}", f"stages.0.steps={study.length}", *study.keys, *arm.keys], 0
    if start is not None:
        keys.append(f"model={start}")
    if arm.after is not None:
        trained(study, arm.after, seed, here, start, rounds, threads)
        began = time.perf_counter()
        keys.append(f"model={here / f'{arm.after}-seed{seed}' / 'model'}")
    if arm.judge is not None:
        path, before = judge(arm.judge, seed, here, rounds, threads)
        keys.append(f"stages.0.value={JUDGES[arm.judge][1] % path}")
    if arm.own:
        path, before = own_samples(study, arm.own, start or "base", seed, here)
        keys.append(f"stages.0.reward.1.coherence.scorer.demonstrations={{kind: dataset, path: {path}}}")
    run = one_run(arm.recipe, keys, here / f"{name}-seed{seed}", seed, threads)
    known = run / "held_out.json"
    if known.is_file() and len((found := json.loads(known.read_text("utf-8")))["accuracy"]) == study.held_out:
        return found
    summary = json.loads((run / "summary.json").read_text("utf-8"))
    found = measured(study, str(run / "model"))
    found["tokens_sampled"] = [float(before + summary["tokens_sampled"])]
    found[SECONDS] = time.perf_counter() - began
    known.write_text(json.dumps(found), "utf-8")
    return found


def one_run(recipe: str, keys: Sequence[str], folder: Path, seed: int, threads: int, stages: int | None = None) -> Path:
    """Train unless the run is finished; one that was stopped goes on from its checkpoint.

    Args:
        stages: of the recipe, the first ones that are run.
    Raises:
        RecipeError: the folder holds a run of other settings.
    """
    import torch

    from lyceum.analysis.comparison.run import is_finished, refuse_other_runs
    from lyceum.recipe.schema import load_recipe, parse
    from lyceum.training.train import train
    from lyceum.utils.progress import using

    torch.set_num_threads(threads)
    usual = [f"seed={seed}", "evaluate.n=0", "track=[]", "checkpoint_every=10", "rollouts_every=50"]
    loaded = load_recipe(recipe, [*usual, f"output={folder.parent}", f"name={folder.name}", *keys])
    if stages is not None:
        raw = loaded.resolved()
        loaded = parse(raw | {"stages": raw["stages"][:stages]})
    refuse_other_runs([loaded])
    if not is_finished(loaded):
        with using("silent"):
            train(loaded, resume="auto")
    return folder


def measured(study: Study, model: str) -> dict[str, Any]:
    """Of each held-out task the accuracy of its samples, and the share whose every step is right.

    The held-out tasks are those of seed 0 in every run: seeds differ in training alone.
    """
    import lyceum
    from lyceum.core.component import kinds

    source = kinds("tasks")[study.tasks]().build("heldout", 0)  # pyright: ignore[reportAttributeAccessIssue]
    found = lyceum.evaluate(
        model,
        study.tasks,
        n=study.held_out,
        samples=study.samples,
        k=(1,),
        greedy=False,
        seed=0,
        max_completion_tokens=study.tokens,
        progress="silent",
    )
    of_tasks: dict[str, list[float]] = {"accuracy": [], "every_step_right": [], "wrong_step_if_correct": []}
    correct = resting = 0
    for tree in found.trees:
        right = [bool(leaf.grade is not None and leaf.grade.verdict) for leaf in tree.trajectories]
        held = [every_step_right(source, tree.task, leaf.completion) for leaf in tree.trajectories]
        of_tasks["accuracy"].append(fmean(right))
        of_tasks["every_step_right"].append(fmean(a and b for a, b in zip(right, held, strict=True)))
        correct, resting = correct + sum(right), resting + sum(a and not b for a, b in zip(right, held, strict=True))
    return {**of_tasks, "wrong_step_if_correct": [resting / correct if correct else 0.0], "tasks": study.tasks}


def every_step_right(source: Any, task: Any, completion: str) -> bool:
    """Whether a completion has steps, and every one holds as it stands in the end."""
    steps = source.judged_steps(task, completion)
    return bool(steps) and all(step.reward == 1 for step in steps)


def figures(runs: Sequence[dict[str, Any]]) -> dict[str, list[float]]:
    """Each seed's."""
    return {name: [fmean(run[name]) for run in runs] for name in KEPT}


def with_earlier(of_seeds: dict[str, list[float]], earlier: dict[str, Any] | None) -> dict[str, list[float]]:
    """The figures of a row's seeds before those of further ones; their tokens only where the row has them by seed."""
    if earlier is None:
        return of_seeds
    both = {name: [*values, *of_seeds[name]] for name, values in earlier["by_seed"].items()}
    pairs = zip(both["accuracy"], both["every_step_right"], strict=True)
    # What rests on a wrong step is what is right and has not every step right.
    return both | {"wrong_step_if_correct": [1 - held / right if right else 0.0 for right, held in pairs]}


def row(
    arm: str,
    of_seeds: dict[str, list[float]],
    first: dict[str, list[float]] | None,
    runs: Sequence[dict[str, Any]],
    earlier: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """An arm's figures by seed as means with intervals, and the differences to another arm's, seed by seed.

    Args:
        runs: those of this call.
        earlier: the arm's row of the seeds before them.
    """
    seeds = len(of_seeds["accuracy"])
    seconds = [run[SECONDS] for run in runs if SECONDS in run]
    if earlier is not None:
        seconds += [earlier["seconds_per_seed"]] * earlier["seeds"]
    means = {
        name: interval(values if seeds > 1 else runs[0][name], of_seeds=seeds > 1) for name, values in of_seeds.items()
    }
    if earlier is not None and "tokens_sampled" not in of_seeds:
        means["tokens_sampled"] = pooled(earlier, figures(runs)["tokens_sampled"])
    gains = {}
    if first is not None and seeds > 1 and arm != FIRST:
        for name in ("accuracy", "every_step_right"):
            lead = [own - other for own, other in zip(of_seeds[name], first[name], strict=True)]
            gains[f"{name}_gain"] = interval(lead, of_seeds=True)
    return {
        "recipe": arm,
        "tasks": runs[0]["tasks"],
        "seeds": seeds,
        **{name: means[name] for name in KEPT},
        **gains,
        "by_seed": {name: [round(value, 4) for value in values] for name, values in of_seeds.items()},
        "seconds_per_seed": round(fmean(seconds), 1) if seconds else 0.0,
    }


def pooled(earlier: dict[str, Any], values: Sequence[float]) -> dict[str, float]:
    """The interval of an earlier row's tokens, of which mean and Student's interval are known, and of further ones."""
    from scipy.stats import t

    known, n = earlier["tokens_sampled"], earlier["seeds"]
    seeds = n + len(values)
    deviation = (known["high"] - known["mean"]) * n**0.5 / t.ppf(0.975, n - 1)
    mean = (n * known["mean"] + sum(values)) / seeds
    squares = (n - 1) * deviation**2 + n * (known["mean"] - mean) ** 2 + sum((value - mean) ** 2 for value in values)
    half = float(t.ppf(0.975, seeds - 1) * (squares / (seeds - 1) / seeds) ** 0.5)
    return {"mean": mean, "low": mean - half, "high": mean + half}


def interval(values: Sequence[float], *, of_seeds: bool) -> dict[str, float]:
    """The mean with its 95 % interval; the mean alone where there is one value."""
    from lyceum.evaluation.intervals import mean_interval, mean_over_seeds

    if len(values) == 1:
        return {"mean": values[0], "low": values[0], "high": values[0]}
    return (mean_over_seeds if of_seeds else mean_interval)(values).to_json()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()

"""Running a comparison: recipes times seeds on equal terms; finished runs are kept, interrupted ones resume."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from lyceum.analysis._labels import by_label
from lyceum.analysis.comparison.jobs import run_jobs
from lyceum.analysis.comparison.result import Comparison, compare
from lyceum.analysis.sizes import require_fit
from lyceum.recipe.resumed import MAY_DIFFER, with_defaults
from lyceum.recipe.schema import Overrides, Recipe, load_recipe, read_override
from lyceum.reward.base import passed_in_here
from lyceum.run.folder import check_name, recover, refused_changes
from lyceum.run.reader import read_recipe, read_run_folder
from lyceum.training.train import check, check_run_folder, train
from lyceum.utils.errors import NothingGraded, RecipeError, nearest
from lyceum.utils.terminal import quoted
from lyceum.utils.threads import usable_cores

CURVE = 5
"""Default number of evaluations during training, for the plot of accuracy against tokens."""

MOST_SEEDS, MOST_TOKENS = 1000, 10**15
"""Maximum runs per recipe, and maximum sampled tokens per run. All runs are planned before the first begins."""


@dataclass(frozen=True)
class ComparisonPlan:
    """Runs of a comparison, in the order in which they are run, and the folder that holds them."""

    folder: Path
    recipes: list[Recipe]
    labels: list[str]

    def run(
        self, interrupted: Callable[[], bool], began: Callable[[str], None] | None = None, *, jobs: int = 1
    ) -> Comparison:
        """Train the missing runs, compare, write comparison.json and comparison.png.

        Args:
            interrupted: called between steps.
            began: called with a line about each run before it begins or is skipped as finished.
            jobs: runs at a time; more than 1 are processes of their own.
        """
        if jobs > 1:
            missing = [recipe for recipe in self.recipes if not is_finished(recipe)]
            run_jobs(missing, jobs, interrupted, began or (lambda line: None), refuse_unmeasured)
            began = None  # what ran was told of
        for number, recipe in enumerate(self.recipes, 1):
            finished = is_finished(recipe)
            if began is not None:
                state = "is there already" if finished else "runs"
                began(f"{number}/{len(self.recipes)}  {recipe.name} {state}")
            if not finished:
                train(recipe, resume="auto", interrupted=interrupted, checked=require_fit)
            refuse_unmeasured(recipe)
        # By recipe and not by seed: the first is the baseline.
        ordered = [recipe for label in self.labels for recipe in self.recipes if recipe.label == label]
        found = compare([folder_of(recipe) for recipe in ordered])
        found.write(self.folder)
        return found


def plan(
    recipes: Sequence[str],
    shared: Overrides,
    own: Mapping[str, Overrides],
    *,
    seeds: int,
    tokens: int | None,
    name: str | None,
    output: str,
) -> ComparisonPlan:
    """Check everything before the first run begins.

    Args:
        recipes: names or files; ``NAME@LABEL`` gives a label.
        shared: overrides of every recipe.
        own: label -> overrides of that recipe only, applied last.
        seeds: runs of each recipe, with seeds from the recipe's own on.
        tokens: sampled tokens per run; None keeps every recipe's steps.
        name: of the folder ``output/compare-NAME``; by default the labels.
        output: folder that holds it.
    Raises:
        RecipeError: a recipe that cannot work, or recipes that would not be compared on equal terms.
    """
    if not 1 <= seeds <= MOST_SEEDS:
        raise RecipeError(f"seeds: got {quoted(seeds)}; allowed: 1 to {MOST_SEEDS}")
    if tokens is not None and not 1 <= tokens <= MOST_TOKENS:
        raise RecipeError(f"tokens: got {quoted(tokens)}; allowed: 1 to {MOST_TOKENS}")
    if together := next((given for given in recipes if "," in given), None):
        raise RecipeError(f"recipes: got {quoted(together)}; allowed: one after another, {together.replace(',', ' ')}")
    if not recipes:
        raise RecipeError("recipes: got none; allowed: 1 or more")
    labelled = labels_of(recipes)
    for label in own:
        if label not in labelled:
            raise RecipeError(f"{label}: no such recipe here{nearest(label, labelled)}; allowed: {', '.join(labelled)}")
    refuse_what_a_comparison_decides(shared, own, tokens=tokens)
    if len(labelled) == 1 and own:
        (label,) = labelled
        raise RecipeError(
            f"{label}: got keys for {label!r} alone, with nothing beside it; allowed: another recipe to compare it "
            f"with, as in lyceum compare {label} {label}@other other:KEY=VALUE"
        )
    for label in labelled:
        check_name("label", label)
    if name is not None:
        check_name("name", name)
    folder = Path(output) / f"compare-{'-'.join(labelled) if name is None else name}"
    loaded: list[Recipe] = []
    for label, file in labelled.items():
        given = [*shared, *own.get(label, ())]
        recipe = load_recipe(file, [*given, ("label", label), ("output", str(folder))])
        steps_given = any(read_override(override)[0].rpartition(".")[2] == "steps" for override in given)
        loaded.append(recipe if tokens is None else with_budget(recipe, tokens, keep_steps=steps_given))
    loaded = on_equal_terms(loaded)
    for recipe in loaded:
        check(recipe)
    planned = [
        recipe.model_copy(
            update={
                "seed": recipe.seed + number,
                "name": f"{recipe.label}-seed{recipe.seed + number}",
                "max_steps_without_signal": 0,  # a run that learns nothing is a result here
            }
        )
        for number in range(seeds)
        for recipe in loaded
    ]
    refuse_other_runs(planned)
    return ComparisonPlan(folder, planned, list(labelled))


def refuse_what_a_comparison_decides(shared: Overrides, own: Mapping[str, Overrides], *, tokens: int | None) -> None:
    """Raise RecipeError for keys that a comparison sets itself, so that giving them would have no effect."""
    decided = {
        "output": "--output DIR",
        "name": "--name NAME, of the comparison's folder",
        "label": "RECIPE@LABEL",
        "seeds": "--seeds N",
        "tokens": "--tokens N",
        **({} if tokens is None else {"max_tokens": "--tokens alone, or max_tokens without it"}),
    }
    lines = []
    for label, overrides in {"": shared, **own}.items():
        for override in overrides:
            key, value = read_override(override)
            where = f"{label}:{key}" if label else key
            of_stage = key.rpartition(".")[2] if key.startswith("stages.") else key
            instead = decided.get("max_tokens" if of_stage == "max_tokens" else key)
            if instead is not None:
                lines.append(f"{where}: got {value!r} as a recipe's key; allowed: {instead}")
            elif label and key.partition(".")[0] == "evaluate":
                lines.append(f"{where}: got {value!r} for {label!r} alone; allowed: {key}=... for all, measured alike")
    if lines:
        raise RecipeError(lines)


def labels_of(recipes: Sequence[str]) -> dict[str, str]:
    """Label -> recipe; a recipe without a label is labelled by its name."""

    def named(given: str) -> tuple[str, str]:
        file, at, label = given.rpartition("@")
        return (label, file) if at and label and "/" not in label else (Path(given).stem, given)

    return by_label(map(named, recipes))


def split_own(arguments: Sequence[str]) -> tuple[list[str], list[str], dict[str, list[str]]]:
    """Split a command's arguments into recipes, ``key=value`` for all, and ``LABEL:key=value`` for one."""
    recipes: list[str] = []
    shared: list[str] = []
    own: dict[str, list[str]] = {}
    for argument in arguments:
        key, equals, _ = argument.partition("=")
        label, colon, _ = key.partition(":")
        if not equals:
            recipes.append(argument)
        elif colon:
            own.setdefault(label, []).append(argument[len(label) + 1 :])
        else:
            shared.append(argument)
    return recipes, shared, own


def with_budget(recipe: Recipe, tokens: int, *, keep_steps: bool) -> Recipe:
    """The recipe with online stages that end once they have sampled ``tokens`` tokens in total.

    Each stage's share is proportional to its steps. Steps are raised to the most that the budget could last, unless the
    user set them or the learning rate schedule depends on them.
    """
    stages = []
    all_steps, given = sum(stage.steps for stage in recipe.stages), 0
    for place, stage in enumerate(recipe.stages):
        share = tokens - given if place == len(recipe.stages) - 1 else tokens * stage.steps // all_steps
        given += share
        limited = stage.with_budget(max(1, share), keep_steps=keep_steps)
        if limited is None:
            raise RecipeError(
                f"tokens: got {tokens}, but recipe {recipe.label!r} has a stage of kind '{stage.kind}', which samples "
                "nothing; allowed: recipes of online stages, or no --tokens"
            )
        stages.append(limited)
    return recipe.model_copy(update={"stages": tuple(stages)})


def on_equal_terms(recipes: Sequence[Recipe]) -> list[Recipe]:
    """The recipes with the first one's evaluation.

    Raises:
        RecipeError: they differ in tasks, model or seed, which would confound the comparison.
    """
    first = recipes[0]
    lines = []
    for recipe in recipes[1:]:
        for key in ("model", "tasks", "seed"):
            here, there = _plain(getattr(recipe, key)), _plain(getattr(first, key))
            if here != there:
                found = _differing(here, there)
                lines.append(
                    f"{key}: recipe {recipe.label!r} has {found[0]}, {first.label!r} has {found[1]}; "
                    f"allowed: the same, for example {key}=... for all"
                )
    if lines:
        raise RecipeError(lines)
    evaluation = first.evaluate
    if not evaluation.n:
        raise RecipeError("evaluate.n: got 0; allowed: 1 or more, since accuracy is what is compared")
    every = evaluation.every or max(1, min(stage.steps for stage in first.stages) // CURVE)
    if not evaluation.every and any(stage.composition().max_tokens for stage in first.stages):
        every = 10  # the number of steps is not known then
    sampling = evaluation.sampling or first.stages[-1].sampling
    same = evaluation.model_copy(update={"sampling": sampling, "every": every, "engine": first.evaluation_engine})
    return [recipe.model_copy(update={"evaluate": same}) for recipe in recipes]


def refuse_other_runs(recipes: Sequence[Recipe]) -> None:
    """Raise RecipeError if a folder holds a run of another recipe, before the first run begins."""
    lines = []
    for recipe in recipes:
        check_run_folder(recipe)
        folder = folder_of(recipe)
        recover(folder)
        if (folder / "recipe.yaml").is_file():
            began = with_defaults(read_recipe(folder))
            lines += refused_changes(folder, began, recipe.resolved(), may_differ=MAY_DIFFER)
    if lines:
        raise RecipeError(
            [*lines, "name: runs of other recipes are there; allowed: theirs, or name=NAME (--name NAME)"]
        )


def refuse_unmeasured(recipe: Recipe) -> None:
    """Raise NothingGraded if a finished run has no accuracy: the runs after it would have none either."""
    after = read_run_folder(folder_of(recipe)).summary.get("after")
    if after and not after.get("overall"):
        why = [f"{times} x {reason}" for reason, times in (after.get("reasons_ungraded") or {}).items()]
        if unjudged := after.get("unjudged"):
            why.append(f"{unjudged} x a reward that does not say whether the answer is correct")
            why += [after["to_judge"]] if after.get("to_judge") else []
        raise NothingGraded([f"{recipe.name}: none of its held-out completions has a verdict to compare:", *why])


def check_jobs(plan: ComparisonPlan, jobs: int) -> None:
    """
    Raises:
        RecipeError: so many runs at a time cannot be.
    """
    cores = usable_cores()
    if not 1 <= jobs <= cores:
        raise RecipeError(f"jobs: got {jobs} on {cores} cores; allowed: 1 to {cores}")
    if jobs > 1 and (lines := passed_in_here(f"jobs: got {jobs}", "1", *plan.recipes)):
        raise RecipeError(lines[0])


def is_finished(recipe: Recipe) -> bool:
    """Whether this run is finished and its report written."""
    folder = folder_of(recipe)
    whole = all((folder / name).is_file() for name in ("recipe.yaml", "report.html"))
    return whole and read_run_folder(folder).finished


def folder_of(recipe: Recipe) -> Path:
    return Path(recipe.output) / recipe.name


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else value


def _differing(here: Any, there: Any) -> tuple[str, str]:
    """Two values, reduced to the keys in which they differ."""
    if isinstance(here, dict) and isinstance(there, dict):
        keys = [key for key in {**here, **there} if here.get(key) != there.get(key)]
        both = ({key: each.get(key) for key in keys} for each in (here, there))
        here, there = (", ".join(f"{key} {value}" for key, value in each.items()) for each in both)
    return str(here), str(there)

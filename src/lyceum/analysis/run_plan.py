"""What a run is going to do and take, in words: the plan that ``lyceum train`` shows before it begins."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from lyceum.analysis.sizes import Sizes, in_gib
from lyceum.core.component import Component, Settings
from lyceum.core.settings import StageSettings, TasksSettings
from lyceum.models.load import BUILT_IN
from lyceum.recipe.schema import Recipe
from lyceum.reward.base import part_names
from lyceum.utils.atomic_files import size
from lyceum.utils.numbers import counted
from lyceum.utils.threads import in_words, usable_cores

SMALL_MODELS_LR = 5e-5
"""Learning rate from which full training of larger models is likely to diverge (no unit)."""


def plan(recipe: Recipe, *, resume: bool, threads: int, evaluated: int, sizes: Sizes, replaced: str = "") -> list[Any]:
    """Summary of the run that is about to start, in a few lines.

    Args:
        evaluated: number of tasks that are evaluated.
        sizes: what it will take.
        replaced: parts of its own reward that are left out, in a line; empty where none is.
    """
    lines = Table.grid(padding=(0, 2))
    lines.add_column(style="dim")
    lines.add_column(overflow="fold")

    def row(what: str, text: str) -> None:
        lines.add_row(what, Text(text))

    evaluation = recipe.evaluate
    row(
        "recipe", " ".join(part for part in (recipe.title or recipe.name, recipe.paper and f"({recipe.paper})") if part)
    )
    row("model", recipe.model.path + (f", LoRA of rank {recipe.model.lora.rank}" if recipe.model.lora else ""))
    data = [stage.composition().data for stage in recipe.stages]
    on_tasks = any(part is None or not part.given for part in data)
    if on_tasks:
        row("tasks", brief(recipe.tasks))
    for part in data:
        if part is not None and part.given:
            row("data", brief(part))
    if evaluated or (on_tasks and any(stage.grades for stage in recipe.stages)):
        row("reward", " + ".join(part_names(recipe.reward)))
        if replaced:
            row("", replaced)
    for stage in recipe.stages:
        row("stage", stage_line(stage))
    greedy = " and greedily" if evaluation.greedy else ""
    tasks = "held-out task" if evaluated == 1 else "held-out tasks"
    other = brief(recipe.tasks) if evaluation.tasks is None else brief(evaluation.tasks)
    of = tasks if evaluation.tasks is None and on_tasks else f"{tasks} of {other}"
    samples = counted(evaluation.samples, "sample")
    row("evaluation", f"{evaluated} {of}, {samples} each{greedy}" if evaluated else "none")
    if on_tasks and not evaluated and (share := held_out_share(recipe.tasks)):
        row("note", f"{100 * share:g} % of the rows are held out, though nothing is evaluated: tasks.heldout_share=0")
    row("output", f"{Path(recipe.output) / recipe.name}{' (resumed)' if resume else ''}")
    row("threads", in_words(threads))
    row("memory", memory_line(sizes))
    row("disk", disk_line(sizes))
    few = few_note(evaluated, recipe.evaluate.n)
    for note in (*size_notes(sizes), few, scale_note(recipe), *warmup_notes(recipe), *crowded_notes(recipe, threads)):
        if note:
            row("note", note)
    return [lines, ""]


def memory_line(sizes: Sizes) -> str:
    """The peak, its phase, its largest parts, and what there is."""
    parts = sizes.memory[sizes.peak_phase]
    largest = sorted(parts, key=lambda name: -parts[name])[:4]
    told = ", ".join(f"{name} {in_gib(parts[name])}" for name in largest)
    return f"at most {in_gib(sizes.peak)} ({sizes.peak_phase}: {told}); {sizes.of} has {in_gib(sizes.free)}"


def disk_line(sizes: Sizes) -> str:
    """What the run's folder will take, its largest parts, and what is free."""
    largest = sorted(sizes.disk, key=lambda name: -sizes.disk[name])[:3]
    told = ", ".join(f"{name} {size(sizes.disk[name])}" for name in largest)
    return f"{size(sum(sizes.disk.values()))} ({told}); {size(sizes.disk_free)} are free"


def size_notes(sizes: Sizes) -> list[str]:
    """Lines where memory or disk may not do, with the key that would mend it, and of what was not counted."""
    found: list[str] = []
    if not sizes.fits:
        advice = f"; less: {sizes.mend}" if sizes.mend else ""
        found.append(
            f"completions as long as they may be take {in_gib(sizes.peak)} of memory, and {sizes.of} has "
            f"{in_gib(sizes.free)}, so that the system may end the run{advice}"
        )
    if sum(sizes.disk.values()) > sizes.disk_free:
        found.append(
            f"the disk has {size(sizes.disk_free)} free: less with checkpoint_every=0, or output=FOLDER elsewhere"
        )
    if sizes.uncounted:
        found.append(f"memory does not count {', '.join(sizes.uncounted)}")
    return found


def sizes_table(sizes: Sizes) -> Table:
    """Memory by phase and part, and the disk's parts."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(justify="right")
    table.add_column(overflow="fold")
    for phase, parts in sizes.memory.items():
        told = ", ".join(f"{name} {in_gib(count)}" for name, count in parts.items())
        table.add_row(phase, in_gib(sum(parts.values())), told)
    table.add_row("disk", size(sum(sizes.disk.values())), ", ".join(f"{n} {size(c)}" for n, c in sizes.disk.items()))
    return table


FEW = 30
"""Held-out tasks below which a plan says how little an accuracy of them says."""


def few_note(evaluated: int, wanted: int) -> str:
    """How far an accuracy may be from the true one by chance, where there are fewer held-out tasks than asked for and
    few; empty elsewhere.

        1.96 * sqrt(p (1 - p) / n) at p = 1/2: the half width of a 95 % interval over n tasks
    """
    if not 0 < evaluated < min(FEW, wanted):
        return ""
    return (
        f"an accuracy over {counted(evaluated, 'held-out task')} is known to {98 / math.sqrt(evaluated):.0f} points at "
        "best: a larger tasks.heldout_share, such as 0.3, or evaluate.tasks=FILE"
    )


def held_out_share(tasks: TasksSettings) -> float:
    """Share of a file's rows that is kept from training, where neither another file nor a split is."""
    apart = getattr(tasks, "heldout_path", None) or getattr(tasks, "heldout_split", None)
    return 0.0 if apart else getattr(tasks, "heldout_share", 0.0)


def scale_note(recipe: Recipe) -> str:
    """Advice if a recipe tuned on the small model is given another one; empty if none is needed."""
    highest = max(stage.learner.lr for stage in recipe.stages)
    if recipe.model.path in BUILT_IN or recipe.model.lora or highest < SMALL_MODELS_LR:
        return ""
    return (
        f"lr {highest:g} suits the small base model; full training of models of 0.5B parameters and more takes about "
        "1e-6: learner.lr=1e-6 (or model.lora=true and learner.lr=1e-5). Maximum tokens per completion: "
        "rollout.sampling.max_completion_tokens=1024"
    )


def warmup_notes(recipe: Recipe) -> list[str]:
    """A line for each stage that ends before its learning rate has risen to ``lr``."""
    found: list[str] = []
    for number, stage in enumerate(recipe.stages):
        lr, where = stage.learner.lr, f"stages.{number}." if len(recipe.stages) > 1 else ""
        warmup = getattr(stage.learner, "warmup_steps", 0)
        if warmup > stage.steps:
            found.append(
                f"the learning rate rises to {lr * stage.steps / warmup:.2g} and never to {where}learner.lr={lr:g}: "
                f"{where}learner.warmup_steps={warmup} is more than {where}steps={stage.steps}"
            )
    return found


def crowded_notes(recipe: Recipe, threads: int) -> list[str]:
    """A line for each number of workers' threads of which this machine has not the cores."""
    cores, found = usable_cores(), list[str]()
    for stage in recipe.stages:
        runtime = stage.composition().runtime
        if runtime is not None and (beside := runtime.threads_beside(threads)) > cores:
            found.append(f"{beside} threads of workers share {cores} cores: runtime.workers, runtime.threads")
    return [*dict.fromkeys(found)]


def stage_line(stage: StageSettings) -> str:
    of = stage.composition()
    parts = stage.in_words()
    named = stage.kind if stage.name in ("", stage.kind) else f"{stage.name} ({stage.kind})"
    parts[0] = f"{named}: {parts[0]}"
    if of.rollout is not None:
        size = of.rollout.size
        parts[0] += " x ? samples" if size is None or size.number is None else f" x {size.number} {size.setting}"
    if of.data is None or not of.data.given:
        parts.append(f"completions of at most {stage.sampling.max_completion_tokens} tokens")
    if of.max_tokens:
        parts.append(f"ends with {of.max_tokens:,} tokens sampled".replace(",", " "))
    slots = {"guidance": of.guidance, "value": (of.value,), "credit": (of.credit,), "objective": (of.objective,)}
    for name, components in slots.items():
        if kinds := "+".join(component.kind for component in components if component is not None):
            parts.append(f"{name} {kinds}")
    parts.append(f"lr {stage.learner.lr:g}")
    if getattr(of.runtime, "workers", 0):
        parts.append(f"runtime {brief(of.runtime)}")
    return ", ".join(parts)


def brief(component: Any) -> str:
    """A component's kind and its settings that differ from the defaults."""
    plain = {name: of for name, of in _not_default(component).items() if isinstance(of, (str, int, float, tuple))}
    settings = ", ".join(f"{name} {_short(of)}" for name, of in plain.items())
    return f"{component.kind}{f': {settings}' if settings else ''}"


def _not_default(settings: Settings) -> dict[str, Any]:
    return {
        name: getattr(settings, name)
        for name, field in type(settings).model_fields.items()
        if name != "kind" and (field.is_required() or getattr(settings, name) != field.default)
    }


def _short(value: Any) -> str:
    if isinstance(value, Component):
        return brief(value)
    if isinstance(value, Settings):  # such as a mixture's part: its component, then what weight it has
        return " ".join(
            each if isinstance(of, Component) else f"({name} {each})"
            for name, of in _not_default(value).items()
            for each in [_short(of)]
        )
    if isinstance(value, tuple) and value and all(isinstance(each, Settings) for each in value):
        return " + ".join(map(_short, value))
    text = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    text = " ".join(text.split())
    return text if len(text) <= 60 else text[:57] + "..."

"""Models sampled on the same tasks and compared: everything checked first, then one model after another."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lyceum.analysis._labels import by_label
from lyceum.analysis.boundary.result import Boundary, Perplexity, boundary, perplexity
from lyceum.analysis.boundary.samples import ModelSamples, TaskSamples, read_samples
from lyceum.analysis.measure import Measurement
from lyceum.core.solution import ladder_of, levels_of
from lyceum.core.tree import Tree, reasons_ungraded
from lyceum.core.types import Grade, Hint, Scored, Task, verdict_reader
from lyceum.core.waves import Done
from lyceum.evaluation.held_out import EVALUATE, Draws, HeldOut, begun, first_tasks, held_out_wave
from lyceum.guidance.base import leaks
from lyceum.models.load import load_policy
from lyceum.models.packed_paths import path_logprobs
from lyceum.models.policy import Policy
from lyceum.recipe.schema import Overrides
from lyceum.reward.base import allow_code, combine
from lyceum.rollout.flat import Flat
from lyceum.run.files import check_output, input_paths
from lyceum.run.folder import check_name
from lyceum.run.reader import is_run
from lyceum.tasks.rows import written_row
from lyceum.utils.aio import run_async
from lyceum.utils.atomic_files import atomic_lines, atomic_write
from lyceum.utils.documents import DATA, DocumentError, is_json_with, read_json
from lyceum.utils.errors import NothingGraded, RecipeError, RunError, nearest
from lyceum.utils.garbage_collection import only_new
from lyceum.utils.numbers import plain, to_json
from lyceum.utils.paths import local_path
from lyceum.utils.progress import Progress
from lyceum.utils.terminal import quoted

MOST_MODELS = 20
LONGEST_LABEL = 100
AT_ONCE = 8192
"""Samples that are in memory at a time; a task's own are together."""
RIGHT_ANSWERS = 4
"""Correct answers of each task and model whose perplexity is computed."""
PACKED_TOKENS = 4096
"""Unique tokens per forward pass of the base model over them."""
SAMPLES = ".jsonl"
RESULT, PLOT, PAGE = "boundary.json", "boundary.png", "boundary.html"
UNSOLVED_IN = "unsolved_samples"
"""Column of the rows of unsolved tasks: the samples that none solved."""


@dataclass(frozen=True)
class PlannedModel:
    """A model to sample (``measurement``), or samples that are there already (``done``).

    Attributes:
        draw: how often the same model stands before it: its samples are others each time.
    """

    label: str
    measurement: Measurement | None
    done: ModelSamples | None
    request: Mapping[str, Any]
    draw: int


@dataclass(frozen=True)
class BoundaryPlan:
    """A comparison of models that can be run: made by :meth:`of`, which refuses what cannot work before any is loaded.

    Attributes:
        models: the first is the base.
        lead: whose tasks, reward and sampling are all models'; None where every model's samples were given.
        tiers: hints under which the models are sampled too.
        folder: where samples, metrics, plot and page are written.
        unsolved: file for the tasks that the base does not solve.
    """

    models: list[PlannedModel]
    lead: Measurement | None
    tiers: tuple[str, ...]
    folder: Path | None
    unsolved: Path | None

    @classmethod
    def of(
        cls,
        models: Sequence[Any],
        tasks: Any,
        overrides: Overrides,
        *,
        samples: int,
        n: int,
        hints: str | None,
        seed: int,
        workers: int,
        output: Path | str | None,
        unsolved: Path | str | None,
    ) -> BoundaryPlan:
        if not 1 <= len(models) <= MOST_MODELS:
            raise RecipeError(f"models: got {len(models)}; allowed: 1 to {MOST_MODELS}, the base first")
        labelled = labels_of([str(model) for model in models])
        files = {label: local_path(path) for label, path in labelled.items() if path.endswith(SAMPLES)}
        recorded = {label: read_samples("models", file, label) for label, file in files.items()}
        sampled = {label: path for label, path in labelled.items() if label not in files}
        given = {"tasks": tasks, "hints": hints, "unsolved": unsolved, "a key": overrides[0] if overrides else None}
        if not sampled and (told := [name for name, value in given.items() if value is not None]):
            raise RecipeError(
                f"models: got files of samples alone, which {told[0]} does not apply to; allowed: together with a model"
            )
        lead, measurements = None, dict[str, Measurement]()
        if sampled:
            first = next((label for label, path in sampled.items() if _is_run(path)), next(iter(sampled)))
            lead = Measurement.of(
                sampled[first],
                tasks,
                overrides,
                k=(1,),
                n=n,
                samples=samples,
                greedy=False,
                seed=seed,
                workers=workers,
                command="boundary",
            )
            measurements = {
                label: lead if label == first else lead.with_model(path, overrides) for label, path in sampled.items()
            }
        chosen = [] if lead is None else first_tasks(lead.source, n)
        tiers = () if lead is None or hints is None else tiers_of(chosen, hints)
        for label, each in recorded.items():
            if chosen and not {task.id for task in chosen if task.id in each.by_task(None)}:
                raise RecipeError(
                    f"models: {str(files[label])!r} has samples of none of the {len(chosen)} tasks (the first: "
                    f"{quoted(chosen[0].id)}); allowed: samples of the same tasks"
                )
        inputs: dict[str, str | Path] = {f"models ({label})": file for label, file in files.items()}
        for label, measurement in measurements.items():
            inputs |= {f"{label}: {key}": path for key, path in input_paths(measurement.recipe).items()}
        rows = None if unsolved is None else _check_unsolved(unsolved, inputs)
        draws = {label: [*sampled.values()][:at].count(path) for at, (label, path) in enumerate(sampled.items())}
        requests = {label: _request(measurement, tiers, draws[label]) for label, measurement in measurements.items()}
        _check_same_tasks({**{label: each.request for label, each in recorded.items() if each.request}, **requests})
        folder = None if output is None else check_output("output", local_path(str(output)), folder=True, inputs=inputs)
        if folder is not None and rows in [folder / f"{label}{SAMPLES}" for label in labelled]:
            raise RecipeError(
                f"unsolved: got {str(unsolved)!r}, which the samples are written to; allowed: another file"
            )
        kept = {} if folder is None else _kept(folder, requests, rows)
        planned = [
            PlannedModel(
                label,
                measurements.get(label),
                recorded.get(label) or kept.get(label),
                requests.get(label, {}),
                draws.get(label, 0),
            )
            for label in labelled
        ]
        return cls(planned, lead, tiers, folder, rows)

    def run(self) -> Boundary:
        """Sample what is missing, compare, write.

        Raises:
            NothingGraded: a model's samples have no verdict.
            RunError: a model cannot be used after another one's samples were written, which are kept.
        """
        try:
            result = self._compared()
        except RecipeError as error:
            if self.folder is not None and any(self._file(planned).exists() for planned in self._missing):
                raise RunError(error.lines) from error
            raise
        self._write(result)
        return result

    @property
    def _missing(self) -> list[PlannedModel]:
        return [planned for planned in self.models if planned.done is None]

    def _file(self, planned: PlannedModel) -> Path:
        assert self.folder is not None
        return self.folder / f"{planned.label}{SAMPLES}"

    def _compared(self) -> Boundary:
        missing = self._missing
        count = 0 if self.lead is None else min(self.lead.recipe.evaluate.n, len(self.lead.source))
        found = {planned.label: planned.done for planned in self.models if planned.done is not None}
        base = self.models[0]
        with Progress(len(missing) * count * (1 + len(self.tiers)), title="sampling", unit="task") as progress:
            done = 0

            def finished() -> None:
                nonlocal done
                done += 1
                progress.step(done)

            for planned in missing:
                if planned is not base:
                    found[planned.label] = self._sampled(planned, self._loaded(planned), finished)
            # The base last: it also reads the others' answers.
            policy = None
            if base.measurement is not None and (base.done is None or any(map(_right, found.values()))):
                policy = self._loaded(base)
                if base.done is None:
                    found[base.label] = self._sampled(base, policy, finished)
            progress.total = done  # tasks without hints of a tier were not sampled under it
            ordered = [found[planned.label] for planned in self.models]
            result = boundary(ordered)
            if policy is not None:
                progress.phase("perplexity")
                result = replace(result, perplexity={each.label: _under(policy, each) for each in ordered})
        if self.lead is not None:
            result = replace(result, settings={**self.lead.request, "hints": list(self.tiers)})
        return result

    def _loaded(self, planned: PlannedModel) -> Policy:
        assert planned.measurement is not None
        return load_policy(planned.measurement.recipe.model)

    def _sampled(self, planned: PlannedModel, policy: Policy, done: Done) -> ModelSamples:
        """Samples of one model, written to the folder where there is one."""
        measurement = planned.measurement
        assert measurement is not None
        settings = measurement.recipe.evaluate
        with allow_code():
            grader = combine(measurement.recipe.reward, measurement.source)
        engine, rollout = measurement.recipe.evaluation_engine.build(policy), measurement.recipe.evaluation_rollout
        draws = Draws(rollout, measurement.sampling, settings.samples)
        here = HeldOut(policy, engine, grader, draws, seed=measurement.recipe.seed)
        tasks = first_tasks(measurement.source, settings.n)
        drawn: list[_Sampled] = []
        reasons: dict[str, int] = {}

        async def draw() -> None:
            with begun(measurement.recipe)(here) as runtime:
                for tier in (None, *self.tiers):
                    asked = tasks if tier is None else [*_hinted(measurement, policy, tasks, tier)]
                    key = EVALUATE if tier is None else f"hints/{tier}"
                    key += f"/{planned.draw}" if planned.draw else ""
                    for block in _blocks(asked, settings.samples):
                        trees = (await runtime.grow(held_out_wave(block, key), done)).trees
                        drawn.extend(_Sampled.of(tree, tier, paths=isinstance(rollout, Flat)) for tree in trees)
                        reasons.update(reasons_ungraded(trees))

        with only_new():
            run_async(draw())
        verdict = verdict_reader(grade for each in drawn for grade in each.grades)
        sampled = [each.read(verdict) for each in drawn]
        if not any(task.graded for task in sampled):
            why = [*reasons][:8] or ["rewards without a verdict; allowed: with reward.correct_at=VALUE"]
            raise NothingGraded([f"{planned.label}: none of its samples has a verdict:", *why])
        request = {**planned.request, "vocabulary": _vocabulary(policy)}
        found = ModelSamples(planned.label, sampled, plain(request, other=str))
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            found.write(self._file(planned))
        return found

    def _write(self, result: Boundary) -> None:
        if self.folder is not None:
            from lyceum.analysis.boundary import show as boundary_show

            self.folder.mkdir(parents=True, exist_ok=True)
            atomic_write(self.folder / RESULT, to_json(result.to_json(), indent=2) + "\n")
            plot = boundary_show.plot(result, self.folder / PLOT)
            atomic_write(self.folder / PAGE, boundary_show.page(result, plot.read_bytes()))
        if self.unsolved is not None and self.lead is not None:
            unsolved, source = set(result.unsolved), self.lead.source
            told = {"unsolved_by": result.labels[0], UNSOLVED_IN: result.samples}
            with atomic_lines(self.unsolved) as write:
                for index, task in enumerate(first_tasks(source, self.lead.recipe.evaluate.n)):
                    if task.id in unsolved:
                        write(to_json({**written_row(source, index), **told}, other=str))


def labels_of(models: Sequence[str]) -> dict[str, str]:
    """Label -> model. ``MODEL@LABEL`` gives a label; otherwise it is the last part of the path."""

    def named(given: str) -> tuple[str, str]:
        path, at, label = given.rpartition("@")
        if not at or not path or "/" in label:
            path, label = given, Path(given).absolute().name.removesuffix(SAMPLES)
        check_name("label", label)
        if len(label) > LONGEST_LABEL:
            raise RecipeError(f"label: got {quoted(label)}; allowed: {LONGEST_LABEL} characters or fewer")
        return label, path

    return by_label(map(named, models))


def tiers_of(tasks: Sequence[Task], asked: str) -> tuple[str, ...]:
    """The tiers of hints to sample under: ``all`` that the tasks have, or those named with commas between them.

    Raises:
        RecipeError: no task has hints, or none of a tier, or a hint says the answer.
    """
    there = dict.fromkeys(hint.tier for task in tasks for hint in ladder_of(task))
    if not there:
        raise RecipeError(
            f"hints: got {quoted(asked)}, but none of the tasks has hints; allowed: tasks with a column 'hints' "
            "(tasks.columns.hints of a dataset; `lyceum hints` writes them)"
        )
    named = [name.strip() for name in asked.split(",")] if asked.strip() != "all" else [*there]
    for name in named:
        if name not in there:
            raise RecipeError(f"hints: got {quoted(name)}{nearest(name, there)}; allowed: all, {', '.join(there)}")
    for task in tasks:
        for tier in named:
            hint = whole_hint(task, tier)
            if hint is not None and leaks(task, hint.text):
                raise RecipeError(
                    f"hints: task {task.id!r} has a hint of tier {tier!r} that says the answer; allowed: others"
                )
    return tuple(dict.fromkeys(named))


def whole_hint(task: Task, tier: str) -> Hint | None:
    """All hints of a tier together; None where the task has none of it."""
    levels = levels_of(ladder_of(task), [tier])
    return levels[-1] if levels else None


def _hinted(measurement: Measurement, policy: Policy, tasks: Sequence[Task], tier: str) -> Iterator[Task]:
    """The tasks with the hints of a tier in their prompts, but for those that the model's context has no room for."""
    for task in tasks:
        hint = whole_hint(task, tier)
        if hint is not None:
            hinted = measurement.source.hinted(task, hint)
            if len(policy.render(hinted.messages)) < policy.context_length:
                yield hinted


def _blocks(tasks: Sequence[Task], samples: int) -> Iterator[Sequence[Task]]:
    size = max(1, AT_ONCE // samples)
    for start in range(0, len(tasks), size):
        yield tasks[start : start + size]


@dataclass(frozen=True)
class _Sampled:
    """One task's samples as they were graded: which are correct is known once all of the model's are.

    Attributes:
        grades: what each says of correctness alone; None where it is ungraded.
        paths: tokens of those that may be correct, by number.
    """

    task: str
    level: str | None
    tier: str | None
    grades: tuple[Grade | None, ...]
    paths: Mapping[int, Scored]

    @classmethod
    def of(cls, tree: Tree, tier: str | None, *, paths: bool) -> _Sampled:
        leaves, level = tree.trajectories, tree.task.columns.get("level")
        graded = [None if leaf.grade is None or leaf.grade.outcome is None else leaf.grade for leaf in leaves]
        grades = tuple(each and Grade(0.0, each.correct, plain=each.numbers) for each in graded)
        kept: dict[int, Scored] = {}
        certain = 0
        for number, (leaf, grade) in enumerate(zip(leaves, grades, strict=True)):
            if not paths or tier is not None or certain == RIGHT_ANSWERS:
                break
            said = _said(grade)
            if any(said) and leaf.completion_tokens:
                tokens = leaf.path_tokens()
                kept[number] = Scored(tokens, len(tokens) - len(leaf.completion_tokens), len(tokens))
                certain += all(said)
        return cls(tree.task.id, None if level is None else str(level), tier, grades, kept)

    def read(self, verdict: Callable[[Grade | None], bool | None]) -> TaskSamples:
        correct = tuple(map(verdict, self.grades))
        right = [path for number, path in self.paths.items() if correct[number]]
        return TaskSamples(self.task, self.level, self.tier, correct, tuple(right[:RIGHT_ANSWERS]))


def _said(grade: Grade | None) -> list[bool]:
    """Whether the answer is correct, by each part that may say so."""
    if grade is None:
        return []
    return [grade.correct] if grade.correct is not None else [number == 1.0 for number in grade.numbers.values()]


def _right(samples: ModelSamples) -> bool:
    return any(task.right for task in samples.tasks)


def _under(base: Policy, samples: ModelSamples) -> Perplexity | None:
    """Perplexities under the base of a model's correct answers; None where its tokens are others, or unknown."""
    if samples.request.get("vocabulary") != _vocabulary(base):
        return None
    largest = base.output.weight.shape[0]
    paths = [
        path
        for task in samples.tasks
        for path in task.right
        if path.stop <= base.context_length and max(path.tokens) < largest
    ]
    nats = path_logprobs(base, paths, PACKED_TOKENS)
    return perplexity([math.exp(min(700.0, -sum(each) / len(each))) for each in nats])


def _vocabulary(policy: Policy) -> str:
    """Digest of the tokenizer's tokens: equal where token ids mean the same."""
    return hashlib.sha256(to_json(sorted(policy.tokenizer.get_vocab().items())).encode()).hexdigest()[:16]


def _request(measurement: Measurement, tiers: Sequence[str], draw: int) -> dict[str, Any]:
    """What samples depend on, to tell whether those in a folder are the same."""
    recipe = measurement.recipe
    place = local_path(recipe.model.path)
    files = sorted(place.glob("*.safetensors")) if place.is_dir() else [place] if place.is_file() else []
    return plain(
        {
            **measurement.request,
            "n": recipe.evaluate.n,
            "samples": recipe.evaluate.samples,
            "reward": [part.model_dump(mode="json") for part in recipe.reward],
            "hints": list(tiers),
            "draw": draw,
            "weights": [[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in files],
        },
        other=str,
    )


def _check_same_tasks(requests: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise RecipeError where samples are of different tasks: those of generated tasks have the same names."""
    first, *others = requests or [""]
    for label in others:
        for name in ("tasks_from", "seed"):
            here, there = requests[label].get(name), requests[first].get(name)
            if here != there:
                raise RecipeError(
                    f"models: the samples of {label} are of {name} {quoted(here)}, those of {first} of {quoted(there)}"
                    "; allowed: samples of the same tasks"
                )


def _kept(folder: Path, requests: Mapping[str, Mapping[str, Any]], rows: Path | None) -> dict[str, ModelSamples]:
    """Samples in the output folder from the same command.

    Raises:
        RecipeError: it holds samples of other settings, or other files.
    """
    if not folder.is_dir():
        return {}
    found: dict[str, ModelSamples] = {}
    for label, request in requests.items():
        file = folder / f"{label}{SAMPLES}"
        if not file.is_file():
            continue
        there = read_samples("output", file, label)
        before = {name: value for name, value in there.request.items() if name != "vocabulary"}
        if before != request:
            keys = [name for name in {**before, **request} if before.get(name) != request.get(name)]
            raise RecipeError(
                f"output: {file} was sampled with another {', '.join(keys)}; allowed: the same, or another folder"
            )
        found[label] = there
    ours = {f"{label}{SAMPLES}" for label in found} | {RESULT, PLOT, PAGE} | ({rows.name} if rows else set())
    others = sorted(file.name for file in folder.iterdir() if file.name not in ours)
    if others or (
        any(folder.iterdir()) and not found and not is_json_with(folder / RESULT, {"pass_at", "against", "undetected"})
    ):
        raise RecipeError(
            f"output: {str(folder)!r} holds other files{f' ({others[0]})' if others else ''}; allowed: a new or empty "
            "folder, or one that the same command wrote"
        )
    return found


def _check_unsolved(path: Path | str, inputs: Mapping[str, str | Path]) -> Path:
    place = local_path(str(path))
    if place.suffix != SAMPLES:
        raise RecipeError(f"unsolved: got {quoted(str(path))}; allowed: a file named .jsonl")
    check_output("unsolved", place, inputs=inputs)
    if place.is_file() and place.stat().st_size:
        try:
            with place.open("rb") as lines:
                first = read_json(lines.readline(), limits=DATA)
        except (DocumentError, OSError):
            first = None
        if not isinstance(first, dict) or UNSOLVED_IN not in first:
            raise RecipeError(
                f"unsolved: {place} is there and was not written by lyceum boundary; allowed: a new file, or its own"
            )
    return place


def _is_run(path: str) -> bool:
    try:
        return is_run(local_path(path))
    except (OSError, ValueError):  # too long, a NUL: refused as a model
        return False

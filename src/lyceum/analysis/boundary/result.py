"""What training adds to a model: pass@k of both for every k, where the curves cross, which tasks which of them solves.

Every metric is over the tasks of which each model has enough graded samples, so that all are over the same tasks.
Sources: "Does Reinforcement Learning Really Incentivize Reasoning Capacity in LLMs Beyond the Base Model?"
(arXiv:2504.13837: curves, solvable sets, perplexity), MATH-Beyond (arXiv:2510.11653: expansion), SPARKLE
(arXiv:2506.04723: accuracy with help in the prompt).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

from lyceum.analysis.boundary.samples import ModelSamples, TaskSamples
from lyceum.evaluation.intervals import Interval, difference_over_tasks, share_interval, wilson
from lyceum.utils.errors import RecipeError
from lyceum.utils.html import share, table
from lyceum.utils.numbers import level_order

SAME = 1e-9
"""Difference of two mean curves up to which they are equal: rounding."""


@dataclass(frozen=True)
class Crossing:
    """The smallest number of samples from which on the other model is ahead."""

    k: int
    ahead: str


@dataclass(frozen=True)
class SolvedTask:
    """A task, and the number of correct samples of each model: label -> (correct, graded)."""

    task: str
    level: str | None
    correct: Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class Against:
    """A model against the base, on the same tasks.

    Attributes:
        difference: k -> the model's pass@k minus the base's, paired by task.
        crossings: where the order of the two curves changes; empty where one is never behind.
        both, only_base, only_model, neither: tasks that a sample solved.
        expansion: of the tasks that the base did not solve, the share that the model did; None where it solved all.
        shrinkage: of the tasks that the base solved, the share that the model did not; None where it solved none.
    """

    model: str
    difference: dict[str, Interval]
    crossings: list[Crossing]
    both: list[SolvedTask]
    only_base: list[SolvedTask]
    only_model: list[SolvedTask]
    neither: list[SolvedTask]
    expansion: Interval | None
    shrinkage: Interval | None


@dataclass(frozen=True)
class Perplexity:
    """Perplexity under the base model of a model's correct answers: median and quartiles over ``answers``."""

    answers: int
    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Help:
    """Accuracy with the hints of one tier in the prompt, over the tasks of a level that have some.

    Attributes:
        level: None for all levels together.
        accuracy: label -> with the hints.
        gain: label -> accuracy with the hints minus without, paired by task.
        difference: label -> gain minus the base's, paired by task; without the base itself.
    """

    tier: str
    level: str | None
    tasks: int
    accuracy: dict[str, Interval]
    gain: dict[str, Interval]
    difference: dict[str, Interval]


@dataclass(frozen=True)
class Boundary:
    """The first label is the base.

    Attributes:
        samples: the k up to which curves go: graded samples that each model has of each of ``tasks``.
        left_out: tasks of which some model has fewer, or none.
        pass_at: label -> k -> pass@k.
        unsolved: tasks that the base does not solve.
        perplexity: label -> of its correct answers under the base; None where they cannot be read by it.
        settings: of the samples, where they were drawn here.
        undetected: the largest probability of a correct sample with which a task stays unsolved in ``samples`` samples
            one time in twenty; a task that no sample solved may be solvable below it.
    """

    labels: list[str]
    samples: int
    tasks: int
    left_out: int
    pass_at: dict[str, dict[str, Interval]]
    against: list[Against]
    undetected: float
    unsolved: list[str] = field(repr=False)
    help: list[Help] = field(default_factory=list)
    perplexity: dict[str, Perplexity | None] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __repr__(self) -> str:
        return f"Boundary(pass@k of {self.tasks} tasks. {' '.join(sentences(self))})"

    def _repr_html_(self) -> str:
        base, rest = self.labels[0], self.against
        rows = [
            (
                k,
                *(share(asdict(self.pass_at[label][k])) for label in self.labels),
                *(share(asdict(each.difference[k])) for each in rest),
            )
            for k in self.pass_at[base]
        ]
        heads = ("k", *self.labels, *(f"{each.model} - {base}" for each in rest))
        return table(heads, rows, title=f"pass@k of {self.tasks} tasks. {' '.join(sentences(self))}")


@dataclass(frozen=True)
class _Curve:
    """pass@k of one model: the mean over tasks for every k, and each task's own at the shown ones."""

    mean: Float[np.ndarray, " k"]
    at: Float[np.ndarray, "task shown"]


def boundary(models: Sequence[ModelSamples]) -> Boundary:
    """Metrics of models sampled on the same tasks; the first is the base.

    Raises:
        RecipeError: they have no graded task in common.
    """
    labels = [model.label for model in models]
    plain = {model.label: model.by_task(None) for model in models}
    everywhere = {task for of_model in plain.values() for task in of_model}
    shared = [task for task in plain[labels[0]] if all(task in of and of[task].graded for of in plain.values())]
    if not shared:
        raise RecipeError(
            f"models: {', '.join(labels)} have no graded task in common; allowed: samples of the same tasks"
        )
    most = min(max(of[task].graded for task in shared) for of in plain.values())
    common = [task for task in shared if all(of[task].graded >= most for of in plain.values())]
    if not common:
        raise RecipeError(
            f"models: {', '.join(labels)} have no task with {most} graded samples in common; allowed: samples of which "
            "nearly all can be graded"
        )
    ks = shown_ks(most)
    curves = {label: _curve([of[task] for task in common], most, ks) for label, of in plain.items()}
    base = plain[labels[0]]
    return Boundary(
        labels=labels,
        samples=most,
        tasks=len(common),
        left_out=len(everywhere) - len(common),
        pass_at={
            label: {str(k): share_interval(curve.at[:, i]) for i, k in enumerate(ks)} for label, curve in curves.items()
        },
        against=[
            _against(
                labels[0],
                label,
                {task: {labels[0]: base[task], label: plain[label][task]} for task in common},
                curves,
                ks,
            )
            for label in labels[1:]
        ],
        undetected=1 - 0.05 ** (1 / most),
        unsolved=[task for task in common if not base[task].solved],
        help=helped(models),
    )


def pass_curve(graded: int, correct: int, most: int) -> Float[np.ndarray, " most"]:
    """pass@k of one task for each k from 1 to ``most``.

        pass@k = 1 - prod_{i=0}^{k-1} (n - c - i) / (n - i)

    Args:
        graded, correct: n and c.
        most: at most n.
    Source:
        Chen et al. 2021, arXiv:2107.03374, equation 1, factor by factor.
    """
    i = np.arange(most)
    return 1.0 - np.cumprod(np.maximum(0, graded - correct - i) / (graded - i))


def _curve(tasks: Sequence[TaskSamples], most: int, ks: Sequence[int]) -> _Curve:
    total, at = np.zeros(most), np.empty((len(tasks), len(ks)))
    for row, task in enumerate(tasks):
        curve = pass_curve(task.graded, task.solved, most)
        total += curve
        at[row] = curve[np.asarray(ks) - 1]
    return _Curve(total / len(tasks), at)


def shown_ks(most: int) -> list[int]:
    """1, 2, 4, ... and ``most``."""
    return sorted({*(1 << i for i in range(most.bit_length())), most})


def crossings(base: Float[np.ndarray, " k"], model: Float[np.ndarray, " k"], labels: tuple[str, str]) -> list[Crossing]:
    """Where the order of two curves changes; equal stretches (both solve everything) are no change.

    Args:
        labels: of the base and the model.
    """
    found: list[Crossing] = []
    ahead: str | None = None
    for k, difference in enumerate(model - base, 1):
        if abs(difference) > SAME:
            now = labels[int(difference > 0)]
            if ahead not in (None, now):
                found.append(Crossing(k, now))
            ahead = now
    return found


def helped(models: Sequence[ModelSamples]) -> list[Help]:
    """Accuracy by tier of hints and by level, over tasks of which every model has samples with and without."""
    tiers = list(dict.fromkeys(task.hint for model in models for task in model.tasks if task.hint is not None))
    plain = [model.by_task(None) for model in models]
    found: list[Help] = []
    for tier in tiers:
        hinted = [model.by_task(tier) for model in models]
        common = [task for task in plain[0] if all(task in of and of[task].graded for of in (*plain, *hinted))]
        levels = sorted({level for task in common if (level := plain[0][task].level) is not None}, key=level_order)
        for level in [*(levels if len(levels) > 1 else ()), None]:
            tasks = [task for task in common if level is None or plain[0][task].level == level]
            if not tasks:
                continue
            accuracy = {
                model.label: np.array([of[task].accuracy for task in tasks])
                for model, of in zip(models, hinted, strict=True)
            }
            gain = {
                model.label: accuracy[model.label] - np.array([of[task].accuracy for task in tasks])
                for model, of in zip(models, plain, strict=True)
            }
            base = gain[models[0].label]
            coin = 1 / min(of[task].graded for of in (*plain, *hinted) for task in tasks)
            found.append(
                Help(
                    tier=tier,
                    level=level,
                    tasks=len(tasks),
                    accuracy={label: share_interval(values) for label, values in accuracy.items()},
                    gain={label: difference_over_tasks(values, coin) for label, values in gain.items()},
                    difference={
                        label: difference_over_tasks(values - base, 2 * coin)
                        for label, values in gain.items()
                        if label != models[0].label
                    },
                )
            )
    return found


def perplexity(values: Sequence[float]) -> Perplexity | None:
    """Summary of the perplexities of single answers; None of none."""
    if not values:
        return None
    low, median, high = np.quantile(values, (0.25, 0.5, 0.75))
    return Perplexity(len(values), float(median), float(low), float(high))


def sentences(found: Boundary) -> list[str]:
    """Per model, who is ahead at one sample and at the most, and where that changes."""
    return [_sentence(found.labels[0], found.samples, against) for against in found.against]


def _against(
    base: str,
    model: str,
    tasks: Mapping[str, Mapping[str, TaskSamples]],
    curves: Mapping[str, _Curve],
    ks: Sequence[int],
) -> Against:
    sets: dict[tuple[bool, bool], list[SolvedTask]] = {(a, b): [] for a in (True, False) for b in (True, False)}
    for task, of in tasks.items():
        correct = {label: (each.solved, each.graded) for label, each in of.items()}
        key = (bool(of[base].solved), bool(of[model].solved))
        sets[key].append(SolvedTask(task, of[base].level, correct))
    both, only_base, only_model, neither = (
        sets[key] for key in ((True, True), (True, False), (False, True), (False, False))
    )
    return Against(
        model=model,
        difference={
            str(k): difference_over_tasks(curves[model].at[:, i] - curves[base].at[:, i], k / ks[-1])
            for i, k in enumerate(ks)
        },
        crossings=crossings(curves[base].mean, curves[model].mean, (base, model)),
        both=both,
        only_base=only_base,
        only_model=only_model,
        neither=neither,
        expansion=_share(len(only_model), len(only_model) + len(neither)),
        shrinkage=_share(len(only_base), len(only_base) + len(both)),
    )


def _share(part: int, whole: int) -> Interval | None:
    return wilson(part / whole, whole) if whole else None


def _sentence(base: str, most: int, against: Against) -> str:
    said = f"{against.model}: at one sample {_ahead(against.difference['1'], base)}"
    if most > 1:
        said += f", at {most} {_ahead(against.difference[str(most)], base)}"
    where = [f"{crossing.ahead} is ahead from {crossing.k} samples on" for crossing in against.crossings]
    return said + (f"; {', then '.join(where)}" if where else "; the curves do not cross") + "."


def _ahead(difference: Interval, base: str) -> str:
    if abs(difference.mean) <= SAME:
        return f"equal to {base}"
    shown = "" if difference.low > 0 or difference.high < 0 else " (not shown: the interval has 0 in it)"
    return f"{100 * abs(difference.mean):.1f} points {'ahead of' if difference.mean > 0 else 'behind'} {base}{shown}"

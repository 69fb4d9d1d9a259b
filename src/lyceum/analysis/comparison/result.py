"""Comparing recipes: from finished run folders to metrics with intervals and a one-sentence verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from lyceum.evaluation.intervals import Interval, difference_of_intervals, mean_over_seeds
from lyceum.run.reader import RunFolder, read_run_folder
from lyceum.utils.atomic_files import atomic_write
from lyceum.utils.errors import RecipeError
from lyceum.utils.html import share, table
from lyceum.utils.numbers import level_order, to_json

PAIRED_SEEDS = "paired seeds"
SEPARATE_SEEDS = "seeds, not paired"
TASKS_ALONE = "one seed: tasks alone"


@dataclass(frozen=True)
class AccuracyDifference:
    """Final held-out accuracy minus the first recipe's, with the basis of its interval.

    ``basis``: PAIRED_SEEDS (Student's t over the differences of ``seeds`` common seeds: for these held-out tasks only),
    SEPARATE_SEEDS (two intervals over different seeds combined), or TASKS_ALONE (one seed: covers the choice of tasks,
    not the variance over seeds).
    """

    interval: Interval
    basis: str
    seeds: int


@dataclass(frozen=True)
class RecipeResult:
    """One recipe's accuracy and cost; costs are means over its seeds.

    Attributes:
        final: held-out accuracy after training, over seeds and tasks.
        gain: final minus initial accuracy, with an interval alike.
        difference: to the first recipe; None for the first recipe itself.
        tokens_ratio: tokens sampled until the mean held-out curve first reaches the first recipe's final accuracy,
        divided by the first recipe's; None if it is never reached.
        by_level: final accuracy by level.
        curve: (tokens sampled, mean, lowest seed, highest seed) of held-out accuracy.
        learnt_nothing: seeds whose run had no learning signal in its rewards.
    """

    recipe: str
    seeds: list[int]
    final: Interval
    gain: Interval | None
    tokens_sampled: float | None
    tokens_trained: float | None
    seconds: float | None
    by_level: dict[str, Interval]
    curve: list[tuple[float, float, float, float]] = field(repr=False)
    difference: AccuracyDifference | None = None
    tokens_ratio: float | None = None
    learnt_nothing: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Comparison:
    """Recipes in the order in which their runs were given; the first is the baseline."""

    recipes: list[RecipeResult]
    sentence: str
    notes: list[str]

    @property
    def learnt_nothing(self) -> bool:
        """Whether no run learnt anything, so that there is nothing to compare."""
        return all(result.learnt_nothing == result.seeds for result in self.recipes)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __repr__(self) -> str:
        return f"Comparison({self.sentence})"

    def _repr_html_(self) -> str:
        rows = [
            (
                result.recipe,
                ", ".join(map(str, result.seeds)),
                share(asdict(result.final)),
                share(result.gain and asdict(result.gain)),
                share(result.difference and asdict(result.difference.interval)),
            )
            for result in self.recipes
        ]
        against = f"against {self.recipes[0].recipe}"
        return table(("recipe", "seeds", "held-out after", "gain", against), rows, title=self.sentence)

    def write(self, folder: Path) -> list[Path]:
        """comparison.json and comparison.png in ``folder``."""
        from lyceum.analysis.comparison.show import plot

        folder.mkdir(parents=True, exist_ok=True)
        atomic_write(folder / "comparison.json", to_json(self.to_json(), indent=2) + "\n")
        return [folder / "comparison.json", plot(self, folder / "comparison.png")]


def compare(folders: Sequence[Path | str]) -> Comparison:
    """Compare finished runs, grouped by recipe and seed as in their summaries.

    Raises:
        RecipeError: no folder, a run that is not finished or lacks a metric, or two runs of one recipe and seed.
    """
    if not folders:
        raise RecipeError("runs: got none; allowed: 1 or more run folders")
    runs = [read_run_folder(folder) for folder in folders]
    grouped: dict[str, dict[int, RunFolder]] = {}
    for run in runs:
        _require_metrics(run)
        of_recipe = grouped.setdefault(str(run.summary["recipe"]), {})
        seed = int(run.summary["seed"])
        if seed in of_recipe:
            twice = f"recipe {run.summary['recipe']!r} with seed {seed} twice ({of_recipe[seed].path}, {run.path})"
            raise RecipeError(f"runs: got {twice}; allowed: one run for each recipe and seed")
        of_recipe[seed] = run
    results = [_result_of(recipe, list(of_recipe.values())) for recipe, of_recipe in grouped.items()]
    first, first_runs = results[0], next(iter(grouped.values()))
    target = first.curve[-1][1] if first.curve else None
    needed = _tokens_to(first.curve, target)
    for i in range(1, len(results)):
        reached = _tokens_to(results[i].curve, target)
        results[i] = replace(
            results[i],
            difference=_difference(first_runs, grouped[results[i].recipe]),
            tokens_ratio=reached / needed if reached is not None and needed else None,
        )
    if needed:
        results[0] = replace(first, tokens_ratio=1.0)
    return Comparison(results, winner_sentence(results), _notes(runs))


def winner_sentence(recipes: Sequence[RecipeResult]) -> str:
    """Who wins, at what cost, and whether the runs show it: one sentence."""
    first = recipes[0]
    if len(recipes) == 1:
        return (
            f"Only {first.recipe} was run ({_percent(first.final.mean)} held-out): there is nothing to compare it with."
        )
    best = max(recipes, key=lambda result: result.final.mean)
    # If the first recipe itself is best, compare it with the runner-up.
    other = best if best is not first else max(recipes[1:], key=lambda result: result.final.mean)
    assert other.difference is not None
    difference = other.difference
    found = difference.interval if other is best else _negative(difference.interval)
    loser = first if other is best else other
    reached = f"{best.recipe} reaches {_percent(best.final.mean)} held-out"
    rests = {PAIRED_SEEDS: f"{difference.seeds} paired seeds on these tasks", SEPARATE_SEEDS: "seeds not paired"}.get(
        difference.basis, "one seed each, which leaves out the luck of the seed"
    )
    interval = f"95 % interval {100 * found.low:+.1f} to {100 * found.high:+.1f}, {rests}"
    cost = _cost(best, loser)
    theirs = _percent(loser.final.mean)
    picked = (
        "" if len(recipes) == 2 else f"; best of {len(recipes)} after the fact, which the interval does not correct"
    )
    if found.low > 0:
        return (
            f"{reached}, {100 * found.mean:.1f} points more than {loser.recipe}'s {theirs} ({interval}{picked}){cost}."
        )
    if found.low == found.high == 0 and difference.basis == PAIRED_SEEDS:
        equal = f"they end equal on each of {difference.seeds} paired seeds"
        return f"No winner is shown: {reached} and {loser.recipe} {theirs}, and {equal}{picked}{cost}."
    # The means are over all seeds, the difference over common ones: their signs may disagree.
    doubt = "points the other way over their common seeds" if found.high < 0 else "includes 0"
    return (
        f"No winner is shown: {reached} and {loser.recipe} {theirs}, but the interval of the difference {doubt} "
        f"({100 * found.mean:+.1f} points, {interval}{picked}){cost}."
    )


def _cost(best: RecipeResult, loser: RecipeResult) -> str:
    if not best.tokens_sampled or not loser.tokens_sampled:
        return ""
    times = f"{best.tokens_sampled / loser.tokens_sampled:.2f} times the sampled tokens"
    if best.seconds and loser.seconds:
        times += f" and {best.seconds / loser.seconds:.2f} times the seconds of {loser.recipe}"
    else:
        times += f" of {loser.recipe}"
    return f", at {times}"


def _require_metrics(run: RunFolder) -> None:
    if not run.finished:
        raise RecipeError(f"{run.path}: the run is not finished; allowed: runs whose summary.json says finished: true")
    missing = [key for key in ("recipe", "seed", "after") if run.summary.get(key) is None]
    if missing or not run.summary["after"].get("overall"):
        raise RecipeError(f"{run.path}/summary.json: lacks {', '.join(missing) or 'after.overall'}")


def _result_of(recipe: str, runs: Sequence[RunFolder]) -> RecipeResult:
    before = [run.summary["before"]["overall"] for run in runs if (run.summary.get("before") or {}).get("overall")]
    after = [Interval.from_json(run.summary["after"]["overall"]) for run in runs]
    gain = None
    if len(before) == len(runs):
        start = [Interval.from_json(interval) for interval in before]
        each = [difference_of_intervals(b, a) for b, a in zip(start, after, strict=True)]
        gain = _over_seeds(each, floor=-1.0)
    levels: dict[str, list[Interval]] = {}
    for run in runs:
        for level, interval in (run.summary["after"].get("by_level") or {}).items():
            levels.setdefault(level, []).append(Interval.from_json(interval))
    return RecipeResult(
        recipe=recipe,
        seeds=[int(run.summary["seed"]) for run in runs],
        final=_over_seeds(after),
        gain=gain,
        tokens_sampled=_mean([run.summary.get("tokens_sampled") for run in runs]),
        tokens_trained=_mean([run.summary.get("tokens_trained") for run in runs]),
        seconds=_mean([run.seconds for run in runs]),
        by_level={level: _over_seeds(levels[level]) for level in sorted(levels, key=level_order)},
        curve=_mean_curve([_heldout_curve(run) for run in runs]),
        learnt_nothing=[int(run.summary["seed"]) for run in runs if run.summary.get("learnt") is False],
    )


def _over_seeds(of_run: Sequence[Interval], *, floor: float = 0.0) -> Interval:
    """Mean of one metric over runs, at most 1 and at least ``floor``.

    Agreement among seeds says nothing about other tasks: each side of the interval is the longer of Student's t over
    seeds and the mean of the runs' own over tasks (runs share their tasks, so it does not shrink with their number).
    """
    if len(of_run) == 1:
        return of_run[0]
    found = mean_over_seeds([interval.mean for interval in of_run])
    low = min(found.low, found.mean - float(np.mean([interval.mean - interval.low for interval in of_run])))
    high = max(found.high, found.mean + float(np.mean([interval.high - interval.mean for interval in of_run])))
    return Interval(found.mean, max(floor, low), min(1.0, high))


def _difference(first: Mapping[int, RunFolder], second: Mapping[int, RunFolder]) -> AccuracyDifference:
    common = sorted(first.keys() & second.keys())

    def finals(runs: Mapping[int, RunFolder], seeds: Sequence[int]) -> list[Interval]:
        return [Interval.from_json(runs[seed].summary["after"]["overall"]) for seed in seeds]

    if len(common) > 1:
        pairs = zip(finals(first, common), finals(second, common), strict=True)
        return AccuracyDifference(mean_over_seeds([b.mean - a.mean for a, b in pairs]), PAIRED_SEEDS, len(common))
    # One common seed is not enough for pairing: use all seeds.
    seeds = min(len(first), len(second))
    interval = difference_of_intervals(_over_seeds(finals(first, [*first])), _over_seeds(finals(second, [*second])))
    return AccuracyDifference(interval, SEPARATE_SEEDS if seeds > 1 else TASKS_ALONE, seeds)


def _heldout_curve(run: RunFolder) -> list[tuple[float, float]]:
    """Held-out accuracy against tokens sampled, from before the run to after it, if known."""
    curve = run.curve("heldout/overall")
    after, sampled = run.summary["after"]["overall"], run.summary.get("tokens_sampled")
    # The last step is not evaluated during training: the evaluation after the run is its point.
    if sampled is not None and (not curve or curve[-1][0] < sampled):
        curve = [*curve, (float(sampled), float(after["mean"]))]
    before = (run.summary.get("before") or {}).get("overall")
    if before and (not curve or curve[0][0] > 0):
        curve = [(0.0, float(before["mean"])), *curve]
    return curve


def _mean_curve(curves: Sequence[Sequence[tuple[float, float]]]) -> list[tuple[float, float, float, float]]:
    """Mean and range over seeds, at the first seed's token counts, up to where all seeds have data."""
    if not all(curves):
        return []
    end = min(curve[-1][0] for curve in curves)
    start = max(curve[0][0] for curve in curves)
    inside = [tokens for tokens, _ in curves[0] if start < tokens < end]
    at = np.array([start, *inside, *([end] if end > start else [])])
    lines = np.stack([np.interp(at, *np.array(curve).T) for curve in curves])
    columns = (at, lines.mean(0), lines.min(0), lines.max(0))
    return [(float(t), float(m), float(lo), float(hi)) for t, m, lo, hi in zip(*columns, strict=True)]


def _tokens_to(curve: Sequence[tuple[float, float, float, float]], target: float | None) -> float | None:
    """Tokens at which the mean curve first reaches the target, linear between evaluations; None if never."""
    if target is None:
        return None
    for i, (tokens, mean, _, _) in enumerate(curve):
        if mean >= target:
            if i == 0:
                return tokens
            tokens_before, mean_before = curve[i - 1][:2]
            return tokens_before + (tokens - tokens_before) * (target - mean_before) / (mean - mean_before)
    return None


def _notes(runs: Sequence[RunFolder]) -> list[str]:
    notes = []
    for key, what in (("tasks", "held-out tasks"), ("samples", "samples per task")):
        found = sorted({run.summary["after"].get(key) for run in runs} - {None})
        if len(found) > 1:
            notes.append(f"The runs were evaluated with different numbers of {what} ({', '.join(map(str, found))}).")
    ungraded = sum(int(run.summary["after"].get("ungraded") or 0) for run in runs)
    if ungraded:
        notes.append(f"{ungraded} held-out samples could not be graded and are left out of the results.")
    idle = [run for run in runs if run.summary.get("learnt") is False]
    notes += [f"{run.path.name}: {run.summary['nothing_learnt'][0]}" for run in idle]
    return notes + [f"{run.path.name}: {note}" for run in runs for note in run.notes]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if len(known) == len(values) else None


def _negative(interval: Interval) -> Interval:
    # Subtracted from 0 and not negated: 0 would be shown as -0.0.
    return Interval(0.0 - interval.mean, 0.0 - interval.high, 0.0 - interval.low)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"

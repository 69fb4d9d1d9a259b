"""A run's curves as a figure, which a notebook shows and ``savefig`` writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from lyceum.analysis.plots import PALETTE
from lyceum.recipe.other_names import metric_elsewhere
from lyceum.run.reader import RunFolder
from lyceum.utils.errors import RecipeError, nearest

HELDOUT = "heldout/overall"
SHOWN = (HELDOUT, "reward/mean", "completion_tokens/mean")
"""Metrics that are shown where none are named, of those that the run has."""


class RunFigure(Figure):
    """A figure that a notebook shows without pyplot or a magic command."""

    def _repr_png_(self) -> bytes:
        content = BytesIO()
        self.savefig(content, format="png")
        return content.getvalue()


def run_figure(run: RunFolder, metrics: Sequence[str] = ()) -> RunFigure:
    """One panel per metric, against steps; held-out accuracy with the evaluations before and after, and their 95 %
    intervals.

    Raises:
        RecipeError: no such metric, or the run has no line yet.
    """
    if not run.metrics:
        raise RecipeError(f"{run.path}: has no metrics yet; allowed: a run of one step or more")
    known = sorted({key for line in run.metrics for key, value in line.items() if _is_number(value)} - {"step"})
    measured = _measured(run)
    having = [*known, *([HELDOUT] if measured and HELDOUT not in known else [])]
    if unknown := [name for name in metrics if name not in having]:
        near = metric_elsewhere(unknown[0]) or nearest(unknown[0], having)
        said = f"{near}; allowed: {', '.join(having)}"
        raise RecipeError(f"metrics: the run has no number {unknown[0]!r}{said}")
    names = metrics or [name for name in SHOWN if name in having] or [name for name in ("loss",) if name in having]
    figure = RunFigure(figsize=(4.2 * max(1, len(names)), 3.2), dpi=100, layout="constrained")
    for place, name in enumerate(names):
        axes = figure.add_subplot(1, len(names), place + 1)
        axes.set_title(name, fontsize=10, parse_math=False)
        axes.set_xlabel("step")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#dddddd", linewidth=0.7)
        points = {line["step"]: line[name] for line in run.metrics if _is_number(line.get(name))}
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if name == HELDOUT and measured:
            points |= {step: of["mean"] for step, of in measured.items()}
            errors = [[abs(of["mean"] - of[end]) for of in measured.values()] for end in ("low", "high")]
            axes.errorbar(list(measured), [of["mean"] for of in measured.values()], errors, fmt="o", color=PALETTE[0])
        steps = sorted(points)
        axes.plot(steps, [points[step] for step in steps], color=PALETTE[0], marker="." if len(steps) < 30 else "")
    return figure


def _measured(run: RunFolder) -> dict[int, Mapping[str, float]]:
    """Held-out accuracy and its interval by step: before training at step 0, during it, and after it at the last."""
    found: dict[int, Mapping[str, float] | None] = {
        line["step"]: {"mean": line[HELDOUT], "low": line["heldout/low"], "high": line["heldout/high"]}
        for line in run.metrics
        if all(_is_number(line.get(name)) for name in (HELDOUT, "heldout/low", "heldout/high"))
    }
    for step, when in ((0, "before"), (run.metrics[-1]["step"], "after")):
        found[step] = (run.summary.get(when) or {}).get("overall") or found.get(step)
    return {step: of for step, of in sorted(found.items()) if of}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)

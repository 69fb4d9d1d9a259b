"""A comparison as tables for the terminal, and a plot of held-out accuracy against tokens sampled."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from lyceum.analysis.comparison.result import Comparison, RecipeResult
from lyceum.analysis.plots import accuracy_figure, count, label_ends, line_style
from lyceum.evaluation.intervals import Interval
from lyceum.utils.numbers import level_order

MOST_COLUMNS = 4
"""Maximum recipes side by side with their intervals, to fit 80 columns."""


def table(comparison: Comparison) -> Table:
    """Each recipe's accuracy in % and differences in points, with 95 % intervals."""
    first = comparison.recipes[0].recipe
    found = Table(title=None, caption=comparison.sentence, caption_justify="left", caption_style="")
    for name in ("recipe", "seeds"):
        found.add_column(name)
    for name in ("final held-out, %", "gain over before", f"against {first}"):
        found.add_column(name, justify="right")
    for result in comparison.recipes:
        found.add_row(
            named(result),
            ", ".join(map(str, result.seeds)),
            _share(result.final),
            _points(result.gain),
            _points(result.difference.interval) if result.difference else "",
        )
    return found


def named(result: RecipeResult) -> str:
    """The recipe's name, and below it the seeds that learnt nothing."""
    if not result.learnt_nothing:
        return result.recipe
    some = "" if result.learnt_nothing == result.seeds else f" by {', '.join(map(str, result.learnt_nothing))}"
    return f"{result.recipe}\n(nothing learnt{some})"


def cost_table(comparison: Comparison) -> Table:
    """Each recipe's cost: means over seeds, and the tokens to reach the first recipe's final accuracy, relative to
    it."""
    found = Table()
    found.add_column("recipe")
    for name in ("tokens sampled", "trained", "seconds", f"tokens to {comparison.recipes[0].recipe}'s final"):
        found.add_column(name, justify="right")
    for result in comparison.recipes:
        ratio = "not reached" if result.tokens_ratio is None else f"x {result.tokens_ratio:.2f}"
        found.add_row(
            result.recipe,
            count(result.tokens_sampled),
            count(result.tokens_trained),
            "-" if result.seconds is None else f"{result.seconds:,.0f}",
            ratio if result.curve else "-",
        )
    return found


def levels_table(comparison: Comparison) -> Table:
    """Final held-out accuracy by level, in %: one column per recipe, or one row per recipe if there are many."""
    levels = sorted({level for result in comparison.recipes for level in result.by_level}, key=level_order)
    if len(comparison.recipes) > MOST_COLUMNS:
        return _levels_in_columns(comparison, levels)
    found = Table()
    found.add_column("level")
    for result in comparison.recipes:
        found.add_column(f"{result.recipe}, %", justify="right")
    for level in levels:
        cells = (result.by_level.get(level) for result in comparison.recipes)
        found.add_row(level, *("-" if cell is None else _share(cell) for cell in cells))
    return found


def _levels_in_columns(comparison: Comparison, levels: Sequence[str]) -> Table:
    found = Table(caption="final held-out accuracy by level, %; intervals: comparison.json", caption_justify="left")
    found.add_column("recipe")
    for level in levels:
        found.add_column(level, justify="right", no_wrap=True)
    for result in comparison.recipes:
        cells = (result.by_level.get(level) for level in levels)
        found.add_row(result.recipe, *("-" if cell is None else f"{100 * cell.mean:.1f}" for cell in cells))
    return found


def plot(comparison: Comparison, path: Path) -> Path:
    """Held-out accuracy against tokens sampled, one line per recipe, with the range over seeds as a band; written to
    ``path``."""
    figure, axes = accuracy_figure("tokens sampled", "held-out accuracy")
    ends: list[tuple[float, float, str, str]] = []
    for i, result in enumerate(comparison.recipes):
        if not result.curve:
            continue
        colour, dash = line_style(i)
        tokens, mean, low, high = zip(*result.curve, strict=True)
        if len(result.seeds) > 1:
            axes.fill_between(tokens, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.plot(tokens, mean, dash, color=colour, linewidth=2, marker="o", markersize=3.5)
        ends.append((tokens[-1], mean[-1], result.recipe, colour))
    axes.set_xlim(left=0)
    label_ends(axes, ends)
    most = max(len(result.seeds) for result in comparison.recipes)
    axes.set_title(
        "Held-out accuracy against tokens sampled" + ("; band: lowest to highest seed" if most > 1 else ""),
        loc="left",
        fontsize=10,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    return path


def _share(interval: Interval) -> str:
    return f"{100 * interval.mean:.1f} [{100 * interval.low:.1f}, {100 * interval.high:.1f}]"


def _points(interval: Interval | None) -> str:
    if interval is None:
        return "-"
    return f"{100 * interval.mean:+.1f} [{100 * interval.low:+.1f}, {100 * interval.high:+.1f}]"

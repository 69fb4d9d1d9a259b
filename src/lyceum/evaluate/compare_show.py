"""A comparison for the eye: rich tables for the terminal, a plot of held-out accuracy against tokens sampled."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from lyceum.evaluate.compare import Comparison, RecipeFigures
from lyceum.evaluate.intervals import Interval
from lyceum.evaluate.plots import accuracy_figure, count, label_ends, line_style
from lyceum.utils.levels import level_order

MOST_COLUMNS = 4
"""Recipes beside each other with their intervals: what 80 columns hold."""


def table(comparison: Comparison) -> Table:
    """What each recipe reached. Shares in %, differences in points, each with its 95 % interval."""
    first = comparison.recipes[0].recipe
    found = Table(title=None, caption=comparison.sentence, caption_justify="left", caption_style="")
    for name in ("recipe", "seeds"):
        found.add_column(name)
    for name in ("final held-out, %", "gain over before", f"against {first}"):
        found.add_column(name, justify="right")
    for figures in comparison.recipes:
        found.add_row(
            named(figures),
            ", ".join(map(str, figures.seeds)),
            _share(figures.final),
            _points(figures.gain),
            _points(figures.difference.interval) if figures.difference else "",
        )
    return found


def named(figures: RecipeFigures) -> str:
    """The recipe, and below it which of its seeds learnt nothing."""
    if not figures.learnt_nothing:
        return figures.recipe
    some = "" if figures.learnt_nothing == figures.seeds else f" by {', '.join(map(str, figures.learnt_nothing))}"
    return f"{figures.recipe}\n(nothing learnt{some})"


def cost_table(comparison: Comparison) -> Table:
    """What that cost: means over seeds, and the tokens to where the first recipe ended as a share of its own."""
    found = Table()
    found.add_column("recipe")
    for name in ("tokens sampled", "trained", "seconds", f"tokens to {comparison.recipes[0].recipe}'s final"):
        found.add_column(name, justify="right")
    for figures in comparison.recipes:
        ratio = "not reached" if figures.tokens_ratio is None else f"x {figures.tokens_ratio:.2f}"
        found.add_row(
            figures.recipe,
            count(figures.tokens_sampled),
            count(figures.tokens_trained),
            "-" if figures.seconds is None else f"{figures.seconds:,.0f}",
            ratio if figures.curve else "-",
        )
    return found


def levels_table(comparison: Comparison) -> Table:
    """Final held-out accuracy by level, in %: one column a recipe, or one row where recipes are many."""
    levels = sorted({level for figures in comparison.recipes for level in figures.by_level}, key=level_order)
    if len(comparison.recipes) > MOST_COLUMNS:
        return _levels_in_columns(comparison, levels)
    found = Table()
    found.add_column("level")
    for figures in comparison.recipes:
        found.add_column(f"{figures.recipe}, %", justify="right")
    for level in levels:
        cells = (figures.by_level.get(level) for figures in comparison.recipes)
        found.add_row(level, *("-" if cell is None else _share(cell) for cell in cells))
    return found


def _levels_in_columns(comparison: Comparison, levels: Sequence[str]) -> Table:
    found = Table(caption="final held-out accuracy by level, %; intervals: comparison.json", caption_justify="left")
    found.add_column("recipe")
    for level in levels:
        found.add_column(level, justify="right", no_wrap=True)
    for figures in comparison.recipes:
        cells = (figures.by_level.get(level) for level in levels)
        found.add_row(figures.recipe, *("-" if cell is None else f"{100 * cell.mean:.1f}" for cell in cells))
    return found


def plot(comparison: Comparison, path: Path) -> Path:
    """Held-out accuracy against tokens sampled, one line a recipe, its seeds' range as a band; written to ``path``."""
    figure, axes = accuracy_figure("tokens sampled", "held-out accuracy")
    ends: list[tuple[float, float, str, str]] = []
    for i, figures in enumerate(comparison.recipes):
        if not figures.curve:
            continue
        colour, dash = line_style(i)
        tokens, mean, low, high = zip(*figures.curve, strict=True)
        if len(figures.seeds) > 1:
            axes.fill_between(tokens, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.plot(tokens, mean, dash, color=colour, linewidth=2, marker="o", markersize=3.5)
        ends.append((tokens[-1], mean[-1], figures.recipe, colour))
    axes.set_xlim(left=0)
    label_ends(axes, ends)
    most = max(len(figures.seeds) for figures in comparison.recipes)
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

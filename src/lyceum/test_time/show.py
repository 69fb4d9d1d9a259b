"""A search's results as tables for the terminal, and a plot of accuracy against tokens spent."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from lyceum.utils.levels import level_order
from lyceum.utils.numbers import share
from lyceum.view.plots import accuracy_figure, count, label_ends, line_style

ORACLE = "#999999"


def table(metrics: Mapping[str, Any]) -> Table:
    """One row per cell: accuracy in % with 95 % intervals, tokens spent per task, seconds of all tasks together."""
    found = Table(
        title=f"{metrics['model']} on {metrics['tasks_from']['kind']}, accuracy in % [95 % interval]",
        title_justify="left",
        caption="tokens: spent per task. pass@n: some trajectory is correct (oracle choice)",
        caption_justify="left",
        caption_style="",
    )
    found.add_column("strategy", no_wrap=True)
    values = any(cell["tokens_valued"] for cell in metrics["cells"])
    heads = ("size", "accuracy", "pass@n", "tokens", *(["for values"] if values else []), "seconds")
    for head in heads:
        found.add_column(head, justify="right", no_wrap=True)
    for cells in by_strategy(metrics).values():
        for cell in cells:
            found.add_row(
                cell["strategy"],
                str(cell["size"]),
                share(cell["accuracy"]),
                share(cell["pass_oracle"]),
                count(cell["tokens_spent"]),
                *([count(cell["tokens_valued"])] if values else []),
                f"{cell['seconds']:.1f}",
            )
        found.add_section()
    return found


def levels_table(metrics: Mapping[str, Any]) -> Table | None:
    """Accuracy in % by level, one row per cell; None if tasks have fewer than two levels."""
    levels = sorted({level for cell in metrics["cells"] for level in cell["by_level"]}, key=level_order)
    if len(levels) < 2:
        return None
    found = Table(title="accuracy by level, %", title_justify="left")
    found.add_column("strategy", no_wrap=True)
    found.add_column("size", justify="right")
    for level in levels:
        found.add_column(level, justify="right")
    for cells in by_strategy(metrics).values():
        for cell in cells:
            of = (cell["by_level"].get(level) for level in levels)
            found.add_row(cell["strategy"], str(cell["size"]), *(f"{100 * f['mean']:.1f}" if f else "-" for f in of))
        found.add_section()
    return found


def equal_table(metrics: Mapping[str, Any]) -> Table | None:
    """Accuracy in % at equal tokens, one row per strategy, one column per budget; None without budgets."""
    rows = metrics["at_equal_tokens"]
    if not rows:
        return None
    found = Table(
        title="accuracy at equal tokens spent per task, % [95 % interval]",
        title_justify="left",
        caption="interpolated between measured sizes; -: outside the measured range",
        caption_justify="left",
        caption_style="",
    )
    found.add_column("strategy", no_wrap=True)
    for row in rows:
        found.add_column(count(row["tokens"]), justify="right", no_wrap=True)
    for strategy in by_strategy(metrics):
        # The interval on its own line: four budgets fit 80 columns.
        found.add_row(strategy, *(share(row["accuracy"][strategy]).replace(" ", "\n", 1) for row in rows))
    return found


def plot(metrics: Mapping[str, Any], path: Path) -> Path:
    """Accuracy against tokens spent per task, one line per strategy with 95 % intervals; written to ``path``.

    The grey line is pass@n of independent samples, if ``majority`` is among the strategies: the oracle choice among
    them.
    """
    from matplotlib.ticker import LogLocator

    figure, axes = accuracy_figure("tokens spent per task (computed, and read for values)", "accuracy")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(LogLocator(base=2, subs=(1.0, 1.5)))  # so that a narrow range also has several ticks
    ends: list[tuple[float, float, str, str]] = []
    most = max(cell["tokens_spent"] for cell in metrics["cells"])
    for i, (strategy, cells) in enumerate(by_strategy(metrics).items()):
        measured = [cell for cell in cells if cell["accuracy"] is not None and cell["tokens_spent"] > 0]
        if not measured:
            continue
        colour, dash = line_style(i)
        tokens = [cell["tokens_spent"] for cell in measured]
        mean, low, high = ([cell["accuracy"][key] for cell in measured] for key in ("mean", "low", "high"))
        if len(measured) > 1:
            axes.fill_between(tokens, low, high, color=colour, alpha=0.08, linewidth=0)
        axes.plot(tokens, mean, dash, color=colour, linewidth=2, marker="o", markersize=3.5)
        if len(measured) == 1:  # constant in tokens
            axes.hlines(mean, tokens, most, color=colour, linewidth=1, linestyle=dash)
        ends.append((tokens[-1] if len(measured) > 1 else most, mean[-1], strategy, colour))
    oracle = sorted(
        (cell["tokens_spent"], cell["pass_oracle"]["mean"])
        for cell in metrics["cells"]
        if cell["pass_oracle"] is not None and cell["strategy"] == "majority" and cell["tokens_spent"] > 0
    )
    if oracle:
        axes.plot(*zip(*oracle, strict=True), ":", color=ORACLE, linewidth=1.5)
        ends.append((*oracle[-1], "pass@n (oracle)", ORACLE))
    spent = [cell["tokens_spent"] for cell in metrics["cells"] if cell["tokens_spent"] > 0]
    if spent and most < 1.5 * min(spent):  # a label beside a range of almost no width would take all of the figure's
        axes.set_xlim(min(spent) / 1.25, 1.25 * most)
    _plain_ticks(axes)
    label_ends(axes, ends)
    axes.set_title("Accuracy against tokens spent; band: 95 % interval", loc="left", fontsize=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    return path


def _plain_ticks(axes: Any) -> None:
    """Tokens as numbers; a logarithmic axis has its own formatter."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: count(x)))
    axes.xaxis.set_minor_formatter(NullFormatter())


def by_strategy(metrics: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Each strategy's cells, in the order in which the strategies were given."""
    found: dict[str, list[dict[str, Any]]] = {}
    for cell in metrics["cells"]:
        found.setdefault(cell["strategy"], []).append(cell)
    return found

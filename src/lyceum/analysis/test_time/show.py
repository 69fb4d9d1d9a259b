"""A search's results as tables for the terminal, and a plot of accuracy against tokens spent."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from lyceum.analysis.plots import accuracy_figure, count, label_ends, line_style
from lyceum.utils.numbers import level_order, share

ORACLE = "#999999"


def table(metrics: Mapping[str, Any]) -> Table:
    """One row per result: accuracy in % with 95 % intervals, tokens spent per task, seconds of all tasks together."""
    found = Table(
        title=f"{metrics['model']} on {metrics['tasks_from']['kind']}, accuracy in % [95 % interval]",
        title_justify="left",
        caption="tokens: spent per task. pass@n: some trajectory is correct (oracle choice)",
        caption_justify="left",
        caption_style="",
    )
    found.add_column("strategy", no_wrap=True)
    values = any(result["tokens_valued"] for result in metrics["results"])
    heads = ("size", "accuracy", "pass@n", "tokens", *(["for values"] if values else []), "seconds")
    for head in heads:
        found.add_column(head, justify="right", no_wrap=True)
    for results in by_strategy(metrics).values():
        for result in results:
            found.add_row(
                result["strategy"],
                str(result["size"]),
                share(result["accuracy"]),
                share(result["pass_oracle"]),
                count(result["tokens_spent"]),
                *([count(result["tokens_valued"])] if values else []),
                f"{result['seconds']:.1f}",
            )
        found.add_section()
    return found


def levels_table(metrics: Mapping[str, Any]) -> Table | None:
    """Accuracy in % by level, one row per result; None if tasks have fewer than two levels."""
    levels = sorted({level for result in metrics["results"] for level in result["by_level"]}, key=level_order)
    if len(levels) < 2:
        return None
    found = Table(title="accuracy by level, %", title_justify="left")
    found.add_column("strategy", no_wrap=True)
    found.add_column("size", justify="right")
    for level in levels:
        found.add_column(level, justify="right")
    for results in by_strategy(metrics).values():
        for each in results:
            of = (each["by_level"].get(level) for level in levels)
            found.add_row(each["strategy"], str(each["size"]), *(f"{100 * f['mean']:.1f}" if f else "-" for f in of))
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
    most = max(result["tokens_spent"] for result in metrics["results"])
    for i, (strategy, results) in enumerate(by_strategy(metrics).items()):
        measured = [result for result in results if result["accuracy"] is not None and result["tokens_spent"] > 0]
        if not measured:
            continue
        colour, dash = line_style(i)
        tokens = [result["tokens_spent"] for result in measured]
        mean, low, high = ([result["accuracy"][key] for result in measured] for key in ("mean", "low", "high"))
        if len(measured) > 1:
            axes.fill_between(tokens, low, high, color=colour, alpha=0.08, linewidth=0)
        axes.plot(tokens, mean, dash, color=colour, linewidth=2, marker="o", markersize=3.5)
        if len(measured) == 1:  # constant in tokens
            axes.hlines(mean, tokens, most, color=colour, linewidth=1, linestyle=dash)
        ends.append((tokens[-1] if len(measured) > 1 else most, mean[-1], strategy, colour))
    oracle = sorted(
        (result["tokens_spent"], result["pass_oracle"]["mean"])
        for result in metrics["results"]
        if result["pass_oracle"] is not None and result["strategy"] == "majority" and result["tokens_spent"] > 0
    )
    if oracle:
        axes.plot(*zip(*oracle, strict=True), ":", color=ORACLE, linewidth=1.5)
        ends.append((*oracle[-1], "pass@n (oracle)", ORACLE))
    spent = [result["tokens_spent"] for result in metrics["results"] if result["tokens_spent"] > 0]
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
    """Each strategy's results, in the order in which the strategies were given."""
    found: dict[str, list[dict[str, Any]]] = {}
    for result in metrics["results"]:
        found.setdefault(result["strategy"], []).append(result)
    return found

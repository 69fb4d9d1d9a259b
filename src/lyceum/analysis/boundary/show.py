"""A boundary study as tables for the terminal, a plot of pass@k against k, and a page."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from lyceum.analysis.boundary.result import Boundary, SolvedTask, sentences
from lyceum.analysis.plots import accuracy_figure, label_ends, line_style
from lyceum.evaluation.intervals import Interval
from lyceum.training.view.report import page_of

MOST_NAMES = 8
"""Maximum tasks of a set that the terminal names; boundary.json names all."""


def tables(found: Boundary) -> list[Table]:
    made = [pass_table(found)]
    made += [sets_table(found)] if found.against else []
    made += [perplexity_table(found)] if any(found.perplexity.values()) else []
    made += [help_table(found, tier) for tier in dict.fromkeys(help.tier for help in found.help)]
    return made


def pass_table(found: Boundary) -> Table:
    """pass@k of each model in %, and differences to the base in points, with 95 % intervals."""
    base = found.labels[0]
    table = _table(f"pass@k of {found.tasks} tasks, % [95 % interval]")
    table.add_column("k", justify="right", no_wrap=True)
    for label in found.labels:
        table.add_column(label, justify="right")
    for against in found.against:
        table.add_column(f"{against.model} - {base}", justify="right")
    tight = len(found.labels) > 2
    for k in found.pass_at[base]:
        cells = [share(found.pass_at[label][k]) for label in found.labels]
        cells += [points(against.difference[k]) for against in found.against]
        table.add_row(k, *(cell.replace(" ", "\n", 1) if tight else cell for cell in cells))
    return table


def sets_table(found: Boundary) -> Table:
    """How many tasks which of two models solves in the samples that it has."""
    base = found.labels[0]
    table = _table(f"tasks solved by a sample of {found.samples}")
    table.add_column("")
    for against in found.against:
        table.add_column(against.model, justify="right")
    table.add_row("both", *(str(len(against.both)) for against in found.against))
    table.add_row(f"only {base}", *(str(len(against.only_base)) for against in found.against))
    table.add_row("only this one", *(str(len(against.only_model)) for against in found.against))
    table.add_row("neither", *(str(len(against.neither)) for against in found.against))
    table.add_section()
    table.add_row(
        f"of those that {base} does not solve, solved (expansion), %",
        *(share(each.expansion) for each in found.against),
    )
    table.add_row(
        f"of those that {base} solves, not solved (shrinkage), %", *(share(each.shrinkage) for each in found.against)
    )
    return table


def perplexity_table(found: Boundary) -> Table:
    table = _table(f"perplexity under {found.labels[0]} of correct answers, median [quartiles]")
    for head in ("of", "answers", "perplexity"):
        table.add_column(head, justify="left" if head == "of" else "right")
    for label, of in found.perplexity.items():
        if of is not None:
            table.add_row(label, str(of.answers), f"{of.median:.4g} [{of.low:.4g}, {of.high:.4g}]")
    return table


def help_table(found: Boundary, tier: str) -> Table:
    """Accuracy with the hints of a tier by level, the points gained by them, and how much more than the base gains."""
    table = _table(f"accuracy with hints of tier {tier}, % (points gained by them)")
    table.add_column("level", no_wrap=True)
    table.add_column("tasks", justify="right", no_wrap=True)
    for label in found.labels:
        table.add_column(label, justify="right")
    for label in found.labels[1:]:
        table.add_column(f"{label} gains more", justify="right")
    for help in found.help:
        if help.tier == tier:
            of = [
                f"{100 * help.accuracy[label].mean:.1f} ({100 * help.gain[label].mean:+.1f})" for label in found.labels
            ]
            more = [points(help.difference[label]) for label in found.labels[1:]]
            table.add_row("all" if help.level is None else help.level, str(help.tasks), *of, *more)
    return table


def lines(found: Boundary) -> list[str]:
    """Sentences below the tables: who is ahead, which tasks one model alone solves, what the numbers leave out."""
    base = found.labels[0]
    said = sentences(found)
    for against in found.against:
        said += _named(f"only {against.model} solves", against.only_model, against.model)
        said += _named(f"only {base} solves, and not {against.model},", against.only_base, base)
    said.append(
        f"A task unsolved in {found.samples} samples has a sample's chance of success below "
        f"{100 * found.undetected:.2g} % (95 %), and may be solved by more."
    )
    if found.left_out:
        said.append(f"{found.left_out} tasks are left out: some model has fewer than {found.samples} graded samples.")
    for label, of in found.perplexity.items():
        if of is None:
            said.append(f"Perplexity of {label}'s answers: not known; they are of other tokens, or were not kept.")
    return said


def _named(what: str, tasks: Sequence[SolvedTask], by: str) -> list[str]:
    if not tasks:
        return []
    ordered = sorted(tasks, key=lambda task: -task.correct[by][0])
    names = ", ".join(f"{task.task} ({task.correct[by][0]} of {task.correct[by][1]})" for task in ordered[:MOST_NAMES])
    return [f"{what} {len(tasks)}: {names}{', ...' if len(tasks) > MOST_NAMES else ''}"]


def plot(found: Boundary, path: Path) -> Path:
    """pass@k against k, one line per model with its 95 % interval; a crossing is a dotted line. Written to ``path``."""
    from matplotlib.ticker import FuncFormatter, NullLocator

    figure, axes = accuracy_figure("samples per task, k", "pass@k")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    ends: list[tuple[float, float, str, str]] = []
    for i, (label, curve) in enumerate(found.pass_at.items()):
        colour, dash = line_style(i)
        ks = [int(k) for k in curve]
        axes.fill_between(
            ks,
            [each.low for each in curve.values()],
            [each.high for each in curve.values()],
            color=colour,
            alpha=0.1,
            linewidth=0,
        )
        mean = [each.mean for each in curve.values()]
        axes.plot(ks, mean, dash, color=colour, linewidth=2, marker="o", markersize=3.5)
        ends.append((ks[-1], mean[-1], label, colour))
    for crossing in {crossing.k for against in found.against for crossing in against.crossings}:
        axes.axvline(crossing, color="#999999", linewidth=1, linestyle=":")
    label_ends(axes, ends)
    axes.set_title("pass@k; band: 95 % interval over tasks", loc="left", fontsize=10)
    figure.savefig(path)
    return path


def page(found: Boundary, plot: bytes) -> str:
    """One HTML file that needs no network."""
    return page_of(
        "boundary.html.jinja",
        found=found,
        sentences=lines(found),
        tables=[_plain(table) for table in tables(found)],
        plot=base64.b64encode(plot).decode("ascii"),
    )


def _plain(table: Table) -> dict[str, object]:
    """A table's title, heads and rows as texts."""
    columns = [[str(cell) for cell in column.cells] for column in table.columns]
    heads = [str(column.header) for column in table.columns]
    return {"title": str(table.title), "heads": heads, "rows": list(zip(*columns, strict=True))}


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left")


def share(interval: Interval | None) -> str:
    if interval is None:
        return "-"
    return f"{100 * interval.mean:.1f} [{100 * interval.low:.0f}, {100 * interval.high:.0f}]"


def points(interval: Interval) -> str:
    return f"{100 * interval.mean:+.1f} [{100 * interval.low:+.0f}, {100 * interval.high:+.0f}]"

"""Plots of accuracy against tokens: one style, labels at the lines' ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, distinguishable with common colour blindness; their yellow is too pale for a line on white.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_DASHES = ("-", "--", "-.", ":")


def accuracy_figure(tokens: str, accuracy: str) -> tuple[Figure, Axes]:
    """An empty figure of accuracy against tokens, and its axes, with these axis labels."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, PercentFormatter

    figure = Figure(figsize=(8, 4.8), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    axes.set_xlabel(tokens)
    axes.set_ylabel(accuracy)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: count(x)))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#dddddd", linewidth=0.7)
    axes.set_axisbelow(True)
    return figure, axes


def line_style(i: int) -> tuple[str, str]:
    """Colour and dashes of the i-th line."""
    return PALETTE[i % len(PALETTE)], _DASHES[i // len(PALETTE) % len(_DASHES)]


def label_ends(axes: Axes, ends: list[tuple[float, float, str, str]]) -> None:
    """Labels at the lines' right ends, moved apart where they would overlap."""
    if not ends:
        return
    low, high = axes.get_ylim()
    axes.set_ylim(low, high)
    right = max(x for x, *_ in ends)
    ends = sorted(ends, key=lambda end: end[1])
    places = spread([y for _, y, _, _ in ends], gap=0.055 * (high - low), low=low, high=high)
    for (x, y, name, colour), place in zip(ends, places, strict=True):
        axes.annotate(
            name,
            xy=(x, y),
            xytext=(right * 1.03, place),
            color=colour,
            fontsize=10,
            fontweight="bold",
            va="center",
            arrowprops={
                **{"arrowstyle": "-", "relpos": (0, 0.5), "shrinkA": 0},
                **{"color": colour, "linewidth": 0.6, "alpha": 0.6},
            },
            annotation_clip=False,
            parse_math=False,  # a name, in which $ is a dollar
        )


def spread(values: Sequence[float], *, gap: float, low: float, high: float) -> list[float]:
    """Positions closest to ascending values (least squares) with a minimum gap between them, within two bounds.

    values - i * gap must not decrease: this is isotonic regression. If the bounds are too narrow, the positions begin
    at the lower bound and pass the upper one.
    """
    from scipy.optimize import isotonic_regression

    highest = max(low, high - (len(values) - 1) * gap)
    level = isotonic_regression([value - i * gap for i, value in enumerate(values)]).x.clip(low, highest)
    return [float(place) + i * gap for i, place in enumerate(level)]


def count(tokens: float | None) -> str:
    if tokens is None:
        return "-"
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(tokens) >= size:
            return f"{tokens / size:.3g} {letter}"
    return f"{tokens:.0f}"

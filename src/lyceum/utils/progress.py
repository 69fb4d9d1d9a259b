"""Progress display of long work: a live display, plain lines where there is no terminal, or nothing.

Everything goes to standard error: standard output is for results.
"""

from __future__ import annotations

import math
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Literal, TypeVar

from rich.console import Console as RichConsole
from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from lyceum.utils.numbers import shown
from lyceum.utils.terminal import Console

Item = TypeVar("Item")
Mode = Literal["auto", "live", "plain", "silent"]

LIVE_SECONDS = 1 / 8
PLAIN_SECONDS = 5.0
_WIDTH = 100  # maximum columns; a longer bar adds nothing
_BURSTS = 8  # new phases drawn at once: at most this many, refilled at this many per second
_ENDS = ("stopped", "done")
_GUIDED = re.compile(r"guidance/[^/]+/groups/guided$")
_FIGURES = ("reward", "loss", "gradient", "guided", "heldout", "speed")

_mode: Mode = "auto"
_active: Progress | None = None


@contextmanager
def using(mode: Mode) -> Iterator[None]:
    """Use this mode inside wherever ``auto`` is requested: ``silent`` under ``--json``."""
    global _mode
    before, _mode = _mode, mode
    try:
        yield
    finally:
        _mode = before


class Progress:
    """Steps done, reward, held-out accuracy, speed, time left, and the current phase.

    Args:
        total: number of steps; None where unknown.
        done: steps done before a resumed run; the time left is estimated from those since.
        title: what is running.
        unit: what is counted.
        mode: ``live`` redraws two lines of a terminal 8 times a second and on a new phase; ``plain`` writes a line
            every few seconds, without control characters; ``silent`` writes nothing; ``auto`` is live on a terminal
            and plain elsewhere, unless :func:`using` sets another mode.
        console: where it is displayed; standard error by default.
    """

    def __init__(
        self,
        total: int | None,
        *,
        done: int = 0,
        title: str = "training",
        unit: str = "step",
        mode: Mode = "auto",
        console: RichConsole | None = None,
    ) -> None:
        self.console = console or Console(stderr=True)
        self.mode: Mode = _resolved(mode, self.console)
        self.total = total
        self.title = title
        self.unit = unit
        self.stage = ""
        """Shown before the phase."""
        self.stopping = False
        """Show that the loop will end after this step."""
        self._done = self._first = done
        self._metrics: dict[str, str] = {}
        self._phase = ""
        self._share: tuple[int, int] | None = None
        self._began = self._drawn = time.monotonic()
        self._bursts, self._burst_at = float(_BURSTS), self._began
        self._said = ""
        self._live: Live | None = None
        self._outer: Progress | None = None

    def __enter__(self) -> Progress:
        global _active
        self._began = self._drawn = time.monotonic()
        if self.mode == "live":
            # No redraw thread: it would compete with the training, and a fork would copy its locks. Standard output is
            # routed through the display only where both are the same terminal.
            to_same = sys.stdout.isatty()
            self._live = Live(
                console=self.console, auto_refresh=False, get_renderable=self._display, redirect_stdout=to_same
            )
            self._live.start(refresh=True)
        self._outer, _active = _active, self
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        global _active
        _active = self._outer
        self.stopping = False
        ended = kind is None and (self.total is None or self._done >= self.total)
        self.phase(_ENDS[ended])
        self._refresh(now=True)
        if self._live is not None:
            self._live.stop()
            self._live = None

    def phase(self, name: str, done: int | None = None, total: int | None = None) -> None:
        """The current phase, ``generating``, and its progress, ``143/256``. Cheap enough for every item."""
        changed, self._phase = name != self._phase, name
        self._share = (done, total) if done is not None and total is not None else None
        # A new phase may be long and silent, so it is drawn at once, but not in steps that are over in milliseconds.
        self._refresh(now=changed and self.mode == "live" and self._may_burst())

    def step(self, done: int, metrics: Mapping[str, Any] | None = None) -> None:
        """Update the number of steps done. Of the metrics, ``reward/mean`` (or ``loss``), ``groups/with_gradient``,
        ``heldout/overall`` and ``tokens_per_second`` are shown, each until it is measured again, and the number of
        groups that guides helped."""
        self._done = done
        metrics = metrics or {}
        loss, reward = _number(metrics, "loss"), _number(metrics, "reward/mean")
        heldout, speed = _number(metrics, "heldout/overall"), _number(metrics, "tokens_per_second")
        if reward is not None:
            self._metrics["reward"] = f"reward {shown(reward, 3)}"
        elif loss is not None and "reward" not in self._metrics:
            self._metrics["loss"] = f"loss {loss:.4g}"
        if (useful := _number(metrics, "groups/with_gradient")) is not None:
            self._metrics["gradient"] = f"{100 * useful:.0f} % with gradient"
        guided = [value for name in metrics if _GUIDED.match(name) and (value := _number(metrics, name)) is not None]
        if guided:
            self._metrics["guided"] = f"{sum(guided):.0f} guided"
        if heldout is not None:
            self._metrics["heldout"] = f"held-out {100 * heldout:.1f} % (step {done})"
        if speed is not None:
            self._metrics["speed"] = f"{speed:,.0f} tokens/s".replace(",", " ")
        # A first line soon, so that a log shows that it runs; the last one is written on exit.
        self._refresh(now=done == self._first + 1 and self.mode == "plain" and self.unit == "step")

    def say(self, text: str) -> None:
        """Print a permanent line above the display."""
        if self.mode != "silent":
            self.console.print(Text(text), soft_wrap=True)

    @property
    def seconds_left(self) -> float | None:
        """Time left at the mean speed so far, evaluations included; None where it cannot be estimated."""
        since = self._done - self._first
        if self.total is None or since <= 0:
            return None
        return (self.total - self._done) * (time.monotonic() - self._began) / since

    def _refresh(self, *, now: bool) -> None:
        clock = time.monotonic()
        least = LIVE_SECONDS if self.mode == "live" else PLAIN_SECONDS
        if self.mode == "silent" or (not now and clock - self._drawn < least):
            return
        self._drawn = clock
        if self._live is not None:
            self._live.refresh()
        elif (line := self._line()) != self._said:
            self._said = line
            self.say(line)

    def _may_burst(self) -> bool:
        clock = time.monotonic()
        self._bursts = min(_BURSTS, self._bursts + (clock - self._burst_at) * _BURSTS)
        self._burst_at = clock
        if self._bursts < 1:
            return False
        self._bursts -= 1
        return True

    def _count(self) -> str:
        return f"{self.unit} {self._done}{'' if self.total is None else f'/{self.total}'}".strip()

    def _left(self) -> str:
        if self._phase in _ENDS:
            return f"{clock(time.monotonic() - self._began)} in all"
        left = self.seconds_left
        return "" if left is None else f"{clock(left)} left"

    def _shown(self) -> list[str]:
        return [self._metrics[name] for name in _FIGURES if name in self._metrics]

    def _now(self) -> str:
        share = "" if self._share is None else f" {self._share[0]}/{self._share[1]}"
        stage = f"{self.stage}: " if self.stage and self._phase and self._phase not in _ENDS else ""
        return f"{stage}{self._phase}{share}{' (stopping after this step)' if self.stopping else ''}"

    def _line(self) -> str:
        parts = (f"{self.title}: {self._count()}", *self._shown(), self._now(), self._left())
        return ", ".join(part for part in parts if part)

    def _display(self) -> Group:
        line = Table.grid(padding=(0, 2), expand=True)
        line.add_column(no_wrap=True)
        line.add_column(ratio=1)
        line.add_column(no_wrap=True)
        line.add_column(no_wrap=True)
        unknown = self.total is None
        bar = ProgressBar(total=max(self.total or 1, 1), completed=self._done, pulse=unknown)
        line.add_row(Text(self.title, style="bold"), bar, Text(self._count()), Text(self._left(), style="dim"))
        # A terminal echoes ^C at the end of the last line: in the last column it would wrap and shift the display.
        width = min(self.console.width - 4, _WIDTH)
        line.width = width
        parts = [*self._shown(), self._now()]
        while len(parts) > 1 and len("   ".join(parts)) > width:
            del parts[-2]  # the last is the current phase, which stays
        metrics = Text("   ").join([*map(Text, parts[:-1]), Text(parts[-1], style="cyan")])
        metrics.truncate(width, overflow="ellipsis")
        return Group(line, metrics)


def track(
    items: Iterable[Item],
    description: str,
    *,
    total: int | None = None,
    mode: Mode = "auto",
    console: RichConsole | None = None,
) -> Iterator[Item]:
    """Yield the same items and display progress: inside a :class:`Progress` as its phase, elsewhere on its own."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    if _active is not None:
        shown = _active
        done = 0
        shown.phase(description, done, total)
        for done, item in enumerate(items, 1):
            yield item
            shown.phase(description, done, total)
        return
    with Progress(total, title=description, unit="", mode=mode, console=console) as progress:
        for done, item in enumerate(items, 1):
            yield item
            progress.step(done)


def clock(seconds: float) -> str:
    """``0:07``, ``12:30``, ``1:02:03``."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"


def stopping() -> None:
    """Show in every display that its loop will end after the current step."""
    shown = _active
    while shown is not None:
        shown.stopping, shown = True, shown._outer


def displayed() -> Mode:
    """Mode of the outermost progress display; silent where there is none."""
    if _active is None:
        return "silent"
    return _active.mode


def _resolved(mode: Mode, console: RichConsole) -> Mode:
    wanted: Mode = _mode if mode == "auto" else mode
    if wanted != "auto":
        return wanted
    # Ask the file, not rich, which treats FORCE_COLOR as a terminal: a CI log is not one.
    if console.file.isatty() and not console.is_dumb_terminal:
        return "live"
    return "plain"


def _number(metrics: Mapping[str, Any], name: str) -> float | None:
    value = metrics.get(name)
    return None if value is None or not math.isfinite(value) else float(value)

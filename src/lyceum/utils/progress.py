"""Progress of long work: a live display, plain lines where there is no terminal, lines of JSON, or nothing.

Everything goes to standard error: standard output is for results.
"""

from __future__ import annotations

import logging
import math
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape, unescape
from types import TracebackType
from typing import Any, Literal, TypeVar

from rich.console import Console as RichConsole
from rich.console import ConsoleOptions, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from lyceum.utils.numbers import shown, to_json
from lyceum.utils.terminal import printable

log = logging.getLogger(__name__)

Item = TypeVar("Item")
Mode = Literal["auto", "live", "plain", "json", "silent"]

LIVE_SECONDS = 1 / 8
PLAIN_SECONDS = 5.0
JSON_SECONDS = 1.0
_WIDTH = 100  # maximum columns; a longer bar adds nothing
_MEASURED = 32  # steps whose mean time is a step's to come: completions may grow longer over a run
_BURSTS = 8  # new phases drawn at once: at most this many, refilled at this many per second
_ENDS = ("stopped", "done")
_GUIDED = re.compile(r"guidance/[^/]+/groups/guided$")
_FIGURES = ("reward", "loss", "gradient", "guided", "heldout", "speed")

_SECONDS = {"live": LIVE_SECONDS, "plain": PLAIN_SECONDS, "json": JSON_SECONDS}

_mode: Mode = "auto"
_active: Progress | None = None


@contextmanager
def using(mode: Mode) -> Iterator[None]:
    """Use this mode inside wherever ``auto`` is requested: ``json`` under ``--json``."""
    global _mode
    before, _mode = _mode, mode
    try:
        yield
    finally:
        _mode = before


class Console(RichConsole):
    """Rich's console, which removes control characters from everything printed.

    Plain strings are text: a level named ``[/b]`` is not markup, ``:key:`` not an emoji.
    """

    def __init__(self, **how: Any) -> None:
        super().__init__(**{"markup": False, "emoji": False, "highlight": False, **how})

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # rich would end the program

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        # All output becomes characters here, tables and live displays too. Cursor movements of a live display are
        # marked as control by rich itself, and external text never is.
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


@dataclass
class SampledCounts:
    """What the engine and the graders have done in a phase.

    Attributes:
        sequences, ended: asked for, and done.
        tokens: drawn.
        to_grade, graded: completions.
        since: when the phase began (seconds).
        usual: tokens per sequence when the phase was last done; 0 where it is the first time.
    """

    since: float
    usual: float = 0.0
    sequences: int = 0
    ended: int = 0
    tokens: int = 0
    to_grade: int = 0
    graded: int = 0

    def __bool__(self) -> bool:
        return bool(self.sequences or self.to_grade)

    @property
    def per_sequence(self) -> float:
        """Tokens of a sequence, as far as they are known; 0 where nothing is."""
        return self.tokens / self.ended if self.ended and self.ended == self.sequences else self.usual

    def per_second(self, now: float) -> float | None:
        return self.tokens / (now - self.since) if self.tokens and now > self.since else None

    def seconds_left(self, now: float) -> float | None:
        """Until every sequence has ended, if they are as long as they were last time; None where that is unknown."""
        speed, left = self.per_second(now), self.usual * self.sequences - self.tokens
        return None if speed is None or left <= 0 or self.ended == self.sequences else left / speed

    def in_words(self, now: float) -> str:
        parts = [f"{self.ended}/{self.sequences} sequences", f"{_spaced(self.tokens)} tokens"] if self.sequences else []
        if (speed := self.per_second(now)) is not None:
            parts.append(f"{_spaced(speed)} tokens/s")
        if (left := self.seconds_left(now)) is not None:
            parts.append(f"about {clock(left)} left")
        if self.graded < self.to_grade and self.ended == self.sequences:
            parts.append(f"{self.graded}/{self.to_grade} graded")
        return ", ".join(parts)


class Progress:
    """Steps done, reward, held-out accuracy, speed, time left, and the current phase.

    Args:
        total: number of steps; None where unknown.
        done: steps done before a resumed run; the time left is estimated from those since.
        title: what is running.
        unit: what is counted.
        mode: ``live`` redraws a few lines of a terminal 8 times a second and on a new phase; ``plain`` writes a line
            every few seconds, without control characters; ``json`` a line of JSON every second (:meth:`to_json`);
            ``silent`` writes nothing; ``auto`` is live on a terminal and in a notebook, where it redraws an output of
            its cell, and plain elsewhere, unless :func:`using` sets another mode.
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
        self.stops_after = unit or "step"
        """What is finished after the first Ctrl-C."""
        self.has_checkpoints = False
        """Whether :meth:`saved` tells what a second Ctrl-C costs."""
        self._saved: tuple[int | None, float] = (None, 0.0)
        self._done = self._first = done
        self._metrics: dict[str, str] = {}
        self._phase = ""
        self._share: tuple[int, int] | None = None
        self._sampled = SampledCounts(0.0)
        self._usual: dict[str, float] = {}
        self._step_began = 0.0
        self._numbers: dict[str, float] = {}
        self._counted = False
        self._began = self._drawn = time.monotonic()
        self._bursts, self._burst_at = float(_BURSTS), self._began
        self._steps_began = self._began
        self._measured: deque[tuple[float, int]] = deque(maxlen=_MEASURED)
        self._warming_up: tuple[float, int] | None = None
        self._apart = 0.0
        self._price: dict[str, float] = {}
        self._in_apart: tuple[str, float] | None = None
        self.stage_ends: int | None = None
        """The step with which steps of this kind end; None where all are of one kind."""
        self.to_come: Callable[[int, int], Mapping[str, float]] = lambda done, last: {}
        """How much of each kind of work that is no step (:meth:`apart`) comes after a step, up to another one."""
        self.at_end: Mapping[str, float] = {}
        """How much of it comes after the last step."""
        self._said = ""
        self._live: Live | None = None
        self._cell: Any = None  # IPython's handle of an output that is redrawn
        self._outer: Progress | None = None

    def __enter__(self) -> Progress:
        global _active
        self._began = self._drawn = self._step_began = self._steps_began = time.monotonic()
        self._saved = (None, self._began)
        if self.mode == "live" and (ipython := _in_a_notebook()) is not None:
            self._cell = ipython.display.display(_Html(self._repr_html_()), display_id=True)
        elif self.mode == "live":
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
        changed = name != self._phase
        if (changed and name not in _ENDS) or done == 0:
            self._usual[self._phase] = self._sampled.per_sequence
            self._sampled = SampledCounts(time.monotonic(), self._usual.get(name, 0.0))
        self._phase = name
        self._share = (done, total) if done is not None and total is not None else None
        # A new phase may be long and silent, so it is drawn at once, but not in steps that are over in milliseconds.
        self._refresh(now=changed and self.mode == "live" and self._may_burst())

    def steps_begin(self, *, until: int | None = None) -> None:
        """Steps of a kind begin: what was done so far (loading, an evaluation, steps of another kind) says nothing of
        their time, and what was measured of others but their held-out accuracy is shown no more.

        Args:
            until: the step with which they end; None where all that are left are of this kind.
        """
        self.stage_ends = until
        self._steps_began, self._apart = time.monotonic(), 0.0
        self._measured.clear()
        self._warming_up = None
        self._metrics = {name: said for name, said in self._metrics.items() if name == "heldout"}
        self._numbers = {name: number for name, number in self._numbers.items() if name == "heldout"}

    @contextmanager
    def apart(self, kind: str, amount: float = 1.0) -> Iterator[None]:
        """Work that is no step: its time is in no step's, and is the price of what is to come of its kind.

        Args:
            amount: how much of it this is; of an evaluation, its completions.
        """
        began = time.monotonic()
        self._in_apart = (kind, began)
        try:
            yield
        finally:
            self._in_apart = None
            spent = time.monotonic() - began
            self.priced(kind, spent, amount)
            self._apart += spent

    def priced(self, kind: str, seconds: float, amount: float) -> None:
        """So much work of a kind (:meth:`apart`) took so long."""
        if amount > 0:
            self._price[kind] = seconds / amount

    def count(self, *, sequences: int, ended: int, tokens: int, to_grade: int, graded: int) -> None:
        """Add to what the phase has sampled and graded."""
        of = self._sampled
        of.sequences += sequences
        of.ended += ended
        of.tokens += tokens
        of.to_grade += to_grade
        of.graded += graded
        self._refresh(now=False)

    def saved(self, step: int | None) -> None:
        """The work is now in a checkpoint of this step; None where there is none yet."""
        self.has_checkpoints, self._saved = True, (step, time.monotonic())

    def step(self, done: int, metrics: Mapping[str, Any] | None = None) -> None:
        """Update the number of steps done. Of the metrics, ``reward/mean`` (or ``loss``), ``groups/with_gradient``,
        ``heldout/overall`` and ``tokens_per_second`` are shown, each until it is measured again, and the number of
        groups that guides helped. Where nothing was sampled, the loss is shown, with ``dpo/accuracy`` and
        ``dpo/margin`` of pairs, and not the reward, which follows from the data alone."""
        self._measure(done)
        metrics = metrics or {}
        loss, reward = _number(metrics, "loss"), _number(metrics, "reward/mean")
        heldout, speed = _number(metrics, "heldout/overall"), _number(metrics, "tokens_per_second")
        known = {"reward": reward, "loss": loss, "heldout": heldout}
        self._numbers |= {name: value for name, value in known.items() if value is not None}
        if metrics.get("tokens_sampled") == 0 and loss is not None:
            pairs = {"accuracy": _number(metrics, "dpo/accuracy"), "margin": _number(metrics, "dpo/margin")}
            said = [f"{name} {shown(value, 3)}" for name, value in pairs.items() if value is not None]
            self._metrics["loss"] = ", ".join([f"loss {loss:.4g}", *said])
        elif reward is not None:
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
            self._metrics["speed"] = f"{_spaced(speed)} tokens/s"
        # A first line soon, so that a log shows that it runs; the last one is written on exit.
        self._refresh(now=done == self._first + 1 and self.mode in ("plain", "json") and self.unit == "step")

    def say(self, text: str) -> None:
        """Print a permanent line above the display."""
        if self.mode == "json":
            self._write({"message": text})
        elif self.mode != "silent":
            self.console.print(Text(text), soft_wrap=True)

    def _measure(self, done: int) -> None:
        """Note how long the steps since the last call took, without the work apart."""
        now, steps = time.monotonic(), done - self._done
        if steps > 0:
            took = (now - self._steps_began - self._apart, steps)
            # The first of a kind warms up (threads, memory, caches): its time is none of the others'.
            if self._warming_up is None and self.unit == "step":
                self._warming_up = took
            else:
                self._measured.append(took)
        self._done, self._step_began = done, now
        self._steps_began, self._apart = now, 0.0

    @property
    def seconds_per_step(self) -> float | None:
        """Mean time of the last steps; None before one was measured."""
        of = self._measured or ([] if self._warming_up is None else [self._warming_up])
        return sum(seconds for seconds, _ in of) / sum(steps for _, steps in of) if of else None

    @property
    def seconds_left(self) -> float | None:
        """Time left until the end; None before a step was measured of each kind that is to come."""
        return None if self._more_stages else self.stage_seconds_left

    @property
    def _more_stages(self) -> bool:
        return self.stage_ends is not None and self.total is not None and self.stage_ends < self.total

    @property
    def stage_seconds_left(self) -> float | None:
        """Time left of the steps of this kind: each at the mean of the last that were measured, and evaluations and
        checkpoints at what the last of their kind took; None before a step was measured."""
        last = self.stage_ends if self._more_stages else self.total
        each, now = self.seconds_per_step, time.monotonic()
        if last is None or each is None:
            return None
        current = 0.0 if self._in_apart is None else now - self._in_apart[1]
        begun = min(each, now - self._steps_began - self._apart - current) if self._done < last else 0.0
        left = (last - self._done) * each - begun
        to_come = dict(self.to_come(self._done, last))
        for kind, amount in () if self._more_stages else self.at_end.items():
            to_come[kind] = to_come.get(kind, 0.0) + amount
        apart = {kind: amount * self._price.get(kind, 0.0) for kind, amount in to_come.items()}
        if self._in_apart is not None and (kind := self._in_apart[0]) in apart:
            apart[kind] = max(0.0, apart[kind] - current)
        return left + sum(apart.values())

    @property
    def is_read(self) -> bool:
        """Whether a person reads what :meth:`say` says."""
        return self.mode not in ("silent", "json")

    def cost_of_stopping(self) -> str:
        """What the first Ctrl-C does, and what a second one would cost, in a line without its end."""
        clock = time.monotonic()
        since, about = self._done - self._first, ""
        if since > 0 and self.stops_after == self.unit:
            usual = self.seconds_per_step or 0.0
            about = f" (about {duration(max(0.0, usual - (clock - self._step_began)))})"
        step, at = self._saved
        lost = ""
        if self.has_checkpoints:
            of = f"since step {step}" if step is not None else "of work: there is no checkpoint yet"
            lost = f" and loses {duration(clock - at)} {of}"
        return f"stopping after this {self.stops_after}{about}; Ctrl-C again stops now{lost}"

    def to_json(self) -> dict[str, Any]:
        """The state as a line of JSON says it; null where something is unknown or does not apply.

        ``title``, ``unit``, ``done`` of ``total``; ``seconds`` since the beginning, ``seconds_left``, and of this
        stage ``stage_seconds_left``; ``stage``, ``phase`` with ``phase_done`` of ``phase_total``; in it
        ``sequences_done`` of ``sequences``, ``tokens``, ``tokens_per_second``, ``phase_seconds_left``, ``graded`` of
        ``to_grade`` completions; ``reward``, ``loss`` and ``heldout`` as last measured.
        """
        now, of, share = time.monotonic(), self._sampled, self._share or (None, None)
        speed, soon = of.per_second(now), of.seconds_left(now)
        left, of_stage = (None, None) if self._phase in _ENDS else (self.seconds_left, self.stage_seconds_left)
        return {
            **{"title": self.title, "unit": self.unit, "done": self._done, "total": self.total},
            "seconds": round(now - self._began, 1),
            "seconds_left": None if left is None else round(left, 1),
            "stage_seconds_left": None if of_stage is None else round(of_stage, 1),
            **{"stage": self.stage, "phase": self._phase, "phase_done": share[0], "phase_total": share[1]},
            **{"sequences_done": of.ended, "sequences": of.sequences, "tokens": of.tokens},
            "tokens_per_second": None if speed is None else round(speed, 1),
            "phase_seconds_left": None if soon is None else round(soon, 1),
            **{"graded": of.graded, "to_grade": of.to_grade},
            **{name: self._numbers.get(name) for name in ("reward", "loss", "heldout")},
        }

    def _write(self, document: Mapping[str, Any]) -> None:
        self.console.file.write(to_json(document) + "\n")
        self.console.file.flush()

    def _refresh(self, *, now: bool) -> None:
        clock = time.monotonic()
        if self.mode == "silent" or (not now and clock - self._drawn < _SECONDS[self.mode]):
            return
        self._drawn = clock
        if self._live is not None:
            self._live.refresh()
        elif self._cell is not None:
            self._cell.update(_Html(self._repr_html_()))
        elif self.mode == "json":
            self._write(self.to_json())
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
        left = self.stage_seconds_left
        return "" if left is None else f"{clock(left)} left{f' of {self.stage}' if self._more_stages else ''}"

    def _shown(self) -> list[str]:
        return [self._metrics[name] for name in _FIGURES if name in self._metrics]

    def _now(self) -> str:
        share = "" if self._share is None else f" {self._share[0]}/{self._share[1]}"
        stage = f"{self.stage}: " if self.stage and self._phase and self._phase not in _ENDS else ""
        stopping = f" (stopping after this {self.stops_after})" if self.stopping else ""
        return f"{stage}{self._phase}{share}{stopping}"

    def _in_phase(self) -> str:
        return self._sampled.in_words(time.monotonic()) if self._sampled and self._phase not in _ENDS else ""

    def _line(self) -> str:
        of = self._in_phase()
        now = f"{self._now()} ({of})" if of else self._now()
        parts = (f"{self.title}: {self._count()}", *self._shown(), now, self._left())
        return ", ".join(part for part in parts if part)

    def _repr_html_(self) -> str:
        bar = f"<progress value='{self._done}' max='{max(self.total, 1)}'></progress>" if self.total is not None else ""
        lines = ["   ".join([*self._shown(), self._now()]), self._in_phase()]
        below = "\n".join(escape(line) for line in lines if line)
        return f"<pre>{escape(self.title)}  {bar}  {self._count()}  {self._left()}\n{below}</pre>"

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
        self._counted = self._counted or bool(self._sampled)
        if not self._counted:
            return Group(line, metrics)
        # From the first sequence on there are three lines, also in phases that sample nothing: they do not jump.
        sampled = Text(self._in_phase(), style="dim")
        sampled.truncate(width, overflow="ellipsis")
        return Group(line, metrics, sampled)


@dataclass
class _Html:
    """What IPython shows as HTML."""

    text: str

    def __repr__(self) -> str:
        return unescape(re.sub("<[^>]*>", "", self.text)).strip()

    def _repr_html_(self) -> str:
        return self.text


def _in_a_notebook() -> Any:
    """IPython, where this process is the kernel of a notebook; None elsewhere. It is never imported here."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return ipython if getattr(shell, "kernel", None) is not None else None


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


def sampled(*, sequences: int = 0, ended: int = 0, tokens: int = 0, to_grade: int = 0, graded: int = 0) -> None:
    """Count, in whatever is displayed, what an engine or a grader did. Costs under a microsecond per call.

    Args:
        sequences, ended: asked for since the last call, and ended.
        tokens: drawn.
        to_grade, graded: completions given to a grader, and answered.
    """
    if _active is not None:
        _active.count(sequences=sequences, ended=ended, tokens=tokens, to_grade=to_grade, graded=graded)


def say(text: str) -> None:
    """Print a permanent line above whatever is displayed; a warning where nothing is."""
    if _active is not None:
        _active.say(text)
    else:
        log.warning("%s", text)


def stopping() -> str:
    """Show in every display that its loop will end after the current step.

    Returns:
        What a terminal or a log is told of it at once: text that ends its line and leaves the display in order.
    """
    shown, told = _active, "stopping after this step; Ctrl-C again stops now"
    if shown is not None:
        told = shown.cost_of_stopping()
    mode = displayed()
    while shown is not None:
        shown.stopping, shown = True, shown._outer
    if mode == "json":
        return to_json({"message": told}) + "\n"
    # A live display goes back over its own lines when it is drawn next: it gets empty ones.
    return f"\n{told}\n" + ("\n" * 2 if mode == "live" else "")


def duration(seconds: float) -> str:
    """``40 s``, ``12 min``, ``3.5 h``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


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
    if (console.file.isatty() and not console.is_dumb_terminal) or _in_a_notebook() is not None:
        return "live"
    return "plain"


def _spaced(number: float) -> str:
    """``12 346``."""
    return f"{number:,.0f}".replace(",", " ")


def _number(metrics: Mapping[str, Any], name: str) -> float | None:
    value = metrics.get(name)
    return None if value is None or not math.isfinite(value) else float(value)

"""Where a run's curves are drawn: TensorBoard by default, Weights & Biases and trackio where they are installed."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from netrc import NetrcParseError, netrc
from pathlib import Path
from secrets import token_hex
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

from lyceum.utils.errors import RecipeError

PROJECT = "lyceum"
"""Default project of hosted curves; WANDB_PROJECT or TRACKIO_PROJECT override it."""

Tracker = Literal["tensorboard", "wandb", "trackio"]


class Curves(Protocol):
    def draw(self, step: int, numbers: Mapping[str, float], *, gone_back: bool) -> None:
        """One point on each curve; ``gone_back``: the first one since the run went back to a checkpoint."""
        ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


def open_curves(kinds: Sequence[Tracker], run: Path, config: Mapping[str, Any]) -> list[Curves]:
    """The curves of a run's folder. Nothing is written or sent before the first point."""
    return [
        TensorBoard(run / "tensorboard") if kind == "tensorboard" else Hosted(kind, run, config)
        for kind in dict.fromkeys(kinds)
    ]


def missing(kinds: Sequence[Tracker]) -> list[str]:
    """Those that are not installed."""
    return [kind for kind in kinds if importlib.util.find_spec(kind) is None]


def require_login(kinds: Sequence[Tracker]) -> None:
    """Raise RecipeError where Weights & Biases would refuse the run's first point. Nothing is sent."""
    if "wandb" not in kinds:
        return
    settings = importlib.import_module("wandb").setup().settings
    if settings.mode in ("offline", "dryrun", "disabled"):
        return
    if not (settings.api_key or getattr(settings, "identity_token_file", None) or _in_netrc(settings.base_url)):
        raise RecipeError(
            "track: got wandb, which has no API key here; allowed: after the command wandb login, with "
            "WANDB_MODE=offline, or without wandb"
        )


def _in_netrc(url: str) -> bool:
    """Whether a password for the host is where ``wandb login`` leaves it."""
    files = [os.environ["NETRC"]] if os.environ.get("NETRC") else ["~/.netrc", "~/_netrc"]
    for file in files:
        try:
            known = netrc(os.path.expanduser(file)).hosts
        except (NetrcParseError, OSError):
            continue
        if {urlsplit(url).netloc, "api.wandb.ai"} & known.keys():
            return True
    return False


class TensorBoard:
    """Event files in the run's folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer: Any = None

    def draw(self, step: int, numbers: Mapping[str, float], *, gone_back: bool) -> None:
        # One event for all curves: torch's SummaryWriter makes one per curve, which costs more than the rest.
        from tensorboard.compat.proto import event_pb2, summary_pb2

        events: Any = event_pb2  # generated at run time: a type checker cannot see into them
        summaries: Any = summary_pb2
        if self._writer is None:
            self._writer = _newest_writer(self._folder)
        if gone_back:
            # Events of older files from this step on are obsolete, before the run went back: readers drop them.
            start = events.SessionLog(status=events.SessionLog.START)
            self._writer.add_event(events.Event(wall_time=time.time(), step=step, session_log=start))
        points = [summaries.Summary.Value(tag=name, simple_value=value) for name, value in numbers.items()]
        summary = summaries.Summary(value=points)
        self._writer.add_event(events.Event(wall_time=time.time(), step=step, summary=summary))

    def flush(self) -> None:
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer = None


def _newest_writer(folder: Path) -> Any:
    """A writer of event files whose name sorts after those that are there: readers take files in order of their names.

    A name is the second, host, process and a number, "10" before "9": of two in one second the later may be the first.
    """
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    def names() -> set[str]:
        return {file.name for file in folder.glob("events.out.tfevents.*")}

    for _ in range(20):  # 2 s; longer where the clock was set back, and then names cannot help
        before = names()
        writer = EventFileWriter(str(folder), flush_secs=30)
        if not before or max(names()) not in before:
            break
        writer.close()
        for made in names() - before:
            (folder / made).unlink()
        time.sleep(0.1)
    else:
        writer = EventFileWriter(str(folder), flush_secs=30)
    return writer


class Hosted:
    """A run of Weights & Biases, or of trackio, which has the same functions; a resumed run continues the same one.

    Their own environment variables say where and whether anything is sent (``WANDB_MODE=offline``, ``WANDB_PROJECT``).
    """

    def __init__(self, kind: Tracker, run: Path, config: Mapping[str, Any]) -> None:
        self._kind, self._folder, self._config = kind, run, dict(config)
        self._run: Any = None

    def draw(self, step: int, numbers: Mapping[str, float], *, gone_back: bool) -> None:
        if self._run is None:
            with redirect_stdout(sys.stderr):  # trackio prints; standard output may be one JSON document
                self._run = self._open()
        if self._kind == "trackio":
            self._run.log(dict(numbers), step=step)
        else:
            # A metric of its own: the built-in counter refuses a step that a resumed run takes for the second time.
            self._run.log({"step": step, **numbers})

    def _open(self) -> Any:
        library = importlib.import_module(self._kind)
        project = os.environ.get(f"{self._kind.upper()}_PROJECT", PROJECT)
        if self._kind == "trackio":
            return library.init(project=project, name=self._folder.name, config=self._config, resume="allow")
        known = self._folder / ".wandb-id"
        if not known.exists():
            known.write_text(token_hex(4))
        run = library.init(
            project=project,
            name=self._folder.name,
            config=self._config,
            id=known.read_text(),
            resume="allow",
            dir=str(self._folder),
        )
        run.define_metric("*", step_metric="step")
        return run

    def flush(self) -> None:
        """Nothing to do: they send by themselves."""

    def close(self) -> None:
        if self._run is not None:
            with redirect_stdout(sys.stderr):
                self._run.finish()
        self._run = None

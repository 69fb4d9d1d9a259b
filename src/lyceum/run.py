"""The run folder: what a run leaves behind, and what a resumed run finds again.

::

    runs/NAME/recipe.yaml  summary.json  metrics.jsonl  examples.json  report.html
              rollouts/  checkpoints/  model/  value/  tensorboard/
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import yaml
from jaxtyping import Float
from torch import Tensor

from lyceum import checkpoint
from lyceum.component import RecipeError, require_keys
from lyceum.curves import Curves, Tracker, open_curves
from lyceum.evaluate.run_folder import read_recipe, read_summary
from lyceum.files import Lock, atomic_write
from lyceum.machine import versions
from lyceum.metrics import Metrics, finite
from lyceum.tree import Tree

_WRITTEN = (
    *("summary.json", "metrics.jsonl", "examples.json", "report.html"),
    *("rollouts", "checkpoints", "model", "value", "tensorboard", "wandb", ".wandb-id"),
    "recipe.yaml",  # last: without it the folder would not be known as a run any more
)


class Run:
    """One run's folder, held by this process until :meth:`close`. Made by :meth:`start`.

    Steps are numbered through the whole run, stages included, and only grow. In the loop::

        run = Run.start("runs", "demo", recipe, resume="auto")
        if (found := run.restore()) is not None:
            step, state = found
        with run.timed("generate"): ...
        run.record(step, metrics)
        run.checkpoint(step, state)
    """

    def __init__(
        self,
        path: Path,
        lock: Lock,
        *,
        resumed: bool,
        complete: bool,
        curves: Sequence[Curves],
        keep: int,
        rollouts_every: int,
        max_trajectories: int,
    ) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        self.model = path / "model"
        self.value = path / "value"
        self.report = path / "report.html"
        self.resumed = resumed
        self.complete = complete
        """Resumed and found finished: all that it may lack is its report."""
        self.seconds: dict[str, float] = {"checkpoint": 0.0}
        """Spent in each phase since the run began, interruptions left out."""
        self._lock = lock
        self._keep = keep
        self._rollouts_every = rollouts_every
        self._max_trajectories = max_trajectories
        self._restored = not resumed
        self._began = time.perf_counter()
        self._time_before = 0.0
        self._seconds_recorded: dict[str, float] = {}
        self._metrics = Metrics(path, curves)
        self._token_text: dict[int, str] = {}

    @classmethod
    def start(
        cls,
        root: Path | str,
        name: str,
        recipe: Mapping[str, Any],
        *,
        resume: bool | Literal["auto"] = False,
        overwrite: bool = False,
        may_differ: Iterable[str] = (),
        with_defaults: Callable[[dict[str, Any]], dict[str, Any]] = dict,
        keep: int = 2,
        rollouts_every: int = 10,
        max_trajectories: int = 256,
        track: Sequence[Tracker] = ("tensorboard",),
    ) -> Run:
        """Make ``root/name``, or find it again.

        Args:
            recipe: resolved, every default written out; plain values that YAML holds.
            resume: True continues the run that is there; "auto" does so where there is one and begins where there is
                none; False begins, and refuses a folder that holds a run.
            overwrite: remove the run that is there and begin.
            may_differ: keys in which a resumed run's recipe may differ from the one it began with, because they do not
                change what was done so far: dotted, ``*`` stands for anything (``stages.*.steps``).
            with_defaults: fills in what the recipe of a run lacks that an earlier version began.
            keep: checkpoints that stay.
            rollouts_every: :meth:`rollouts` writes on steps that this divides.
            max_trajectories: that it writes on each.
            track: where its curves are drawn.
        Raises:
            RecipeError: there is a run and this may not touch it, another process writes it, or nothing to resume.
        """
        check_name("name", name)
        path = Path(root) / name
        there = (path / "recipe.yaml").exists()
        foreign = [] if not path.is_dir() else [entry for entry in os.listdir(path) if not entry.startswith(".")]
        if foreign and not there:
            raise RecipeError(f"name: {path} exists and is not a run (no recipe.yaml); choose another name")
        if resume is True and overwrite:
            raise RecipeError("resume: got true together with overwrite=true; allowed: one of them")
        if resume is True and not there:
            raise RecipeError(
                f"resume: got true, but there is no run in {path}; allowed: the name of a run, or no resume"
            )
        try:
            path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError, PermissionError) as error:
            raise RecipeError(f"output: {path} cannot be made ({error.strerror}); allowed: another folder") from error
        try:
            lock = Lock(path / ".lock")
        except BlockingIOError as error:
            raise RecipeError(
                f"name: {path} is being written by process {error.filename}; wait for it, or choose another name"
            ) from error
        try:
            began = with_defaults(read_recipe(path)) if there and not overwrite else None
            resumed = cls._resumes(path, began, recipe, resume=resume, may_differ=tuple(may_differ))
            for leftover in (*path.glob(".partial-*"), *path.glob("rollouts/.partial-*")):  # of killed writes
                leftover.unlink()
            if not resumed:
                for entry in _WRITTEN:
                    _remove(path / entry)
            limits = {"keep": keep, "rollouts_every": rollouts_every, "max_trajectories": max_trajectories}
            complete = resumed and _is_finished(path)
            run = cls(path, lock, resumed=resumed, complete=complete, curves=open_curves(track, path, recipe), **limits)
            atomic_write(path / "recipe.yaml", _yaml(recipe))
            if complete:
                return run  # its summary tells of what was done, which is nothing now
            now = versions()
            before = run.summary().get("versions", now).get("torch")
            if resumed and before != now["torch"]:
                warnings.warn(
                    f"{path} began under torch {before}, now {now['torch']}: results may differ in their last bits",
                    stacklevel=2,
                )
            run.summary({"versions": now, "finished": False})
        except BaseException:
            lock.release()
            raise
        return run

    @staticmethod
    def _resumes(
        path: Path,
        began: dict[str, Any] | None,
        recipe: Mapping[str, Any],
        *,
        resume: bool | Literal["auto"],
        may_differ: tuple[str, ...],
    ) -> bool:
        """Whether to go on with what is there; raises where that is neither wanted nor possible.

        Args:
            began: recipe of the run that is there; None where there is none, or it is to be replaced.
        """
        if began is None:
            return False
        refused = refused_changes(path, began, recipe, may_differ=may_differ)
        ways = "another name, or overwrite=true (--overwrite) to replace it"
        if refused:
            raise RecipeError([*refused, f"name: {path} holds a run of another recipe; allowed: its recipe, {ways}"])
        if _is_finished(path):
            if (path / "report.html").exists():
                raise RecipeError(f"name: {path} has finished; allowed: {ways}")
            if resume is False:
                raise RecipeError(
                    f"name: {path} lacks nothing but its report; allowed: resume=true (--resume) to write it, {ways}"
                )
        elif resume is False:
            saved = checkpoint.latest(path / "checkpoints")
            reached = "no checkpoint yet" if saved is None else f"saved at step {checkpoint.step_of(saved)}"
            raise RecipeError(
                f"name: {path} holds a run, {reached}; allowed: resume=true (--resume) to go on with it, {ways}"
            )
        return True

    def restore(self) -> tuple[int, dict[str, Any]] | None:
        """Go back to the newest whole checkpoint: its step and state, or None to begin at the beginning.

        What was recorded after it is dropped, so that the files read as if the run had never been interrupted.
        """
        found = checkpoint.latest(self.checkpoints) if self.resumed else None
        saved = checkpoint.load(found) if found is not None else None
        if found is not None and saved is not None:
            require_keys(f"{found}", given=saved, needed=("run", "state"))
            self._load_state_dict(saved["run"])
            # A kill may have come between a checkpoint and the removal of what it replaced.
            checkpoint.prune(self.checkpoints, checkpoint.step_of(found), self._keep)
        if self.resumed:
            state = {"last_step": None, "lines": 0} if saved is None else saved["run"]
            self._metrics.go_back(state["last_step"], state["lines"])
            for rollouts in (self.path / "rollouts").glob("step-*.parquet"):
                if state["last_step"] is None or int(rollouts.stem.removeprefix("step-")) > state["last_step"]:
                    rollouts.unlink()
        self._restored = True
        self._began = time.perf_counter()
        return None if found is None or saved is None else (checkpoint.step_of(found), saved["state"])

    def checkpoint(self, step: int, state: Mapping[str, Any]) -> Path:
        """Write the state whole or not at all, with what the run itself must know to go on.

        Raises:
            checkpoint.CheckpointError: it could not be written; the one before is intact.
        """
        self._require_restored()
        with self.timed("checkpoint"):
            # What the checkpoint says was recorded must be on the disk before it is.
            self._metrics.flush()
            saved = {"run": self._state_dict(), "state": dict(state)}
            return checkpoint.save(self.checkpoints, step, saved, keep=self._keep)

    def record(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Append one line to metrics.jsonl, and its numbers to TensorBoard.

        ``time`` (seconds of running since the run began) and ``seconds/PHASE`` (of each timed phase since the last
        line) are added where ``metrics`` lacks them. Values may be numbers, one-element tensors, strings, booleans and
        None. A figure that is not finite is null, and ``NAME/nonfinite`` says ``nan``, ``inf`` or ``-inf``.
        """
        self._require_restored()
        line: dict[str, Any] = {"time": round(self.time, 3)}
        for phase, seconds in self.seconds.items():
            line[f"seconds/{phase}"] = round(seconds - self._seconds_recorded.get(phase, 0.0), 4)
        self._metrics.append(step, line | dict(metrics))
        self._seconds_recorded = dict(self.seconds)

    def rollouts(
        self,
        step: int,
        trees: Sequence[Tree],
        advantage: Float[Tensor, "R L"] | None,
        decode: Callable[[Sequence[int]], str],
        *,
        always: bool = False,
    ) -> Path | None:
        """Write the step's trajectories (see :func:`lyceum.trajectories.trajectory_table`).

        On other steps than ``rollouts_every`` says nothing is written and None returned, unless ``always``.
        """
        self._require_restored()
        if step % self._rollouts_every and not always:
            return None
        import pyarrow.parquet as parquet  # here, because only runs that write rollouts should wait for it

        from lyceum.trajectories import trajectory_table

        limit, known = self._max_trajectories, self._token_text
        table = trajectory_table(step, trees, advantage, decode, limit=limit, token_text=known)
        content = BytesIO()
        # Measured on 256 short rows: without dictionaries a sixth smaller than with, and in two thirds of the time.
        parquet.write_table(table, content, compression="zstd", use_dictionary=False, write_statistics=False)
        target = self.path / "rollouts" / f"step-{step:06d}.parquet"
        target.parent.mkdir(exist_ok=True)
        # Nothing resumes from it, so a kill must not tear it, but no step waits for the disk.
        atomic_write(target, content.getvalue(), durable=False)
        return target

    def summary(self, update: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Merge figures into summary.json, ``seconds`` by phase included; gives all of them. Without one, reads."""
        figures = read_summary(self.path)
        if update is not None:
            figures |= {"seconds": {phase: round(spent, 3) for phase, spent in self.seconds.items()}}
            figures |= update
            atomic_write(self.path / "summary.json", json.dumps(finite(figures), indent=2, allow_nan=False) + "\n")
        return figures

    def examples(self, examples: Sequence[Mapping[str, Any]]) -> None:
        """Write examples.json: the same tasks answered before and after training."""
        content = json.dumps(finite(list(examples)), indent=2, allow_nan=False) + "\n"
        atomic_write(self.path / "examples.json", content)

    def read_examples(self) -> list[dict[str, Any]]:
        """What :meth:`examples` wrote; nothing where it did not."""
        file = self.path / "examples.json"
        return json.loads(file.read_bytes()) if file.exists() else []

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Add the time spent inside to a phase; also when it is left by an exception."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - began

    @property
    def time(self) -> float:
        """Seconds of running since the run began; the time between an interruption and its resumption left out."""
        return self._time_before + time.perf_counter() - self._began

    def close(self) -> None:
        """Flush what was recorded and let other processes have the folder. Harmless twice."""
        self._metrics.close()
        self._lock.release()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _state_dict(self) -> dict[str, Any]:
        recorded = {"last_step": self._metrics.last_step, "lines": self._metrics.lines}
        return {**recorded, "time": self.time, "seconds": dict(self.seconds)}

    def _load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("run", given=state, needed=self._state_dict())
        self._time_before = state["time"]
        for phase, seconds in state["seconds"].items():  # what was timed before restoring (loading a model) adds up
            self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds
        self._seconds_recorded = dict(state["seconds"])

    def _require_restored(self) -> None:
        if not self._restored:
            raise RuntimeError(f"{self.path} is resumed: call restore() before anything is recorded")


def check_name(key: str, name: str) -> None:
    """Raise RecipeError for what cannot be the name of a folder of ours."""
    if not re.fullmatch(r"\w[\w.+-]*", name):
        raise RecipeError(f"{key}: got {name!r}; allowed: letters, digits, '_', '.', '+' and '-', a letter first")


def _yaml(recipe: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(recipe), sort_keys=False, allow_unicode=True)


def _flat(value: Any, key: str = "") -> dict[str, Any]:
    """Dotted keys of a recipe; an empty mapping or list is a value of its own."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    below: dict[str, Any] = {}
    for name, item in items:
        below |= _flat(item, f"{key}.{name}" if key else str(name))
    return below or {key: value}


def refused_changes(
    path: Path, began: Mapping[str, Any], recipe: Mapping[str, Any], *, may_differ: Sequence[str]
) -> list[str]:
    """One line for each key in which a recipe is another one than the run in ``path`` began with.

    Args:
        may_differ: patterns of dotted keys that do not count.
    """
    differing = _differences(began, yaml.safe_load(_yaml(recipe)))
    return [
        f"{key}: got {given!r}, but {path} began with {began!r}"
        for key, (began, given) in differing.items()
        if not any(fnmatchcase(key, pattern) for pattern in may_differ)
    ]


def _differences(began: Any, given: Any) -> dict[str, tuple[Any, Any]]:
    """Dotted key -> (value there, value here) where two recipes differ; an absent key's value reads 'nothing'."""
    there, here = _flat(began), _flat(given)
    keys = dict.fromkeys([*here, *there])
    pairs = {key: (there.get(key, "nothing"), here.get(key, "nothing")) for key in keys}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def _is_finished(path: Path) -> bool:
    return bool(read_summary(path).get("finished"))


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)

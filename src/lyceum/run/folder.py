"""The run folder: what a run writes, and what a resumed run reads back.

::

    runs/NAME/recipe.yaml  summary.json  metrics.jsonl  examples.json  report.html
              rollouts/  checkpoints/  model/  best/  value/  stages/NAME/model/  stages/NAME/value/
              tensorboard/  digests/  trees/  replay/  data/  stages/NAME/data/  tasks/  initial/
              kept_models/step-N/
"""

from __future__ import annotations

import os
import re
import shutil
import time
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from jaxtyping import Float

from lyceum.core.component import require_keys
from lyceum.core.tree import Tree
from lyceum.run import checkpoint
from lyceum.run.metrics import Metrics
from lyceum.run.reader import FILES, is_run, read_examples, read_recipe, read_summary
from lyceum.run.set_aside import discard, is_set_aside, put_back, set_aside
from lyceum.run.trackers import Curves, Tracker, open_curves
from lyceum.run.versions import versions
from lyceum.utils.atomic_files import DAMAGED, FULL, Lock, atomic_path, atomic_write, remove
from lyceum.utils.documents import read_yaml, write_yaml
from lyceum.utils.errors import RecipeError
from lyceum.utils.lazy_imports import Tensor
from lyceum.utils.numbers import plain, to_json

if TYPE_CHECKING:
    from lyceum.run.trees import StepTrees

KEPT = "tasks"
"""Folder with the rows that were passed in from Python."""

INITIAL = "initial"
"""Folder with the model that was passed in from Python, as it was before training."""

AHEAD = "ahead"
"""Folder with groups that are finished and that no checkpoint has as trained (``runtime.order=ready``)."""

_OF_STEPS = ("rollouts", "digests", "trees", "replay", "kept_models")
"""Folders with one file, or a model, per step, which a resumed run drops after its checkpoint."""

MOST_CHECKED_BYTES = 256 << 20
"""Of a resumed run's records so many are read again, the newest: some tenths of a second. All sizes are compared."""
MOST_NAMED = 5

MOST_TRAJECTORIES = 256
"""Maximum trajectories that the table of a step's rollouts has."""

_NAMES = (*FILES, *(name + DAMAGED for name in FILES))

WAYS = "another name, or overwrite=true (--overwrite) to replace it"


class Run:
    """One run's folder, held by this process until :meth:`close`. Made by :meth:`claim`.

    Steps are numbered through the whole run, stages included, and only grow::

        with Run.claim("runs", "demo", recipe, resume="auto") as run:
            ...  # load the model: until begin() nothing that was there is touched
            run.begin()
            if (found := run.restore()) is not None:
                step, state = found
            with run.timed("generate"): ...
            run.record(step, metrics)
            run.checkpoint(step, state)

    When an exception ends it, a run that never began leaves nothing behind, and neither does one that was refused
    before its first step. A run that it was to replace is restored unless the new one had a checkpoint or finished.
    """

    def __init__(
        self,
        path: Path,
        lock: Lock,
        *,
        made: Sequence[Path],
        recipe: Mapping[str, Any],
        resumed: bool,
        complete: bool,
        saved: Path | None,
        curves: Sequence[Curves],
        keep: int,
        rollouts_every: int,
    ) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        self.model = path / "model"
        self.best = path / "best"
        self.stages = path / "stages"
        self.kept_models = path / "kept_models"
        self.models = path / "models"
        self.report = path / "report.html"
        self.resumed = resumed
        self.complete = complete
        """Resumed and already finished: only its report may be missing."""
        self.seconds: dict[str, float] = {"checkpoint": 0.0}
        """Seconds spent in each phase since the run began, interruptions excluded."""
        self._lock = lock
        self._made = made  # the created ones of: the lock's file, the folder and those above it, in this order
        self._recipe = dict(recipe)
        self._saved = saved  # checkpoint that a resumed run continues from
        self._begun = self._replaces = self._has_steps = False
        self._summary: dict[str, Any] = {}
        self._examples: list[dict[str, Any]] = []
        self._keep = keep
        self._rollouts_every = rollouts_every
        self._restored = not resumed
        self._began = time.perf_counter()
        self._time_before = 0.0
        self._seconds_recorded: dict[str, float] = {}
        self._records: dict[str, list[int]] = {}  # of each step's files: size and CRC-32, as they were written
        self._metrics = Metrics(path, curves)
        self._token_text: dict[int, str] = {}

    @classmethod
    def claim(
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
        track: Sequence[Tracker] = ("tensorboard",),
    ) -> Run:
        """Hold ``root/name`` for a new run, or for the existing one. Existing files are not changed.

        Args:
            recipe: resolved, every default written out; plain values for YAML.
            resume: True continues the existing run; "auto" does so where there is one and begins a new one otherwise;
                False begins a new run, and refuses a folder that holds one.
            overwrite: replace the existing run.
            may_differ: keys in which a resumed run's recipe may differ from the one it began with, because they do not
                change what was done so far: dotted, ``*`` matches anything (``stages.*.steps``).
            with_defaults: fills in keys that are missing in the recipe of a run of an earlier version.
            keep: number of checkpoints kept.
            rollouts_every: :meth:`rollouts` writes every this many steps.
            track: trackers that draw its curves.
        Raises:
            RecipeError: there is a run that this may not touch, another process writes it, or nothing to resume.
        """
        path = _place(root, name, resume=resume, overwrite=overwrite)
        lock, made = _held(path)
        try:
            _recover(path)
            discard(path)
            began = _read_recipe(path, with_defaults) if is_run(path) and not overwrite else None
            resumed = _resumes(path, began, recipe, resume=resume, may_differ=tuple(may_differ))
            complete = resumed and _is_finished(path)
            return cls(
                path,
                lock,
                made=made,
                recipe=recipe,
                resumed=resumed,
                complete=complete,
                saved=_last_checkpoint(path) if resumed and not complete else None,
                curves=open_curves(track, path, recipe),
                keep=keep,
                rollouts_every=rollouts_every,
            )
        except BaseException:
            _let_go(lock, made)
            raise

    def begin(self) -> None:
        """Write the recipe, repair what a resumed run needs, and set aside a run that is to be replaced."""
        path = self.path
        self._begun = True
        for folder in (".", KEPT, INITIAL, AHEAD, *_OF_STEPS):
            for leftover in path.glob(f"{folder}/.partial-*"):  # from killed writes
                remove(leftover)
        if self.resumed:
            self._summary, self._examples = self._read_summary(), self._read_examples()
        elif any(os.path.lexists(path / name) for name in _NAMES):
            self._replaces = True
            set_aside(path, _NAMES)
        atomic_write(path / "recipe.yaml", write_yaml(self._recipe))
        if self.complete:
            return  # its summary describes the work done, and nothing is done now
        now = versions()
        before = self._summary.get("versions", now).get("torch")
        if self.resumed and before != now["torch"]:
            warnings.warn(
                f"{path} began under torch {before}, now {now['torch']}: results may differ in their last bits",
                stacklevel=2,
            )
        self.summary({"versions": now, "finished": False})

    def keep_given(self, files: Mapping[str, Path]) -> None:
        """Copy what was passed in from Python (files of rows, a model's folder), each once: a resumed run reads the
        same.

        Args:
            files: name within the run's folder -> file or folder.
        """
        for name, file in files.items():
            kept = self.path / name
            if kept.exists():
                continue
            kept.parent.mkdir(exist_ok=True)
            if file.is_dir():
                partial = kept.with_name(f".partial-{kept.name}")
                shutil.copytree(file, partial)
                partial.rename(kept)
                continue
            with atomic_path(kept) as partial:
                shutil.copyfile(file, partial)

    def keep(self) -> None:
        """Keep this run and remove the one it replaces. Checkpoints, a finished summary and :meth:`close` do so too."""
        if self._replaces:
            discard(self.path)
            self._replaces = False

    def leave(self) -> None:
        """Release the folder before anything began there, and remove what had to be created to hold it."""
        self._metrics.close()
        _let_go(self._lock, self._made)

    def undo(self, error: BaseException) -> None:
        """Clean up where an exception ends the run, as described under :class:`Run`; then :meth:`close`."""
        path = self.path
        self._metrics.close()
        try:
            if self._replaces:
                put_back(path, _NAMES)
                self._replaces = False
                error.add_note(f"{path} holds the run again that was to be replaced: the new one had no checkpoint yet")
            elif not self._begun:
                self.leave()
                if not is_run(path) and not isinstance(error, RecipeError):
                    error.add_note(f"nothing was written to {path}")
            elif not self.resumed and not self._has_steps and isinstance(error, RecipeError):
                for name in _NAMES:
                    remove(path / name)
                _let_go(self._lock, self._made)
        except OSError as failed:
            # Anything half moved is moved back by the next command.
            error.add_note(f"{path} could not be cleaned up: {failed}")
            self._replaces = False
        self.close()

    @property
    def threads(self) -> int | None:
        """Threads that a resumed run was computed with so far; None where that is unknown, and for a new one."""
        if not self.resumed:
            return None
        try:
            return read_summary(self.path).get("threads")
        except RecipeError:  # `begin` says so
            return None

    def restore(self) -> tuple[int, dict[str, Any]] | None:
        """Go back to the newest complete checkpoint: its step and state, or None to start from the beginning.

        Metrics and files after it are dropped, so that the files read as if the run had never been interrupted.
        """
        found = self._saved
        saved = checkpoint.load(found) if found is not None else None
        if found is not None and saved is not None:
            require_keys(f"{found}", given=saved, needed=("run", "state"))
            self._load_state_dict(saved["run"])
            # The run may have been killed between a checkpoint and the removal of what it replaced.
            checkpoint.prune(self.checkpoints, checkpoint.step_of(found), self._keep)
        if self.resumed:
            state = {"last_step": None, "lines": 0} if saved is None else saved["run"]
            self._metrics.go_back(state["last_step"], state["lines"])
            last = -1 if state["last_step"] is None else state["last_step"]
            for file in (file for folder in _OF_STEPS for file in self.path.glob(f"{folder}/step-*")):
                if (step := re.fullmatch(r"step-([0-9]+)", file.stem)) and int(step[1]) > last:
                    remove(file)
            self._check_records()
        self._restored = True
        self._began = time.perf_counter()
        return None if found is None or saved is None else (checkpoint.step_of(found), saved["state"])

    def _check_records(self) -> None:
        """Say which records of earlier steps are no longer as they were written: the run does not read them, but the
        commands that do will refuse them."""
        left, damaged = MOST_CHECKED_BYTES, list[str]()
        for name, (size, checksum) in reversed(self._records.items()):  # the newest first
            try:
                content = (self.path / name).read_bytes() if (left := left - size) >= 0 else None
                there = (self.path / name).stat().st_size
            except OSError:
                damaged.append(f"{name} (missing)")
                continue
            if there != size or (content is not None and zlib.crc32(content) != checksum):
                damaged.append(name)
        if damaged:
            more = f" and {len(damaged) - MOST_NAMED} more" if len(damaged) > MOST_NAMED else ""
            warnings.warn(
                f"{self.path}: not as the run wrote it: {', '.join(damaged[::-1][:MOST_NAMED])}{more}; the run goes on "
                "without, and commands that read these (same, replay, grade, view) will say so",
                stacklevel=3,
            )

    def checkpoint(self, step: int, state: Mapping[str, Any]) -> Path:
        """Write the state atomically, with what the run itself needs to continue.

        Raises:
            checkpoint.CheckpointError: it could not be written; the previous one is intact.
        """
        self._require_restored()
        with self.timed("checkpoint"):
            # Metrics that the checkpoint refers to must be on the disk before it is.
            self._metrics.flush()
            saved = {"run": self._state_dict(), "state": dict(state)}
            written = checkpoint.save(self.checkpoints, step, saved, keep=self._keep)
        self._has_steps = True
        self.keep()
        return written

    def record(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Append one line to metrics.jsonl, and its numbers to TensorBoard.

        ``time`` (seconds of running since the run began) and ``seconds/PHASE`` (of each timed phase since the last
        line) are added where ``metrics`` lacks them. Values may be numbers, one-element tensors, strings, booleans and
        None. A metric that is not finite is null, and ``NAME/nonfinite`` says ``nan``, ``inf`` or ``-inf``.
        """
        self._require_restored()
        line: dict[str, Any] = {"time": round(self.time, 3)}
        for phase, seconds in self.seconds.items():
            line[f"seconds/{phase}"] = round(seconds - self._seconds_recorded.get(phase, 0.0), 4)
        self._metrics.append(step, line | dict(metrics))
        self._seconds_recorded = dict(self.seconds)
        self._has_steps = True

    def rollouts(
        self,
        step: int,
        trees: Sequence[Tree],
        advantage: Float[Tensor, "R L"] | None,
        decode: Callable[[Sequence[int]], str],
        *,
        always: bool = False,
    ) -> Path | None:
        """Write the step's trajectories (see :func:`lyceum.run.rollout_table.trajectory_table`).

        On steps that ``rollouts_every`` skips nothing is written and None returned, unless ``always``.
        """
        self._require_restored()
        if step % self._rollouts_every and not always:
            return None
        from lyceum.run.rollout_table import as_parquet, trajectory_table  # here: imports pyarrow, which is slow

        known = self._token_text
        table = trajectory_table(step, trees, advantage, decode, limit=MOST_TRAJECTORIES, token_text=known)
        return self._write_record("rollouts", f"step-{step:06d}.parquet", as_parquet(table))

    def digests(self, step: int, by_room: Mapping[str, Any]) -> None:
        """Write a step's digests (see :mod:`lyceum.run.digests`)."""
        self._require_restored()
        content = to_json(by_room, indent=1) + "\n"
        self._write_record("digests", f"step-{step:06d}.json", content.encode())

    def trees(self, step: StepTrees) -> Path:
        """Write a step's trees whole (see :mod:`lyceum.run.trees`)."""
        self._require_restored()
        from lyceum.run.trees import write_trees  # here: imports pyarrow

        return self._write_record("trees", f"step-{step.heading.step:06d}.parquet", write_trees(step))

    def _write_record(self, folder: str, name: str, content: bytes) -> Path:
        """Write what a step leaves for readers of the run. A kill must not leave it incomplete, but nothing resumes
        from it, so no step waits for the disk."""
        target = self.path / folder / name
        target.parent.mkdir(exist_ok=True)
        atomic_write(target, content, durable=False)
        self._records[f"{folder}/{name}"] = [len(content), zlib.crc32(content)]
        return target

    def summary(self, update: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Merge metrics into summary.json, with ``seconds`` by phase; returns all of them. Without any, only reads."""
        if update is not None:
            seconds = {phase: round(spent, 3) for phase, spent in self.seconds.items()}
            metrics = self._summary | plain({"seconds": seconds, **update})
            atomic_write(self.path / "summary.json", to_json(metrics, indent=2) + "\n")
            self._summary = metrics
            if metrics.get("finished"):
                self.keep()
        return dict(self._summary)

    def examples(self, examples: Sequence[Mapping[str, Any]]) -> None:
        """Write examples.json: the same tasks answered before and after training."""
        self._examples = plain(list(examples))
        atomic_write(self.path / "examples.json", to_json(self._examples, indent=2) + "\n")

    def read_examples(self) -> list[dict[str, Any]]:
        """What :meth:`examples` wrote; empty where it did not."""
        return self._examples

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Add the time spent inside to a phase; also when an exception ends it."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - began

    @property
    def time(self) -> float:
        """Seconds of running since the run began; the time between an interruption and its resumption excluded."""
        return self._time_before + time.perf_counter() - self._began

    def close(self) -> None:
        """Flush the metrics and release the folder for other processes. May be called twice."""
        self._metrics.close()
        self.keep()
        self._lock.release()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if error is not None:
            self.undo(error)
        self.close()

    def _read_summary(self) -> dict[str, Any]:
        file, then = self.path / "summary.json", "what was measured before training is measured again"
        try:
            if self._saved is not None and not file.exists():
                warnings.warn(f"{file} is missing: {then}", stacklevel=3)
            return read_summary(self.path)
        except RecipeError as error:
            _put_by(file, error, then)
        return {}

    def _read_examples(self) -> list[dict[str, Any]]:
        try:
            return read_examples(self.path)
        except RecipeError as error:
            _put_by(self.path / "examples.json", error, "the report will lack the answers from before training")
        return []

    def _state_dict(self) -> dict[str, Any]:
        recorded = {"last_step": self._metrics.last_step, "lines": self._metrics.lines}
        return {**recorded, "time": self.time, "seconds": dict(self.seconds), "records": dict(self._records)}

    def _load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("run", given=state, needed=self._state_dict())
        self._time_before, self._records = state["time"], dict(state["records"])
        for phase, seconds in state["seconds"].items():  # time before restoring (loading a model) is added
            self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds
        self._seconds_recorded = dict(state["seconds"])

    def _require_restored(self) -> None:
        if not self._restored:
            raise RuntimeError(f"{self.path} is resumed: call restore() before anything is recorded")


def check_claim(
    root: Path | str,
    name: str,
    recipe: Mapping[str, Any],
    *,
    resume: bool | Literal["auto"] = False,
    overwrite: bool = False,
    may_differ: Sequence[str] = (),
    with_defaults: Callable[[dict[str, Any]], dict[str, Any]] = dict,
) -> None:
    """Raise RecipeError where :meth:`Run.claim` would; what has to be made to see is removed."""
    path = _place(root, name, resume=resume, overwrite=overwrite)
    _let_go(*_held(path))
    if is_run(path) and not is_set_aside(path) and not overwrite:
        _resumes(path, _read_recipe(path, with_defaults), recipe, resume=resume, may_differ=may_differ)


def _place(root: Path | str, name: str, *, resume: bool | Literal["auto"], overwrite: bool) -> Path:
    """The folder of a run. Raises RecipeError where it is another's, or there is nothing to resume."""
    check_name("name", name)
    path = Path(root) / name
    there = is_run(path) or is_set_aside(path)
    if not there and path.is_dir() and any(not entry.startswith(".") for entry in os.listdir(path)):
        raise RecipeError(f"name: {path} exists and is not a run of lyceum; choose another name")
    if resume is True and overwrite:
        raise RecipeError("resume: got true together with overwrite=true; allowed: one of them")
    if resume is True and not there:
        raise RecipeError(f"resume: got true, but there is no run in {path}; allowed: the name of a run, or no resume")
    return path


def _taken(path: Path) -> RecipeError:
    """What to do about a folder that holds a run, which is neither to be resumed nor replaced, or cannot be resumed."""
    if not _is_finished(path):
        saved = checkpoint.latest(path / "checkpoints")
        reached = "no checkpoint yet" if saved is None else f"saved at step {checkpoint.step_of(saved)}"
        return RecipeError(
            f"name: {path} holds a run, {reached}; allowed: resume=true (--resume) to continue it, {WAYS}"
        )
    if not (path / "report.html").exists():
        return RecipeError(
            f"name: {path} lacks nothing but its report; allowed: resume=true (--resume) to write it, {WAYS}"
        )
    return RecipeError(f"name: {path} has finished; allowed: {WAYS}{_further(path)}")


def _further(path: Path) -> str:
    """How to go on from a finished run."""
    return f"; to train its model further: model={path / 'model'} and another name"


def check_name(key: str, name: str) -> None:
    """Raise RecipeError for what cannot be the name of a run's folder."""
    if not re.fullmatch(r"\w[\w.+-]*", name):
        raise RecipeError(f"{key}: got {name!r}; allowed: letters, digits, '_', '.', '+' and '-', a letter first")


def _flat(value: Any, key: str = "") -> dict[str, Any]:
    """Dotted keys of a recipe; an empty mapping or list is a value of its own."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    below: dict[str, Any] = {}
    for name, item in items:
        below |= _flat(item, f"{key}.{name}" if key else str(name))
    return below or {key: value}


def _resumes(
    path: Path,
    began: dict[str, Any] | None,
    recipe: Mapping[str, Any],
    *,
    resume: bool | Literal["auto"],
    may_differ: Sequence[str],
) -> bool:
    """Whether to continue the existing run; raises where that is not requested or not possible.

    Args:
        began: recipe of the existing run; None where there is none, or it is to be replaced.
    """
    if began is None:
        return False
    if resume is False:
        raise _taken(path)
    refused = refused_changes(path, began, recipe, may_differ=may_differ)
    finished = _is_finished(path)
    if refused:
        held = "a finished run" if finished else "a run"
        own = "" if finished else f"its recipe (lyceum train {path / 'recipe.yaml'} --resume), "
        last = f"name: {path} holds {held} of another recipe; allowed: {own}{WAYS}"
        raise RecipeError([*refused, last + (_further(path) if finished else "")])
    if finished and (path / "report.html").exists():
        raise _taken(path)
    return True


def refused_changes(
    path: Path, began: Mapping[str, Any], recipe: Mapping[str, Any], *, may_differ: Sequence[str]
) -> list[str]:
    """One line per key in which a recipe differs from the one that the run in ``path`` began with; where it is a kind,
    none for the settings of both kinds.

    Args:
        may_differ: patterns of dotted keys to ignore.
    """
    differing = differences(began, read_yaml(write_yaml(dict(recipe))))
    others = tuple(key.removesuffix("kind") for key in differing if key.endswith(".kind"))
    return [
        f"{key}: got {given!r}, but {path} began with {began!r}"
        for key, (began, given) in differing.items()
        if not any(fnmatchcase(key, pattern) for pattern in may_differ)
        and not any(key.startswith(other) and key != f"{other}kind" for other in others)
    ]


def differences(began: Any, given: Any) -> dict[str, tuple[Any, Any]]:
    """Dotted key -> (value there, value here) where two recipes differ; an absent key's value reads 'nothing'."""
    there, here = _flat(began), _flat(given)
    keys = dict.fromkeys([*here, *there])
    pairs = {key: (there.get(key, "nothing"), here.get(key, "nothing")) for key in keys}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def recover(path: Path) -> None:
    """Restore the run that a killed ``--overwrite`` had set aside in this folder, unless a process is writing it."""
    if not is_set_aside(path):
        return
    try:
        lock = Lock(path / ".lock")
    except OSError:
        return  # being written, or not ours to write
    try:
        _recover(path)
    finally:
        lock.release()


def _recover(path: Path) -> None:
    if is_set_aside(path):
        put_back(path, _NAMES)
        warnings.warn(f"{path} holds the run again that a command was to replace when it was killed", stacklevel=4)


def _held(path: Path) -> tuple[Lock, list[Path]]:
    """The folder's lock, and what had to be created for it: its file, the folder, those above, in this order.

    Raises:
        RecipeError: another process holds it, or it cannot be created.
    """
    file = path / ".lock"
    made = [entry for entry in (file, path, *path.parents) if not entry.exists()]
    for last in (False, False, True):
        try:
            path.mkdir(parents=True, exist_ok=True)
            return Lock(file), made
        except BlockingIOError as error:
            raise RecipeError(
                f"name: {path} is being written by process {error.filename}; wait for it, or choose another name"
            ) from error
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not last:
                continue  # created and removed again by another process that was refused
            _take_away(made)
            if error.errno in FULL:
                raise
            raise RecipeError(f"output: {path} cannot be made ({error.strerror}); allowed: another folder") from error
    raise AssertionError("the last time returns or raises")


def _let_go(lock: Lock, made: Sequence[Path]) -> None:
    """Release the folder, and remove what had to be created for the lock."""
    _take_away(made)
    lock.release()


def _take_away(made: Sequence[Path]) -> None:
    for entry in made:
        try:
            entry.rmdir() if entry.is_dir() else entry.unlink(missing_ok=True)
        except OSError:
            return  # another process has written something into it


def _read_recipe(path: Path, with_defaults: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    try:
        return with_defaults(read_recipe(path))
    except RecipeError as error:
        raise RecipeError(
            [*error.lines, f"name: {path} holds a run whose recipe is damaged; allowed: {WAYS}"]
        ) from error


def _last_checkpoint(path: Path) -> Path | None:
    """The newest complete checkpoint; None where none was written yet.

    Raises:
        RecipeError: there are checkpoints and none is complete: starting over would drop all that is left of the run.
    """
    saved = checkpoint.latest(path / "checkpoints")
    if saved is None and (torn := checkpoint.found(path / "checkpoints")):
        raise RecipeError(
            f"resume: none of the {len(torn)} checkpoints in {path / 'checkpoints'} is whole; allowed: that folder as "
            f"the run wrote it, the run without that folder to begin again, {WAYS}"
        )
    return saved


def _is_finished(path: Path) -> bool:
    try:
        return bool(read_summary(path).get("finished"))
    except RecipeError:
        return False  # unknown: a resumed run repairs it


def _put_by(file: Path, error: RecipeError, then: str) -> None:
    """Rename a damaged file, with a warning."""
    os.replace(file, file.with_name(file.name + DAMAGED))
    why = error.lines[0].partition("; allowed: ")[0]
    warnings.warn(f"{why}. It is {file.name}{DAMAGED} now, and {then}", stacklevel=4)

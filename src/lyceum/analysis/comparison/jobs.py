"""Several runs of a comparison at a time, each a ``lyceum train`` of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import yaml

from lyceum.core import paper_folders
from lyceum.core.component import own_within
from lyceum.recipe.schema import Recipe
from lyceum.reward.base import named_code
from lyceum.utils.errors import NOTHING_LEARNT, STOPPED, Interrupted, RunError
from lyceum.utils.threads import VARIABLE, usable_cores

LAST_LINES = 5
"""Of what a run that failed has said."""
POLL = 0.2
"""Seconds between looks at the runs."""


@dataclass(frozen=True)
class TrainingJob:
    """A run under way."""

    recipe: Recipe
    process: subprocess.Popen[bytes]
    log: Path
    began: float


def run_jobs(
    recipes: Sequence[Recipe],
    jobs: int,
    interrupted: Callable[[], bool],
    say: Callable[[str], None],
    ended: Callable[[Recipe], None],
) -> None:
    """Train them, ``jobs`` at a time, in order; what each says is in ``NAME.log`` beside its folder.

    Args:
        interrupted: True ends the runs after their steps, with checkpoints.
        ended: called with each that has ended well; what it raises ends the others.
    Raises:
        Interrupted: as asked for.
        RunError: a run failed; the others were ended as if interrupted.
    """
    waiting, under_way = list(recipes), list[TrainingJob]()
    with ExitStack() as ending:
        ending.callback(lambda: [job.process.kill() for job in under_way])  # after a second Ctrl-C
        try:
            while waiting or under_way:
                if interrupted():
                    raise Interrupted(0)
                while waiting and len(under_way) < jobs:
                    under_way.append(job := begin(waiting.pop(0), jobs))
                    say(f"{job.recipe.name} runs, see {job.log}")
                for job in [each for each in under_way if each.process.poll() is not None]:
                    under_way.remove(job)
                    _check(job)
                    job.log.with_suffix(".yaml").unlink()  # its folder has the recipe now
                    ended(job.recipe)
                    say(f"{job.recipe.name} took {time.monotonic() - job.began:.0f} s")
                time.sleep(POLL)
        except Exception:
            for job in under_way:
                job.process.send_signal(signal.SIGINT)
            for job in list(under_way):
                job.process.wait()
                under_way.remove(job)
            raise


def begin(recipe: Recipe, jobs: int) -> TrainingJob:
    """Start a run, or let it go on where it was stopped."""
    folder = Path(recipe.output) / recipe.name
    folder.parent.mkdir(parents=True, exist_ok=True)
    file, log = folder.with_name(f"{recipe.name}.yaml"), folder.with_name(f"{recipe.name}.log")
    file.write_text(yaml.safe_dump(recipe.resolved(), sort_keys=False), encoding="utf-8")
    command = [sys.executable, "-m", "lyceum", "train", str(file), *paper_folders.options()]
    command += ["--resume"] if (folder / "recipe.yaml").is_file() else []
    if recipe.trust_code or own_within(recipe) or named_code(recipe):
        command.append("trust_code=true")  # the user has allowed it, or nothing would have begun
    environment = dict(os.environ)
    # Each has its part of the cores; a number that the user has set stays.
    environment.setdefault(VARIABLE, str(max(1, usable_cores() // jobs)))
    with log.open("ab") as said:
        # A session of its own: the terminal's Ctrl-C reaches this process alone, which passes it on once.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=environment, start_new_session=True
        )
    return TrainingJob(recipe, process, log, time.monotonic())


def _check(job: TrainingJob) -> None:
    """
    Raises:
        Interrupted: somebody has stopped the run.
        RunError: it has failed.
    """
    code = job.process.returncode
    if code == STOPPED:
        raise Interrupted(0)
    if code not in (0, NOTHING_LEARNT):  # after which there is a run to compare
        lines = [line for line in job.log.read_text("utf-8", "replace").splitlines() if line.strip()]
        raise RunError([f"{job.recipe.name} failed (exit code {code}); {job.log} ends:", *lines[-LAST_LINES:]])

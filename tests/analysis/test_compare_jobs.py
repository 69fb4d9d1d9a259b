"""Runs of a comparison that are trained beside each other are those that are trained one after another."""

import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from lyceum import api
from lyceum.analysis.comparison import jobs
from lyceum.analysis.comparison.jobs import TrainingJob, run_jobs
from lyceum.analysis.differences import first_difference, read_digests
from lyceum.cli.outcome import main
from lyceum.recipe.schema import parse
from lyceum.run.reader import read_recipe
from lyceum.training.train import train
from lyceum.utils.errors import Interrupted, RecipeError, RunError

TINY = {
    "model": "scratch",
    "steps": 1,
    "tasks_per_step": 2,
    "rollout.samples": 2,
    "rollout.sampling.max_completion_tokens": 4,
    "evaluate.n": 3,
    "evaluate.samples": 2,
    "checkpoint_every": 0,
    "threads": 1,
    "digests": True,
}


@pytest.fixture
def forks(monkeypatch):
    """Commands are run in forks of this process, which has imported everything."""
    file = Path(__file__).parents[2] / "benchmarks/forked.py"
    spec = importlib.util.spec_from_file_location("forked_commands", file)
    forked = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(forked)

    def popen(command, *, stdout, **how):
        assert command[:3] == [sys.executable, "-m", "lyceum"]
        assert how["env"]["OMP_NUM_THREADS"]

        def run():
            sys.stdout = sys.stderr = os.fdopen(1, "w", buffering=1, closefd=False)  # and not what pytest reads
            if (code := main(command[3:])) not in (0, 3):
                raise AssertionError(code)

        return forked.Forked(run, stdout)

    monkeypatch.setattr(jobs, "subprocess", SimpleNamespace(Popen=popen, DEVNULL=subprocess.DEVNULL))


def test_jobs_compare_the_same_runs(tmp_path, monkeypatch, forks):
    monkeypatch.setattr("lyceum.analysis.comparison.run.usable_cores", lambda: 2)
    own = tmp_path / "own.py"
    own.write_text("def score(completion):\n    return float(len(completion) % 3)\n")
    how = {"seeds": 1, "reward": f"{own}:score", "each": {"wide": {"objective.clip_high": 0.3}}, **TINY}
    found = api.compare(["grpo", "grpo@wide"], output=str(tmp_path), jobs=2, progress="silent", **how)
    assert [each.recipe for each in found.recipes] == ["grpo", "wide"]
    folder = tmp_path / "compare-grpo-wide"
    assert "grpo-seed0: step 1/1" in (folder / "grpo-seed0.log").read_text()
    there = folder / "grpo-seed0"
    alone = parse({**read_recipe(there), "output": str(tmp_path), "name": "alone"})
    assert first_difference(*map(read_digests, (there, train(alone)))) is None


def recipes(count):
    return [SimpleNamespace(name=f"run-{number}") for number in range(count)]


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Runs stand for programs: name -> what is run; and how many were under way at once."""
    found, most = {}, []

    def begin(recipe, number):
        log = tmp_path / f"{recipe.name}.log"
        with log.open("wb") as said:
            process = subprocess.Popen([sys.executable, "-c", found[recipe.name]], stdout=said, stderr=said)
        most.append(process)
        log.with_suffix(".yaml").touch()
        return TrainingJob(recipe, process, log, time.monotonic())

    monkeypatch.setattr(jobs, "begin", begin)
    monkeypatch.setattr(jobs, "POLL", 0.02)
    return found, most


STOPS = "import signal, sys, time\nsignal.signal(signal.SIGINT, lambda *_: sys.exit(130))\nprint('ready', flush=True)\n"


def test_at_most_so_many_are_under_way_and_each_is_taken_in(programs):
    found, processes = programs
    found.update(
        {f"run-{number}": f"import sys, time; time.sleep(0.1); sys.exit({3 * (number % 2)})" for number in range(5)}
    )
    most, ended = [], []

    def interrupted():
        most.append(sum(process.poll() is None for process in processes))
        return False

    run_jobs(recipes(5), 2, interrupted, lambda line: None, lambda recipe: ended.append(recipe.name))
    assert sorted(ended) == [f"run-{number}" for number in range(5)]
    assert max(most) == 2


def test_a_run_that_fails_ends_the_others_and_says_its_last_words(programs, tmp_path):
    found, processes = programs
    found["run-0"] = f"{STOPS}time.sleep(60)"
    found["run-1"] = (
        "import pathlib, sys, time\n"
        f"while 'ready' not in pathlib.Path({str(tmp_path)!r}, 'run-0.log').read_text(): time.sleep(0.02)\n"
        "print('no room')\nsys.exit(1)"
    )
    with pytest.raises(RunError, match=r"run-1 failed \(exit code 1\).*ends:\nno room"):
        run_jobs(recipes(3), 2, lambda: False, lambda line: None, lambda recipe: None)
    assert [process.returncode for process in processes] == [130, 1], "the third was not begun"


def test_an_interruption_is_passed_on_and_waited_for(programs, tmp_path):
    found, processes = programs
    found["run-0"] = f"{STOPS}time.sleep(60)"
    with pytest.raises(Interrupted):
        run_jobs(
            recipes(1),
            2,
            lambda: (tmp_path / "run-0.log").exists() and "ready" in (tmp_path / "run-0.log").read_text(),
            lambda line: None,
            lambda recipe: None,
        )
    assert processes[0].returncode == 130


def test_jobs_that_cannot_be_are_refused(tmp_path):
    with pytest.raises(RecipeError, match=r"jobs: got 4096 on \d+ cores"):
        api.compare(["grpo"], output=str(tmp_path), jobs=4096, **TINY)
    with pytest.raises(RecipeError, match=r"jobs: got 2 with .*passed in"):
        api.compare(["grpo"], output=str(tmp_path), jobs=2, reward=lambda completion, **_: 1.0, **TINY)

"""A run that is killed and resumed is the run that was never killed: the same weights and records, bit for bit."""

import hashlib
import json
import multiprocessing
import multiprocessing.forkserver
import os
import signal
import time
import warnings
from pathlib import Path
from random import Random

import pyarrow.parquet
import pytest
from resume_runs import SCENARIOS, run

from lyceum.run import checkpoint

SEED = 20240607
KILLS_AT_RANDOM_TIMES, KILLS_IN_CHECKPOINTS = 3, 2
"""Per scenario."""


@pytest.fixture(scope="module")
def processes():
    """Forked from a server that has imported everything, and that has run nothing whose threads a fork would lose."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pytest", "resume_runs"])
    with pytest.MonkeyPatch.context() as patch:
        # The server finds modules to import beforehand by this alone.
        patch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]))
        multiprocessing.forkserver.ensure_running()
    # The first process waits until everything is imported; none of the others, which are timed, has to.
    first = context.Process(target=int)
    first.start()
    first.join()
    return context


def attempt(processes, scenario, folder, *, seconds=None, die_at_write=None) -> bool:
    """Begin or resume; True where it came to its end, False where it was killed."""
    process = processes.Process(target=run, args=(scenario, str(folder.parent), folder.name, die_at_write))
    process.start()
    process.join(seconds)
    if process.exitcode is None:
        process.kill()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL), Path(f"{folder.parent}.log").read_text()[-2000:]
    return process.exitcode == 0


def is_finished(path: Path) -> bool:
    return (path / "summary.json").exists() and json.loads((path / "summary.json").read_text()).get("finished", False)


def outcome(path: Path) -> dict:
    """Everything a run leaves that is not a time."""

    def untimed(metrics):
        timed = ("time", "seconds", "tokens_per_second", "versions")
        return {k: v for k, v in metrics.items() if not k.startswith("seconds/") and k not in timed}

    assert all(line.endswith("\n") for line in (path / "metrics.jsonl").read_text().splitlines(keepends=True))
    return {
        "weights": {
            str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest()
            for folder in ("model", "models")
            for file in (path / folder).rglob("model.safetensors")
        },
        "metrics": [untimed(json.loads(line)) for line in (path / "metrics.jsonl").read_text().splitlines()],
        "summary": untimed(json.loads((path / "summary.json").read_text())),
        "examples": (path / "examples.json").read_text() if (path / "examples.json").exists() else None,
        "rollouts": {p.name: pyarrow.parquet.read_table(p).to_pylist() for p in (path / "rollouts").glob("*.parquet")},
        "replay": {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in (path / "replay").glob("*")},
        "checkpoints": {
            p.name: {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in p.glob("*.safetensors")}
            for p in (path / "checkpoints").iterdir()
        },
    }


def assert_only_whole_checkpoints_are_found(path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # one that is passed over, because it is torn, warns
        found = checkpoint.latest(path / "checkpoints")
    if found is not None:
        assert checkpoint.load(found)["state"].keys() == {"stage", "first_step", "counts", "of_stage"}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_killed_at_any_moment_a_run_ends_as_if_it_had_never_been(scenario, processes, tmp_path):
    began = time.perf_counter()
    assert attempt(processes, scenario, tmp_path / "whole" / "run")
    duration = time.perf_counter() - began
    expected = outcome(tmp_path / "whole" / "run")
    steps = sum(stage["steps"] for stage in SCENARIOS[scenario]["stages"])
    assert [line["step"] for line in expected["metrics"]] == list(range(1, steps + 1))
    assert any(line.get("loss") for line in expected["metrics"]), (
        "something was learnt, so that there is something to lose"
    )

    rng = Random(f"{SEED}/{scenario}")
    plan = [{"seconds": rng.uniform(0, duration)} for _ in range(KILLS_AT_RANDOM_TIMES)]
    plan += [{"die_at_write": rng.randrange(8)} for _ in range(KILLS_IN_CHECKPOINTS)]
    rng.shuffle(plan)
    kills = chains = 0
    while plan:
        # One run, killed again and again until it comes through or the plan is at its end.
        path = tmp_path / f"killed-{chains}" / "run"
        finished = False
        while plan and not finished:
            finished = attempt(processes, scenario, path, **plan[-1])
            if not finished:
                plan.pop()
                kills += 1
                assert_only_whole_checkpoints_are_found(path)
                finished = is_finished(path)  # killed while the report was drawn, which can be drawn again
            elif "seconds" in plan[-1]:
                plan[-1]["seconds"] *= 0.7  # it was faster than the whole one: kill the next one earlier
            else:
                plan[-1]["die_at_write"] //= 2  # resumed late, it had fewer checkpoints to write
        assert finished or attempt(processes, scenario, path)
        got = outcome(path)
        # Killed between a checkpoint's writing and the removal of older ones, the last one may leave one more.
        kept = {name: got["checkpoints"].get(name) for name in expected["checkpoints"]}
        assert got | {"checkpoints": kept} == expected
        chains += 1
    assert kills == KILLS_AT_RANDOM_TIMES + KILLS_IN_CHECKPOINTS

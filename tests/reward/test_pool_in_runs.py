"""Training with a verifier that stops: the run goes on at its limit, and Ctrl-C ends it."""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import pytest
from forked import Forked
from test_reward_pool import wait_for_end

from lyceum.cli.outcome import main

pytestmark = pytest.mark.slow

FUNCTION = """
import os, signal, sys, time

def tell():
    with open("waiting.part", "w") as file:
        file.write(str(os.getpid()))
    os.rename("waiting.part", "waiting")

def stop_instead(stream):
    tell()
    os.kill(os.getpid(), signal.SIGSTOP)

def stops_before_its_second_job(completion, columns):
    if not os.path.exists("waiting"):
        sys.modules["__main__"].receive = stop_instead
    return float(len(columns["long"]) == 200_000)

if os.path.exists("never") and sys.argv[0].endswith("worker.py"):
    tell()
    time.sleep(600)
"""
TINY = [
    *("steps=9", "tasks_per_step=2", "evaluate.n=0", "model=scratch", "rollout.samples=2"),
    *("rollout.sampling.max_completion_tokens=4", "tasks=data.jsonl", "tasks.heldout_share=0.5"),
]


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    rows = [{"prompt": f"{i}+1=", "answer": str(i + 1), "long": "9" * 200_000} for i in range(8)]
    Path("data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Path("mine.py").write_text(FUNCTION)


@contextmanager
def waiting_run(timeout_seconds: float) -> Iterator[tuple[Forked, TextIO, int]]:
    """A run that waits for its verifier, what it says, and the verifier's process."""
    function = f"kind: function, function: mine.py:stops_before_its_second_job, timeout_seconds: {timeout_seconds}"

    def train() -> None:
        sys.stdout = sys.stderr = os.fdopen(1, "w", buffering=1, closefd=False)  # and not what pytest reads
        os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
        os._exit(main(["train", "grpo", *TINY, f"reward={{{function}}}"]))

    read, write = os.pipe()
    with open(read) as said:
        with open(write, "wb") as out:
            run = Forked(train, out)
        try:
            while not Path("waiting").exists():
                assert run.poll() is None, said.read()
                time.sleep(0.02)
            yield run, said, int(Path("waiting").read_text())
        finally:
            run.kill()
            run.wait()


def test_a_stopped_verifier_costs_one_grade_and_ctrl_c_ends_the_run_after_its_step():
    with waiting_run(timeout_seconds=2) as (run, said, verifier):
        os.kill(run.pid, signal.SIGINT)
        assert run.wait(timeout=100) == 130
        err = said.read()
    assert "runs/grpo has a checkpoint of step 1" in " ".join(err.split())
    assert "no result within 2 seconds" in err
    wait_for_end(verifier)
    (metrics,) = map(json.loads, Path("runs/grpo/metrics.jsonl").read_text().splitlines())
    assert (metrics["ungraded"], metrics["reward/mean"]) == (1, 1.0)  # the first one, and two of another process
    assert [path.name for path in Path("runs/grpo/checkpoints").iterdir()] == ["step-000001"]


@pytest.mark.parametrize(
    "never_starts", [False, pytest.param(True, marks=pytest.mark.engines)], ids=["before a job", "at its start"]
)
def test_a_second_ctrl_c_ends_a_wait_of_any_length_at_once(never_starts: bool):
    if never_starts:
        Path("never").touch()
    with waiting_run(timeout_seconds=10_000) as (run, said, verifier):
        os.kill(run.pid, signal.SIGINT)
        while "Ctrl-C again stops now" not in said.readline():
            assert run.poll() is None
        os.kill(run.pid, signal.SIGINT)
        assert run.wait(timeout=100) == 130
        assert "stopped" in said.read()
    wait_for_end(verifier)

"""Processes that a run starts: other numbers of them, one that dies, a run that is killed and goes on."""

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from fsdp_worker import policy
from test_fsdp import EVERYTHING, WITH_ALL, WORKER, assert_close, both, stored, weights
from test_local import credited, forest, same_bits

from lyceum.cli.outcome import main
from lyceum.learner._processes import ProcessEnded
from lyceum.learner.fsdp import FsdpConfig, processes
from lyceum.objective.ppo_clip import PPOClip


def started(number, kind="plain"):
    return processes(number, [sys.executable, str(WORKER), kind])


def step(learner):
    annotated = learner.annotate(forest(), frozenset({"reference_logprob", "old_value"}))
    return learner.step(annotated, credited(), WITH_ALL.build())


@pytest.mark.slow
@pytest.mark.parametrize("numbers", [(2, 1), pytest.param((2, 3, 1), marks=pytest.mark.engines)])
def test_adapters_of_two_processes_go_on_in_other_numbers_of_them(numbers):
    # The reference is the adapters as they began, kept as shares; the value head's one row is one process's.
    local, _ = both(EVERYTHING, "lora", eps=1e-3)
    began = weights(local)
    with torch.no_grad():
        for p in local.weights().parameters():  # as an earlier stage leaves them: the reference is not without them
            p.add_(0.01 * p.requires_grad)
    states, moved = [], []
    for number in numbers:
        with started(number, "lora"):
            shared = FsdpConfig(lr=1e-3, eps=1e-3, max_grad_norm=1e9).build(
                policy("lora"), total_steps=10, needs=EVERYTHING
            )
            if states:
                shared.load_state_dict(states[-1])
                assert same_bits(weights(shared), moved[-1])
            step(shared)
            states.append(stored(shared))
            moved.append(weights(shared))
    alone = both(EVERYTHING, "lora", eps=1e-3)[0]
    for expected in moved:
        step(alone)
        assert_close([w - b for w, b in zip(expected, began, strict=True)],
                     [w - b for w, b in zip(weights(alone), began, strict=True)], rtol=1e-3)  # fmt: skip


@pytest.mark.slow
@pytest.mark.started
def test_the_end_of_one_process_ends_all_with_a_line():
    with pytest.raises(ProcessEnded, match="process 1 of 2 was ended by SIGKILL"), started(2):  # noqa: PT012
        shared = FsdpConfig(lr=1e-3).build(policy("plain"), total_steps=9, needs=frozenset())
        assert shared.link.size == 2
        (other,) = others(WORKER.name)
        os.kill(other, signal.SIGKILL)
        shared.step(forest(), credited(), PPOClip().build())


def others(command):
    """Processes with this in their command, but for this one (`-ww`: ps cuts lines at $COLUMNS, in a pipe too)."""
    found = subprocess.run(["ps", "-ww", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
    lines = [line.split(maxsplit=1) for line in found.splitlines()[1:]]
    return [int(pid) for pid, args in lines if command in args and "python" in args and int(pid) != os.getpid()]


@pytest.mark.engines
@pytest.mark.started
def test_a_killed_run_of_two_processes_leaves_none_and_goes_on_to_the_same_bits(tmp_path):
    keys = ["learner.kind=fsdp", "learner.lr=1e-3", "steps=2", "tasks_per_step=4", "evaluate.n=0", "track=[]"]
    keys += ["rollout.samples=4", "rollout.sampling.max_completion_tokens=48", "checkpoint_every=1"]
    words = ["train", "grpo", *keys, f"output={tmp_path}", "--nproc", "2"]
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}  # as in this process
    killed = subprocess.Popen(
        [sys.executable, "-m", "lyceum", *words, "--name", "killed"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=one_thread,
    )
    until = time.monotonic() + 120
    while not (tmp_path / "killed/checkpoints/step-000001").exists() and killed.poll() is None:
        assert time.monotonic() < until
        time.sleep(0.02)
    killed.kill()
    killed.wait()
    while others(str(tmp_path)):
        assert time.monotonic() < until
        time.sleep(0.1)
    assert main([*words, "--name", "killed", "--resume"]) == 0
    assert main([*words, "--name", "whole"]) == 0
    digests = [hashlib.sha256((tmp_path / name / "model/model.safetensors").read_bytes()).digest() for name in
               ("killed", "whole")]  # fmt: skip
    assert digests[0] == digests[1]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--nproc", "2"], "--nproc: got 2, but learner.kind is 'local'; allowed: 1, or learner.kind=fsdp"),
        (["learner.kind=fsdp", "--nproc", "0"], "--nproc"),
    ],
)
def test_processes_that_cannot_share_work_are_refused(arguments, line, tmp_path, capsys):
    assert main(["train", "grpo", f"output={tmp_path}", *arguments]) == 2
    assert line in capsys.readouterr().err
    assert not any(Path(tmp_path).iterdir())

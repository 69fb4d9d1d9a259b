"""How many threads torch computes with does not depend on the machine's load, and is the same after a resumption."""

import json
import warnings

import pytest
import torch

from lyceum.recipe.schema import load_recipe
from lyceum.training.train import train
from lyceum.utils import threads
from lyceum.utils.threads import SPINS, chosen, computing_with, in_words, usable_cores, wait_passively

SMALL = [
    *("steps=2", "tasks_per_step=2", "rollout.samples=2", "rollout.sampling.max_completion_tokens=4", "track=[]"),
    *("model=scratch", "evaluate.n=0"),
]


@pytest.fixture(autouse=True)
def no_variable(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


@pytest.fixture
def control_group(monkeypatch, tmp_path):
    """A function that sets the quota of a machine with eight cores."""
    monkeypatch.setattr(threads, "_CGROUPS", tmp_path)
    monkeypatch.setattr(threads.os, "sched_getaffinity", lambda process: set(range(8)), raising=False)

    def set_to(text: str | None) -> None:
        (tmp_path / "cpu.max").write_text(text or "max 100000\n")

    return set_to


@pytest.mark.parametrize(
    ("quota", "cores"), [(None, 8), ("200000 100000\n", 2), ("150000 100000\n", 2), ("5000 100000\n", 1), ("x\n", 8)]
)
def test_a_containers_quota_counts_beside_its_cores(control_group, quota, cores):
    # 200 ms of time in each 100 ms are two cores, 150 ms one and a half, of which the second is worth having.
    control_group(quota)
    assert usable_cores() == cores


def test_control_groups_of_version_1(control_group, tmp_path):
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu/cpu.cfs_period_us").write_text("100000\n")
    for quota, cores in ((-1, 8), (300000, 3)):
        (tmp_path / "cpu/cpu.cfs_quota_us").write_text(f"{quota}\n")
        assert usable_cores() == cores


def test_what_the_user_says_goes_before_the_variable_before_the_run_before_the_cores(control_group, monkeypatch):
    control_group("200000 100000\n")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    assert chosen(None) == 2
    assert chosen(None, before=4) == 4  # the cores of the machine that it began on
    assert chosen(None, before=10**9) == threads.MOST  # a summary may hold anything
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    assert chosen(None, before=4) == 8
    assert chosen(3, before=4) == 3


def test_who_set_fewer_threads_from_python_keeps_them(control_group):
    control_group(None)
    assert torch.get_num_threads() == 1  # tests/conftest.py
    assert chosen(None) == 1


@pytest.mark.parametrize("load", [0.0, 99.0])
def test_load_is_told_and_changes_nothing(control_group, monkeypatch, load):
    control_group("200000 100000\n")
    monkeypatch.setattr(threads.os, "getloadavg", lambda: (load, load, load), raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    assert chosen(None) == 2
    assert in_words(2) == "2 on 2 cores" + ("; others use them too (load 99): threads=1 may be faster" if load else "")
    assert in_words(1) == "1 on 2 cores"


def test_the_number_is_put_back(monkeypatch):
    with computing_with(2):
        assert torch.get_num_threads() == 2
    assert torch.get_num_threads() == 1


@pytest.mark.parametrize("own", [{}, {"GOMP_SPINCOUNT": "7"}, {"OMP_WAIT_POLICY": "active"}])
def test_threads_that_wait_sleep_soon_unless_the_user_says_how_they_wait(own, monkeypatch):
    environment = dict(own)
    monkeypatch.setattr(threads.os, "environ", environment)
    wait_passively()
    assert environment.get("GOMP_SPINCOUNT") == (None if "OMP_WAIT_POLICY" in own else own.get("GOMP_SPINCOUNT", SPINS))


def test_a_resumed_run_goes_on_with_its_threads_and_another_number_is_warned_of(tmp_path):
    def run(*keys, **how):
        told = []
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                train(
                    load_recipe("grpo", [*SMALL, f"output={tmp_path}", *keys]),
                    began=lambda threads, *_: told.append(threads),
                    **how,
                )
            finally:
                lines = [str(each.message) for each in warned if "threads" in str(each.message)]
        return told, lines

    with pytest.raises(Exception, match="stopped at step 1"):
        run("threads=2", interrupted=iter([True]).__next__)
    assert json.loads((tmp_path / "grpo/summary.json").read_text())["threads"] == 2
    assert torch.get_num_threads() == 1
    with pytest.raises(Exception, match="stopped"):  # nothing named a number: those that it began with
        run(resume=True, interrupted=iter([True]).__next__)

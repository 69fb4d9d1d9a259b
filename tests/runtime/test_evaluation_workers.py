"""Held-out tasks that grow in several processes: what is measured is what one process measures."""

import json
import os
from pathlib import Path

import pytest

from lyceum.api import boundary, evaluate
from lyceum.recipe import schema
from lyceum.recipe.schema import load_recipe, parse
from lyceum.run.reader import read_summary
from lyceum.training.train import train
from lyceum.utils.errors import Interrupted, RecipeError

SMALL = [
    *("model=scratch", "track=[]", "tasks_per_step=2", "rollout.samples=2", "steps=1", "threads=2", "evaluate.n=5"),
    *("rollout.sampling.max_completion_tokens=6", "evaluate.samples=4", "evaluate.k=[1,4]"),
]
MEASURED = ("overall", "by_level", "pass_at", "maj_at", "greedy", "reward", "tokens_mean", "tasks")
REWARD = """
import os, signal
from pathlib import Path

HERE = Path(__file__).parent

def score(completion, id):
    file = HERE / "kill"
    if file.exists() and os.environ.get("LYCEUM_TEST_RUN") != str(os.getpid()):
        file.rename(HERE / "kill-done")
        os.kill(os.getpid(), signal.SIGKILL)
    return sum(map(str.isdigit, completion)) / (1 + len(completion))
"""


@pytest.fixture(autouse=True)
def cores(monkeypatch):
    monkeypatch.setattr(schema, "usable_cores", lambda: 4)


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("LYCEUM_TEST_RUN", str(os.getpid()))
    (tmp_path / "own.py").write_text(REWARD)
    reward = f"reward={json.dumps({'function': f'{tmp_path}/own.py:score', 'processes': 0})}"

    def run(name, *keys, **how):
        recipe = load_recipe("grpo", [*SMALL, reward, f"output={tmp_path}", f"name={name}", "trust_code=true", *keys])
        return train(recipe, **how)

    return run


def measured(run, when):
    return {name: read_summary(run)[when][name] for name in MEASURED}


def snapshots():
    return [*Path("/dev/shm").glob(f"lyceum-snapshots-{os.getpid()}-*")]


def test_workers_measure_what_one_process_does_before_and_after_training(run):
    one, three = run("one"), run("three", "evaluate.workers=3")
    for when in ("before", "after"):
        assert measured(three, when) == measured(one, when)
    assert measured(three, "before") != measured(three, "after"), "the trained weights were sent"
    assert not snapshots()


def test_a_worker_that_is_killed_measures_its_part_again(run, tmp_path, caplog):
    (tmp_path / "kill").touch()
    killed = run("killed", "evaluate.workers=2")
    assert (tmp_path / "kill-done").exists()
    assert "was ended by SIGKILL: it is started again" in caplog.text
    assert measured(killed, "before") == measured(run("whole"), "before")


def test_an_evaluation_in_workers_is_interrupted_between_two_tasks(run):
    asked = []
    with pytest.raises(Interrupted):
        run("interrupted", "evaluate.workers=2", interrupted=lambda: bool(asked) or asked.append(1))
    assert not snapshots()


def test_eval_and_boundary_share_tasks_among_workers(tmp_path):
    how = {"n": 4, "samples": 2, "max_completion_tokens": 24}
    one, two = (evaluate("base", k=(1, 2), workers=workers, **how) for workers in (1, 2))
    assert {name: two[name] for name in MEASURED} == {name: one[name] for name in MEASURED}
    one, two = (boundary(["base"], workers=workers, **how) for workers in (1, 2))
    assert two.pass_at == one.pass_at


def test_workers_that_cannot_be_are_refused_before_anything_loads():
    given = load_recipe("grpo", SMALL).resolved()
    given["evaluate"]["workers"] = 5
    with pytest.raises(RecipeError, match=r"evaluate\.workers: got 5 on 4 cores; allowed: 1 to 4"):
        parse(given)
    with pytest.raises(
        RecipeError, match=r"evaluate\.workers: got 2 with .*, a function that was passed in.*FILE\.py:NAME"
    ):
        evaluate("base", workers=2, reward=lambda completion, **_: 1.0)
    with pytest.raises(RecipeError, match=r"evaluate\.workers: got 9 on 4 cores"):
        evaluate("base", workers=9)

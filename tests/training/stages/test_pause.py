"""Between two steps: checkpoints by steps and by minutes, and a run that stops because it learns nothing."""

import time
from types import SimpleNamespace

import pytest
import tiny_rewards  # noqa: F401, its kind is asked for below

from lyceum.analysis.differences import first_difference, read_digests
from lyceum.recipe.schema import load_recipe
from lyceum.run import checkpoint
from lyceum.run.reader import read_summary
from lyceum.training.train import train
from lyceum.utils.errors import NothingGraded, NothingLearnt

pytestmark = pytest.mark.usefixtures("small_scratch")

SMALL = [
    *("model=scratch", "evaluate.n=0", "track=[]", "tasks_per_step=2", "rollout.samples=2", "digests=true"),
    *("rollout.sampling.max_completion_tokens=4", "reward=test-letters"),
]


def run(folder, name, *keys, **how):
    return train(load_recipe("grpo", [*SMALL, f"output={folder}", f"name={name}", *keys]), **how)


@pytest.fixture
def now(monkeypatch):
    """Seconds of the clock that a session looks at."""
    seconds = [0.0]
    clock = SimpleNamespace(monotonic=lambda: seconds[0], perf_counter=time.perf_counter)
    monkeypatch.setattr("lyceum.training.stages.session.time", clock)
    return seconds


@pytest.fixture
def saved(monkeypatch):
    """Steps of the checkpoints that are written."""
    steps, save = [], checkpoint.save

    def saving(folder, step, state, **how):
        steps.append(step)
        return save(folder, step, state, **how)

    monkeypatch.setattr(checkpoint, "save", saving)
    return steps


@pytest.mark.parametrize(
    ("keys", "steps"),
    [
        # Steps of 25 s: the third ends after 75 s, the sixth 75 s later.
        (["checkpoint_every=0", "checkpoint_minutes=1"], [3, 6]),
        # The clock begins again with every checkpoint: 2 by steps, 50 s later 4 is, and the time never comes.
        (["checkpoint_every=2", "checkpoint_minutes=1"], [2, 4, 6]),
        (["checkpoint_every=5", "checkpoint_minutes=1"], [3, 5]),
        (["checkpoint_every=0"], []),
        (["checkpoint_every=4", "checkpoint_minutes=0"], [4]),
    ],
)
def test_a_checkpoint_is_due_by_steps_or_by_minutes(keys, steps, now, saved, tmp_path):
    def step_ends() -> bool:
        now[0] += 25
        return False

    run(tmp_path, "timed", "steps=7", *keys, interrupted=step_ends)
    assert saved == steps


def test_what_is_resumed_from_a_checkpoint_by_the_clock_is_the_same_run(now, saved, tmp_path):
    done = []

    def killed_in_the_fifth() -> bool:
        now[0] += 25
        done.append(True)
        if len(done) == 5:
            raise KeyboardInterrupt
        return False

    keys = ("steps=6", "checkpoint_every=0", "checkpoint_minutes=1")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, "killed", *keys, interrupted=killed_in_the_fifth)
    assert saved == [3]
    run(tmp_path, "killed", *keys, resume=True)
    run(tmp_path, "whole", *keys)
    assert first_difference(read_digests(tmp_path / "killed"), read_digests(tmp_path / "whole")) is None


def test_minutes_have_a_default_only_where_there_are_checkpoints_by_steps():
    def minutes(*keys):
        return load_recipe("grpo", keys).minutes_between_checkpoints

    assert (minutes(), minutes("checkpoint_every=0")) == (30, 0)
    assert (minutes("checkpoint_minutes=0"), minutes("checkpoint_every=0", "checkpoint_minutes=0.5")) == (0, 0.5)


def test_a_run_without_any_signal_stops_with_a_checkpoint_and_goes_on_where_told_to(saved, tmp_path):
    keys = ("steps=5", "reward=exact")  # an untrained model's four characters are never right
    with pytest.raises(
        NothingLearnt, match=r"stopped after 3 steps: nothing was learnt: every reward was 0; needed: "
    ) as end:
        run(tmp_path, "idle", *keys, "max_steps_without_signal=3")
    assert end.value.exit_code == 3
    assert "with --resume and max_steps_without_signal=0" in end.value.lines[1]
    assert saved == [3]
    run(tmp_path, "idle", *keys, "max_steps_without_signal=0", resume=True)
    summary = read_summary(tmp_path / "idle")
    assert (summary["steps"], summary["learnt"]) == (5, False)


def test_one_signal_is_enough_to_go_on(saved, tmp_path):
    late = tmp_path / "late.py"
    late.write_text(
        "calls = 0\ndef reward(completion):\n    global calls\n    calls += 1\n    return float(calls == 6)\n"
    )
    key = f"reward={{kind: function, function: '{late}:reward', processes: 0}}"
    run(tmp_path, "late", "steps=6", "max_steps_without_signal=2", key)  # the second step's: four are graded in each
    assert saved == []


def test_what_cannot_be_graded_stops_a_run_too_unless_told_to_go_on(tmp_path):
    bug = tmp_path / "bug.py"
    bug.write_text("def reward(completion):\n    raise ValueError('no')\n")
    keys = ("steps=4", f"reward={{kind: function, function: '{bug}:reward', processes: 0}}")
    with pytest.raises(NothingGraded, match="nothing graded in 3 steps in a row") as end:
        run(tmp_path, "bug", *keys)
    assert end.value.lines[-1] == "try: the function on a few rows, lyceum grade ROWS.jsonl --reward FILE.py:FUNCTION"
    theirs = tmp_path / "theirs.py"
    theirs.write_text("def reward(**columns):\n    return float(columns['solution_str'] == columns['ground_truth'])\n")
    with pytest.raises(NothingGraded) as end:
        run(tmp_path, "verl", f"reward={{kind: function, function: '{theirs}:reward', processes: 0}}")
    assert end.value.lines[-1] == "try: verl's parameters, reward={kind: verl, function: FILE.py:FUNCTION}"
    run(tmp_path, "onward", *keys, "max_steps_without_signal=0")
    assert read_summary(tmp_path / "onward")["learnt"] is False

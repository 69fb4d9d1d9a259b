"""Where two runs first differ: the step, the part and the metrics."""

import json
import shutil
from pathlib import Path

import pytest
import tiny_rewards  # noqa: F401 - its reward
import torch

from lyceum.analysis.differences import FirstDifference, first_difference
from lyceum.cli import main
from lyceum.run.digests import digest

pytestmark = pytest.mark.usefixtures("small_scratch")

TINY = [
    *("model=scratch", "evaluate.n=0", "tasks_per_step=2", "rollout.samples=2", "reward=test-letters", "digests=true"),
    *("rollout.sampling.max_completion_tokens=6", "checkpoint_every=1", "track=[]"),
]


def step(**parts):
    return {part: {"value": parts.get(part, 0)} for part in ("draw", "generation", "grades", "forest", "weights")}


def test_the_first_step_and_in_it_the_first_room_that_differs():
    a = {1: step(), 2: step(grades=1, weights=5), 3: step()}
    assert first_difference(a, a) is None
    b = {1: step(), 2: step(grades=2, weights=6), 3: step(draw=9)}
    assert first_difference(a, b) == FirstDifference(2, "grades", {"value": (1, 2)})


def test_a_run_that_ends_earlier_differs_at_its_end():
    a, b = {1: step(), 2: step()}, {1: step()}
    assert first_difference(a, b) == FirstDifference(2, "end", {"step": (2, None)})


def test_digests_know_shape_type_and_every_bit():
    ones = torch.ones(2, 3)
    others = [ones.view(3, 2), ones.double(), ones * (1 + 2**-23), torch.ones(2, 3, dtype=torch.bfloat16)]
    assert digest(ones) == digest(torch.ones(6).view(2, 3))
    assert len({digest(each) for each in (ones, *others)}) == 5
    assert digest(torch.tensor([0.0])) != digest(torch.tensor([-0.0]))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """``a``, the same again, another learning rate, other draws, and one that was interrupted and went on."""
    folder = tmp_path_factory.mktemp("same")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, *keys in (["a"], ["again"], ["lr", "learner.lr=1e-3"], ["seed", "seed=5"]):
            assert main(["train", "grpo", *TINY, "steps=3", *keys, "--name", name]) == 0
        assert main(["train", "grpo", *TINY, "steps=3", "--name", "resumed"]) == 0
        # As a kill after the second checkpoint leaves it; what came after is there and must not be believed.
        summary = folder / "runs/resumed/summary.json"
        summary.write_text(json.dumps(json.loads(summary.read_text()) | {"finished": False}))
        (folder / "runs/resumed/digests/step-000003.json").write_text("{}")
        assert main(["train", "grpo", *TINY, "steps=3", "--name", "resumed", "--resume"]) == 0
    return folder / "runs"


@pytest.mark.parametrize("other", ["again", "resumed"])
def test_the_same_recipe_gives_the_same_digests_resumed_or_not(runs, other, capsys):
    assert main(["same", str(runs / "a"), str(runs / other)]) == 0
    assert "a: 3 steps the same" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ("lr", ["first differs at step 1 in loss", "lr: ", "stages.0.learner.lr: 0.0001 | 0.001"]),
        ("seed", ["first differs at step 1 in draw", "tasks: ", "seed: 0 | 5"]),
    ],
)
def test_where_they_part_and_what_they_were_made_with(runs, other, said, capsys):
    assert main(["same", str(runs / "a"), str(runs / other)]) == 1
    out = capsys.readouterr().out
    for words in said:
        assert words in out


def test_that_a_run_went_by_the_clock_is_said(runs, tmp_path, capsys):
    run = shutil.copytree(runs / "seed", tmp_path / "seed")
    summary = json.loads((run / "summary.json").read_text())
    assert summary["by_clock"] is False
    (run / "summary.json").write_text(json.dumps(summary | {"by_clock": True}))
    said = "its batches depend on the clock (waits=false): last bits differ from run to run"
    assert main(["same", str(runs / "a"), str(run)]) == 1
    assert said in capsys.readouterr().out
    assert main(["same", str(runs / "a"), str(runs / "seed")]) == 1
    assert said not in capsys.readouterr().out


def test_as_json(runs, capsys):
    assert main(["same", str(runs / "a"), str(runs / "seed"), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["same"] is False
    assert (found["runs"][0]["differs"]["step"], found["runs"][0]["differs"]["part"]) == (1, "draw")


def test_a_run_without_digests_and_one_that_is_damaged_are_refused(runs, tmp_path, capsys):
    assert main(["same", str(runs / "a"), str(tmp_path)]) == 2
    assert "allowed: a run that was trained with digests=true" in capsys.readouterr().err
    (tmp_path / "digests").mkdir()
    (tmp_path / "digests/step-000001.json").write_text("[1]")
    assert main(["same", str(runs / "a"), str(tmp_path)]) == 2
    assert "step-000001.json: TypeError: not a mapping of parts" in capsys.readouterr().err


@pytest.mark.engines  # a process for each, which load everything anew
def test_two_checkouts_train_by_their_own_code(capsys):
    here = str(Path(__file__).parents[2])
    keys = [key for key in TINY if "test-letters" not in key and "track" not in key]
    assert main(["same", here, here, "grpo", "no-such-recipe", *keys, "reward=exact", "steps=1"]) == 0
    out = capsys.readouterr().out
    assert "grpo: 1 steps the same" in out
    assert "no-such-recipe: RecipeError: recipe: got 'no-such-recipe'" in out

"""Another credit or objective on a step's recorded trees, beside the run's own."""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet
import pytest
import tiny_rewards  # noqa: F401 - its reward
import torch
import yaml
from folder_digest import digest

from lyceum import replay
from lyceum.analysis import replay as replaying
from lyceum.analysis.replay import Replay
from lyceum.cli import main
from lyceum.learner.local import LocalLearner, clip_gradients, learning_rate
from lyceum.models.load import ModelSettings, load_policy, save_policy
from lyceum.run import checkpoint
from lyceum.training.stages.method import Method
from lyceum.utils.errors import RecipeError

pytestmark = pytest.mark.usefixtures("small_scratch")

TINY = [
    *("model=scratch", "evaluate.n=0", "tasks_per_step=3", "rollout.samples=4", "reward=test-letters", "track=[]"),
    *("rollout.sampling.max_completion_tokens=6", "checkpoint_every=1", "trees_every=1"),
]
TERMS = ["credit=gae", "objective.value_coefficient=0.5", "objective.kl.coefficient=0.1"]
STAGES = {
    "extends": "grpo",
    "stages": [{"kind": "online", "steps": 2}, {"kind": "online", "steps": 3}],
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """``grpo``; ``terms`` with a value head and a reference; ``epochs`` of two passes; ``stages``: two of them;
    ``state``: an objective and a credit with state; ``whole``: whole distributions of a teacher."""
    folder = tmp_path_factory.mktemp("replay")
    (folder / "stages.yaml").write_text(yaml.safe_dump(STAGES))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for recipe, name, *keys in (
            ("grpo", "grpo", "steps=4"),
            ("grpo", "terms", "steps=4", *TERMS, "learner.micro_batch_tokens=40"),
            ("grpo", "epochs", "steps=3", "learner.epochs=2", "learner.updates_per_step=2"),
            ("stages.yaml", "stages"),
            ("grpo", "state", "steps=4", "objective=epo", "credit=spo", "tasks.size=3"),
            ("grpo", "whole", "steps=2", "objective=gkd", "teacher=base", "model=base"),
        ):
            assert main(["train", recipe, *TINY, *keys, "--name", name]) == 0
    return folder / "runs"


def as_json(capsys, *words) -> dict:
    capsys.readouterr()
    assert main(["replay", *map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys, *words) -> str:
    capsys.readouterr()
    assert main(["replay", *map(str, words)]) == 2
    return capsys.readouterr().err


def states(run: Path, step: int):
    return [checkpoint.load(run / f"checkpoints/step-{n:06d}")["state"]["of_stage"] for n in (step - 1, step)]


@pytest.mark.parametrize(
    ("run", "step"), [("grpo", 1), ("grpo", 3), ("terms", 4), ("epochs", 3), ("stages", 5), ("state", 4), ("whole", 2)]
)
def test_with_no_keys_both_sides_are_the_run(runs, capsys, run, step):
    found = as_json(capsys, runs / run, "--step", step)
    assert found["own"] == found["other"]
    assert (found["cosine"], found["sign_flips"], found["one_sided"]) == (1.0, 0.0, 0.0)
    # A loss of whole distributions alone has no coefficients of log-probabilities.
    assert found["correlation"] == (None if run == "whole" else pytest.approx(1))
    assert found["own"]["gradient_norm"] > 0
    if run != "epochs":  # whose metrics are the means of four updates
        assert found["own"]["loss"] == found["recorded_loss"]


def test_the_replayed_gradient_is_the_one_that_the_run_stepped_by(runs):
    before, after = states(runs / "grpo", 3)
    planned = Replay.of(runs / "grpo", 3, [])
    found = planned()
    _, learner = planned.begin()
    assert isinstance(learner, LocalLearner)
    learner.load_state_dict(before["learner"])
    for parameter, gradient in zip(learner.parameters, found.own.gradients.weights, strict=True):
        parameter.grad = gradient
    clip_gradients(learner.parameters, learner.config.max_grad_norm)
    for group in learner.optimizer.param_groups:
        group["lr"] = learning_rate(learner.updates, learner.config, learner.total_steps)
    learner.optimizer.step()
    again = learner.state_dict()["parameters"]
    assert all(map(torch.equal, again, after["learner"]["parameters"]))
    assert not any(map(torch.equal, again, before["learner"]["parameters"]))


@pytest.mark.parametrize("run", ["grpo", "terms", "epochs"])
def test_the_step_trained_again_on_its_recorded_trees_gives_the_next_checkpoint(runs, run):
    step = 2 if run == "epochs" else 3
    before, after = states(runs / run, step)
    planned = Replay.of(runs / run, step, [])
    policy, learner = planned.begin()
    learner.load_state_dict(before["learner"])
    method, forest = Method.of(planned.own), planned.forest(policy)
    forest = learner.annotate(forest, method.columns)
    learner.step(forest, method.credit(forest), method.objective)
    again = learner.state_dict()["parameters"]
    assert all(map(torch.equal, again, after["learner"]["parameters"]))
    assert not all(map(torch.equal, again, before["learner"]["parameters"]))


def test_coefficients_token_by_token_and_what_they_sum_up_to(runs, capsys, tmp_path):
    file = tmp_path / "new/tokens.parquet"
    words = ["credit=reinforce", "objective.aggregate=token"]
    found = as_json(capsys, runs / "grpo", "--step", 3, *words, "--output", file)
    assert found["changed"]["credit.kind"] == ["group", "reinforce"]
    assert found["changed"]["objective.aggregate"] == ["sequence", "token"]
    table = parquet.read_table(file)
    assert table.num_rows == found["tokens"]
    columns = {name: np.array(table[name]) for name in table.column_names}
    own, other = columns["coefficient_own"], columns["coefficient_other"]
    # At the weights that sampled the ratio is 1: d loss / d log-probability is -advantage times the token's weight,
    # which is 1 / tokens for every token ('token'), and 1 / (rows * tokens of the row) ('sequence').
    rows, length = np.unique(columns["row"], return_counts=True)
    np.testing.assert_allclose(other, -columns["advantage_other"] / len(other), rtol=1e-5)
    of_row = dict(zip(rows, length, strict=True))
    weight = [1 / (len(rows) * of_row[row]) for row in columns["row"]]
    np.testing.assert_allclose(own, -columns["advantage_own"] * weight, rtol=1e-5)
    # Rewards are positive: without a baseline everything is made likelier, also what the group's mean is above.
    assert found["sign_flips"] == pytest.approx((own * other < 0).mean())
    assert found["sign_flips"] == pytest.approx((columns["advantage_own"] < 0)[other != 0].sum() / len(own))
    assert 0 < found["sign_flips"] < 1
    assert found["one_sided"] == pytest.approx(((own == 0) != (other == 0)).mean())
    assert found["correlation"] == pytest.approx(np.corrcoef(own, other)[0, 1])
    assert -1 < found["cosine"] < 1
    assert set(columns["origin"]) == {"policy"}


def test_a_value_head_and_a_reference_that_the_run_had_none_of(runs):
    # A new value head is 0 and the reference is the initial model: at the first step it is the policy itself.
    found = replay(runs / "grpo", 1, TERMS)
    assert found.other.gradients.metrics["kl/reference"] < 1e-9
    assert found.other.gradients.metrics["value_loss"] > 0
    assert replay(runs / "grpo", 3, TERMS).other.gradients.metrics["kl/reference"] > 1e-9
    # The run's own of step 3 come from its checkpoint.
    assert replay(runs / "terms", 3).own.gradients.metrics["kl/reference"] > 1e-9


def test_a_notebook_shows_a_table_and_no_trees(runs):
    found = replay(runs / "grpo", 1)
    # No key is changed: both sides are the run's own.
    assert repr(found) == f"Replayed(step 1 of {runs / 'grpo'}: sign flips 0, one sided 0, correlation 1, cosine 1)"
    assert "<tr><td>credit</td><td>group</td><td>group</td></tr>" in found._repr_html_()
    assert len(found._repr_html_()) < 2000


def test_tables_for_people(runs, capsys):
    assert main(["replay", str(runs / "grpo"), "--step", "3", "objective.clip_high=0.3"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    for said in ("step 3 of", "the weights of step-000002", "objective.clip_high", "sign flips: 0.0 % of tokens"):
        assert said in out
    assert main(["replay", "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "d loss / d log-probability: negative where the update makes the token likelier" in said


def test_the_steps_that_can_be_replayed_are_named(runs, capsys):
    no_checkpoint = "step: got 2, but the run has no checkpoint of step 1, whose weights it began with"
    assert no_checkpoint in (said := refused(capsys, runs / "grpo", "--step", 2))
    assert "allowed: 1, 3, 4" in said
    assert "whose trees the run did not write (trees_every); allowed: 1, 3, 4" in refused(
        capsys, runs / "grpo", "--step", 9
    )
    assert "the run has no checkpoint of step 2" in refused(capsys, runs / "stages", "--step", 3)
    assert "is not a run's folder" in refused(capsys, runs, "--step", 1)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["credit=grop"], "credit.kind: got 'grop' (did you mean 'group'?)"),
        (["credit=gae"], "objective.value_coefficient: got 0, but credit.kind 'gae'"),
        (["learner.lr=1"], "stages.0.learner.lr: got 1.0, but the step is recorded; allowed: keys of credit and"),
        (["seed=5"], "seed: got 5, but the step is recorded"),
        (["clip=5"], "clip: unknown key"),
        (["model=no-such"], "model.path: got 'no-such', but the step is recorded"),
        (["--output", "{run}/trees/tokens.parquet"], "which is part of the run in"),
    ],
)
def test_mistakes_are_refused_before_a_model_is_loaded_and_change_nothing(runs, capsys, monkeypatch, words, said):
    monkeypatch.setattr(replaying, "load_policy", lambda settings: pytest.fail("a model was loaded"))
    before = digest(runs / "grpo")
    assert said in refused(capsys, runs / "grpo", "--step", 3, *(word.format(run=runs / "grpo") for word in words))
    assert digest(runs / "grpo") == before


def test_nothing_is_written_into_the_model_that_is_read(runs, capsys, tmp_path):
    shutil.copytree(runs / "grpo", run := tmp_path / "run")
    save_policy(load_policy(ModelSettings(path="scratch")), model := tmp_path / "model")
    recipe = run / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("path: scratch", f"path: {model}"))
    before = digest(tmp_path)
    said = refused(capsys, run, "--step", 3, "--output", model / "tokens.parquet")
    assert "where model.path is read from" in said
    assert digest(tmp_path) == before


def test_an_output_is_a_new_file_or_a_replays(runs, capsys, tmp_path):
    (mine := tmp_path / "mine.jsonl").write_text("not to be lost\n")
    assert "was not written by lyceum replay" in refused(capsys, runs / "grpo", "--step", 3, "--output", mine)
    assert mine.read_text() == "not to be lost\n"
    for _ in range(2):
        replay(runs / "grpo", 3, output=tmp_path / "tokens.parquet")


def test_a_damaged_run_is_refused_before_anything_is_written(runs, capsys, tmp_path):
    shutil.copytree(runs / "grpo", run := tmp_path / "run")
    (run / "summary.json").write_text("{")
    assert "summary.json: not JSON" in refused(capsys, run, "--step", 3, "--output", tmp_path / "tokens.parquet")
    assert not (tmp_path / "tokens.parquet").exists()


def test_a_reference_that_a_later_stage_has_not_kept_is_refused(runs):
    with pytest.raises(
        RecipeError, match="needs the policy as stage 2 began as a reference, which the run has not kept"
    ):
        Replay.of(runs / "stages", 5, ["objective.kl.coefficient=0.1"])


def as_if(run: Path, folder: Path, **keys) -> Path:
    """The run, as if its stage had had these keys too."""
    folder.mkdir()
    for file in run.iterdir():
        (folder / file.name).symlink_to(file)
    recipe = yaml.safe_load((run / "recipe.yaml").read_text())
    for name, value in keys.items():
        recipe["stages"][0][name] = value if name == "replay" else recipe["stages"][0][name] | value
    (folder / "recipe.yaml").unlink()
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    return folder


def test_a_step_that_only_stored_what_it_sampled_has_no_update_to_compare_with(runs, tmp_path):
    run = as_if(runs / "terms", tmp_path / "warm", replay={"kind": "own", "warm_up": 2})
    with pytest.raises(RecipeError, match=r"got 1, which trained nothing: .*\(replay.warm_up\); allowed: 3, 4"):
        Replay.of(run, 1, [])
    assert Replay.of(run, 3, []).recorded.heading.step == 3


def test_unfinished_completions_are_in_no_file(runs, tmp_path):
    run = as_if(runs / "terms", tmp_path / "partial", rollout={"tokens_per_step": 2})
    assert Replay.of(run, 3, ["credit.lam=1"]).recorded.heading.step == 3
    with pytest.raises(RecipeError, match=r"credit.kind: got 'egae', which also trains completions that the step left"):
        Replay.of(run, 3, ["credit=egae"])


def test_a_run_without_trees_and_damaged_ones(runs, capsys, tmp_path):
    run = tmp_path / "cut"
    for name in ("recipe.yaml", "summary.json", "checkpoints", "trees"):
        source = runs / "grpo" / name
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).symlink_to(source) if name != "trees" else (run / name).mkdir()
    assert "has no trees; allowed: a run that was trained with trees_every=STEPS" in refused(capsys, run, "--step", 1)
    file = run / "trees/step-000003.parquet"
    whole = (runs / "grpo/trees/step-000003.parquet").read_bytes()
    for damaged in (b"", whole[:-9], whole[:2000] + b"\0" * 9 + whole[2009:]):
        file.write_bytes(damaged)
        assert f"trees: {file}: " in refused(capsys, run, "--step", 3)


def test_a_runs_recipe_cannot_trust_itself_here(runs, tmp_path, monkeypatch):
    run = tmp_path / "trusting"
    run.mkdir()
    for name in ("summary.json", "checkpoints", "trees"):
        (run / name).symlink_to(runs / "grpo" / name)
    recipe = yaml.safe_load((runs / "grpo/recipe.yaml").read_text())
    recipe["model"]["trust_remote_code"] = True
    (run / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    assert Replay.of(run, 3, []).model.trust_remote_code is False
    assert Replay.of(run, 3, ["model.trust_remote_code=true"]).model.trust_remote_code is True

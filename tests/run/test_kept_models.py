"""``keep``: models on the way, which other commands read, and which a resumed run keeps as if it had not stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

import lyceum
from lyceum.recipe.schema import load_recipe
from lyceum.training.train import train
from lyceum.utils.errors import Interrupted, RecipeError

pytestmark = pytest.mark.usefixtures("small_scratch")

SMALL: dict[str, Any] = {
    **{"evaluate.n": 0, "rollout.samples": 2, "rollout.sampling.max_completion_tokens": 4, "model": "scratch"},
    **{"tasks_per_step": 2, "steps": 5, "progress": "silent", "max_steps_without_signal": 0},
}


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return AutoModelForCausalLM.from_pretrained(folder, dtype="auto").state_dict()


@pytest.mark.filterwarnings("ignore::lyceum.utils.errors.NothingLearntWarning")
def test_models_are_kept_at_their_steps_in_their_data_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    run = lyceum.train("grpo", **SMALL, **{"keep.every": 2, "keep.dtype": "bfloat16", "model.lora.rank": 2})
    # After steps 2 and 4; that of the last, 5, is model/.
    assert sorted(each.name for each in (run.path / "kept_models").iterdir()) == ["step-2", "step-4"]
    kept, last = weights(run.path / "kept_models/step-4"), weights(run.path / "model")
    assert kept.keys() == last.keys()  # adapters are merged
    assert {each.dtype for each in kept.values()} == {torch.bfloat16}
    assert {each.dtype for each in last.values()} == {torch.float32}
    measured = lyceum.evaluate(
        run.path / "kept_models/step-2", "chain", n=2, samples=1, k=[1], max_completion_tokens=4, progress="silent"
    )
    assert measured is not None


def test_a_resumed_run_has_the_models_of_one_that_was_not_stopped(tmp_path: Path):
    keys = [f"{key}={value}" for key, value in SMALL.items() if key != "progress"]
    keys = [*keys, "keep.every=1", "checkpoint_every=2", f"output={tmp_path}"]
    whole = train(load_recipe("grpo", [*keys, "name=whole"]))
    calls = iter([False] * 3 + [True])
    stopped = load_recipe("grpo", [*keys, "name=stopped"])
    with pytest.raises(Interrupted):
        train(stopped, interrupted=lambda: next(calls, True))
    left_over = tmp_path / "stopped/kept_models/step-99"  # of a step after the checkpoint, as a kill may leave one
    left_over.mkdir(parents=True)
    train(stopped, resume=True)
    names = [f"step-{step}" for step in (1, 2, 3, 4)]
    assert sorted(each.name for each in (tmp_path / "stopped/kept_models").iterdir()) == names
    for name in names:
        one, other = (weights(folder / "kept_models" / name) for folder in (whole, tmp_path / "stopped"))
        assert all(torch.equal(one[key], other[key]) for key in one)


def test_a_number_of_steps_is_needed():
    with pytest.raises(RecipeError, match=r"keep.every: got 0; allowed: 1 or more"):
        load_recipe("grpo", ["keep.every=0"])
    assert load_recipe("grpo").keep is None


@pytest.mark.filterwarnings("ignore::lyceum.utils.errors.NothingLearntWarning")
def test_adapters_are_kept_without_merging_and_read_with_their_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    keys = SMALL | {"model": "base", "reward": lambda completion: len(completion) % 2, "learner.lr": 0.1}
    for models in ("adapter", "merged"):
        lyceum.train("grpo", **keys, **{"keep.every": 2, "keep.models": models, "model.lora.rank": 2, "name": models})
    alone, whole = (Path("runs") / name / "kept_models/step-4" for name in ("adapter", "merged"))
    held = {name: sum(file.stat().st_size for file in of.rglob("*")) for name, of in (("a", alone), ("m", whole))}
    assert held["a"] < 0.1 * held["m"]
    assert not (alone / "config.json").exists()
    read, merged = (lyceum.load_model(str(of)) for of in (alone, whole))
    own = dict(merged.module.named_parameters())
    assert all(torch.allclose(weight, own[name], atol=1e-6) for name, weight in read.module.named_parameters())
    how = {"n": 2, "samples": 1, "k": [1], "max_completion_tokens": 4, "progress": "silent", "seed": 3}
    accuracies = [lyceum.evaluate(of, "chain", **how)["overall"] for of in (alone, whole)]
    assert accuracies[0] == accuracies[1]
    (alone / "adapter_config.json").write_text('{"base_model_name_or_path": "runs/nowhere"}')
    with pytest.raises(RecipeError, match=r"the adapters of .*step-4 belong to another model, model.path"):
        lyceum.evaluate(alone, "chain", **how)


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        (["model=base"], "nothing is trained by adapters"),
        (["model.path=scratch", "model.lora=true"], "in no folder"),
        (["model.lora=true", "keep.dtype=bfloat16"], "allowed: model, or models=merged"),
    ],
)
def test_adapters_that_would_mean_nothing_alone_are_refused(keys: list[str], why: str):
    with pytest.raises(RecipeError, match=why):
        load_recipe("grpo", [*keys, "keep.every=2", "keep.models=adapter"])


@pytest.mark.filterwarnings("ignore::lyceum.utils.errors.NothingLearntWarning")
def test_as_many_checkpoints_are_kept_as_are_wanted(tmp_path: Path):
    run = lyceum.train("grpo", **SMALL, output=str(tmp_path), checkpoint_every=1, keep_checkpoints=3)
    assert sorted(each.name for each in (run.path / "checkpoints").iterdir()) == [f"step-00000{n}" for n in (2, 3, 4)]

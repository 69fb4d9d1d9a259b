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

"""``evaluate.save_best``: the model of the highest held-out accuracy stays, whatever comes after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from begun_run import begun_run
from transformers import LlamaForCausalLM

import lyceum
from lyceum.models.load import ModelSettings, load_policy
from lyceum.recipe.schema import load_recipe
from lyceum.tasks.chain import Chain
from lyceum.training.stages.session import Session
from lyceum.utils.errors import RecipeError
from lyceum.utils.progress import Progress

pytestmark = pytest.mark.usefixtures("small_scratch")


def accuracy(mean: float) -> dict[str, float]:
    return {"mean": mean, "low": mean - 0.1, "high": mean + 0.1}


def test_the_best_stays_and_ties_go_to_the_earlier_one(tmp_path: Path):
    policy = load_policy(ModelSettings(path="scratch"))
    with begun_run(tmp_path, "run", {"name": "run"}) as run, Progress(1) as progress:
        source = Chain().build("train", 0)
        session = Session(policy, run, progress, source, (), None, 0, lambda: False, 0, save_best=True)
        for step, mean in enumerate((0.5, 0.4, 0.5, 0.6, 0.6), 1):
            with torch.no_grad():
                policy.output.weight.fill_(step)
            session.keep_if_best(accuracy(mean), step)
            saved = LlamaForCausalLM.from_pretrained(run.best).lm_head.weight[0, 0].item()
            assert saved == run.summary()["best"]["step"] == [1, 1, 1, 4, 4][step - 1]
        session.save_best = False
        session.keep_if_best(accuracy(0.9), 9)
        assert run.summary()["best"]["step"] == 4


def test_a_run_keeps_its_best_with_a_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    keys: dict[str, Any] = {"evaluate.n": 2, "evaluate.samples": 2, "evaluate.every": 1, "evaluate.save_best": True}
    keys |= {"rollout.samples": 2, "rollout.sampling.max_completion_tokens": 4, "model": "scratch"}
    run = lyceum.train("grpo", steps=3, tasks_per_step=2, progress="silent", **keys)
    # Nothing is ever solved: the first evaluation is the best, and neither the second nor the last replaces it.
    assert run.summary["best"]["step"] == 1
    assert "cost: 1 steps" in (run.path / "best/README.md").read_text()
    assert LlamaForCausalLM.from_pretrained(run.path / "best").config.vocab_size == 99


@pytest.mark.parametrize("more", [[], ["evaluate.every=5", "evaluate.n=0"]])
def test_a_best_without_evaluations_is_refused(more: list[str]):
    with pytest.raises(
        RecipeError, match=r"evaluate: got save_best=true with every=\d and n=\d+; allowed: both 1 or more"
    ):
        load_recipe("grpo", ["evaluate.save_best=true", *more])

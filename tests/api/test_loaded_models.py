"""Models in memory: trained as their folder would be, the caller's own left as it is, and the run resumes."""

from __future__ import annotations

import copy
import signal
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from transformers import LlamaForCausalLM, LlamaModel

import lyceum
from lyceum.api.loaded import is_loaded, write_loaded
from lyceum.models.scratch import build_scratch
from lyceum.utils.errors import Interrupted, RecipeError

pytestmark = pytest.mark.usefixtures("small_scratch")

TINY: dict[str, Any] = {
    "steps": 2,
    "tasks_per_step": 2,
    "evaluate__n": 2,
    "evaluate__samples": 2,
    "rollout.samples": 2,
    "rollout.sampling.max_completion_tokens": 8,
    "progress": "silent",
}


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def pair() -> Any:
    return build_scratch(seed=3)


def digits(completion: str) -> float:
    return sum(map(str.isdigit, completion)) / 8


def weights(module: Any) -> dict[str, torch.Tensor]:
    return {name: weight.clone() for name, weight in module.state_dict().items()}


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_a_pair_trains_as_its_folder_does_and_stays_as_it_is(pair: Any, tmp_path: Path):
    module, tokenizer = pair
    module.save_pretrained("folder")
    tokenizer.save_pretrained("folder")
    before, config = weights(module), module.config.to_dict()
    run = lyceum.train("grpo", model=(module, tokenizer), name="pair", reward=digits, **TINY)
    same = lyceum.train("grpo", model="folder", name="folder-run", reward=digits, **TINY)
    assert [line["loss"] for line in run.metrics] == [line["loss"] for line in same.metrics]
    trained = LlamaForCausalLM.from_pretrained(run.model)
    assert equal(weights(trained), weights(LlamaForCausalLM.from_pretrained(same.model)))
    # The caller's model: neither trained, nor with another attention, nor in another mode.
    assert equal(weights(module), before)
    assert module.config.to_dict() == config
    assert not equal(weights(trained), before)
    (kept,) = (run.path / "initial").iterdir()
    assert equal(weights(LlamaForCausalLM.from_pretrained(kept)), before)
    recipe = lyceum.load_recipe(str(run.path / "recipe.yaml"), [("trust_code", True)])
    assert Path(recipe.model.path).resolve() == kept.resolve()


def test_a_run_on_a_pair_resumes_with_the_same_pair_alone(pair: Any):
    graded: list[str] = []

    def length(completion: str) -> float:
        graded.append(completion)
        if len(graded) == 1:
            signal.raise_signal(signal.SIGINT)
        return digits(completion)

    given: dict[str, Any] = {"reward": length, "name": "kept", **TINY}
    with pytest.raises(Interrupted):
        lyceum.train("grpo", model=pair, **given)
    with pytest.raises(RecipeError, match=r"model.path: got .*initial/model-.* began with"):
        lyceum.train("grpo", model=build_scratch(seed=4), resume=True, **given)
    resumed = lyceum.train("grpo", model=pair, resume=True, **given)
    whole = lyceum.train("grpo", model=pair, **given | {"name": "whole"})
    assert [line["loss"] for line in resumed.metrics] == [line["loss"] for line in whole.metrics]


@pytest.mark.parametrize("lora", [{}, {"model.lora": True}])
def test_an_interrupted_run_has_the_model_of_its_last_checkpoint(lora: dict[str, Any]):
    graded: list[str] = []

    def stopping(completion: str) -> float:
        graded.append(completion)
        if len(graded) == 1:
            signal.raise_signal(signal.SIGINT)
        return digits(completion)

    keys = TINY | {"evaluate__n": 0, "model": "scratch"} | lora
    with pytest.raises(Interrupted) as caught:
        lyceum.train("grpo", reward=stopping, name="cut", **keys | {"steps": 5})
    (shown,) = caught.value._render_traceback_()
    so_far = "lyceum.load_model('runs/cut') is the model so far"
    assert shown == f"Interrupted: stopped at step 1; resume=True in the same call continues; {so_far}"
    whole = lyceum.train("grpo", reward=digits, name="whole", **keys | {"steps": 1})
    found = weights(lyceum.load_model("runs/cut").module)
    assert equal(found, weights(lyceum.load_model(whole).module))
    assert not equal(found, weights(lyceum.load_model("scratch").module))
    with pytest.raises(RecipeError, match=r"no model yet; allowed: .*, lyceum\.load_model\('runs/cut'\)"):
        lyceum.Trained("runs/cut").evaluate()


def test_a_model_of_load_model_is_trained_from_a_copy(pair: Any):
    policy = lyceum.load_model(pair)
    assert policy.module is not pair[0]
    before = weights(policy.module)
    run = lyceum.train("grpo", model=policy, name="policy", **TINY)
    assert equal(weights(policy.module), before)
    (kept,) = (run.path / "initial").iterdir()
    assert kept.name == write_loaded(pair, Path.cwd())


def test_a_pair_is_evaluated_and_examined_with_the_keys_of_the_model(pair: Any):
    config = pair[0].config.to_dict()
    found = lyceum.evaluate(pair, "chain", n=2, k=(1,), max_completion_tokens=4, progress="silent")
    assert found["model"] == "a loaded model"
    with pytest.raises(RecipeError, match=r"model\.dtype"):
        lyceum.evaluate(pair, "chain", progress="silent", **{"model.dtype": "int3"})
    report = lyceum.doctor(pair, samples=4, tokens=4, progress="silent")
    assert report.to_json()["model"] == "a loaded model"
    assert pair[0].config.to_dict() == config


class Changed(LlamaForCausalLM):
    """Computes something that its weights do not say."""


def quantised(module: Any) -> Any:
    module.is_quantized = True
    return module


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda module, tokenizer: module, "got a LlamaForCausalLM without its tokenizer; allowed: a pair"),
        (lambda module, tokenizer: (module, module), r"got \(LlamaForCausalLM, LlamaForCausalLM\); allowed: a pair"),
        (lambda module, tokenizer: (module,), r"got \(LlamaForCausalLM\); allowed: a pair"),
        (lambda module, tokenizer: (module, "base"), r"got \(LlamaForCausalLM, str\); allowed: a pair"),
        (lambda module, tokenizer: (torch.nn.Linear(1, 1), tokenizer), "got a Linear; allowed: a pair"),
        (lambda module, tokenizer: (module.to("meta"), tokenizer), "weights on the meta device"),
        (lambda module, tokenizer: (quantised(module), tokenizer), "got a quantised LlamaForCausalLM"),
        (lambda module, tokenizer: (LlamaModel(module.config), tokenizer), "got a LlamaModel; allowed: the class"),
        (lambda module, tokenizer: (Changed(module.config), tokenizer), r"configuration \(LlamaForCausalLM\)"),
        (
            lambda module, tokenizer: (
                peft.get_peft_model(module, peft.LoraConfig(task_type="CAUSAL_LM", target_modules="all-linear")),
                tokenizer,
            ),
            "with adapters; allowed: the model after merge_and_unload",
        ),
    ],
)
def test_what_a_folder_would_not_hold_is_refused_and_leaves_nothing(pair: Any, tmp_path: Path, make: Any, said: str):
    given = make(*copy.deepcopy(pair))
    assert is_loaded(given)
    with pytest.raises(RecipeError, match=said):
        lyceum.train("grpo", model=given, **TINY)
    assert not list(tmp_path.iterdir())


def test_a_comparison_refuses_a_model_in_memory(pair: Any):
    with pytest.raises(RecipeError, match="got a model in memory; allowed: a folder"):
        lyceum.compare(["grpo"], model=pair)

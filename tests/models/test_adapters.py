import json

import pytest
import torch
from tiny_models import plain_model, policy_like
from tiny_runs import metrics, mismatch, ran, weights
from transformers import AutoModelForCausalLM

from lyceum.models.load import ModelSettings, load_policy, save_adapters, save_policy
from lyceum.utils.errors import RecipeError


def test_adapters_are_saved_in_the_same_bytes_by_every_process(tmp_path):
    # peft keeps the names as a set, whose order changes with Python's hash seed: seven are in order 1 time in 5040.
    policy = load_policy(ModelSettings.model_validate({"path": "scratch", "lora": {"rank": 1}}))
    save_policy(policy, tmp_path / "model")
    names = json.loads((tmp_path / "model" / "adapter" / "adapter_config.json").read_text())["target_modules"]
    assert len(names) == 7
    assert names == sorted(names)


def test_a_rank_above_every_matrix_is_refused():
    settings = ModelSettings.model_validate({"path": "scratch", "lora": {"rank": 1_000_000}})
    with pytest.raises(
        RecipeError, match=r"model.lora.rank: got 1000000, but no matrix of the model has a rank above \d+"
    ):
        load_policy(settings)


GRPO = {
    "kind": "online",
    "steps": 3,
    "tasks_per_step": 2,
    "rollout": {"kind": "flat", "samples": 3, "sampling": {"max_completion_tokens": 12}},
    "credit": "group",
    "objective": "ppo-clip",
    "learner": {"lr": 1e-2, "micro_batch_tokens": 128, "layout": "tree"},
}


@pytest.mark.parametrize("name", ["qwen3-experts", "gpt-oss-sinks"])
def test_experts_have_adapters_that_are_trained_and_saved_merged(name, tmp_path):
    made = lambda: policy_like(plain_model(name, spread=0.1))  # noqa: E731
    run = ran(tmp_path, made, GRPO, "run", settings={"lora": {"rank": 2, "experts": True}})
    assert mismatch(run) < 3e-5
    assert any(step["grad_norm"] > 0 for step in metrics(run))
    before = AutoModelForCausalLM.from_pretrained(tmp_path / "model").state_dict()
    moved = {key for key, value in weights(run).items() if not torch.equal(value, before[key])}
    for layer in range(2):
        assert {f"model.layers.{layer}.mlp.experts.{of}_proj" for of in ("gate_up", "down")} <= moved
        assert f"model.layers.{layer}.self_attn.q_proj.weight" in moved


def test_a_folder_of_adapters_on_experts_is_the_model_that_they_were_trained_on(tmp_path):
    save_policy(policy_like(plain_model("qwen3-experts", spread=0.1)), tmp_path / "model")
    lora = {"rank": 2, "experts": True}
    policy = load_policy(ModelSettings.model_validate({"path": str(tmp_path / "model"), "lora": lora}))
    with torch.no_grad():
        for key, weight in policy.module.named_parameters():
            if "lora_B" in key:
                torch.nn.init.normal_(weight, std=0.1)
    save_adapters(policy, tmp_path / "adapters")
    save_policy(policy, tmp_path / "merged")
    again = load_policy(ModelSettings(path=str(tmp_path / "adapters"))).causal.state_dict()
    for key, value in AutoModelForCausalLM.from_pretrained(tmp_path / "merged").state_dict().items():
        torch.testing.assert_close(again[key], value)


def test_experts_that_are_not_there_are_refused():
    settings = ModelSettings.model_validate({"path": "scratch", "lora": {"experts": True}})
    with pytest.raises(RecipeError, match=r"model.lora.experts: got true, but LlamaForCausalLM has no experts"):
        load_policy(settings)

import json

import pytest
import torch
from tiny_models import plain_model, policy_like
from transformers import AutoModelForCausalLM

from lyceum.core.types import Request, Sampling, Scored
from lyceum.engine.embedded import EmbeddedConfig
from lyceum.models.load import ModelSettings, load_policy, save_adapters, save_policy
from lyceum.models.packed_paths import packed, trie_logprobs
from lyceum.utils.aio import run_async
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


@pytest.mark.parametrize("name", ["qwen3-experts", "gpt-oss-sinks"])
def test_adapters_on_experts_are_sampled_trained_and_saved_as_one_model(name, tmp_path):
    save_policy(policy_like(plain_model(name, spread=0.1)), tmp_path / "model")
    lora = {"rank": 2, "experts": True}
    policy = load_policy(ModelSettings.model_validate({"path": str(tmp_path / "model"), "lora": lora}))
    with torch.no_grad():
        for key, weight in policy.module.named_parameters():
            if "lora_B" in key:
                torch.nn.init.normal_(weight, std=0.1)
    save_policy(policy, tmp_path / "merged")
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    before = AutoModelForCausalLM.from_pretrained(tmp_path / "model").state_dict()
    moved = {key for key, value in merged.state_dict().items() if not torch.equal(value, before[key])}
    for layer in range(2):
        assert {f"model.layers.{layer}.mlp.experts.{of}_proj" for of in ("gate_up", "down")} <= moved

    prompt = list(range(3, 12))
    sampled = Request(prompt, (1, 2, 3), Sampling(max_completion_tokens=9))
    rows = run_async(EmbeddedConfig().build(policy).extend(sampled))
    scored = [Scored([*prompt, *one.tokens], len(prompt), len(prompt) + len(one.tokens)) for one in rows]
    (trie,) = packed([one.tokens for one in scored], 10_000)
    got = trie_logprobs(policy, trie, scored)
    for one, own, drawn in zip(scored, got.split([len(one.tokens) for one in rows]), rows, strict=True):
        logp = merged(torch.tensor([one.tokens])).logits[0, one.start - 1 : -1].log_softmax(-1)
        alone = logp.gather(1, torch.tensor(one.tokens[one.start :])[:, None]).squeeze(1)
        torch.testing.assert_close(own, alone, rtol=0, atol=3e-5)
        torch.testing.assert_close(torch.tensor(drawn.model_logprob), alone, rtol=0, atol=3e-5)
    got.sum().backward()
    adapters = {key: weight for key, weight in policy.module.named_parameters() if "lora" in key and ".experts." in key}
    assert len(adapters) == 2 * 2 * 2
    assert all(weight.grad is not None and weight.grad.abs().max() > 0 for weight in adapters.values())


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

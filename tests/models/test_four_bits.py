"""Adapters on weights in 4 bits: what is sampled, trained and saved is one model."""

from importlib.util import find_spec

import pytest
import torch
from tiny_models import plain_model

from lyceum.models import four_bits, load
from lyceum.models.load import ModelSettings, load_policy, merged, save_policy
from lyceum.models.policy import Policy
from lyceum.models.scratch import character_tokenizer
from lyceum.models.tree_attention import TreePlan
from lyceum.recipe.schema import load_recipe
from lyceum.utils.errors import RecipeError

installed = find_spec("bitsandbytes") is not None
CLOSE = {"rtol": 1e-4, "atol": 1e-4}
TOKENS = torch.arange(5, 17)


def logits(policy: Policy) -> torch.Tensor:
    size = len(TOKENS)
    return policy.head(policy.hidden(TOKENS, torch.arange(size), TreePlan([torch.arange(size)], [0])))


@pytest.mark.skipif(not installed, reason="bitsandbytes is not installed (pip install bitsandbytes)")
@pytest.mark.parametrize("targets", ["all-linear", "q_proj"])
def test_what_is_saved_computes_what_was_trained(tmp_path, targets):
    plain_model().save_pretrained(tmp_path / "plain")
    character_tokenizer(context=256).save_pretrained(tmp_path / "plain")
    lora = {"rank": 4, "target_modules": targets}
    settings = ModelSettings.model_validate({"path": str(tmp_path / "plain"), "quantise": "nf4", "lora": lora})
    policy = load_policy(settings)
    whole = load_policy(ModelSettings(path=settings.path))
    with torch.no_grad():
        assert (logits(policy) - logits(whole)).norm() > 0.01 * logits(whole).norm()  # it is rounded
        logits(policy)  # as sampling does: bitsandbytes' own CPU kernels would repack the weights here
        for name, weight in policy.module.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(weight, std=0.1)
        before = logits(policy)
    logits(policy).sum().backward()
    learnt = {name for name, weight in policy.module.named_parameters() if weight.grad is not None}
    assert learnt
    assert all("lora" in name for name in learnt)
    save_policy(policy, tmp_path / "model")
    with torch.no_grad():
        torch.testing.assert_close(logits(policy), before, **CLOSE)  # merging was in a copy
        torch.testing.assert_close(logits(load_policy(ModelSettings(path=str(tmp_path / "model")))), before, **CLOSE)
    assert not any(type(layer).__name__ == "Linear4bit" for layer in merged(policy.module).modules())
    with pytest.raises(RecipeError, match=r"model\.quantise: got 'nf4' with scratch; allowed: base, a folder"):
        load_policy(settings.model_copy(update={"path": "scratch"}))


def test_what_4_bits_need_is_said_before_anything_loads(monkeypatch):
    monkeypatch.setattr(four_bits, "find_spec", lambda name: None)
    recipe = load_recipe("grpo", ["model.quantise=nf4", "model.lora=true"])
    with pytest.raises(RecipeError, match=r"model\.quantise: got 'nf4', which needs bitsandbytes: pip install bitsand"):
        load.check_model(recipe.model)
    with pytest.raises(RecipeError, match=r"got quantise='nf4' without lora, but weights in 4 bits cannot be trained"):
        load_recipe("grpo", ["model.quantise=nf4"])
    with pytest.raises(RecipeError, match=r"model\.quantise: got 'fp4', but learner\.kind 'fsdp' cannot share"):
        load_recipe("grpo", ["model.quantise=fp4", "model.lora=true", "learner.kind=fsdp"])

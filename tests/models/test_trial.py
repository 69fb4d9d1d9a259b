import pytest
import torch
from tiny_models import CONFIGS, plain_model, policy_like
from torch import nn
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM, Lfm2Config, Lfm2ForCausalLM

from lyceum.component import RecipeError
from lyceum.models.load import ModelSettings, load_policy
from lyceum.models.scratch import character_tokenizer
from lyceum.models.trial import check_trees, logits_alone


@pytest.mark.parametrize("name", CONFIGS)
def test_what_the_tests_of_attention_run_over_passes(name):
    model = plain_model(name)
    check_trees(policy_like(model), logits_alone(model))


def test_a_state_that_runs_from_one_branch_into_the_next_is_seen():
    model = plain_model()

    class Leaking(nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.layer = layer

        def forward(self, hidden):
            return self.layer(hidden) + 0.1 * hidden.roll(1, dims=-2)

    model.model.layers[0].mlp = Leaking(model.model.layers[0].mlp)
    with pytest.raises(NotImplementedError, match=r"LlamaForCausalLM says something else .* differ by \d"):
        check_trees(policy_like(model), logits_alone(model))


SMALL = {"vocab_size": 99, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4}
CANNOT = {
    r"Gemma2Attention.* soft-capping": lambda: plain_model("gemma2-capped-logits", attn_logit_softcapping=50.0),
    "Lfm2ForCausalLM has layers of conv": lambda: Lfm2ForCausalLM(
        Lfm2Config(**SMALL, num_hidden_layers=2, num_key_value_heads=2, layer_types=["conv", "full_attention"])
    ),
    "keys of width 16 and values of width 8": lambda: DeepseekV3ForCausalLM(
        DeepseekV3Config(
            **SMALL, num_hidden_layers=1, num_key_value_heads=4, qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=8,
            q_lora_rank=8, kv_lora_rank=8, first_k_dense_replace=1,
        )
    ),
}  # fmt: skip


@pytest.mark.parametrize("reason", CANNOT)
def test_an_architecture_that_trees_cannot_use_is_refused_when_it_is_loaded(reason, tmp_path):
    with torch.random.fork_rng():
        CANNOT[reason]().save_pretrained(tmp_path)
    character_tokenizer(context=256).save_pretrained(tmp_path)
    with pytest.raises(RecipeError, match=rf"model.path: .* cannot be used: .*{reason}"):
        load_policy(ModelSettings(path=str(tmp_path)))

import pytest
import torch
from tiny_models import CONFIGS, UNFIT, plain_model, policy_like
from torch import nn

from lyceum.models.load import ModelSettings, load_policy
from lyceum.models.scratch import character_tokenizer
from lyceum.models.trial import check_trees, logits_alone
from lyceum.utils.errors import RecipeError


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
    with pytest.raises(NotImplementedError, match=r"LlamaForCausalLM gives other logits .* differ by \d"):
        check_trees(policy_like(model), logits_alone(model))


REASONS = {
    "capped attention scores": "Gemma2Attention.* soft-capping",
    "a convolution": "Lfm2ForCausalLM has layers of conv",
    "values of another width than keys": "keys of width 16 and values of width 8",
    # Keys of 8 + 8 beside values of 16: only the cache, made by the configuration's head_dim of 8, cannot hold them.
    "keys of another width than the cache's": "1 layers with key heads 4 of width 16; .* 1 layers with 4 of width 8",
}


@pytest.mark.parametrize("what", UNFIT)
def test_an_architecture_that_trees_cannot_use_is_refused_when_it_is_loaded(what, tmp_path):
    with torch.random.fork_rng():
        UNFIT[what]().save_pretrained(tmp_path)
    character_tokenizer(context=256).save_pretrained(tmp_path)
    with pytest.raises(RecipeError, match=rf"model.path: .* cannot be used: .*{REASONS[what]}") as caught:
        load_policy(ModelSettings(path=str(tmp_path)))
    assert len(caught.value.lines) == 1

"""How long a sequence may be for sampling and training to agree on it."""

import json
import logging

import pytest
import torch
from tiny_models import SMALL, plain_model, policy_like
from transformers import Gemma3TextConfig, LlamaConfig, Phi3Config

from lyceum.core.types import Request, Sampling
from lyceum.engine.embedded import EmbeddedConfig
from lyceum.models.context import context_of_config
from lyceum.models.limits import context_of
from lyceum.models.load import ModelSettings, load_tokenizer, save_policy
from lyceum.models.tree_attention import TreePlan
from lyceum.utils.aio import run_async
from lyceum.utils.errors import RecipeError

ORIGINAL = 20


def logprobs(policy, tokens):
    path = torch.arange(len(tokens))
    hidden = policy.hidden(torch.tensor(tokens), path, TreePlan([path], [0]))
    return policy.head(hidden).log_softmax(-1)


@torch.no_grad()
def test_a_longrope_model_ends_where_its_frequencies_depend_on_the_longest_row():
    alone = plain_model("phi3-longrope")
    policy = policy_like(alone)
    assert (alone.config.max_position_embeddings, policy.context_length) == (256, ORIGINAL)
    tokens = torch.randint(2, 99, (ORIGINAL + 1,), generator=torch.Generator().manual_seed(0)).tolist()
    within = alone(torch.tensor([tokens[:ORIGINAL]])).logits[0].log_softmax(-1)
    torch.testing.assert_close(logprobs(policy, tokens[:ORIGINAL]), within, atol=1e-4, rtol=0)
    # One token more changes what is said of all before it: what the limit is for.
    beyond = alone(torch.tensor([tokens])).logits[0, :ORIGINAL].log_softmax(-1)
    assert (beyond - within).abs().max() > 0.1


def test_the_engine_samples_up_to_the_limit_and_refuses_a_prompt_beyond_it():
    engine = EmbeddedConfig().build(policy_like(plain_model("phi3-longrope")))
    sampling = Sampling(max_completion_tokens=100)

    async def drawn():
        return await engine.extend(Request(tuple(range(2, 12)), (1, 2, 3, 4), sampling))

    for one in run_async(drawn()):
        assert len(one.tokens) <= ORIGINAL - 10
    with pytest.raises(ValueError, match="leaves no room in the model's context of 20"):
        run_async(engine.extend(Request(tuple(range(2, 23)), (1,), sampling)))


def test_the_limit_is_said_before_the_model_loads(tmp_path, caplog):
    save_policy(policy_like(plain_model("phi3-longrope")), tmp_path)
    settings = ModelSettings(path=str(tmp_path))
    with caplog.at_level(logging.WARNING):
        assert context_of(settings, load_tokenizer(settings)) == ORIGINAL
    assert "the context ends at 20 tokens instead of 256" in caplog.text


@pytest.mark.parametrize("kind", ["default", "linear", "llama3", "yarn", "dynamic"])
def test_other_rotary_embeddings_keep_the_whole_context(kind):
    more = {"factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
    config = LlamaConfig(**SMALL, rope_parameters={"rope_type": kind, "rope_theta": 100.0, **more})
    assert context_of_config(config) == SMALL["max_position_embeddings"]


def test_a_model_with_rotary_settings_by_type_of_layer_is_read():
    by_layer = {"sliding_attention": {"rope_type": "default"}, "full_attention": {"rope_type": "linear", "factor": 8.0}}
    assert context_of_config(Gemma3TextConfig(max_position_embeddings=512, rope_parameters=by_layer)) == 512


def test_an_original_length_beside_the_rotary_settings_counts_too():
    config = Phi3Config(max_position_embeddings=256, original_max_position_embeddings=64, pad_token_id=0)
    config.rope_parameters = {"rope_type": "longrope"}
    assert context_of_config(config) == 64


def test_a_context_of_no_token_is_refused_before_a_model_is_loaded(tmp_path):
    save_policy(policy_like(plain_model()), tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"max_position_embeddings": 0}))
    settings = ModelSettings(path=str(tmp_path))
    with pytest.raises(
        RecipeError, match=r"max_position_embeddings: got 0 in the configuration of .*; allowed: 1 or more"
    ):
        context_of(settings, load_tokenizer(settings))

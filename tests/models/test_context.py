"""How long a sequence may be for sampling and training to agree on it."""

import asyncio
import copy
import json
import logging

import pytest
import torch
from tiny_models import SMALL, plain_model, policy_like
from transformers import Gemma3TextConfig, LlamaConfig, Phi3Config

from lyceum.core.types import Request, Sampling, Scored
from lyceum.engine.embedded import EmbeddedConfig
from lyceum.models.context import context_of_config
from lyceum.models.limits import context_of
from lyceum.models.load import ModelSettings, load_tokenizer, save_policy
from lyceum.models.packed_paths import packed, trie_logprobs
from lyceum.models.scratch import character_tokenizer
from lyceum.models.tree_attention import TreePlan
from lyceum.models.trial import logits_alone, policy_of
from lyceum.utils.aio import run_async
from lyceum.utils.errors import RecipeError

ORIGINAL = 20


def logprobs(policy, tokens):
    path = torch.arange(len(tokens))
    hidden = policy.hidden(torch.tensor(tokens), path, TreePlan([path], [0]))
    return policy.head(hidden).log_softmax(-1)


def by_length(kind):
    """A tiny model whose frequencies change beyond a length, and that length."""
    if kind == "longrope":
        return plain_model("phi3-longrope"), ORIGINAL
    rotary = {"rope_type": "dynamic", "rope_theta": 100.0, "factor": 4.0}
    return plain_model(max_position_embeddings=64, rope_parameters=rotary), 64


@torch.no_grad()
@pytest.mark.parametrize("kind", ["longrope", "dynamic"])
def test_up_to_the_limit_the_engine_and_both_layouts_have_what_a_row_has_alone_and_beyond_it_nothing_runs(kind):
    plain, limit = by_length(kind)
    model = copy.deepcopy(plain)
    policy = policy_of(model, character_tokenizer(context=256), logits_alone(model))
    assert policy.context_length == limit
    engine, prompt = EmbeddedConfig().build(policy), list(range(3, 3 + limit - 9))
    short = Request(tuple(prompt[:4]), (1, 2), Sampling(max_completion_tokens=3))
    whole = Request(tuple(prompt), tuple(range(8)), Sampling(max_completion_tokens=100))

    async def beside_each_other():
        return await asyncio.gather(engine.extend(short), engine.extend(whole))

    drawn = run_async(beside_each_other())
    assert max(len(one.tokens) for one in drawn[1]) == 9  # to the last place
    rows = [
        ([*request.prefix, *one.tokens], one) for request, of in zip((short, whole), drawn, strict=True) for one in of
    ]
    for shares in (True, False):
        for group in [rows] if shares else [[row] for row in rows]:
            (trie,) = packed([path for path, _ in group], 10_000)
            scored = [Scored(path, len(path) - len(one.tokens), len(path)) for path, one in group]
            got = trie_logprobs(policy, trie, scored)
            expected = torch.cat([_alone(plain, each) for each in scored])
            torch.testing.assert_close(got, expected, rtol=0, atol=1e-4)
            sampled = torch.cat([torch.tensor(one.model_logprob) for _, one in group])
            torch.testing.assert_close(sampled, expected, rtol=0, atol=1e-4)
    with pytest.raises(ValueError, match=f"leaves no room in the model's context of {limit}"):
        run_async(engine.extend(Request((*prompt, *range(3, 13)), (1,), Sampling())))


def _alone(plain, scored):
    logp = plain(torch.tensor([scored.tokens]), use_cache=False).logits[0, scored.start - 1 : -1].log_softmax(-1)
    return logp.gather(1, torch.tensor(scored.tokens[scored.start :])[:, None]).squeeze(1)


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

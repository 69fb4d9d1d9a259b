import copy
import re

import pytest
import torch
from tiny_models import CONFIGS, SMALL, UNFIT, plain_model, policy_like, tiny
from torch import nn
from transformers import BertConfig, BertLMHeadModel, BlenderbotSmallConfig, PhimoeConfig, Qwen2MoeConfig

from lyceum.models.eight_bits import hold_in_8_bits
from lyceum.models.in_float32 import can_compute_in_float32, in_float32
from lyceum.models.load import ModelSettings, load_policy
from lyceum.models.policy import Policy
from lyceum.models.rows import RowCache
from lyceum.models.scratch import character_tokenizer
from lyceum.models.tree_attention import NotOverTrees
from lyceum.models.tree_states import StateStep
from lyceum.models.trial import TOLERANCE, check_trees, logits_alone, policy_of, rows_ahead
from lyceum.models.weights import cast_weights
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
    "a convolution": "Lfm2ForCausalLM has layers of conv",
    "linear attention": "Qwen3_5ForCausalLM has layers of linear_attention",
    "attention of its own": "attention of BloomForCausalLM cannot be replaced",
    "states alone": "MambaForCausalLM",
}

STATES = ("a convolution", "linear attention", "states alone")


def test_an_architecture_that_trees_cannot_use_runs_over_rows_and_a_line_says_so(caplog):
    model = UNFIT["attention of its own"]()
    own = model.config._attn_implementation
    policy = policy_of(model, character_tokenizer(context=256), logits_alone(model))
    assert policy.by_rows is not None
    assert policy.by_rows.caches
    assert policy.by_rows.pads
    assert model.config._attn_implementation == own  # transformers' own again
    assert re.search(rf"runs over rows, .*{REASONS['attention of its own']}.* computes a prompt once", caplog.text)
    assert Policy(copy.deepcopy(model), policy.tokenizer).by_rows == policy.by_rows  # references, roles, averages


@pytest.mark.parametrize("what", STATES)
def test_states_branch_in_sampling_too(what, caplog):
    model = UNFIT[what]()
    policy = policy_of(model, character_tokenizer(context=256), logits_alone(model))
    assert policy.by_rows is None
    assert policy.states is not None
    # Keys and values are kept of the layers with attention alone.
    assert policy.cache_shape[0] == 1
    assert "rows" not in caplog.text
    assert Policy(copy.deepcopy(model), policy.tokenizer).states == policy.states


@pytest.mark.parametrize("what", STATES)
def test_what_is_not_exact_from_its_states_samples_over_rows_and_a_line_says_so(what, caplog, monkeypatch):
    model = UNFIT[what]()
    own = model.config._attn_implementation
    step = StateStep.forward
    monkeypatch.setattr(StateStep, "forward", lambda *given: 1.01 * step(*given))
    policy = policy_of(model, character_tokenizer(context=256), logits_alone(model))
    assert policy.by_rows is not None
    assert policy.by_rows.caches
    # Mamba's convolution has a bias, which runs from the padding into the first token.
    assert policy.by_rows.pads == (what != "states alone")
    assert policy.by_rows.attention == own
    assert re.search(rf"samples over rows, .*{REASONS[what]}.* Training is over trees: its states", caplog.text)


@pytest.mark.parametrize("name", CONFIGS)
def test_what_trees_can_use_runs_over_trees(name):
    model = plain_model(name)
    assert policy_of(model, character_tokenizer(context=256), logits_alone(model)).by_rows is None


@pytest.mark.parametrize("what", ["attention of its own", "linear attention", "a convolution"])
def test_the_configuration_alone_shows_it_where_nothing_is_loaded(what, tmp_path):
    UNFIT[what]().save_pretrained(tmp_path)
    character_tokenizer(context=256).save_pretrained(tmp_path)
    how = rows_ahead(ModelSettings(path=str(tmp_path)))
    assert (how is None) == (what in STATES)
    assert how is None or re.search(REASONS[what], how.why)


def test_windows_that_stand_in_masks_alone_are_kept_where_the_configuration_says_whose():
    config = Qwen2MoeConfig(
        **SMALL, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, shared_expert_intermediate_size=16,
        use_sliding_window=True, sliding_window=4, layer_types=["sliding_attention", "full_attention"],
    )  # fmt: skip
    check_trees(policy_like(tiny(config)), logits_alone(tiny(config)))


def test_a_window_that_no_layer_is_told_of_is_seen_though_it_is_longer_than_the_tree():
    model = tiny(PhimoeConfig(**SMALL, sliding_window=64, num_local_experts=4))
    with pytest.raises(NotOverTrees, match="PhimoeForCausalLM has a window of 64 tokens in its masks alone"):
        check_trees(policy_like(model), logits_alone(model))
    whole = tiny(PhimoeConfig(**SMALL, sliding_window=256, num_local_experts=4))  # no row is longer
    check_trees(policy_like(whole), logits_alone(whole))


def test_nothing_is_foretold_of_a_model_over_trees(tmp_path):
    plain_model().save_pretrained(tmp_path)
    character_tokenizer(context=256).save_pretrained(tmp_path)
    assert rows_ahead(ModelSettings(path=str(tmp_path))) is None


def test_a_model_that_adds_up_its_layers_in_float32_runs_in_bfloat16():
    model = UNFIT["states alone"]()
    cast_weights(model, torch.bfloat16, "cpu")
    hidden = model.backbone(torch.arange(3, 9)[None]).last_hidden_state
    assert hidden.dtype == torch.float32  # before an output layer in bfloat16
    policy = policy_of(model, character_tokenizer(context=256), logits_alone(model))
    assert policy.by_rows is None
    assert policy.states is not None


def test_an_inexact_cache_is_not_used(monkeypatch):
    model = UNFIT["attention of its own"]()
    select = RowCache.select
    monkeypatch.setattr(RowCache, "select", lambda cache, rows: (select(cache, rows), cache._cache.clear())[0])
    policy = policy_of(model, character_tokenizer(context=256), logits_alone(model))
    assert policy.by_rows is not None
    assert not policy.by_rows.caches


def test_a_model_whose_tokens_see_those_after_them_is_refused_in_one_line(tmp_path):
    small = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    with torch.random.fork_rng():
        BertLMHeadModel(BertConfig(vocab_size=99, eos_token_id=1, **small)).save_pretrained(tmp_path)
    character_tokenizer(context=256).save_pretrained(tmp_path)
    with pytest.raises(
        RecipeError, match=r"model.path: .* cannot be used: .*BertLMHeadModel depend on later"
    ) as caught:
        load_policy(ModelSettings(path=str(tmp_path)))
    assert len(caught.value.lines) == 1


def test_a_rotary_embedding_that_is_not_known_is_refused():
    model = plain_model()
    alone = logits_alone(model)
    model.config.rope_parameters = {"rope_type": "by-length"}
    with pytest.raises(NotImplementedError, match=r"rope_type 'by-length'.* allowed: default, dynamic, .*longrope"):
        policy_of(model, character_tokenizer(context=256), alone)


@pytest.mark.parametrize("kind", ["longrope", "dynamic"])
def test_frequencies_that_change_before_the_end_of_the_context_are_refused(kind):
    if kind == "longrope":
        model = plain_model("phi3-longrope")
        model.config.rope_parameters = model.config.rope_parameters | {"rope_type": "linear"}  # as a model's own code
    else:
        rotary = {"rope_type": "dynamic", "rope_theta": 100.0, "factor": 4.0}
        model = plain_model(max_position_embeddings=64, rope_parameters=rotary)
        model.model.rotary_emb.config = copy.deepcopy(model.config)
        model.config.max_position_embeddings = 256
    alone = logits_alone(model)
    with pytest.raises(NotImplementedError, match=r"first tokens depend on how long its row is .* position is 255\)"):
        policy_of(model, character_tokenizer(context=256), alone)


def test_a_wrong_branch_is_told_apart_from_rounding_in_bfloat16():
    """Blenderbot numbers its tokens by their place in the row: over a tree its logits are off by less than 5 %."""
    layers = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
    model = tiny(BlenderbotSmallConfig(vocab_size=99, d_model=32, decoder_ffn_dim=48, is_decoder=True, **layers))
    with torch.no_grad():
        model.model.decoder.embed_positions.weight.mul_(0.3)
    model.bfloat16()
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    policy = policy_like(model)
    check_trees(policy, alone := logits_alone(copy.deepcopy(model)), TOLERANCE[torch.bfloat16])  # it looks right
    assert policy_of(model, character_tokenizer(context=256), alone).by_rows is not None
    assert all(weight.dtype == torch.bfloat16 for weight in model.parameters())
    assert all(torch.equal(weight, before[name]) for name, weight in model.named_parameters())


def test_weights_come_back_when_a_layer_raises():
    model = plain_model().bfloat16()
    weights = dict(model.named_parameters())
    model.model.layers[1].mlp.register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError), in_float32(model):
        model(input_ids=torch.arange(3, 9)[None])
    assert all(weights[name] is weight and weight.dtype == torch.bfloat16 for name, weight in model.named_parameters())


@pytest.mark.parametrize("change", ["cap", "factor"])
def test_logits_that_the_forward_changes_unknown_to_lyceum_are_refused(change):
    """A cap far above the logits of the trial hardly shows there; elsewhere it may."""
    model = plain_model()
    forward = model.forward

    def changed(*args, **kwargs):
        out = forward(*args, **kwargs)
        out.logits = 300 * (out.logits / 300).tanh() if change == "cap" else out.logits * 1.0005
        return out

    model.forward = changed
    with pytest.raises(NotImplementedError, match="not those of its output layer"):
        policy_of(model, character_tokenizer(context=256), logits_alone(model))


def test_models_with_weights_of_fewer_bits_are_not_computed_in_float32():
    assert can_compute_in_float32(plain_model().to(torch.bfloat16))
    assert not can_compute_in_float32(plain_model())  # they are already
    parameters, buffers, bytes_of = (plain_model().to(torch.bfloat16) for _ in range(3))
    hold_in_8_bits(parameters)
    assert not can_compute_in_float32(parameters)
    buffers.model.layers[0].register_buffer("codes", torch.zeros(4, dtype=torch.int8))
    bytes_of.model.layers[0].register_buffer("packed", torch.zeros(4, dtype=torch.uint8))
    assert not can_compute_in_float32(buffers)
    assert not can_compute_in_float32(bytes_of)

"""The lean forward against the model's own: the same hidden states, or else it stands aside."""

import asyncio

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from tiny_models import CONFIGS, SMALL, plain_model, policy_like
from torch import nn
from transformers import MistralConfig, Qwen2Config
from transformers.models.auto import MODEL_FOR_CAUSAL_LM_MAPPING

from lyceum.core.types import Request, Sampling
from lyceum.engine._cache import Keeper, Store, TokenPool
from lyceum.engine._plan import DecodePlan, PrefillPlan, SharedPart
from lyceum.engine.cpu import decode
from lyceum.engine.cpu.decode import Decoder
from lyceum.engine.cpu.weights import available
from lyceum.engine.embedded import EmbeddedConfig, EmbeddedEngine
from lyceum.models.policy import Policy

# Widths that are no powers of two and heads that are not the width over their number, where an architecture allows it.
LEAN = {
    "llama": CONFIGS["llama"],
    "llama-gqa-biases": lambda: CONFIGS["llama-gqa"](attention_bias=True, mlp_bias=False, head_dim=12),
    "llama-long-rope": lambda: CONFIGS["llama"](
        rope_parameters={
            "rope_type": "llama3", "rope_theta": 100.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        }
    ),
    "mistral": lambda: MistralConfig(**SMALL | {"sliding_window": None}),
    "mistral-window": CONFIGS["mistral-window"],
    "qwen2": lambda: Qwen2Config(**SMALL),
    "qwen2-some-windows": lambda: Qwen2Config(
        **SMALL | {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}
    ),
    "qwen3": CONFIGS["qwen3"],
}  # fmt: skip
OTHERS = sorted(set(CONFIGS) - {"llama", "llama-gqa", "mistral-window", "qwen3"})


def random_policy(config) -> Policy:
    """All its weights random, the norms' and the biases' too: those of 1 and 0 would hide what is left out."""
    torch.manual_seed(0)
    model = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)](config)
    with torch.no_grad():
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.3)
            if parameter.dim() == 1:
                parameter += 0.5
    return policy_like(model.eval())


def plans(policy, lengths, shared):
    """Twice the same cache of random keys and values, and the plans of a step over it."""
    shape, dtype = policy.cache_shape, policy.causal.dtype
    for _ in range(2):
        torch.manual_seed(1)
        store, prompts = Store(shape, dtype, torch.device("cpu")), Store(shape, dtype, torch.device("cpu"))
        store.reserve(len(lengths), max(lengths) + 9)
        store.kv.normal_()
        part = None
        if shared:
            prompts.reserve(2, 7)
            prompts.kv.normal_()
            of = np.array([i % 3 - 1 for i in range(len(lengths))])
            part = SharedPart.of(prompts, [7, 4], of, shape[1])
        yield store, DecodePlan(store, np.array(lengths), part)


@pytest.mark.parametrize("rows", ["few", "one length", "many", "large weights", "packed weights"])
@pytest.mark.parametrize("name", LEAN)
def test_hidden_states_are_the_models_own(name, rows, monkeypatch):
    policy = random_policy(LEAN[name]())
    lengths = {"few": [5, 0, 11], "one length": [6, 6], "many": [i % 9 for i in range(20)]}
    lengths = lengths.get(rows, [3, 9, 4])
    packs = {} if rows == "packed weights" else None
    if "weights" in rows:
        monkeypatch.setattr(decode, "_LARGE", 1)
    windowed = any(layer.window for layer in Decoder(policy, decode._family(policy))._layers)
    for shared in (False,) if windowed else (False, True):
        decoder = Decoder.of(policy, packs)
        (lean_store, lean), (own_store, own) = plans(policy, lengths, shared)
        position = torch.tensor(lengths) + 3
        with torch.inference_mode():
            for step in range(3):
                tokens = torch.arange(len(lengths)) * 5 % 90 + step
                got = decoder.hidden(tokens, position, lean, furthest=int(position.max()))
                expected = policy.hidden(tokens, position, own)
                torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)
                torch.testing.assert_close(lean_store.kv, own_store.kv, rtol=1e-5, atol=1e-5)
                logits = policy.head(got, decoder.output)
                torch.testing.assert_close(logits, policy.head(expected), rtol=1e-5, atol=1e-5)
                lean.advance(), own.advance()
                position += 1
        assert all(one._copy is not None for one in (packs or {}).values())


@pytest.mark.parametrize("name", LEAN)
def test_prompts_too(name):
    policy = random_policy(LEAN[name]())
    prefixes = [[5, 6, 7, 8, 9, 10, 11], [5, 6, 20], [30]]
    pool = TokenPool(policy.cache_shape, policy.causal.dtype, policy.device)
    with torch.inference_mode():
        lean, own = (PrefillPlan(prefixes, Keeper(0, pool)) for _ in range(2))
        tokens, position = torch.tensor(lean.tokens), torch.tensor(lean.position)
        got = Decoder.of(policy).hidden(tokens, position, lean, furthest=6)
        torch.testing.assert_close(got, policy.hidden(tokens, position, own), rtol=1e-5, atol=1e-5)
        for j in range(3):
            torch.testing.assert_close(lean.whole(j), own.whole(j), rtol=1e-5, atol=1e-5)


def test_positions_beyond_those_prepared_are_the_models_own():
    policy = random_policy(CONFIGS["llama"](max_position_embeddings=2048))
    decoder = Decoder.of(policy)
    for far in (255, 256, 1999):
        (_, lean), (_, own) = plans(policy, [4, 2], False)
        tokens, position = torch.tensor([7, 8]), torch.tensor([far, 3])
        with torch.inference_mode():
            got = decoder.hidden(tokens, position, lean, furthest=far)
            torch.testing.assert_close(got, policy.hidden(tokens, position, own), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["llama", "llama-gqa-biases", "qwen3"])
def test_bfloat16_is_as_near_as_bfloat16_goes(name):
    policy = random_policy(LEAN[name]())
    policy.module.to(torch.bfloat16)
    (_, lean), (_, own) = plans(policy, [5, 0, 11], False)
    tokens, position = torch.tensor([5, 6, 7]), torch.tensor([5, 0, 11])
    with torch.inference_mode():
        got = Decoder.of(policy).hidden(tokens, position, lean, furthest=11)
        expected = policy.hidden(tokens, position, own)
    assert got.dtype == torch.bfloat16
    # 8 bits of a number, a few roundings one after the other.
    torch.testing.assert_close(got, expected, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("packs", [None, {}], ids=["as they are", "packed"])
def test_weights_that_change_in_place_are_seen(packs, monkeypatch):
    monkeypatch.setattr(decode, "_LARGE", 1)
    policy = random_policy(CONFIGS["qwen3"]())
    decoder = Decoder.of(policy, packs)
    tokens, position = torch.tensor([5, 6, 7]), torch.tensor([5, 0, 2])
    for _ in range(2):
        (_, lean), (_, own) = plans(policy, [5, 0, 2], False)
        with torch.inference_mode():
            got = decoder.hidden(tokens, position, lean, furthest=5)
            torch.testing.assert_close(got, policy.hidden(tokens, position, own), rtol=1e-5, atol=1e-5)
        with torch.no_grad():
            for parameter in policy.module.parameters():
                parameter.mul_(1.1)


def test_a_decoder_that_is_made_anew_takes_over_the_packed_weights(monkeypatch):
    monkeypatch.setattr(decode, "_LARGE", 1)
    policy, packs = random_policy(CONFIGS["llama-gqa"]()), {}
    first, second = (Decoder.of(policy, packs) for _ in range(2))
    assert first._layers[0].gate.packed is second._layers[0].gate.packed is not None
    assert len(packs) == 2 * 7 + 1


def test_the_engine_packs_new_weights_anew(monkeypatch):
    monkeypatch.setattr(decode, "_LARGE", 1)
    policy = random_policy(CONFIGS["llama"]())
    engine = EmbeddedEngine(policy)

    def drawn(engine):
        request = Request([5, 6], [1, 2, 3, 4], Sampling(max_completion_tokens=4))
        return [one.tokens for one in asyncio.run(engine.extend(request))]

    drawn(engine)
    assert len(engine._packs) == 2 * 7 + 1
    with torch.no_grad():
        policy.causal.model.layers[0].mlp.down_proj.weight.data.mul_(-3)  # which no counter of changes sees
    asyncio.run(engine.load(None, 1))
    assert not engine._packs
    assert drawn(engine) == drawn(EmbeddedEngine(policy, EmbeddedConfig.model_validate({"pack_weights": False})))


def test_where_there_are_no_packed_products_weights_are_read_as_they_are(monkeypatch):
    def gone(weight):
        raise RuntimeError("no such operator")

    monkeypatch.setattr(decode, "_LARGE", 1)
    monkeypatch.setattr("lyceum.engine.cpu.weights._reordered", gone)
    available.cache_clear()
    try:
        packs = {}
        assert Decoder.of(random_policy(CONFIGS["llama"]()), packs) is not None
        assert not packs
    finally:
        available.cache_clear()


# Standing aside ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OTHERS)
def test_other_architectures_use_their_own_forward(name):
    assert Decoder.of(policy_like(plain_model(name))) is None


class MyLinear(nn.Linear):
    """As quantised and adapted layers are: a Linear that does something else."""


def with_own_linear(policy):
    old = policy.backbone.layers[1].mlp.up_proj
    policy.backbone.layers[1].mlp.up_proj = MyLinear(old.in_features, old.out_features, bias=False)


def with_own_activation(policy):
    policy.backbone.layers[0].mlp.act_fn = nn.GELU()


def with_own_norm(policy):
    policy.backbone.norm = nn.RMSNorm(32)


def with_swapped_layers(policy):
    policy.backbone.layers = policy.backbone.layers[::-1]


def with_a_hook(policy):
    policy.backbone.layers[1].self_attn.register_forward_hook(lambda module, args, out: out)


def with_a_hook_before(policy):
    policy.backbone.layers[0].mlp.down_proj.register_forward_pre_hook(lambda module, args: None)


def with_its_own_forward(policy):
    layer = policy.backbone.layers[0]
    layer.forward = layer.forward


def in_training(policy):
    policy.module.train()


def with_another_module(policy):
    policy.backbone.layers[0].adapter = nn.Identity()


def of_two_types(policy):
    policy.backbone.layers[1].mlp.up_proj.to(torch.float64)


def with_angles_that_depend_on_the_length(policy):
    policy.backbone.rotary_emb.rope_type = "dynamic"


def parametrised(policy):
    nn.utils.parametrizations.weight_norm(policy.backbone.layers[0].self_attn.q_proj)


@pytest.mark.parametrize(
    "change",
    [
        with_own_linear, with_own_activation, with_own_norm, with_swapped_layers, with_a_hook, with_a_hook_before,
        with_its_own_forward, in_training, with_another_module, of_two_types, with_angles_that_depend_on_the_length,
        parametrised,
    ],
    ids=lambda change: change.__name__,
)  # fmt: skip
def test_whatever_was_done_to_the_model_it_is_left_to_its_own_forward(change):
    policy = policy_like(plain_model())
    assert Decoder.of(policy) is not None
    change(policy)
    assert Decoder.of(policy) is None


def test_adapters_are_left_to_the_models_own_forward():
    model = get_peft_model(plain_model(), LoraConfig(target_modules=["q_proj"], task_type="CAUSAL_LM"))
    assert Decoder.of(Policy(model, policy_like(plain_model()).tokenizer)) is None


def test_a_hook_on_all_modules_is_called():
    policy = policy_like(plain_model())
    handle = nn.modules.module.register_module_forward_hook(lambda module, args, out: None)
    try:
        assert Decoder.of(policy) is None
    finally:
        handle.remove()
    assert Decoder.of(policy) is not None


def test_autocast_is_left_to_the_models_own_forward():
    decoder = Decoder.of(policy_like(plain_model()))
    assert decoder.usable
    with torch.autocast("cpu", torch.bfloat16):
        assert not decoder.usable


def test_a_hook_set_between_two_requests_is_called():
    policy = policy_like(plain_model())
    served, called = EmbeddedEngine(policy), []
    request = Request([5, 6], [1], Sampling(max_completion_tokens=3))
    asyncio.run(served.extend(request))
    policy.backbone.layers[0].register_forward_hook(lambda *args: called.append(1))
    asyncio.run(served.extend(request))
    assert called


def test_the_engine_generates_without_calling_the_models_modules():
    policy = policy_like(plain_model())
    served = EmbeddedEngine(policy)

    def called(*args, **more):
        raise AssertionError("a module was called")

    policy.hidden = called
    request = Request([5, 6, 7], [1, 2], Sampling(max_completion_tokens=5))
    assert len(asyncio.run(served.extend(request))) == 2

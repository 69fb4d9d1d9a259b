"""Adapters on weights in few bits: what is sampled, trained and saved is one model."""

from importlib.util import find_spec

import pytest
import torch
from learner_steps import trained
from tiny_models import plain_model
from torch import nn
from transformers import AutoModelForCausalLM

from lyceum.learner.local import LocalConfig
from lyceum.models import load, rounded
from lyceum.models.eight_bits import Linear8bit, hold_in_8_bits, in_8_bits, unpacked
from lyceum.models.load import ModelSettings, load_policy, merged, save_policy
from lyceum.models.policy import Policy
from lyceum.models.rounded import rounded_layers, weight_of
from lyceum.models.scratch import character_tokenizer
from lyceum.models.tree_attention import TreePlan
from lyceum.recipe.schema import load_recipe
from lyceum.run import checkpoint
from lyceum.utils.errors import RecipeError

FOUR = pytest.param(
    "nf4", marks=pytest.mark.skipif(find_spec("bitsandbytes") is None, reason="bitsandbytes is not installed")
)
KINDS = pytest.mark.parametrize("kind", ["int8", FOUR])
CLOSE = {"rtol": 1e-4, "atol": 1e-4}
TOKENS = torch.arange(5, 17)


@pytest.fixture
def plain(tmp_path):
    """A folder with a model whose weights are not rounded."""
    plain_model().save_pretrained(tmp_path / "plain")
    character_tokenizer(context=256).save_pretrained(tmp_path / "plain")
    return tmp_path / "plain"


def settings_of(folder, kind="int8", **lora):
    return ModelSettings.model_validate({"path": str(folder), "quantise": kind, "lora": {"rank": 4} | lora})


def logits(policy: Policy) -> torch.Tensor:
    size = len(TOKENS)
    return policy.head(policy.hidden(TOKENS, torch.arange(size), TreePlan([torch.arange(size)], [0])))


def spread_adapters(policy):
    with torch.no_grad():
        for name, weight in policy.module.named_parameters():
            if "lora_B" in name:
                nn.init.normal_(weight, std=0.1, generator=torch.Generator().manual_seed(1))


@KINDS
@pytest.mark.parametrize("targets", ["all-linear", ["q_proj"], ["q_proj", "lm_head"]])
def test_what_is_saved_computes_what_was_trained(plain, tmp_path, kind, targets):
    policy = load_policy(settings_of(plain, kind, target_modules=targets))
    whole = load_policy(ModelSettings(path=str(plain)))
    with torch.no_grad():
        apart = (logits(policy) - logits(whole)).norm() / logits(whole).norm()
        assert apart > {"int8": 1e-4, "nf4": 0.01}[kind]  # it is rounded
        logits(policy)  # as sampling does: bitsandbytes' own CPU kernels would repack the weights here
        spread_adapters(policy)
        before = logits(policy)
    logits(policy).sum().backward()
    learnt = {name for name, weight in policy.module.named_parameters() if weight.grad is not None}
    assert learnt
    assert all("lora" in name for name in learnt)
    save_policy(policy, tmp_path / "model")
    with torch.no_grad():
        torch.testing.assert_close(logits(policy), before, **CLOSE)  # merging was in a copy
        torch.testing.assert_close(logits(load_policy(ModelSettings(path=str(tmp_path / "model")))), before, **CLOSE)
        saved = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
        torch.testing.assert_close(saved(TOKENS[None]).logits[0], before, **CLOSE)
    kinds = {type(layer) for layer in merged(policy.module).modules() if isinstance(layer, nn.Linear)}
    assert kinds == {nn.Linear}


def test_adapters_on_experts_which_are_not_rounded_are_saved_beside_layers_that_are(tmp_path):
    plain_model("qwen3-experts").save_pretrained(tmp_path / "plain")
    character_tokenizer(context=256).save_pretrained(tmp_path / "plain")
    policy = load_policy(settings_of(tmp_path / "plain", experts=True))
    spread_adapters(policy)
    save_policy(policy, tmp_path / "model")
    saved = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    with torch.no_grad():
        torch.testing.assert_close(saved(TOKENS[None]).logits[0], logits(policy), **CLOSE)


def test_a_row_of_codes_is_the_row_over_its_largest_magnitude():
    # 127 steps of 0.5 / 127 and of 2 / 127: 0.25 is 63.5 steps and becomes 64 (to even), -1.01 is -64.1.
    codes, scale = in_8_bits(torch.tensor([[0.5, -0.25, 0.0], [-2.0, 1.0, -1.01], [0.0, 0.0, 0.0]]))
    assert codes.tolist() == [[127, -64, 0], [-127, 64, -64], [0, 0, 0]]
    torch.testing.assert_close(scale, torch.tensor([[0.5 / 127], [2 / 127], [0.0]]))


def test_no_weight_is_off_by_more_than_half_a_step():
    weight = torch.randn(50, 40, generator=torch.Generator().manual_seed(0)) * torch.logspace(-6, 3, 50)[:, None]
    codes, scale = in_8_bits(weight)
    assert codes.abs().amax(1).eq(127).all()
    assert ((unpacked(codes, scale, torch.float32) - weight).abs() <= scale * 0.5001).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_computes_what_a_plain_one_does_with_its_weights_unpacked(dtype, bias):
    torch.manual_seed(0)
    layer = Linear8bit(nn.Linear(40, 30, bias=bias, dtype=dtype))
    same = nn.Linear(40, 30, bias=bias, dtype=dtype)
    same.weight.data = unpacked(layer.weight, layer.scale, dtype)
    if bias:
        same.bias = layer.bias
    x, y = (torch.linspace(-2, 3, 200, dtype=dtype).view(5, 40).requires_grad_() for _ in range(2))
    assert torch.equal(layer(x), same(y))
    layer(x).square().sum().backward()
    same(y).square().sum().backward()
    assert torch.equal(x.grad, y.grad)
    assert layer.weight.grad is None


def test_under_autocast_a_layer_computes_in_that_precision():
    layer = Linear8bit(nn.Linear(8, 8))
    x = torch.randn(3, 8, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        out = layer(x)
    assert out.dtype == torch.bfloat16
    out.sum().backward()
    assert x.grad.dtype == torch.float32


def test_a_layer_keeps_its_codes_for_the_backward_pass_and_not_its_weights():
    layer, kept = Linear8bit(nn.Linear(64, 64)), []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.nbytes) or x, lambda x: x):
        layer(torch.randn(2, 64, requires_grad=True))
    assert sum(kept) == 64 * 64 + 64 * 4  # where autograd would keep 64 x 64 numbers of 4 bytes


def test_linear_layers_are_rounded_and_the_output_layer_is_not():
    model = plain_model()
    names = {name for name, layer in model.named_modules() if type(layer) is nn.Linear}
    hold_in_8_bits(model)
    assert rounded_layers(model).keys() == names - {"lm_head"}
    assert type(model.lm_head) is nn.Linear


def test_a_rows_logits_do_not_depend_on_its_batch(plain):
    # LLM.int8() is off here: what it leaves unrounded of a layer's inputs depends on the whole batch.
    policy = load_policy(settings_of(plain))
    spread_adapters(policy)
    policy.causal.set_attn_implementation("eager")
    rows = torch.stack([TOKENS, TOKENS.flip(0), TOKENS + 40])
    with torch.no_grad():
        together = policy.causal(input_ids=rows, use_cache=False).logits
        for row, of_row in zip(rows, together, strict=True):
            torch.testing.assert_close(policy.causal(input_ids=row[None], use_cache=False).logits[0], of_row)


def test_scales_stay_in_float32_where_the_weights_are_in_16_bits(plain):
    policy = load_policy(settings_of(plain).model_copy(update={"dtype": "bfloat16"}))
    layers = rounded_layers(policy.module)
    whole = dict(load_policy(ModelSettings(path=str(plain), dtype="bfloat16")).module.named_modules())
    for name, layer in layers.items():
        weight = whole[name.removeprefix("base_model.model.").removesuffix(".base_layer")].weight.float()
        assert layer.scale.dtype == torch.float32
        assert ((weight_of(layer) - weight).abs() <= layer.scale * 0.5001).all()


def test_a_weight_that_is_not_finite_is_refused_as_without_rounding(plain):
    model = plain_model()
    model.model.layers[0].mlp.up_proj.weight.data[0, 0] = torch.inf
    model.save_pretrained(plain)
    with pytest.raises(RecipeError, match=r"weights with NaN or infinity in float32: 1 \(model\.layers\.0\.mlp\.up"):
        load_policy(settings_of(plain))


@KINDS
def test_a_resumed_learner_goes_on_to_the_bit(plain, tmp_path, kind):
    whole, resumed = (learner(plain, kind) for _ in range(2))
    begun = trained(whole, range(2))
    resumed.load_state_dict(checkpoint.load(checkpoint.save(tmp_path, 2, whole.state_dict())))
    ended = trained(whole, range(2, 4))
    assert all(map(torch.equal, ended, trained(resumed, range(2, 4))))
    assert not any(map(torch.equal, ended, begun)), "adapters learn"


def learner(plain, kind):
    policy = load_policy(settings_of(plain, kind))
    spread_adapters(policy)
    return LocalConfig(lr=1e-3).build(policy, total_steps=4, needs=frozenset())


def test_what_rounding_needs_is_said_before_anything_loads(monkeypatch):
    monkeypatch.setattr(rounded, "find_spec", lambda name: None)
    recipe = load_recipe("grpo", ["model.quantise=nf4", "model.lora=true"])
    with pytest.raises(RecipeError, match=r"model\.quantise: got 'nf4', which needs bitsandbytes: pip install bitsand"):
        load.check_model(recipe.model)
    load.check_model(load_recipe("grpo", ["model.quantise=int8", "model.lora=true"]).model)
    with pytest.raises(RecipeError, match=r"got quantise='nf4' without lora, but rounded weights cannot be trained"):
        load_recipe("grpo", ["model.quantise=nf4"])
    with pytest.raises(RecipeError, match=r"model\.quantise: got 'fp4', but learner\.kind 'fsdp' cannot share"):
        load_recipe("grpo", ["model.quantise=fp4", "model.lora=true", "learner.kind=fsdp"])


@pytest.mark.parametrize("path", ["scratch", "scratch-worlds"])
def test_weights_that_are_in_no_file_are_not_rounded(path):
    with pytest.raises(RecipeError, match=rf"model\.quantise: got 'int8' with {path}; allowed: base, a folder"):
        load.check_model(settings_of(path))

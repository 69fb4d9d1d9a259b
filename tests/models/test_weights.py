import json
import logging
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load, load_file, save, save_file
from tiny_models import CONFIGS, SMALL, plain_model
from transformers import AutoModelForCausalLM, MixtralConfig, MixtralForCausalLM

from lyceum.learner.local import largest_weight
from lyceum.models.limits import context_of
from lyceum.models.load import ModelSettings, check_weights, load_policy, load_tokenizer
from lyceum.models.scratch import character_tokenizer
from lyceum.models.weights import Checkpoint, file_weights, storable
from lyceum.utils.errors import RecipeError
from lyceum.utils.library_messages import tell_once

LAYER = "model.layers.1."
"""What the names of one layer's nine weights begin with."""


@pytest.fixture
def folder(tmp_path):
    """A model of two layers and its tokenizer, as save_pretrained writes them: 21 tensors."""
    plain_model().save_pretrained(tmp_path / "model")
    character_tokenizer(context=256).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def change_weights(folder: Path, change) -> None:
    weights = load_file(folder / "model.safetensors")
    save_file(change(weights), folder / "model.safetensors", metadata={"format": "pt"})


def change_config(folder: Path, **keys) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | keys))


def checked(settings: ModelSettings) -> None:
    """What is looked at before a model is loaded."""
    context_of(settings, load_tokenizer(settings))


def refused(look, settings: ModelSettings) -> str:
    with pytest.raises(RecipeError) as error:
        look(settings)
    return str(error.value)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("llama", {"tie_word_embeddings": True}),  # one name of two
        ("qwen3-experts", {}),  # three tensors per expert, where the module has two per layer
        ("deepseek3-latents", {}),  # a router's bias, which is a buffer and no parameter
        ("gpt-oss-sinks", {}),
        ("phi3-longrope", {}),
    ],
)
def test_weights_by_the_names_of_files_are_those_that_save_pretrained_writes(kind, settings, tmp_path):
    model = plain_model(kind, **settings)
    model.save_pretrained(tmp_path)
    expected, got = load_file(tmp_path / "model.safetensors"), file_weights(model)
    assert got.keys() == expected.keys()
    assert all(torch.equal(got[name], weight) for name, weight in expected.items())


@pytest.mark.parametrize("look", [checked, load_policy])
def test_weights_that_the_files_lack_are_named_and_counted(look, folder):
    change_weights(folder, lambda weights: {name: w for name, w in weights.items() if not name.startswith(LAYER)})
    said = refused(look, ModelSettings(path=str(folder)))
    assert said.startswith(
        f"model.path: {folder}: weights that are missing: 9 of 21 (model.layers.1.input_layernorm.weight, "
        "model.layers.1.mlp.down_proj.weight, model.layers.1.mlp.gate_proj.weight, ...); "
    )
    assert said.endswith("or model.allow_missing_weights")


@pytest.mark.parametrize("look", [checked, load_policy])
def test_weights_that_the_model_has_no_place_for_are_named_and_counted(look, folder):
    change_config(folder, num_hidden_layers=1)
    said = refused(look, ModelSettings(path=str(folder)))
    assert "weights that the model has no place for: 9 (model.layers.1.input_layernorm.weight, " in said
    assert said.endswith("or model.allow_unused_weights")


@pytest.mark.parametrize("look", [checked, load_policy])
def test_renamed_weights_are_missing_and_have_no_place(look, folder):
    change_weights(folder, lambda weights: {f"x.{name}": w for name, w in weights.items()})
    missing, surplus = refused(look, ModelSettings(path=str(folder))).splitlines()
    assert "weights that are missing: 21 of 21 (lm_head.weight, " in missing
    assert "weights that the model has no place for: 21 (x.lm_head.weight, " in surplus


@pytest.mark.parametrize("look", [checked, load_policy])
def test_weights_of_another_shape_are_told_with_both_shapes(look, folder):
    change_config(folder, intermediate_size=64)
    said = refused(look, ModelSettings(path=str(folder)))
    assert "of another shape: 6 of 21 (model.layers.0.mlp.down_proj.weight [32, 48], by config.json [32, 64], " in said


def test_weights_that_may_be_missing_begin_as_the_seed_says(folder, caplog):
    change_weights(folder, lambda weights: {name: w for name, w in weights.items() if name != "lm_head.weight"})
    settings = ModelSettings(path=str(folder), allow_missing_weights=("lm_*",), seed=3)
    checked(settings)
    state = torch.random.get_rng_state()
    heads = [load_policy(settings).output.weight for settings in (settings, settings)]
    assert torch.equal(heads[0], heads[1])
    assert not torch.equal(heads[0], load_policy(settings.model_copy(update={"seed": 4})).output.weight)
    assert torch.equal(state, torch.random.get_rng_state())
    assert caplog.text.count("missing weights are initialised randomly: 1 (lm_head.weight)") == 1
    other = settings.model_copy(update={"allow_missing_weights": ("head*",)})
    assert "missing: 1 of 21 (lm_head.weight)" in refused(check_weights, other)


def test_weights_that_may_be_left_over_are_left(folder, caplog):
    change_weights(folder, lambda weights: weights | {"v_head.weight": torch.zeros(1, 32)})
    checked(ModelSettings(path=str(folder), allow_unused_weights=("v_head.*",)))
    assert "weights are not used: 1 (v_head.weight)" in caplog.text


@pytest.mark.parametrize("name", CONFIGS)
def test_what_save_pretrained_writes_is_complete(name, tmp_path):
    # Gemma 2 and Cohere tie their output to the embeddings, so that the files hold one of the two.
    plain_model(name).save_pretrained(tmp_path)
    source = Checkpoint("model", name, str(tmp_path))
    source.check(AutoModelForCausalLM)
    source.load(AutoModelForCausalLM, torch.float32)


def test_weights_that_transformers_joins_are_compared_once_they_are(tmp_path):
    # Mixtral's files hold each expert's matrices, its model one tensor of all experts.
    MixtralForCausalLM(MixtralConfig(**SMALL, num_local_experts=4)).save_pretrained(tmp_path)
    source = Checkpoint("model", "mixtral", str(tmp_path))
    source.check(AutoModelForCausalLM)
    change_weights(tmp_path, lambda weights: {name: w for name, w in weights.items() if "experts.3" not in name})
    with pytest.raises(
        RecipeError, match=r"another shape: 4 of 21 \(\S+\.experts\.down_proj \[3, 32, 48\], .*\[4, 32, 48\]"
    ):
        source.check(AutoModelForCausalLM)


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        ({"hidden_size": "abc"}, "hidden_size' expected int, got str"),
        ({"hidden_size": -4}, "negative dimension"),
        ({"num_attention_heads": 0}, "ZeroDivisionError"),
        ({"model_type": "nobody"}, "does not recognize this architecture"),
        ({"hidden_act": "nobody"}, "nobody"),
        ({"hidden_size": 10**9}, "many times larger than the 21 weights in its files"),
        ({"vocab_size": 10**12}, "many times larger than the 21 weights in its files"),
        ({"num_hidden_layers": 10**6}, "many times larger than the 21 weights in its files"),
        ({"num_hidden_layers": 10**12}, "num_hidden_layers: got 1000000000000; allowed: at most 1000000"),
        ({"text_config": {"num_labels": 10**12}}, "num_labels: got 1000000000000; allowed: at most 1000000"),
    ],
)
@pytest.mark.parametrize("look", [checked, load_policy])
def test_a_configuration_that_cannot_be_is_a_line_and_takes_no_memory(look, folder, keys, fault):
    change_config(folder, **keys)
    said = refused(look, ModelSettings(path=str(folder)))
    assert said.startswith("model.path: ")
    assert str(folder) in said
    assert fault in said
    assert "the tokenizer of" not in said


def test_a_special_token_that_the_vocabulary_lacks_is_refused(folder):
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"unk_token": ""}))
    assert "the tokenizer of" in refused(load_policy, ModelSettings(path=str(folder)))


@pytest.mark.parametrize("given", ["'x'", "-8307138317570063466496"])
def test_a_stop_token_that_is_none_is_refused(folder, given):
    (folder / "generation_config.json").write_text(f'{{"eos_token_id": {given}}}'.replace("'", '"'))
    assert f"eos_token_id: got {given}; allowed: a token id" in refused(load_policy, ModelSettings(path=str(folder)))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused(folder, value):
    def spoilt(weights):
        weights["model.norm.weight"][3] = value
        return weights

    change_weights(folder, spoilt)
    said = refused(load_policy, ModelSettings(path=str(folder)))
    assert "weights with NaN or infinity in float32: 1 (model.norm.weight)" in said


def test_weights_whose_sum_overflows_are_numbers(folder):
    def large(weights):
        weights["model.embed_tokens.weight"][98] = 3e38  # 32 of them are more than float32 holds
        return weights

    change_weights(folder, large)
    load_policy(ModelSettings(path=str(folder)))


def test_logits_that_are_no_numbers_are_refused(folder):
    def large(weights):
        weights["lm_head.weight"] = torch.full((99, 32), 6e4)  # float16 holds up to 65504
        return weights

    change_weights(folder, large)
    said = refused(load_policy, ModelSettings(path=str(folder), dtype="float16"))
    assert said.startswith(f"model.dtype: the logits of {folder} hold NaN or infinity in float16; ")


def test_adapters_of_layers_that_there_are_not_are_refused(folder):
    settings = ModelSettings.model_validate({"path": str(folder), "lora": {"target_modules": ["nobody"]}})
    assert "model.lora: " in (said := refused(load_policy, settings))
    assert "allowed for target_modules: all-linear, or names" in said


def damaged(folder: Path, how: str) -> None:
    file = folder / "model.safetensors"
    whole = file.read_bytes()
    match how:
        case "empty":
            file.write_bytes(b"")
        case "garbage":
            file.write_bytes(b"garbage" * 100)
        case "cut":
            file.write_bytes(whole[: len(whole) // 2])
        case "pickle":
            file.rename(folder / "pytorch_model.bin")
        case "shards":
            shards = {"a": "model-1.safetensors", "b": "model-2.safetensors"}
            (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
            file.rename(folder / "model-1.safetensors")
        case "no map":
            (folder / "model.safetensors.index.json").write_text("{}")
            file.unlink()
        case "adapter":
            (folder / "adapter_config.json").write_text("{}")
        case "list":
            (folder / "config.json").write_text("[]")
        case "nested":
            (folder / "config.json").write_text("[" * 100_000)
        case "stops":
            (folder / "generation_config.json").write_text("{")


@pytest.mark.parametrize(
    ("how", "fault"),
    [
        ("empty", "model.safetensors: SafetensorError: .*; the file is damaged or incomplete: copy it again"),
        ("garbage", "model.safetensors: SafetensorError: .*; the file is damaged or incomplete: copy it again"),
        ("cut", "model.safetensors: SafetensorError: .*; the file is damaged or incomplete: copy it again"),
        ("pickle", "has its weights in pytorch_model.bin, a pickle, .* allowed: safetensors"),
        ("shards", r"index.json: files that are not there: 1 of 2 \(model-2.safetensors\); copy them too"),
        ("no map", "index.json has no weight_map"),
        ("adapter", "holds a peft adapter .*; merge it into its base model first"),
        ("list", r"config.json holds \[\]; allowed: a JSON object"),
        ("nested", "config.json cannot be read: lists and objects more than 200 deep"),
        ("stops", "generation_config.json cannot be read: .*character 2"),
    ],
)
def test_files_that_cannot_be_read_are_told_by_name(folder, how, fault):
    damaged(folder, how)
    with pytest.raises(RecipeError, match=rf"^model.path: {folder}.*{fault}"):
        load_tokenizer(ModelSettings(path=str(folder)))


def test_transformers_is_not_asked_for_a_pickle_where_lyceum_cannot_look_before(folder, monkeypatch):
    monkeypatch.setattr(Checkpoint, "_size", lambda self: None)  # as of a hub's name
    (folder / "model.safetensors").unlink()
    torch.save({"a": torch.ones(1)}, folder / "pytorch_model.bin")
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("a pickle was read"))
    with pytest.raises(RecipeError, match=r"cannot be loaded: OSError: .*no file named model.safetensors"):
        Checkpoint("model", "owner/name", str(folder)).load(AutoModelForCausalLM, torch.float32)


def write_gguf(file: Path, *, without: str = "") -> None:
    """A Llama of one layer whose weights are all 0.1."""
    writer = gguf.GGUFWriter(str(file), "llama")
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_feed_forward_length(48)
    writer.add_head_count(4)
    writer.add_head_count_kv(4)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(8)
    writer.add_vocab_size(99)
    shapes = {"token_embd": (99, 32), "output": (99, 32), "output_norm": (32,)}
    shapes |= {f"blk.0.{name}_norm": (32,) for name in ("attn", "ffn")}
    shapes |= {f"blk.0.attn_{name}": (32, 32) for name in ("q", "k", "v", "output")}
    shapes |= {"blk.0.ffn_gate": (48, 32), "blk.0.ffn_up": (48, 32), "blk.0.ffn_down": (32, 48)}
    for name, shape in shapes.items():
        writer.add_tensor("other" if name == without else f"{name}.weight", np.full(shape, 0.1, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_weights_that_a_gguf_file_lacks_are_named(tmp_path):
    write_gguf(tmp_path / "whole.gguf")
    write_gguf(tmp_path / "part.gguf", without="blk.0.ffn_up")
    whole, part = (
        Checkpoint("model", f"{n}.gguf", str(tmp_path), {"gguf_file": f"{n}.gguf"}) for n in ("whole", "part")
    )
    whole.load(AutoModelForCausalLM, torch.float32)
    with pytest.raises(RecipeError, match=r"part.gguf: .* missing: 1 of 12 \(model.layers.0.mlp.up_proj.weight\)"):
        part.load(AutoModelForCausalLM, torch.float32)


@pytest.mark.parametrize("propagates", [False, True])  # True is what transformers sets where CI=1
def test_what_transformers_warns_of_while_it_loads_is_told_once(folder, caplog, monkeypatch, propagates):
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", propagates)
    tell_once.cache_clear()
    change_config(folder, tie_word_embeddings=True)  # but the files hold an output of its own
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            load_policy(ModelSettings(path=str(folder)))
    (line,) = (record.getMessage() for record in caplog.records)
    assert line.startswith(f"model.path: {folder}: transformers: The tied weights mapping")
    assert "we will NOT tie them" in line


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_largest_weight_is_told_by_magnitude_and_is_not_finite_where_one_is_not(dtype):
    # -3 is the largest by magnitude: the maximum alone would give 2, and a norm of all of them sqrt(14).
    weights = [torch.nn.Parameter(torch.tensor(values, dtype=dtype)) for values in ([[1.0, 2.0]], [-3.0])]
    assert largest_weight(weights) == 3
    for wrong in (float("nan"), float("inf"), -float("inf")):
        spoilt = torch.nn.Parameter(torch.tensor([0.0, wrong], dtype=dtype))
        assert not np.isfinite(largest_weight([*weights, spoilt]))
        assert not np.isfinite(largest_weight([spoilt, *weights]))


def test_loading_what_comes_with_the_package_says_nothing(caplog, capfd):
    tell_once.cache_clear()
    settings = ModelSettings(path="base")
    checked(settings)
    load_policy(settings)
    assert not caplog.records
    assert capfd.readouterr() == ("", "")


def test_what_is_stored_as_it_is_is_not_copied():
    weight = torch.randn(4, 6)
    columns = torch.randn(4, 6).t()
    stored = storable({"a": weight, "view": weight.view(6, 4), "row": weight[1], "columns": columns})
    assert stored["a"].data_ptr() == weight.data_ptr()
    assert torch.equal(load(save(stored))["view"], weight.view(6, 4))
    assert torch.equal(stored["row"], weight[1])
    assert torch.equal(stored["columns"], columns)
    assert stored["columns"].is_contiguous()

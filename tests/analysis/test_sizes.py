import json
import math

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import Gemma3nTextConfig, LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from lyceum.analysis.sizes import (
    CARDS,
    MIB,
    Shape,
    Sizes,
    Work,
    activations,
    backward,
    cache,
    grown,
    held_weights,
    phases,
    rounded_bytes,
    through_the_model,
    told,
)
from lyceum.cli.outcome import main
from lyceum.models.eight_bits import hold_in_8_bits
from lyceum.models.load import ModelSettings, weight_shapes
from lyceum.models.tree_attention import BLOCK_ELEMENTS
from lyceum.recipe.schema import load_recipe
from lyceum.utils.errors import RecipeError
from lyceum.utils.memory import free_memory, resident

TINY = Shape(
    parameters=1000, trained=1000, packed=600, largest=200, layers=2, width=8, vocabulary=50, inner=16, query=8, key=4,
    heads=4, key_heads=2,
)  # fmt: skip
WORK = Work(trees=2, rows=4, prompt=3, completion=5, micro_batch=4096, sequences=8, packs=True)


def test_a_layer_keeps_what_its_backward_pass_reads():
    # 6 x 8 of norms, 4 x 16 of the feed-forward layer, 2 x 8 + 2 x 4 of attention: 136 numbers of 4 bytes, 10 tokens.
    assert activations(TINY, 10, 4) == 10 * 136 * 4
    # with seven adapters of rank 2: 4 x 8 + 64 + 24 + 7 x 2
    adapters = Shape(**{**vars(TINY), "rank": 2, "adapted": 7, "adapted_inputs": 64})
    assert activations(adapters, 10, 4) == 10 * 134 * 4
    # In 16 bits 3 x 16 + 24 numbers of 2 bytes; in float32 the norms' inputs, 2 x 8, and the adapters', 64 + 7 x 2.
    assert activations(adapters, 10, 2) == 10 * (72 * 2 + 94 * 4)


FAMILIES = {"llama": (LlamaConfig, LlamaForCausalLM), "qwen3": (Qwen3Config, Qwen3ForCausalLM)}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "autocast"])
@pytest.mark.parametrize("keys", [{}, {"lora": True}, {"lora": True, "quantise": "int8"}])
def test_what_a_layer_is_told_to_keep_is_what_torch_keeps(family, precision, keys, tmp_path):
    of_config, of_model = FAMILIES[family]
    config = of_config(
        hidden_size=256, intermediate_size=704, num_attention_heads=8, num_key_value_heads=4, head_dim=32,
        vocab_size=99, num_hidden_layers=2,
    )  # fmt: skip
    config.architectures = [of_model.__name__]
    config.save_pretrained(tmp_path)
    dtype = "bfloat16" if precision == "bfloat16" else "float32"
    shape = Shape.of(ModelSettings.model_validate({"path": str(tmp_path), "dtype": dtype, **keys}))
    kept = []
    for layers in (1, 2):  # the difference is of one layer
        config.num_hidden_layers = layers
        model = of_model(config).to(getattr(torch, dtype))
        if keys.get("quantise"):
            hold_in_8_bits(model)
        if keys.get("lora"):
            model = get_peft_model(model, LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM"))
        kept.append(kept_by(model, tokens=250, half=precision == "autocast"))
    number = 4 if precision == "float32" else 2
    assert activations(shape, 250, number, half=precision == "autocast") == pytest.approx(kept[1] - kept[0], rel=0.02)


def kept_by(model, *, tokens, half):
    """Bytes that a forward pass keeps for the backward pass, without weights and their copies."""
    found = {}
    shapes = {tuple(weight.shape) for weight in model.parameters()}
    shapes |= {shape[::-1] for shape in shapes}

    def keep(x):
        if tuple(x.shape) not in shapes:
            found[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes(), x  # held, so that no place is reused
        return x

    body = (model.get_base_model() if hasattr(model, "get_base_model") else model).model
    autocast = torch.autocast("cpu", torch.bfloat16, enabled=half)
    with autocast, torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        body(input_ids=torch.zeros(1, tokens, dtype=torch.long), use_cache=False)
    return sum(size for size, _ in found.values())


def test_a_micro_batch_has_the_rows_that_its_budget_holds():
    # Two tasks of four: 2 x 3 + 8 x 5 = 46 unique tokens, 8 x 8 = 64 padded ones; 1.1 x 46 is fewer: the tree.
    assert through_the_model(WORK) == (46, 8, True)
    # 20 tokens hold three rows of one task: 3 + 15 = 18
    assert through_the_model(Work(2, 4, 3, 5, micro_batch=20)) == (18, 3, True)
    # A row that is longer goes alone; an update of two has one task.
    assert through_the_model(Work(2, 4, 3, 5, micro_batch=4))[1] == 1
    assert through_the_model(Work(2, 4, 3, 5, micro_batch=4096, updates=2))[:2] == (23, 4)


def test_recomputed_activations_keep_the_layers_inputs():
    kept = backward(TINY, WORK, 4)["activations"]
    again = backward(TINY, Work(**{**vars(WORK), "recomputed": True}), 4)["activations"]
    # One layer's instead of both, and 46 tokens x 8 numbers for each layer's input and once less of attention's output.
    assert kept - again == activations(TINY, 46, 4) - 2 * 46 * 8 * 4 + 46 * 8 * 4


def test_a_long_row_has_the_mask_of_a_block_and_not_one_that_grows_with_its_square():
    long = Work(1, 1, 100, 8192, micro_batch=8192, layout="tree")
    short = Work(1, 1, 100, 200, micro_batch=8192, layout="tree")
    assert _beside_activations(short) == 2 * 200 * 300 * 4
    assert _beside_activations(long) == BLOCK_ELEMENTS * 4


def _beside_activations(work):
    """Bytes of a micro-batch in the tree layout that are neither activations, nor outputs, nor what passes."""
    tokens = work.length
    of_layers = 2 * activations(TINY, tokens, 4) + 2 * tokens * TINY.query * 4
    return backward(TINY, work, 4)["activations"] - of_layers - tokens * (3 * 16 + 2 * 8) * 4


def test_moments_in_8_bits_have_a_scale_for_each_256():
    # 2048 trained numbers: 4096 bytes of moments and 16 scales of 4 bytes, and as much of them in a checkpoint.
    shape, eight = Shape(**{**vars(TINY), "trained": 2048}), Work(**{**vars(WORK), "eight_bits": True})
    found = phases(shape, eight, Work(0, 0, 0, 0), 4, libraries=0, card=False)
    assert found["train"]["optimiser"] == 4096 + 64
    assert found["save"]["being written"] == 2 * (2048 * 4 + 4096 + 64)


def test_rounded_weights_have_scales():
    # 640 numbers in 4 bits are 320 bytes and ten scales of 4; in 8 bits 640, and a scale for each of 32 rows.
    assert rounded_bytes((32, 20), "nf4") == 320 + 10 * 4
    assert rounded_bytes((32, 20), "int8") == 640 + 32 * 4
    # The other 360 have 2 bytes, 100 numbers of adapters 4 in any precision.
    shape = Shape(**{**vars(TINY), "trained": 100, "rank": 2, "rounded": 640, "rounded_bytes": 768, "unpacked": 300})
    assert held_weights(shape, 2) == 768 + 2 * 360 + 4 * 100
    found = phases(shape, WORK, Work(0, 0, 0, 0), 2, libraries=0, card=True)["train"]
    assert (found["gradients"], found["optimiser"]) == (400, 800)
    assert found["unpacked weight"] == 300 * (4 + 2)  # by its scales in float32, then in bfloat16


def test_weights_in_8_bits_are_first_loaded_whole_and_not_by_a_card():
    shape = Shape(**{**vars(TINY), "rank": 2, "rounded": 640, "rounded_bytes": 768, "rounded_here": True})
    loaded = [phases(shape, WORK, WORK, 2, libraries=0, card=card)["load"]["weights"] for card in (True, False)]
    assert loaded == [held_weights(shape, 2), 2 * 1000]


def test_autocast_keeps_copies_of_the_weights():
    half, again = (Work(**{**vars(WORK), "half": True, "recomputed": recomputed}) for recomputed in (False, True))
    assert backward(TINY, half, 4)["weights in bfloat16"] == backward(TINY, again, 4)["weights in bfloat16"] == 2000
    adapters = Shape(**{**vars(TINY), "rank": 2})
    # of frozen weights, a layer's alone where layers are computed again
    assert backward(adapters, half, 4)["weights in bfloat16"] == 2000
    assert backward(adapters, again, 4)["weights in bfloat16"] == 1000
    assert "weights in bfloat16" not in backward(TINY, WORK, 2)


def test_the_cache_grows_by_half():
    assert grown(3, 100, 1, 32) == [32, 64, 96, 160]
    # 8 entries of 32 places, 2 (keys and values) x 2 layers x 4 numbers x 4 bytes; nothing was copied for it.
    assert cache(TINY, WORK, 4) == (8 * 32 * 64, 0)


def test_each_phase_is_the_sum_of_what_is_there_then():
    found = phases(TINY, WORK, Work(0, 0, 0, 0), 4, libraries=1000, card=True)
    assert set(found) == {"load", "sample", "train"}  # a card has no files
    assert found["train"]["weights"] == found["train"]["gradients"] == 4000
    assert found["train"]["optimiser"] == 8000
    assert "packed weights" not in found["sample"]
    here = phases(TINY, WORK, Work(0, 0, 0, 0), 4, libraries=1000, card=False)
    assert here["sample"]["packed weights"] == 2400
    assert here["save"]["being written"] == 2 * 12_000
    frozen = phases(TINY, Work(**{**vars(WORK), "frozen": 1}), Work(0, 0, 0, 0), 4, libraries=0, card=True)
    assert frozen["train"]["frozen models"] == 4000


def test_a_shape_has_the_models_own_counts():
    shape = Shape.of(ModelSettings())
    assert shape.parameters == sum(map(math.prod, weight_shapes(ModelSettings()).values()))
    lora = Shape.of(ModelSettings.model_validate({"lora": {"rank": 4}}))
    # Of each layer: q, k, v, o of 128 + 128, gate and up and down of 128 + 448, each times the rank.
    assert lora.trained == 4 * 4 * (4 * 256 + 3 * 576)


def test_layers_of_several_widths_are_told_by_their_mean(tmp_path):
    # As Gemma 3n's files have it.
    config = Gemma3nTextConfig(
        vocab_size=40, hidden_size=16, intermediate_size=[32, 48], num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, vocab_size_per_layer_input=40, hidden_size_per_layer_input=4,
        layer_types=["sliding_attention", "full_attention"], num_kv_shared_layers=0,
        activation_sparsity_pattern=[0.0, 0.0],
    )  # fmt: skip
    config.architectures = ["Gemma3nForCausalLM"]
    config.save_pretrained(tmp_path)
    assert Shape.of(ModelSettings(path=str(tmp_path))).inner == 40


def test_what_cannot_fit_is_refused_with_the_key_that_mends_it():
    sizes = Sizes(
        {"train": {"weights": 8 * MIB}},
        "this machine",
        4 * MIB,
        {},
        0,
        {"a=1": 6 * MIB, "b=2": 3 * MIB},
        certain=5 * MIB,
    )
    assert not sizes.fits
    assert sizes.mend.startswith("b=2 ")  # the first that fits
    with pytest.raises(RecipeError, match=r"takes 5 MiB .* this machine has 4 MiB free; allowed: b=2 \(3 MiB\)"):
        sizes.require_fit()
    none = Sizes({"train": {"weights": 8 * MIB}}, "this machine", 4 * MIB, {}, 0, {"a=1": 6 * MIB}, certain=1)
    none.require_fit()  # shorter completions may do
    assert "does not fit either" in none.mend


def test_a_cards_memory_is_its_drivers():
    of = told(load_recipe("grpo"), prompt=10, demonstration=0, evaluated=8, card="h100")
    assert (of.free, of.of) == (CARDS["h100"] * MIB, "an h100")
    assert of.fits
    with pytest.raises(RecipeError, match=r"--on: got 'h10'; allowed: t4, "):
        told(load_recipe("grpo"), prompt=10, demonstration=0, evaluated=8, card="h10")


def test_a_dry_run_tells_memory_by_phase_and_disk(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "grpo", "steps=40", "--dry-run", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["memory"]) == {"load", "evaluate", "sample", "train", "save"}
    assert found["memory_free"] > sum(found["memory"]["train"].values())
    assert found["disk"]["checkpoints"] == 3 * found["disk"]["model"]  # one, of step 20: weights and two moments
    assert main(["train", "grpo", "--on", "h100"]) == 2
    assert "--on: got 'h100' without --dry-run" in capsys.readouterr().err


def test_this_process_and_machine_have_memory():
    assert 10 * MIB < resident() < free_memory() + resident()


def test_workers_are_told_of_where_their_memory_is_not_counted():
    recipe = load_recipe("grpo", ["runtime=processes", "runtime.workers=1", "evaluate.n=4"])
    both = recipe.model_copy(update={"evaluate": recipe.evaluate.model_copy(update={"workers": 2})})
    sizes = [told(each, prompt=8, demonstration=0, evaluated=4).uncounted for each in (load_recipe("grpo"), both)]
    assert sizes == [
        (),
        ("runtime.workers=1, each with the model", "evaluate.workers=2, each with the model"),
    ]

import pytest
import torch
from safetensors.torch import save_file
from tiny_models import plain_model, policy_like
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    CLIPVisionConfig,
    LlamaConfig,
    LlavaConfig,
    Qwen2AudioConfig,
)

from lyceum.models.load import ModelSettings, check_model, load_policy, load_tokenizer, read_config, save_policy
from lyceum.models.scratch import character_tokenizer
from lyceum.utils.errors import RecipeError


def test_a_gpu_that_is_not_there_is_refused_before_anything_is_loaded(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RecipeError, match=r"model.device: got 'cuda', but .* no GPU .*; allowed: auto, cpu"):
        check_model(ModelSettings(device="cuda"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    check_model(ModelSettings(device="cuda"))


def test_what_a_chat_template_is_told_stays_with_the_model(tmp_path):
    template = tmp_path / "template.jinja"
    template.write_text(
        "{{ messages[0].content }}{% if thinking is defined and not thinking %}/no{% endif %}{{ mark }}"
    )
    told = {"thinking": False, "mark": '%}"'}  # a text with all that could end the place it is written in
    settings = ModelSettings(path="scratch", chat_template=str(template), chat_template_kwargs=told)
    tokenizer = load_tokenizer(settings)
    assert tokenizer.apply_chat_template([{"role": "user", "content": "1+1="}], tokenize=False) == '1+1=/no%}"'
    tokenizer.save_pretrained(tmp_path / "saved")
    saved = AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert saved.apply_chat_template([{"role": "user", "content": "1+1="}], tokenize=False) == '1+1=/no%}"'
    with pytest.raises(RecipeError, match="got the name 'not a name'"):
        load_tokenizer(ModelSettings(path="scratch", chat_template_kwargs={"not a name": 1}))


def test_a_model_that_sees_is_refused_without_its_processor_before_it_is_loaded(tmp_path):
    small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    text = LlamaConfig(vocab_size=99, **small)
    seen = CLIPVisionConfig(image_size=8, patch_size=4, **small)
    saved(tmp_path, LlavaConfig(vision_config=seen, text_config=text))
    said = r"model\.path: the image processor of .* cannot be loaded.*; save it beside the model"
    with pytest.raises(RecipeError, match=said):
        load_tokenizer(ModelSettings(path=str(tmp_path)))


def test_a_model_for_sound_is_refused_by_name_before_it_is_loaded(tmp_path):
    saved(tmp_path, Qwen2AudioConfig(architectures=["Qwen2AudioForConditionalGeneration"]))
    said = "is a Qwen2AudioForConditionalGeneration, a model for sound or videos, not supported yet; allowed: a model"
    with pytest.raises(RecipeError, match=said):
        load_tokenizer(ModelSettings(path=str(tmp_path)))


def saved(folder, config):
    """A model's folder as far as it is read before the model is loaded."""
    config.save_pretrained(folder)
    save_file({"weight": torch.zeros(1)}, folder / "model.safetensors")
    character_tokenizer(context=256).save_pretrained(folder)


@torch.no_grad()
def test_in_bfloat16_positions_are_those_of_transformers(tmp_path):
    save_policy(policy_like(plain_model()), tmp_path)
    plain = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
    policy = load_policy(ModelSettings(path=str(tmp_path), dtype="bfloat16"))
    frequencies = [
        module.inv_freq for model in (policy.causal, plain) for module in model.modules() if hasattr(module, "inv_freq")
    ]
    assert frequencies[0].dtype == frequencies[1].dtype == torch.float32
    torch.testing.assert_close(frequencies[0], frequencies[1], rtol=0, atol=0)
    assert {weight.dtype for weight in policy.module.parameters()} == {torch.bfloat16}


def test_a_folder_with_code_of_its_own_is_refused_and_nobody_is_asked(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text('{"model_type": "own-kind", "auto_map": {"AutoConfig": "own.Own"}}')
    (tmp_path / "own.py").write_text("raise SystemExit\n")
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asked on the terminal"))
    with pytest.raises(RecipeError, match="cannot be read"):
        read_config(ModelSettings(path=str(tmp_path)))

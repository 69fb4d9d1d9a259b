"""Tiny models that see, of every family that is supported, with random weights, processors and a few pictures."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from transformers import (
    CLIPVisionConfig,
    Gemma3Config,
    Idefics3Config,
    InternVLConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaOnevisionConfig,
    PreTrainedModel,
    Qwen2_5_VLConfig,
    Qwen2Config,
    Qwen3VLConfig,
    SiglipVisionConfig,
    SmolVLMConfig,
)
from transformers.models.auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING
from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING
from transformers.models.auto.processing_auto import PROCESSOR_MAPPING

from lyceum.core.types import Continuation
from lyceum.models.picture_tokens import PictureTokens, give_pictures, processor_of
from lyceum.models.policy import Policy
from lyceum.models.scratch import CHAT_TEMPLATE, character_tokenizer
from lyceum.models.see import data_uri

TEXT = {
    "vocab_size": 110, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512, "bos_token_id": None, "eos_token_id": 1, "pad_token_id": 0,
}  # fmt: skip
VIT = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 16,
    "patch_size": 4,
}  # fmt: skip
MERGED = {
    "depth": 3, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "out_hidden_size": 32, "patch_size": 4,
    "spatial_merge_size": 2, "temporal_patch_size": 2, "in_channels": 3,
}  # fmt: skip
GRID = {"patch_size": 4, "merge_size": 2, "temporal_patch_size": 2, "size": {"shortest_edge": 64, "longest_edge": 2048}}
SQUARE = {"size": {"height": 16, "width": 16}}


def _rope(section: list[int], **more: Any) -> dict[str, Any]:
    rope = {"rope_type": "default", "mrope_section": section, "rope_theta": 10000.0, **more}
    return {"rope_parameters": rope}


def _qwen2_5(image: int) -> Any:
    vision = MERGED | {"window_size": 16, "fullatt_block_indexes": [1]}
    text = TEXT | _rope([1, 1, 2])
    return Qwen2_5_VLConfig(text_config=text, vision_config=vision, image_token_id=image, video_token_id=108)


def _qwen3(image: int) -> Any:
    vision = MERGED | {"num_position_embeddings": 64, "deepstack_visual_indexes": [0, 1]}
    text = TEXT | {"head_dim": 8} | _rope([2, 1, 1], mrope_interleaved=True)
    return Qwen3VLConfig(text_config=text, vision_config=vision, image_token_id=image, video_token_id=108)


FAMILIES: dict[str, tuple[Callable[[int], Any], str, dict[str, Any], dict[str, Any]]] = {
    # config of the placeholder's id; the placeholder; settings of the image processor; of the processor
    "internvl": (
        lambda image: InternVLConfig(
            text_config=Qwen2Config(**TEXT), vision_config=VIT | {"image_size": [16, 16], "patch_size": [4, 4]},
            image_token_id=image, image_seq_length=4,
        ),
        "<IMG_CONTEXT>", SQUARE | {"max_patches": 4}, {"image_seq_length": 4},
    ),
    "qwen2.5-vl": (_qwen2_5, "<|image_pad|>", GRID, {}),
    "qwen3-vl": (_qwen3, "<|image_pad|>", GRID, {}),
    "smolvlm": (
        lambda image: SmolVLMConfig(
            text_config=LlamaConfig(**TEXT), vision_config=VIT, scale_factor=2, image_token_id=image
        ),
        "<image>", {"size": {"longest_edge": 32}, "max_image_size": {"longest_edge": 16}}, {"image_seq_len": 4},
    ),
    "idefics3": (
        lambda image: Idefics3Config(
            text_config=LlamaConfig(**TEXT), vision_config=VIT, scale_factor=2, image_token_id=image
        ),
        "<image>", {"size": {"longest_edge": 32}, "max_image_size": {"longest_edge": 16}}, {"image_seq_len": 4},
    ),
    "llava": (
        lambda image: LlavaConfig(
            text_config=LlamaConfig(**TEXT), vision_config=CLIPVisionConfig(**VIT), image_token_index=image,
            image_token_id=image,
        ),
        "<image>", {"size": {"shortest_edge": 16}, "crop_size": {"height": 16, "width": 16}},
        {"patch_size": 4, "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1},
    ),
    "gemma3": (
        lambda image: Gemma3Config(
            text_config=TEXT | {"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 3,
                                "layer_types": ["sliding_attention", "full_attention"]},
            vision_config=VIT, mm_tokens_per_image=4, image_token_id=image, boi_token_index=105, eoi_token_index=106,
        ),
        "<image_soft_token>", SQUARE, {"image_seq_length": 4},
    ),
    "llava-onevision": (
        lambda image: LlavaOnevisionConfig(
            text_config=Qwen2Config(**TEXT), vision_config=SiglipVisionConfig(**VIT), image_token_id=image,
            image_grid_pinpoints=[[16, 16], [32, 32]], vision_feature_select_strategy="full", vision_feature_layer=-1,
        ),
        "<image>", SQUARE | {"image_grid_pinpoints": [[16, 16], [32, 32]]},
        {"num_image_tokens": 16, "vision_feature_select_strategy": "full"},
    ),
}  # fmt: skip


def tiny(name: str, *, seed: int = 0, spread: float = 0.15) -> tuple[PreTrainedModel, Any]:
    """A model as transformers has it, and its tokenizer, which takes pictures."""
    config_of, placeholder, for_images, settings = FAMILIES[name]
    template = CHAT_TEMPLATE.replace(
        "{{ part['text'] }}",
        f"{{%- if part['type'] == 'image' -%}}[{placeholder}]{{%- else -%}}{{{{ part['text'] }}}}{{%- endif -%}}",
    )
    around = {"start_image_token": "<img>", "end_image_token": "</img>", "video_token": "<video>"}
    of_internvl = around | {"context_image_token": placeholder}
    named = of_internvl if name == "internvl" else {"image_token": placeholder}
    if name == "gemma3":
        named |= {"boi_token": "<start_of_image>", "eoi_token": "<end_of_image>"}
        template = template.replace(f"[{placeholder}]", "[<start_of_image>]")
    tokenizer = character_tokenizer(context=512, chat_template=template, extra_special_tokens=named)
    config = config_of(tokenizer.convert_tokens_to_ids(placeholder))
    image_processor = IMAGE_PROCESSOR_MAPPING[type(config)]["pil"](**for_images)
    processor = processor_of(PROCESSOR_MAPPING[type(config)], image_processor, tokenizer, settings)
    give_pictures(tokenizer, PictureTokens(processor))
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        model = MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING[type(config)](config)
        for parameter in model.parameters():
            parameter.normal_(0, spread)
    model.generation_config.eos_token_id = 1
    return model.eval(), tokenizer


def noise(seed: int, *, width: int = 48, height: int = 32) -> str:
    """A picture of noise, as messages hold it."""
    return data_uri(np.random.default_rng(seed).integers(0, 256, (height, width, 3)).astype(np.uint8))


def asked(text: str, *pictures: str) -> list[dict[str, Any]]:
    """A user's message of pictures and a text."""
    parts = [{"type": "image", "image": picture} for picture in pictures]
    return [{"role": "user", "content": [*parts, {"type": "text", "text": text}]}]


def prompt_of(policy: Policy, text: str, *pictures: str) -> list[int]:
    return policy.render(asked(text, *pictures))


def drawn(answer: list[int]) -> Continuation:
    """An answer that someone drew with the log-probabilities 0."""
    none = [0.0] * len(answer)
    return Continuation(answer, behaviour_logprob=none, model_logprob=none, version=[0] * len(answer), finish="stop")

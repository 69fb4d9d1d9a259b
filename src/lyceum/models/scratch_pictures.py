"""A small untrained model that sees: InternVL's architecture with a character tokenizer, for the ``pictures`` tasks.

A picture of 48 x 48 pixels is 8 x 8 patches, of which a pixel shuffle makes 16 tokens. ``lyceum train pictures-base``
trains it from nothing in minutes.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from transformers import InternVLConfig, InternVLForConditionalGeneration, Qwen2Config
from transformers import PreTrainedTokenizerFast as Fast
from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING
from transformers.models.auto.processing_auto import PROCESSOR_MAPPING

from lyceum.models.picture_tokens import PictureTokens, give_pictures, processor_of
from lyceum.models.scratch import CHAT_TEMPLATE, EOS, PAD, SPECIAL, character_tokenizer, initialised
from lyceum.utils.library_messages import quiet

SIDE = 48
"""Pixels each way; other pictures are resized."""
PATCH = 6
CONTEXT = 512
"""Maximum sequence length, in tokens."""
SPREAD = 0.06
"""Standard deviation of the initial weights."""
PLACEHOLDER = "<IMG_CONTEXT>"
AROUND = {
    "start_image_token": "<img>",
    "end_image_token": "</img>",
    "context_image_token": PLACEHOLDER,
    "video_token": "<video>",
}
TEMPLATE = CHAT_TEMPLATE.replace(
    "{{ part['text'] }}",
    f"{{%- if part['type'] == 'image' -%}}{PLACEHOLDER}{{%- else -%}}{{{{ part['text'] }}}}{{%- endif -%}}",
)


def tokens_of(side: int) -> int:
    """Tokens of a picture of this side."""
    return (side // PATCH // 2) ** 2


def picture_tokenizer(*, context: int = CONTEXT, side: int = SIDE) -> Fast:
    """The character tokenizer with four special tokens more, and how pictures become tokens."""
    tokenizer = character_tokenizer(context=context, chat_template=TEMPLATE, extra_special_tokens=AROUND)
    with quiet():  # it says that torchvision is not there, which is not needed
        of_pillow = cast(Any, IMAGE_PROCESSOR_MAPPING)[InternVLConfig]["pil"]
    image_processor = of_pillow(
        size={"height": side, "width": side},
        crop_to_patches=False,
        max_patches=1,
        image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
    )
    settings = {"image_seq_length": tokens_of(side)}
    give_pictures(
        tokenizer, PictureTokens(processor_of(PROCESSOR_MAPPING[InternVLConfig], image_processor, tokenizer, settings))
    )
    return tokenizer


def build_scratch_pictures(
    *, seed: int = 0, vision_layers: int = 3, context: int = CONTEXT, side: int = SIDE
) -> tuple[InternVLForConditionalGeneration, Fast]:
    """An untrained InternVL in float32 and its tokenizer; 0.93 million parameters with the defaults.

    Args:
        seed: random seed of the initial weights; the global random state does not change.
        vision_layers: of the vision tower.
        context: maximum sequence length, in tokens.
        side: of the square that pictures are resized to, in pixels.
    """
    tokenizer = picture_tokenizer(context=context, side=side)
    text = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=320,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=context,
        tie_word_embeddings=True,
        initializer_range=SPREAD,
        bos_token_id=None,
        eos_token_id=SPECIAL.index(EOS),
        pad_token_id=SPECIAL.index(PAD),
    )
    vision = {
        "hidden_size": 96,
        "intermediate_size": 256,
        "num_hidden_layers": vision_layers,
        "num_attention_heads": 4,
        "image_size": [side, side],
        "patch_size": [PATCH, PATCH],
        "initializer_range": SPREAD,
        "hidden_dropout_prob": 0.0,
        "projection_dropout": 0.0,
        "attention_dropout": 0.0,
    }
    config = InternVLConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=cast(int, tokenizer.convert_tokens_to_ids(PLACEHOLDER)),
        image_seq_length=tokens_of(side),
        tie_word_embeddings=True,
        dtype=torch.float32,
    )
    return initialised(InternVLForConditionalGeneration, config, seed=seed), tokenizer

"""A small untrained Llama with a character tokenizer, from which the base model in this package is trained.

Every printable ASCII character and the newline are one token each, so that any built-in task can be written, a step
of a solution ends at a known token, and digits are never merged into one token.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

Model = TypeVar("Model", bound=PreTrainedModel)

SPECIAL = PAD, EOS, UNKNOWN = "<pad>", "<eos>", "<unk>"
CHARACTERS = "\n" + "".join(chr(code) for code in range(32, 127))

# A user's message is its bare content, and an assistant's ends with <eos>, as a completion does: a continued chat is
# then token for token what was sampled. Messages without another separator (a system's, a second user's) are separated
# by a newline.
CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{%- if not loop.first and messages[loop.index0 - 1]['role'] != 'assistant'"
    " and message['role'] != 'assistant' -%}{{ '\\n' }}{%- endif -%}"
    "{%- if message['content'] is string -%}{{ message['content'] }}"
    "{%- else -%}{%- for part in message['content'] -%}{{ part['text'] }}{%- endfor -%}{%- endif -%}"
    "{%- if message['role'] == 'assistant' -%}{{ eos_token }}{%- endif -%}"
    "{%- endfor -%}"
)


def character_tokenizer(*, context: int = 2048, words: Sequence[str] = (), **more: Any) -> PreTrainedTokenizerFast:
    """99 tokens: pad, end of sequence, unknown (any other character), newline, printable ASCII. Adds no
    beginning-of-sequence token; the end of sequence is added only by the chat template.

    Args:
        context: maximum sequence length, in tokens.
        words: further tokens of several characters, which must not go on as a word or a number where they end.
        more: further arguments of transformers' class, in the place of those here.
    """
    vocabulary = {token: index for index, token in enumerate([*SPECIAL, *CHARACTERS, *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(
        Regex("".join(f"{re.escape(word)}(?![A-Za-z0-9])|" for word in words) + r"[\s\S]"), "isolated"
    )
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        **{
            "tokenizer_object": tokenizer,
            "pad_token": PAD,
            "eos_token": EOS,
            "unk_token": UNKNOWN,
            "chat_template": CHAT_TEMPLATE,
            "model_max_length": context,
            "padding_side": "left",
            "clean_up_tokenization_spaces": False,
        }
        | more
    )


def build_scratch(
    *,
    seed: int = 0,
    width: int = 128,
    layers: int = 4,
    heads: int = 4,
    feed_forward: int = 448,
    context: int = 2048,
    spread: float = 0.06,
    tokenizer: PreTrainedTokenizerFast | None = None,
    tied: bool = False,
    biases: bool = False,
) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """An untrained Llama in float32 and its tokenizer; 976,768 parameters (3.9 MB) with the defaults.

    Args:
        seed: random seed of the initial weights; the global random state does not change.
        width: width of the residual stream, in units; a multiple of ``heads``.
        layers: number of transformer blocks.
        heads: number of attention heads, each with its own keys and values.
        feed_forward: width of the gated feed-forward part, in units.
        context: maximum sequence length, in tokens.
        spread: standard deviation of the initial weights. The usual 0.02 is for wider models; here 0.06 reaches
            in 300 steps of fine-tuning what 0.02 reaches in 430 (0.1 is slower again).
        tokenizer: another one than of characters.
        tied: whether the embeddings of what is read and of what is predicted are the same.
        biases: whether the linear layers of attention have biases, 0 at first.
    """
    tokenizer = tokenizer or character_tokenizer(context=context)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=feed_forward,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=context,
        tie_word_embeddings=tied,
        attention_bias=biases,
        initializer_range=spread,
        bos_token_id=None,
        eos_token_id=SPECIAL.index(EOS),
        pad_token_id=SPECIAL.index(PAD),
        dtype=torch.float32,
    )
    return initialised(LlamaForCausalLM, config, seed=seed), tokenizer


def initialised(of: type[Model], config: PreTrainedConfig, *, seed: int) -> Model:
    """A model with random weights, and how it is sampled by default; the global random state does not change."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = of(config)
    model.generation_config = GenerationConfig(
        eos_token_id=SPECIAL.index(EOS), pad_token_id=SPECIAL.index(PAD), do_sample=True, max_new_tokens=64
    )
    return model

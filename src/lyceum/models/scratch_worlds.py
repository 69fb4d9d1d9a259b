"""A small untrained Llama with a tokenizer of words, for the worlds in which agents act (tasks ``rooms``).

Every word of theirs, with the space before it, is one token. Whatever else a text holds is read character by character.
"""

from __future__ import annotations

from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from lyceum.models.scratch import build_scratch, character_tokenizer

BEGINNINGS = ("Fetch", "In", "go", "take", "open")
"""Words with which a text or a line begins: tokens without a space."""
WORDS = (
    "the", "is", "in", "which", "locked", "key", "here", "open", "have", "It", "The", "Doors", "You",
    "attic", "cellar", "chapel", "garden", "hall", "kitchen", "library", "pantry", "stable", "study", "tower",
    "workshop", "crown", "flute", "lamp", "map", "ring", "sword",
)  # fmt: skip


def word_tokenizer(*, context: int = 1024) -> PreTrainedTokenizerFast:
    """The character tokenizer with words as tokens of their own; a text is its tokens put together.

    Args:
        context: maximum sequence length, in tokens.
    """
    return character_tokenizer(context=context, words=[*BEGINNINGS, *(f" {word}" for word in WORDS)])


def build_scratch_worlds(*, seed: int = 0, context: int = 1024) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """An untrained Llama in float32 and its tokenizer; 0.24 million parameters.

    Args:
        seed: random seed of the initial weights; the global random state does not change.
        context: maximum sequence length, in tokens.
    """
    return build_scratch(
        seed=seed,
        width=80,
        layers=3,
        feed_forward=208,
        context=context,
        tokenizer=word_tokenizer(context=context),
        tied=True,
    )

"""A small untrained Llama with a tokenizer of words, for the ``stories`` tasks.

Every word of these problems, with the space before it, is one token, and so is every number below 100: a name is then
found again by one comparison, and a sentence is short. Whatever else a text holds is read character by character.
"""

from __future__ import annotations

from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from lyceum.models.scratch import build_scratch, character_tokenizer

BEGINNINGS = ("The", "Some", "In", "We", "Begin", "You", "Hint", "Answer")
"""Words with which a text or a line begins: tokens without a space too."""
WORDS = (
    *BEGINNINGS,
    "Ann", "Bob", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hana", "Ivo", "Jill", "Kim", "Leo", "Mia", "Ned", "Olga",
    "Pia", "shells", "coins", "stamps", "cards", "books", "pens", "friends", "count", "collect", "class", "the",
    "children", "swap", "has", "have", "owns", "There", "are", "there", "in", "box", "of", "more", "fewer", "than",
    "by", "Compared", "with", "as", "many", "and", "together", "Together", "twice", "two", "times", "How", "does",
    "So", "so", "how", "look", "for", "question", "is", "about", "For", "also", "years", "old", "what", "asks", "go",
    "back", "to", "it", "needs", "need",
)  # fmt: skip


def word_tokenizer(*, context: int = 1024) -> PreTrainedTokenizerFast:
    """The character tokenizer with words and numbers as tokens of their own; a text is its tokens put together.

    Args:
        context: maximum sequence length, in tokens.
    """
    signs = (" +", " -", " *", " =")
    words = [*BEGINNINGS, "'s", *signs, *(f" {word}" for word in WORDS), *(f" {number}" for number in range(100))]
    return character_tokenizer(context=context, words=words)


def build_scratch_stories(*, seed: int = 0, context: int = 1024) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """An untrained Llama in float32 and its tokenizer; 0.84 million parameters.

    Args:
        seed: random seed of the initial weights; the global random state does not change.
        context: maximum sequence length, in tokens.
    """
    tokenizer = word_tokenizer(context=context)
    return build_scratch(seed=seed, feed_forward=352, context=context, tokenizer=tokenizer, tied=True)

"""Small untrained Llamas with a tokenizer of words: for the ``stories`` tasks, and for the worlds ``rooms`` and
``archive``.

Every word of these tasks, with the space before it, is one token, and so is every number below 100 of the stories: a
name is then found again by one comparison, and a sentence is short. Whatever else a text holds is read character by
character.

That of the stories begins with what look-ups need and small models are slow to find: heads that look back by a few
tokens, and heads that find where the same tokens stood before (induction, arXiv:2209.11895). They are set by hand where
others are random, as mimetic initialisation does it (arXiv:2305.09828).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
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
WORLD_BEGINNINGS = ("Fetch", "In", "go", "take", "open")
WORLD_WORDS = (
    "the", "is", "in", "which", "locked", "key", "here", "open", "have", "It", "The", "Doors", "You",
    "attic", "cellar", "chapel", "garden", "hall", "kitchen", "library", "pantry", "stable", "study", "tower",
    "workshop", "crown", "flute", "lamp", "map", "ring", "sword",
)  # fmt: skip
ARCHIVE_BEGINNINGS = ("Who", "The", "Nothing", "search", "answer")
ARCHIVE_WORDS = (
    "is", "the", "of", "boss", "cousin", "doctor", "friend", "neighbour", "teacher",
    "Ann", "Bob", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hana", "Ivo", "Jill", "Kim", "Leo", "Mia", "Ned", "Olga",
    "Pia",
)  # fmt: skip
CONTEXT = 1024
"""Maximum sequence length, in tokens."""


def story_tokenizer() -> PreTrainedTokenizerFast:
    """That of the stories: numbers and signs are tokens too."""
    numbers = [str(number) for number in range(100)]
    return word_tokenizer([*BEGINNINGS, "'s"], ["+", "-", "*", "=", *WORDS, *numbers])


def world_tokenizer() -> PreTrainedTokenizerFast:
    return word_tokenizer(WORLD_BEGINNINGS, WORLD_WORDS)


def archive_tokenizer() -> PreTrainedTokenizerFast:
    return word_tokenizer(ARCHIVE_BEGINNINGS, ARCHIVE_WORDS)


def word_tokenizer(beginnings: Sequence[str], words: Sequence[str]) -> PreTrainedTokenizerFast:
    """The character tokenizer with words as tokens of their own; a text is its tokens put together.

    Args:
        beginnings: words that have no space before them.
        words: words that have one.
    """
    return character_tokenizer(context=CONTEXT, words=[*beginnings, *(f" {word}" for word in words)])


def build_scratch_stories(*, seed: int = 0) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """A Llama in float32 that was not trained, and its tokenizer; 0.84 million parameters.

    Args:
        seed: random seed of the initial weights; the global random state does not change.
    """
    model, tokenizer = build_scratch(
        seed=seed, feed_forward=352, context=CONTEXT, tokenizer=story_tokenizer(), tied=True, biases=True
    )
    begin_with_induction(model, seed=seed)
    return model, tokenizer


def build_scratch_worlds(*, seed: int = 0) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """The same for ``rooms``; 0.24 million parameters, all of them random."""
    return _small(world_tokenizer(), seed)


def build_scratch_archive(*, seed: int = 0) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """The same for ``archive``."""
    return _small(archive_tokenizer(), seed)


def _small(tokenizer: PreTrainedTokenizerFast, seed: int) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    return build_scratch(
        seed=seed, width=80, layers=3, feed_forward=208, context=CONTEXT, tokenizer=tokenizer, tied=True
    )


SAME = ((1, 2), (2, 3), (0, 1))
"""What the first heads of the second layer compare, in tokens before: (of the token that looks, of what it finds)."""
_SHARPNESS = 6.0
"""Of each pair of rotated units, the bias that makes a head look back."""
_FAST = 0.05
"""Radians per token of the rotation (RoPE) above which a pair of units tells distances; the others tell contents."""
_WRITES, _COMPARES, _COPIES = 0.3, 2.0, 0.3
"""Scales: of what is written of tokens before, so that it outweighs a token's own embedding; of both sides of a
comparison; of what is copied. A few values were compared by where the heads look before training."""


@torch.no_grad()
def begin_with_induction(model: LlamaForCausalLM, *, seed: int) -> None:
    """Sets the weights of attention so that a token finds what stood, earlier, after the tokens before it.

    Head h of the first layer looks at the token h + 1 before, by biases of queries and keys alone, and writes the same
    projection of it into a part of the residual stream of its own. Heads of the second layer compare such parts
    (``SAME``): after ``Ann has`` one finds the 7 of ``Ann has 7``, since Ann is one before and two before. All layers
    after the first copy what they find. All of it is trained like any other weights.

    Args:
        model: with biases in its attention.
        seed: random seed; the global random state does not change.
    """
    inner: Any = model.model
    first, second, *_ = layers = [layer.self_attn for layer in inner.layers]
    width, size = model.config.hidden_size, first.head_dim
    heads = width // size
    random = torch.Generator().manual_seed(seed)
    angle = inner.rotary_emb.inv_freq
    fast = (angle > _FAST).float() * _SHARPNESS
    slow = (angle <= _FAST).float().repeat(2)[:, None]
    parts = _orthogonal(width, random).view(width, heads, size)
    seen = torch.randn(size, width, generator=random) / width**0.5
    for head in range(heads):
        own, before = slice(head * size, (head + 1) * size), head + 1
        # A query turned back by as many tokens agrees best with the key that stands there.
        first.q_proj.bias[own] = torch.cat([(angle * before).cos() * fast, -(angle * before).sin() * fast])
        first.k_proj.bias[own] = torch.cat([fast, torch.zeros_like(fast)])
        first.v_proj.weight[own] = seen
        first.o_proj.weight[:, own] = parts[:, head] * _WRITES
    first.q_proj.weight.mul_(0.3)
    first.k_proj.weight.mul_(0.3)
    for head, places in enumerate(SAME[:heads]):
        own = slice(head * size, (head + 1) * size)
        for projection, place in zip((second.q_proj, second.k_proj), places, strict=True):
            projection.weight[own] = _COMPARES * slow * (parts[:, place - 1].T if place else seen)
    for attention in layers[1:]:
        copied = _orthogonal(width, random)
        attention.v_proj.weight.copy_(copied)
        attention.o_proj.weight.copy_(copied.T * _COPIES)
    for layer in inner.layers:
        layer.mlp.down_proj.weight.mul_(0.05)  # else what these add at random drowns the comparisons


def _orthogonal(width: int, random: torch.Generator) -> Float[torch.Tensor, "width width"]:
    return torch.linalg.qr(torch.randn(width, width, generator=random))[0]

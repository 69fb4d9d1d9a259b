"""What a model can read, from its configuration alone: known before any weight is loaded."""

from __future__ import annotations

from typing import Any

from transformers import AutoConfig, PreTrainedTokenizerBase

from lyceum.component import RecipeError
from lyceum.models.load import SCRATCH, ModelSettings, _source

UNLIMITED = 1 << 30


def context_of(settings: ModelSettings, tokenizer: PreTrainedTokenizerBase) -> int:
    """Longest sequence in tokens, the tokenizer found to fit the model on the way.

    Raises:
        RecipeError: no configuration, or a tokenizer with token ids that the model has no embedding for.
    """
    said = int(getattr(tokenizer, "model_max_length", 0) or UNLIMITED)
    # transformers writes 1e30 where nobody said; a .gguf file holds its configuration among its weights.
    if settings.path == SCRATCH or settings.path.endswith(".gguf"):
        return min(said, UNLIMITED)
    folder, extra = _source(settings)
    try:
        config: Any = AutoConfig.from_pretrained(folder, **extra).get_text_config()
    except (OSError, ValueError, KeyError) as error:
        raise RecipeError(f"model.path: the configuration of {settings.path} cannot be read: {error}") from error
    largest, embedded = max(tokenizer.get_vocab().values(), default=0), getattr(config, "vocab_size", None)
    if embedded is not None and largest >= embedded:
        raise RecipeError(
            f"model.path: the vocabulary does not fit: the tokenizer of {settings.path} has token ids up to {largest}, "
            f"the model embeds {embedded}; use the tokenizer that belongs to it"
        )
    return min(said, int(getattr(config, "max_position_embeddings", None) or UNLIMITED), UNLIMITED)

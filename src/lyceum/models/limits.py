"""A model's context length and vocabulary, from its configuration alone: known before any weight is loaded."""

from __future__ import annotations

import logging
from typing import Any

from lyceum.core.user_files import user_file
from lyceum.models.context import UNLIMITED, context_of_config
from lyceum.models.load import UNTRAINED, ModelSettings, check_weights, read_config
from lyceum.utils.errors import RecipeError
from lyceum.utils.lazy_imports import transformers

log = logging.getLogger(__name__)


def context_of(settings: ModelSettings, tokenizer: transformers.PreTrainedTokenizerBase) -> int:
    """Maximum sequence length in tokens; also checks that tokenizer, configuration and names of the weights fit.

    Raises:
        RecipeError: no configuration, a tokenizer with token ids that the model has no embedding for, or weights that
            the configuration does not describe.
    """
    path = settings.path
    with user_file("model.path", f"the tokenizer of {path}: model_max_length", "allowed: a number of tokens"):
        said = int(getattr(tokenizer, "model_max_length", 0) or UNLIMITED)
    # transformers writes 1e30 where it is not set; a .gguf file holds its configuration among its weights.
    if path in UNTRAINED or path.endswith(".gguf"):
        return min(said, UNLIMITED)
    config = read_config(settings)
    largest, embedded = max(tokenizer.get_vocab().values(), default=0), getattr(config, "vocab_size", None)
    if embedded is not None and largest >= embedded:
        raise RecipeError(
            f"model.path: the vocabulary does not fit: the tokenizer of {path} has token ids up to {largest}, "
            f"the model embeds {embedded}; use the tokenizer that belongs to it"
        )
    check_weights(settings)
    given: Any = getattr(config, "max_position_embeddings", None)
    if given is not None and (not isinstance(given, int) or given < 1):
        raise RecipeError(
            f"model.path: max_position_embeddings: got {given!r} in the configuration of {path}; allowed: 1 or more"
        )
    limit, trained = context_of_config(config), int(getattr(config, "max_position_embeddings", None) or UNLIMITED)
    if limit < trained:
        log.warning(
            "model: the context ends at %d tokens instead of %d: beyond them this model's rotary embedding (longrope) "
            "depends on the longest sequence of the batch, so that a completion's probabilities would too",
            limit,
            trained,
        )
    return min(said, limit)

"""Encoders and classifiers that texts are read with, each with its tokenizer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Literal, cast

from jaxtyping import Float

from lyceum.models.control_tokens import ControlTokens
from lyceum.models.load import read_tokenizer as tokenizer_of
from lyceum.models.weights import check_finite
from lyceum.reward.scorer.models import Family, ScorerModel
from lyceum.utils.errors import errors_name
from lyceum.utils.lazy_imports import Tensor, torch, transformers

Pooling = Literal["mean", "first"]
"""What of the last hidden states is a text's embedding: their mean, or the first token's (BERT's [CLS])."""

MOST_TOKENS = 8192
"""Maximum tokens of a text; what is longer is cut at its end, or at the model's own limit where that is lower."""


class ScorerReader:
    """A model of a family with its tokenizer."""

    def __init__(self, settings: ScorerModel, family: Family) -> None:
        chosen = settings.settings
        device = "cuda" if chosen.device == "auto" and torch.cuda.is_available() else chosen.device
        with errors_name("scorer.model", "model"):
            self.tokenizer: Any = tokenizer_of(chosen)
            loaded = settings.checkpoint().load(getattr(transformers, family), getattr(torch, chosen.dtype))
            check_finite("scorer.model.path", chosen.path, loaded)
        self.controls = ControlTokens(self.tokenizer)
        self.model: Any = cast(Any, loaded).to("cpu" if device == "auto" else device).eval().requires_grad_(False)
        self.model.config.pad_token_id = self.tokenizer.pad_token_id
        positions = getattr(loaded.config, "max_position_embeddings", MOST_TOKENS)
        self.most_tokens = int(min(MOST_TOKENS, self.tokenizer.model_max_length, positions))

    def read(self, texts: Sequence[Any]) -> tuple[Any, Tensor]:
        """(the model's output, attention mask) of texts or pairs of texts, padded together."""
        first, second = zip(*texts, strict=True) if isinstance(texts[0], tuple) else (texts, None)
        as_text = self.controls.as_text  # no text spells the mark that stands between those of a pair
        given = self.tokenizer(
            as_text(list(first)),
            None if second is None else as_text(list(second)),
            padding=self.tokenizer.pad_token is not None,
            padding_side="right",  # a text's positions are the same alone and in a batch
            truncation=True,
            max_length=self.most_tokens,
            return_tensors="pt",
        ).to(self.model.device)
        with torch.no_grad():
            return self.model(**given), given["attention_mask"]

    def batches(self, texts: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
        """Texts that go through the model together; one by one where it has no token to pad with."""
        size = size if self.tokenizer.pad_token is not None else 1
        return (texts[at : at + size] for at in range(0, len(texts), size))


@cache
def reader(model: ScorerModel, family: Family) -> ScorerReader:
    return ScorerReader(model, family)


def unit(vectors: Float[Tensor, "n width"]) -> Float[Tensor, "n width"]:
    """Each row at length 1; a row of zeros stays."""
    return vectors / vectors.norm(dim=1, keepdim=True).clamp(min=1e-12)


def embeddings(model: ScorerModel, texts: Sequence[str], pooling: Pooling, batch: int) -> Float[Tensor, "n width"]:
    """Embeddings of length 1, by a frozen encoder.

    Args:
        batch: texts per forward pass.
    """
    encoder, found = reader(model, "AutoModel"), list[Tensor]()
    for part in encoder.batches(texts, batch):
        output, mask = encoder.read(part)
        hidden, weight = output.last_hidden_state.float(), mask[..., None].float()
        pooled = (hidden * weight).sum(1) / weight.sum(1).clamp(min=1) if pooling == "mean" else hidden[:, 0]
        found.append(unit(pooled).cpu())
    return torch.cat(found) if found else torch.zeros(0, 1)

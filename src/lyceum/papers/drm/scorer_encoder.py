"""Relevance by sentence embeddings: cosines of the reasoning with question, answer and documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from lyceum.core.types import Scorer, TaskSource
from lyceum.papers.drm._pairs import PairSettings
from lyceum.reward.scorer.models import ScorerModel
from lyceum.reward.scorer.readers import Pooling, embeddings


class EncoderScorer(PairSettings):
    """Cosines of embeddings by a frozen encoder of Hugging Face's."""

    kind: Literal["encoder"] = "encoder"
    model: ScorerModel
    """The encoder: a folder, a hub name, or all-MiniLM-L6-v2; or its path, dtype and device."""
    pooling: Pooling = "mean"
    """What of the last hidden states is a text's embedding: their mean, or the first token's (BERT's [CLS])."""
    batch: int = Field(32, ge=1, le=4096)
    """Texts per forward pass."""

    def build(self, source: TaskSource) -> Scorer:
        self.model.check("AutoModel")
        return self.scorer(self.cosines)

    def cosines(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        # Each text once: a group's trajectories share their question.
        texts = list(dict.fromkeys(text for pair in pairs for text in pair))
        place = {text: n for n, text in enumerate(texts)}
        vectors = embeddings(self.model, texts, self.pooling, self.batch)
        return [float(vectors[place[a]] @ vectors[place[b]]) for a, b in pairs]

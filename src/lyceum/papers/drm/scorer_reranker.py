"""Relevance by a cross-encoder, or coherence by an outcome reward model: a head on a pair of texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from lyceum.core.types import Scorer, TaskSource
from lyceum.papers.drm._pairs import PairSettings
from lyceum.reward.scorer.models import ScorerModel
from lyceum.reward.scorer.readers import reader
from lyceum.utils.errors import RecipeError


class RerankerScorer(PairSettings):
    """A frozen sequence-classification model reads question and reasoning together, reasoning and answer, and reasoning
    and document.

    With ``answer: 0`` and ``documents: 0`` it reads the first pair alone: what a reward model of a question and its
    solution is.
    """

    kind: Literal["reranker"] = "reranker"
    model: ScorerModel
    """The model: a folder or a hub name; or its path, dtype and device."""
    label: int | None = Field(None, ge=0)
    """Label whose log-probability is the score (entailment); null for a model of one label: its logit."""
    batch: int = Field(16, ge=1, le=4096)
    """Pairs per forward pass."""

    def build(self, source: TaskSource) -> Scorer:
        self.model.check("AutoModelForSequenceClassification")
        labels = self.model.labels()
        if (self.label is None) != (labels == 1) or (self.label or 0) >= labels:
            allowed = "null" if labels == 1 else f"0 to {labels - 1}"
            raise RecipeError(f"scorer.label: got {self.label}, but the model has {labels} labels; allowed: {allowed}")
        return self.scorer(self.scores)

    def scores(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        model, found = reader(self.model, "AutoModelForSequenceClassification"), list[float]()
        for part in model.batches(pairs, self.batch):
            logits = model.read(part)[0].logits.float()
            of_label = logits[:, 0] if self.label is None else logits.log_softmax(1)[:, self.label]
            found += of_label.tolist()
        return found

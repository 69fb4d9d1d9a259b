"""Texts that are nearly the same: of each, the nearest of some others, by common words or by an encoder."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from pydantic import Field

from lyceum.core.component import Settings
from lyceum.reward.scorer.models import ScorerModel
from lyceum.reward.scorer.readers import Pooling, embeddings

_WORD = re.compile(r"[^\W\d_]+|\d+(?:\.\d+)?|[^\w\s]")
_MASK = "0"
"""What every number is read as where numbers are masked."""
_ROWS = 4096
"""Texts whose cosines are computed together."""


class Neighbour(NamedTuple):
    """One of the other texts.

    Attributes:
        place: its index.
        likeness: 0 to 1 by words, -1 to 1 by an encoder.
    """

    place: int
    likeness: float


class Likeness(Settings):
    """How alike two texts are: by the words that they have in common, or by the cosine of their embeddings."""

    words: int = Field(default=8, ge=1, le=64)
    """Length of the runs of words that are compared; a text of fewer is one run. A number, a sign and a mark of
    punctuation are words. 8 finds what was copied, 1 or 2 what was told anew in the same words."""
    mask_numbers: bool = False
    """Read all numbers as the same one, so that a problem with other numbers is as alike as a copy."""
    encoder: ScorerModel | None = None
    """The frozen encoder: a folder, a hub name, or all-MiniLM-L6-v2; null compares words."""
    pooling: Pooling = "mean"
    """What of the encoder's last hidden states is a text's embedding: their mean, or the first token's."""
    batch: int = Field(default=32, ge=1, le=4096)
    """Texts per forward pass of the encoder."""

    def check_files(self) -> None:
        """Raise RecipeError where the encoder cannot be loaded; no weight is read."""
        if self.encoder is not None:
            self.encoder.check("AutoModel")

    def neighbours(self, texts: Sequence[str], others: Sequence[str], k: int) -> list[list[Neighbour]]:
        """Of each text the ``k`` most similar of the others, the most similar first; ties go to the first.

        By words those that have none in common are left out.
        """
        if self.encoder is None:
            return nearest_by_words(texts, others, k, words=self.words, mask_numbers=self.mask_numbers)
        return _nearest_by_encoder(self.encoder, texts, others, k, pooling=self.pooling, batch=self.batch)


def nearest_by_words(
    texts: Sequence[str], others: Sequence[str], k: int, *, words: int, mask_numbers: bool = False
) -> list[list[Neighbour]]:
    """Neighbours by runs of words.

        likeness = |A & B| / sqrt(|A| |B|)      A, B: the sets of both texts' runs

    Args:
        words: length of a run.
    """
    with_run: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    sizes: list[int] = []
    for place, other in enumerate(others):
        found = runs_of(other, words, mask_numbers=mask_numbers)
        sizes.append(max(len(found), 1))
        for run in found:
            with_run[run].append(place)
    places = {run: np.array(of, np.int64) for run, of in with_run.items()}
    size = np.array(sizes, np.float64)

    def of(text: str) -> list[Neighbour]:
        runs = runs_of(text, words, mask_numbers=mask_numbers)
        common = [places[run] for run in runs if run in places]
        if not common:
            return []
        likeness = np.bincount(np.concatenate(common), minlength=len(others)) / np.sqrt(size * len(runs))
        order = np.argsort(-likeness, kind="stable")[:k]
        return [Neighbour(int(place), float(likeness[place])) for place in order if likeness[place] > 0]

    return [of(text) for text in texts]


def runs_of(text: str, words: int, *, mask_numbers: bool = False) -> set[tuple[str, ...]]:
    """The runs of so many words of a text; the whole of a shorter one, none of one without a word."""
    found = _WORD.findall(text.casefold())
    if mask_numbers:
        found = [_MASK if word[0].isdigit() else word for word in found]
    return {tuple(found[at : at + words]) for at in range(max(len(found) - words, 0) + 1)} if found else set()


def _nearest_by_encoder(
    encoder: ScorerModel, texts: Sequence[str], others: Sequence[str], k: int, *, pooling: Pooling, batch: int
) -> list[list[Neighbour]]:
    known = embeddings(encoder, others, pooling, batch)
    found: list[list[Neighbour]] = []
    for at in range(0, len(texts), _ROWS):
        cosine = embeddings(encoder, texts[at : at + _ROWS], pooling, batch) @ known.T
        best = cosine.sort(dim=1, descending=True, stable=True)
        for places, values in zip(best.indices[:, :k].tolist(), best.values[:, :k].tolist(), strict=True):
            found.append([Neighbour(*pair) for pair in zip(places, values, strict=True)])
    return found

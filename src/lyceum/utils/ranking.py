"""Texts ranked by how much their wording is like a query's (BM25)."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

MANY, COMMON = 1000, 0.1
"""Among this many texts, words that more than this share of them have are left out of a query that has rarer ones:
they tell little and take most of the time."""
_WORD = re.compile(r"\d+(?:[-+*/.]\d+)+|\w+")


class RankedTexts:
    """An index of texts.

    Source:
        Robertson and Zaragoza, The Probabilistic Relevance Framework: BM25 and Beyond, 2009; by the library bm25s
        (arXiv:2407.03618), in Lucene's form, k1 1.5 and b 0.75.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        from bm25s import BM25  # here: it takes a while to import

        self.size = len(texts)
        self.index = BM25(method="lucene", k1=1.5, b=0.75)
        words = [words_of(text) for text in texts]
        if any(words):
            self.index.index(words, create_empty_token=False, show_progress=False)

    def places(self, query: str, most: int) -> list[int]:
        """Numbers of the texts with the highest scores, among those that have a word of the query; ties go to the
        earlier one."""
        known = getattr(self.index, "vocab_dict", {})  # an index without words has none
        words = [word for word in words_of(query) if word in known]
        if not words:
            return []
        # As ``get_scores`` adds them up, but faster: the texts of a word are different ones.
        of, score = self.index.scores, np.zeros(self.size, np.float32)
        parts = [slice(*of["indptr"][known[word] :][:2]) for word in words]
        if self.size >= MANY:
            parts = [part for part in parts if part.stop - part.start <= COMMON * self.size] or parts
        for part in parts:
            score[of["indices"][part]] += of["data"][part]
        found = np.flatnonzero(score > 0)
        if len(found) > most:
            least = np.partition(score[found], -most)[-most]
            found = found[score[found] >= least]
        return found[np.argsort(-score[found], kind="stable")][:most].tolist()


def words_of(text: str) -> list[str]:
    """The words of a text, in order, for comparing: ``Who wrote "Hamlet"?`` has who, wrote, hamlet."""
    return _WORD.findall(text.casefold())

"""Which texts are nearest: by runs of words that were counted by hand, and by a tiny encoder."""

from math import sqrt
from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertModel

from lyceum.models.scratch import character_tokenizer
from lyceum.papers.deepmath_103k._near_duplicates import Likeness, Neighbour, nearest_by_words, runs_of
from lyceum.reward.scorer.models import ScorerModel
from lyceum.reward.scorer.readers import embeddings


def test_runs_are_of_words_numbers_and_signs():
    assert runs_of("Add 3.5 and 12, now!", 2) == {
        ("add", "3.5"), ("3.5", "and"), ("and", "12"), ("12", ","), (",", "now"), ("now", "!")
    }  # fmt: skip
    assert runs_of("x+1", 8) == {("x", "+", "1")}
    assert runs_of(" ", 1) == set()
    assert runs_of("7 and 30", 3, mask_numbers=True) == runs_of("8 and 1.5", 3, mask_numbers=True)


def test_likeness_is_the_share_of_common_runs():
    [found] = nearest_by_words(["a b c d"], ["x y", "a b c e f", "a b c d"], 2, words=2)
    assert found == [Neighbour(2, 1.0), Neighbour(1, pytest.approx(2 / sqrt(3 * 4)))]


def test_ties_go_to_the_first_and_what_has_nothing_in_common_is_no_neighbour():
    [found, none] = nearest_by_words(["a b", "z"], ["c", "b a", "a b"], 3, words=1)
    assert [each.place for each in found] == [1, 2]
    assert none == []
    assert nearest_by_words(["a"], [], 3, words=1) == [[]]


def test_copies_with_other_numbers_are_alike_where_numbers_are_masked():
    texts, others = ["Ann has 3 pens and buys 4"], ["Ann has 8 pens and buys 15"]
    [[masked]] = Likeness(words=3, mask_numbers=True).neighbours(texts, others, 1)
    [[as_it_is]] = Likeness(words=1).neighbours(texts, others, 1)
    assert masked.likeness == 1
    assert as_it_is.likeness == pytest.approx(5 / 7)


def test_an_encoders_neighbours_are_those_of_the_highest_cosine(tmp_path: Path):
    tokenizer = character_tokenizer(context=64)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
        BertModel(BertConfig(vocab_size=len(tokenizer), max_position_embeddings=64, **sizes)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    likeness = Likeness(encoder=ScorerModel(path=str(tmp_path)), batch=2)
    texts, others = ["37+8=", "1+1="], ["91-6-2=", "37+8=", "1+2="]
    found = likeness.neighbours(texts, others, 2)
    assert likeness.encoder is not None
    cosine = embeddings(likeness.encoder, texts, "mean", 8) @ embeddings(likeness.encoder, others, "mean", 8).T
    assert found[0][0] == Neighbour(1, pytest.approx(1.0, abs=1e-5))
    for row, neighbours in zip(cosine.tolist(), found, strict=True):
        best = sorted(range(3), key=lambda place, row=row: -row[place])[:2]
        assert [each.place for each in neighbours] == best
        assert [each.likeness for each in neighbours] == pytest.approx([row[place] for place in best], abs=1e-5)

"""Spans of text as tokens, against whole beginnings decoded anew, over tokenizers of several kinds."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from some_tokenizers import NAMES, decode_of, encoded, tokenizer_of

from lyceum.core.spans import TokenEnds, earned_at, text_ends, token_span
from lyceum.core.steps import split, write_texts
from lyceum.core.tree import Node
from lyceum.core.types import Origin

TEXTS = st.text(st.sampled_from("37+8=45-2#\n .,the answer is café東😀é"), max_size=40)


def slowly(tokens, text, decode) -> list[int]:
    """The oracle: how much of the text each whole beginning has, decoded anew; nothing that a later token changes."""
    ends, most = [], 0
    for k in range(1, len(tokens) + 1):
        now = decode(tokens[:k])
        shared = next((i for i, (a, b) in enumerate(zip(now, text, strict=False)) if a != b), min(len(now), len(text)))
        most = max(most, shared)
        ends.append(most)
    return ends


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None)
@given(text=TEXTS, eos=st.booleans())
def test_tokens_end_where_whole_beginnings_say(name, text, eos):
    decode = decode_of(name)
    tokens = [*encoded(name, text), *([0] if eos else [])]
    got = text_ends(tokens, decode(tokens), decode)
    assert got == slowly(tokens, decode(tokens), decode)


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None)
@given(data=st.data())
def test_any_tokens_have_ends_up_to_the_whole_text(name, data):
    # What a model samples is no text's encoding: half characters, special tokens in between.
    tokens = data.draw(st.lists(st.integers(0, tokenizer_of(name).get_vocab_size() - 1), max_size=30))
    text = decode_of(name)(tokens)
    ends = text_ends(tokens, text, decode_of(name))
    assert len(ends) == len(tokens)
    assert ends == sorted(ends)
    assert not ends or ends[-1] == len(text)


def completion(tokens, cuts, decode) -> Node:
    """A prompt, and below it the tokens in nodes that are cut anywhere."""
    leaf = Node(None, [1, 2], Origin.PROMPT).add(tokens, Origin.POLICY)
    chain = split(leaf, cuts)
    write_texts(chain, decode, terminal=True)
    return leaf


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None)
@given(data=st.data())
def test_where_nodes_are_cut_moves_no_token(name, data):
    decode, text = decode_of(name), data.draw(TEXTS)
    tokens = encoded(name, text)
    cuts = data.draw(st.lists(st.integers(1, max(1, len(tokens) - 1)), unique=True, max_size=3).map(sorted))
    ends = [0, *slowly(tokens, decode(tokens), decode)]
    # Letters that are written as bytes cannot be read before a character that follows them in bytes is complete.
    inside = [cut for cut in cuts if cut < len(tokens)]
    readable = [cut for cut in inside if len(decode(tokens[:cut]).rstrip("\ufffd")) == ends[cut]]
    word_pieces = name == "word pieces"  # its nodes' texts are no pieces of one text: later tokens change earlier ones
    leaf = completion(tokens, inside if word_pieces else readable, decode)
    assert leaf.completion == decode(tokens)
    if not word_pieces:
        assert TokenEnds(decode).of(leaf) == ends


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None)
@given(data=st.data())
def test_steps_that_tile_a_text_share_out_its_tokens_by_where_they_end(name, data):
    decode, text = decode_of(name), data.draw(TEXTS.filter(bool))
    leaf = completion(encoded(name, text), [], decode)
    written, ends = leaf.completion, TokenEnds(decode).of(leaf)
    marks = sorted({0, len(written), *data.draw(st.lists(st.integers(0, len(written)), max_size=4))})
    spans = [token_span(ends, start, stop) for start, stop in pairwise(marks)]
    assert all(a.stop == b.start for a, b in pairwise(spans))
    for (start, stop), span in zip(pairwise(marks), spans, strict=True):
        own = range(span.start, span.stop)
        assert all(start < ends[k + 1] <= stop for k in own if ends[k + 1] > ends[k])
        ending_here = [k for k in range(len(ends) - 1) if start < ends[k + 1] <= stop and ends[k + 1] > ends[k]]
        assert set(ending_here) <= set(own)
        # Its reward is never before its own last token, nor before it is written where it has none.
        assert earned_at(ends, span, stop) == (span.stop if own else next(k for k, e in enumerate(ends) if e >= stop))


def test_by_hand_a_token_over_the_end_of_a_step_belongs_to_the_next():
    # Tokens "3", "+5", "=8-", "2", <eos>; steps "3+5=8" and "-2": "=8-" ends in the second.
    pieces = {1: "3", 2: "+5", 3: "=8-", 4: "2", 5: ""}
    leaf = Node(None, [9], Origin.PROMPT).add([1, 2, 3, 4, 5], Origin.POLICY, "3+5=8-2")
    ends = TokenEnds(lambda tokens: "".join(pieces[token] for token in tokens)).of(leaf)
    assert ends == [0, 1, 3, 6, 7, 7]
    assert (token_span(ends, 0, 5), token_span(ends, 5, 7)) == (slice(0, 2), slice(2, 4))
    assert (earned_at(ends, slice(0, 2), 5), earned_at(ends, slice(2, 4), 7)) == (2, 4)
    # "8" is inside a token that ends later: it has none, and is judged with that one.
    assert token_span(ends, 4, 5) == slice(2, 2)
    assert earned_at(ends, slice(2, 2), 5) == 3


def test_by_hand_the_bytes_of_a_character_belong_to_it():
    # é is two bytes. The first is written after "a", and is part of what follows.
    parts = {1: b"a", 2: b"\xc3", 3: b"\xa9"}

    def decode(tokens):
        return b"".join(parts[token] for token in tokens).decode(errors="replace")

    assert text_ends([1, 2, 3], "aé", decode) == [1, 1, 2]
    ends = [0, *text_ends([1, 2, 3], "aé", decode)]
    assert (token_span(ends, 0, 1), token_span(ends, 1, 2)) == (slice(0, 1), slice(1, 3))

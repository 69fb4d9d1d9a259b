"""Tokenizers of several kinds, made here: of characters, of bytes with merges, of pieces with spaces, of words."""

import functools
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from lyceum.models.scratch import character_tokenizer

SMOLLM2 = Path(__file__).parents[1] / "models" / "smollm2-135m-instruct" / "tokenizer.json"
CORPUS = [
    "37+8=45 so the answer is 45.\nNext line: 8*3=24, twenty-four. ",
    "Grüße, 東京 und naïve café — ok 😀!\n",
] * 40
SPECIAL = ["<eos>"]


def byte_level() -> Tokenizer:
    """As GPT-2, Qwen and SmolLM2: merges of bytes, a space in front of a word is part of its token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=330, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def sentencepiece_like() -> Tokenizer:
    """As Llama 2: the space is a letter, decoding drops the first one, unknown characters are bytes."""
    letters = sorted({"▁", *("".join(CORPUS[:1]).replace(" ", "▁"))})
    pieces = ["▁the", "▁answer", "▁is", "45", "▁so", "=4", "ne", "▁twenty"]
    vocabulary = {piece: i for i, piece in enumerate([*SPECIAL, *(f"<0x{b:02X}>" for b in range(256)), *letters])}
    merges = []
    for piece in pieces:
        for k in range(2, len(piece) + 1):
            if piece[:k] not in vocabulary:
                vocabulary[piece[:k]] = len(vocabulary)
                merges.append((piece[: k - 1], piece[k - 1]))
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(SPECIAL)
    return tokenizer


def word_pieces() -> Tokenizer:
    """As BERT: spaces come from the decoder, which also takes them out again before a full stop."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.WordPiece(cleanup=True)
    tokenizer.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=150, special_tokens=["[UNK]", *SPECIAL]))
    return tokenizer


@functools.cache
def tokenizer_of(name: str) -> Tokenizer:
    match name:
        case "characters":
            return character_tokenizer().backend_tokenizer
        case "smollm2":
            return Tokenizer.from_file(str(SMOLLM2))
    return {"byte level": byte_level, "sentencepiece": sentencepiece_like, "word pieces": word_pieces}[name]()


def decode_of(name: str):
    return lambda tokens: tokenizer_of(name).decode(list(tokens), skip_special_tokens=True)


NAMES = [
    "characters",
    "byte level",
    "sentencepiece",
    "word pieces",
    pytest.param("smollm2", marks=pytest.mark.skipif(not SMOLLM2.is_file(), reason="make smollm2 was not run")),
]


def encoded(name: str, text: str) -> list[int]:
    return tokenizer_of(name).encode(text, add_special_tokens=False).ids

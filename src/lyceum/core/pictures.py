"""Pictures among tokens: a token that stands for a part of a picture names the picture and its place in it.

A model's own placeholder has one id for all pictures: two prompts with different pictures would be the same tokens, and
whatever is found by tokens (caches, shared prefixes, tries, seeds, recorded trees) would take one for the other. Here
the id is beyond any vocabulary and tells them apart, so that all of these are right as they are, and a picture that
several prompts share is computed once. Nothing but equality and these functions may be applied to it; a model can
neither embed nor draw it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt8

HASH_BITS, RATE_BITS, PLACE_BITS = 46, 1, 15
"""Of the hash of a picture's pixels, of its rate, and of a place in it. A million pictures share a hash with a
probability of 0.7 %."""
ID_BITS = HASH_BITS + RATE_BITS
FULL, COMPRESSED = 0, 1
"""Rates: as many tokens as the model gives a picture, or a quarter of these (``models/rates.py``)."""
FIRST = 1 << ID_BITS + PLACE_BITS
"""Every picture token is at least this, every other token is less."""
MOST_PLACES = 1 << PLACE_BITS
_PLACES = MOST_PLACES - 1


class Picture(NamedTuple):
    """What a prompt has to know of a picture.

    Attributes:
        id: names it among all others: a hash of its pixels, and its rate in the lowest bit. At another rate it is
            other tokens, and so another picture to all that is found by tokens.
        width, height: in pixels.
    """

    id: int
    width: int
    height: int


def picture_of(pixels: UInt8[np.ndarray, "height width 3"]) -> Picture:
    """The same for the same pixels, whatever file they were read from."""
    height, width = pixels.shape[:2]
    digest = hashlib.blake2b(f"{width}x{height}:".encode(), digest_size=8)
    digest.update(np.ascontiguousarray(pixels).data)
    name = int.from_bytes(digest.digest(), "big") >> 64 - HASH_BITS
    return Picture(at_rate(name << RATE_BITS, FULL), width, height)


def at_rate(id: int, rate: int) -> int:
    """The same pixels at this rate."""
    return id >> RATE_BITS << RATE_BITS | rate


def rate_of(id: int) -> int:
    return id & (1 << RATE_BITS) - 1


def picture_token(id: int, place: int) -> int:
    """The token that stands for one place of a picture."""
    return FIRST | id << PLACE_BITS | place


def is_picture(token: int) -> bool:
    return token >= FIRST


def id_and_place(token: int) -> tuple[int, int]:
    """The picture that a token names, and its place in it."""
    return (token ^ FIRST) >> PLACE_BITS, token & _PLACES


def pictures_in(tokens: Sequence[int]) -> int:
    """How many pictures begin among the tokens."""
    return sum(token >= FIRST and not token & _PLACES for token in tokens)


def pictures_among(tokens: Sequence[int]) -> list[int]:
    """Ids of the pictures that tokens are of, each once, in order."""
    return list(dict.fromkeys(id_and_place(token)[0] for token in tokens if is_picture(token)))

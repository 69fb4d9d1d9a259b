"""What goes between the judge and a program."""

from __future__ import annotations

import pytest

from lyceum.sandbox.inside.data import MOST_EQUAL_HASHES, decode


def reference(number: int) -> None:
    raise AssertionError(number)


@pytest.mark.parametrize("kind", ["set", "frozenset", "list", "tuple"])
def test_values_of_one_hash_are_counted(kind: str) -> None:
    # Whole numbers hash modulo 2^61 - 1. In a list they count too: a test may make a set of it.
    alike = [{"tuple": [place * (2**61 - 1)]} for place in range(MOST_EQUAL_HASHES + 1)]
    assert len(list(decode({kind: alike[:-1]}, reference))) == MOST_EQUAL_HASHES
    with pytest.raises(ValueError, match="values of one hash"):
        decode({kind: alike}, reference)
    assert decode({"list": [0] * 1000}, reference) == [0] * 1000  # equal values are one
    # Iterators are hashed by their address, of which many are alike.
    assert len(list(decode({"list": [{"iterator": []}] * 1000}, reference))) == 1000
    keys = [[{"complex": [-1000003.0 * place, float(place)]}, 0] for place in range(MOST_EQUAL_HASHES + 1)]
    with pytest.raises(ValueError, match="values of one hash"):
        decode({"dict": keys}, reference)

"""Random seeds that are functions of a key: nothing random comes from a shared stream."""

from __future__ import annotations

from hashlib import blake2b


def counter_seed(*key: object) -> int:
    """A 63-bit number that is a function of the key alone, in every process and version of Python."""
    digest = blake2b("/".join(map(str, key)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


SeedKey = int | str | tuple[int | str, ...]
"""One element of a seed's key: a step, a task's id, a component's name."""

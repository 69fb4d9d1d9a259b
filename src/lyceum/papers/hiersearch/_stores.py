"""Two stores of facts about numbers: one knows sums (``37+8=45``), the other differences (``47-5=42``)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random

from lyceum.tasks.chain import LARGEST_OPERAND, MODULUS

SIGNS = {"local": 1, "web": -1}
"""Agent -> the sign of the operations that its store knows."""
MARKS = {"local": "a", "web": "b"}
"""Agent -> the letter of a question to it."""
ASK, BETWEEN, END = "?", ",", ";"
"""Texts after a search or a question, between passages, and after the last one."""
LONGEST = 2
"""Operations of a question to an agent, at most."""
PASSAGES = 3
"""Passages per search, unless the settings say otherwise."""

_SEARCH = re.compile(r"(\d{1,2})([+-][1-9])\?$")
_QUESTION = re.compile(r"(\d{1,2})((?:[+-][1-9]){1,64})([ab])\?$")


def searched(said: str) -> tuple[int, int] | None:
    """The number and the operand that a turn asks a store for, ``37+8?``; None where it asks for nothing."""
    found = _SEARCH.search(said)
    return None if found is None else (int(found[1]), int(found[2]))


def asked(said: str) -> tuple[str, int, list[int]] | None:
    """The agent, the start and the operations of a question at the end of a turn, ``37+8+2a?``; None without one."""
    found = _QUESTION.search(said)
    if found is None:
        return None
    agent = next(name for name, mark in MARKS.items() if mark == found[3])
    return agent, int(found[1]), [int(operand) for operand in re.findall("[+-][1-9]", found[2])]


def passage(number: int, operand: int) -> str:
    """``37+8=45``."""
    return f"{number}{operand:+d}={(number + operand) % MODULUS}"


def passages(agent: str, number: int, operand: int, rng: Random, n: int) -> list[str]:
    """What an agent's store has that is most like an operation, in no order.

    The operation itself is among it only where it has the store's sign; the others are as near: one more or less in
    the number or the operand.
    """
    sign, size = SIGNS[agent], abs(operand)
    near = [(number, size), ((number + 1) % MODULUS, size), ((number - 1) % MODULUS, size)]
    near += [(number, one) for one in (size + 1, size - 1) if 1 <= one <= LARGEST_OPERAND]
    found = [near[0], *rng.sample(near[1:], min(n, len(near)) - 1)]
    rng.shuffle(found)
    return [passage(first, sign * second) for first, second in found]


def perfect(agent: str, start: int, operations: Sequence[int]) -> list[str]:
    """The evidence of an agent that makes no mistake: for operations that its store does not know, the nearest ones."""
    number, evidence = start, list[str]()
    for operand in operations:
        kept = passage(number, SIGNS[agent] * abs(operand))
        evidence.append(kept)
        number = int(kept.rpartition("=")[2])
    return evidence


def right(start: int, operations: Sequence[int]) -> str:
    """The answer to a question."""
    return str((start + sum(operations)) % MODULUS)


def written(evidence: Sequence[str]) -> str:
    """Evidence as it stands in a text: ``37+8=45,45+2=47;``."""
    return f"{BETWEEN.join(evidence)}{END}"

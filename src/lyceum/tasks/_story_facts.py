"""Quantities that depend on each other, and their values: the graph behind a word problem."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

Relation = Literal["number", "more", "fewer", "together", "twice"]

LARGEST = 49
"""Every quantity is 1 to this."""
LARGEST_GIVEN = 20
"""Numbers in the problem are 2 to this."""
LARGEST_DIFFERENCE = 9
"""``more`` and ``fewer`` are by 2 to this."""
NAMES = (
    "Ann", "Bob", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hana", "Ivo", "Jill", "Kim", "Leo", "Mia", "Ned", "Olga", "Pia"
)  # fmt: skip
_OPERANDS: Mapping[Relation, int] = {"number": 0, "more": 1, "fewer": 1, "together": 2, "twice": 1}
_RELATIONS: Mapping[Relation, int] = {"more": 4, "fewer": 3, "together": 3, "twice": 2}
"""How often each is drawn, in proportion."""
_SHARED = 0.3
"""Probability that an operand is a quantity that another one needs too, where there is one."""
_BANDS = 6
"""Answers are drawn from bands of equal width, where the shape of the problem
allows it: small and large ones are then about as frequent."""
_TRIES = 40


@dataclass(frozen=True)
class Fact:
    """How many one person has: a number, or from what others have.

    Attributes:
        subject: whose.
        relation: ``number`` (the amount), ``more`` or ``fewer`` (than the one in ``of``, by the amount),
            ``together`` (the two in ``of``), ``twice`` (the one in ``of``).
        of: who it depends on.
        amount: 0 where the relation has none.
    """

    subject: str
    relation: Relation
    of: tuple[str, ...] = ()
    amount: int = 0

    def value(self, values: Mapping[str, int], amount: int) -> int:
        """How many, given how many the others have, and were this the fact's amount."""
        match self.relation:
            case "number":
                return amount
            case "more":
                return values[self.of[0]] + amount
            case "fewer":
                return values[self.of[0]] - amount
            case "together":
                return values[self.of[0]] + values[self.of[1]]
            case "twice":
                return values[self.of[0]] * 2


def needed(asked: str, facts: Mapping[str, Fact]) -> list[str]:
    """What must be known for the one that is asked, in the order in which it is looked up: depth first."""
    found: list[str] = []
    left = [asked]
    while left:
        name = left.pop()
        if name not in found:
            found.append(name)
            left += reversed(facts[name].of)
    return found


def draw_facts(rng: random.Random, level: int, distractors: int) -> tuple[list[Fact], dict[str, int]]:
    """Facts and every quantity's value. The first fact is of the one that is asked; the last ``distractors`` are of
    those that it does not need.

    Args:
        level: number of quantities that are calculated on the way to the answer.
    """
    while True:
        band = rng.randrange(_BANDS)
        shape = _draw_shape(rng, level, distractors)
        for _ in range(_TRIES if shape else 0):
            # Most of what is drawn is thrown away: facts are made of what is kept.
            amounts = [_draw_amount(rng, fact.relation) for fact in shape]
            values = _solve(shape, amounts, distractors)
            in_band = (values[shape[0].subject] - 1) * _BANDS // LARGEST == band
            if in_band and all(1 <= value <= LARGEST for value in values.values()):
                return [replace(fact, amount=amount) for fact, amount in zip(shape, amounts, strict=True)], values


def _draw_shape(rng: random.Random, level: int, distractors: int) -> list[Fact]:
    """Facts without amounts; none where the names did not suffice.

    An operand is defined after all that depends on it, so that nothing depends on itself.
    """
    names = rng.sample(NAMES, len(NAMES))
    undefined = [names.pop()]
    shape: list[Fact] = []
    while undefined:
        subject = undefined.pop(rng.randrange(len(undefined)))
        relation = _draw_relation(rng) if len(shape) < level else "number"
        of: list[str] = []
        for _ in range(_OPERANDS[relation]):
            others = [name for name in undefined if name not in of]
            if others and rng.random() < _SHARED:
                of.append(rng.choice(others))
            elif len(names) > distractors:
                of.append(names.pop())
                undefined.append(of[-1])
            else:
                return []
        shape.append(Fact(subject, relation, tuple(of)))
    known = [fact.subject for fact in shape]
    for _ in range(distractors):
        relation = _draw_relation(rng) if len(known) > 1 and rng.random() < 0.5 else "number"
        shape.append(Fact(names.pop(), relation, tuple(rng.sample(known, _OPERANDS[relation]))))
        known.append(shape[-1].subject)
    return shape


def _draw_relation(rng: random.Random) -> Relation:
    return rng.choices(list(_RELATIONS), list(_RELATIONS.values()))[0]


def _draw_amount(rng: random.Random, relation: Relation) -> int:
    """0 where the relation has none."""
    if relation not in ("number", "more", "fewer"):
        return 0
    return rng.randint(2, LARGEST_GIVEN if relation == "number" else LARGEST_DIFFERENCE)


def _solve(shape: Sequence[Fact], amounts: Sequence[int], distractors: int) -> dict[str, int]:
    """Every quantity's value, were these the facts' amounts; facts as :func:`draw_facts` returns them."""
    relevant = len(shape) - distractors
    values: dict[str, int] = {}
    for at in (*reversed(range(relevant)), *range(relevant, len(shape))):
        values[shape[at].subject] = shape[at].value(values, amounts[at])
    return values

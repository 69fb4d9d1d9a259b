"""The sentences of word problems and of their solutions: written, and read again.

What is read is close to what is written, with or without the thing that is counted: ``Bob has 3 more shells than Ann.``
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from lyceum.tasks._story_facts import Fact, Relation, needed

THINGS = ("shells", "coins", "stamps", "cards", "books", "pens")
BEFORE_ANSWER = "Answer:"

# The first of each is the plain wording.
_FACTS: Mapping[Relation, tuple[str, ...]] = {
    "number": ("{x} has {n}{t}.", "{x} owns {n}{t}.", "There are {n}{t} in the box of {x}."),
    "more": (
        "{x} has more{t} than {y}, by {n}.",
        "{x} has {n} more{t} than {y}.",
        "Compared with {y}, {x} has {n} more{t}.",
    ),
    "fewer": (
        "{x} has fewer{t} than {y}, by {n}.",
        "{x} has {n} fewer{t} than {y}.",
        "Compared with {y}, {x} has {n} fewer{t}.",
    ),
    "together": (
        "{x} has as many{t} as {y} and {z} together.",
        "{x} owns as many{t} as {y} and {z} together.",
        "Together, {y} and {z} have as many{t} as {x}.",
    ),
    "twice": (
        "{x} has twice as many{t} as {y}.",
        "{x} owns twice as many{t} as {y}.",
        "{x} has two times as many{t} as {y}.",
    ),
}
_INTRODUCTIONS = ("The friends count {t}.", "Some friends collect {t}.", "In class the children swap {t}.")
_QUESTIONS = ("How many {t} does {x} have?", "So how many {t} are there in the box of {x}?")
_ASKED = ("We look for {x}.", "The question is about {x}.")
_CALCULATED = ("For {x}, {named} = {v}, so {x} has {v}.", "So {x} has {named} = {v}.", "So {x} has {bare} = {v}.")
_TEMPTING = ("{x} also has {n} {u}.", "{x} is {n} years old.")

_SIGNS: Mapping[Relation, str] = {"more": "+", "fewer": "-", "together": "+", "twice": "*"}
_FIELDS = {
    "{x}": r"(?P<x>[A-Z][a-z]+)",
    "{y}": r"(?P<y>[A-Z][a-z]+)",
    "{z}": r"(?P<z>[A-Z][a-z]+)",
    "{n}": r"(?P<n>[0-9]{1,9})",
}
_CALCULATION = re.compile(
    r"(?:For (?P<for>[A-Z][a-z]+), )?(?:So (?P<so>[A-Z][a-z]+) has )?"
    r"(?:(?P<y>[A-Z][a-z]+)'s )?(?P<a>[0-9]{1,9}) (?P<sign>[-+*]) (?:(?P<z>[A-Z][a-z]+)'s )?(?P<b>[0-9]{1,9})"
    r" = (?P<v>[0-9]{1,9})(?:, so (?P<has>[A-Z][a-z]+) has (?P<w>[0-9]{1,9}))?\."
)
_SENTENCE = re.compile(r"[^.\n]+(?:[.\n]|$)")


@dataclass(frozen=True)
class StatedGoal:
    """Who the question is about."""

    subject: str


@dataclass(frozen=True)
class Calculation:
    """A quantity calculated from others.

    Attributes:
        subject: whose.
        left, right: the two numbers.
        sign: ``+``, ``-`` or ``*``.
        result: as written.
        left_of, right_of: whose numbers they are; empty where the sentence does not say.
    """

    subject: str
    left: int
    sign: str
    right: int
    result: int
    left_of: str = ""
    right_of: str = ""


Step = StatedGoal | Fact | Calculation


@dataclass(frozen=True)
class Wording:
    """How sentences are drawn.

    Attributes:
        variety: share of sentences in another wording than the plain one.
    """

    rng: random.Random
    variety: float

    def one_of(self, wordings: Sequence[str]) -> str:
        return self.rng.choice(wordings[1:]) if self.rng.random() < self.variety else wordings[0]


def fact_text(fact: Fact, thing: str = "", wording: Wording | None = None) -> str:
    """A fact as a sentence; a plain one without ``wording``."""
    template = wording.one_of(_FACTS[fact.relation]) if wording else _FACTS[fact.relation][0]
    y, z = (*fact.of, "", "")[:2]
    return template.format(x=fact.subject, y=y, z=z, n=fact.amount, t=thing and f" {thing}")


def problem_text(facts: Sequence[Fact], asked: str, thing: str, tempting: int, wording: Wording) -> str:
    """Introduction, facts in random order, question. ``tempting`` sentences tell another number of someone."""
    rng = wording.rng
    sentences = [fact_text(fact, thing, wording) for fact in facts]
    for fact in rng.sample(facts, min(tempting, len(facts))):
        other = rng.choice([other for other in THINGS if other != thing])
        sentences.append(rng.choice(_TEMPTING).format(x=fact.subject, n=rng.randint(5, 20), u=other))
    rng.shuffle(sentences)
    introduction = wording.one_of(_INTRODUCTIONS).format(t=thing)
    return " ".join([introduction, *sentences, wording.one_of(_QUESTIONS).format(t=thing, x=asked)])


def solution_steps(facts: Mapping[str, Fact], values: Mapping[str, int], asked: str, wording: Wording) -> list[str]:
    """A solution that begins at what is asked, looks up what it depends on, depth first, and calculates on the way
    back. Every sentence is a step; the answer is not among them."""
    steps = [wording.one_of(_ASKED).format(x=asked)]
    known: set[str] = set()

    def look_up(name: str) -> None:
        fact = facts[name]
        steps.append(fact_text(fact, wording=wording))
        for operand in fact.of:
            if operand not in known:
                look_up(operand)
        if fact.of:
            steps.append(_calculation_text(fact, values, wording))
        known.add(name)

    look_up(asked)
    return steps


def _calculation_text(fact: Fact, values: Mapping[str, int], wording: Wording) -> str:
    first, sign = fact.of[0], _SIGNS[fact.relation]
    right = {"together": values[fact.of[-1]], "twice": 2}.get(fact.relation, fact.amount)
    owner = f"{fact.of[1]}'s " if fact.relation == "together" else ""
    return wording.one_of(_CALCULATED).format(
        x=fact.subject,
        named=f"{first}'s {values[first]} {sign} {owner}{right}",
        bare=f"{values[first]} {sign} {right}",
        v=values[fact.subject],
    )


def sentences_of(text: str) -> list[tuple[int, int]]:
    """Where each sentence begins and ends, in characters; a line break ends one too."""
    return [found.span() for found in _SENTENCE.finditer(text) if found[0].strip()]


def read_step(sentence: str, thing: str) -> Step | None:
    """What a sentence of a solution says; None where it is none of the known ones."""
    sentence = sentence.strip()
    if found := _CALCULATION.fullmatch(sentence):
        subjects = {found[name] for name in ("for", "so", "has") if found[name]}
        if len(subjects) != 1 or found["w"] not in (None, found["v"]):
            return None
        a, b, v = (int(found[name]) for name in "abv")
        return Calculation(subjects.pop(), a, found["sign"], b, v, found["y"] or "", found["z"] or "")
    for relation, wordings in _FACTS.items():
        for wording in wordings:
            if found := _pattern(wording, thing).fullmatch(sentence):
                of = found.groupdict()
                return Fact(of["x"], relation, tuple(of[name] for name in "yz" if name in of), int(of.get("n", 0)))
    for wording in _ASKED:
        if found := _pattern(wording, thing).fullmatch(sentence):
            return StatedGoal(found["x"])
    return None


@cache
def _pattern(wording: str, thing: str) -> re.Pattern[str]:
    pattern = re.escape(wording).replace(r"\{", "{").replace(r"\}", "}").replace(r"\ ", " ")
    for field, expression in _FIELDS.items():
        pattern = pattern.replace(field, expression)
    return re.compile(pattern.replace("{t}", f"(?: {thing})?"))


def judge(
    text: str, facts: Mapping[str, Fact], asked: str, thing: str
) -> tuple[list[tuple[int, int, bool]], int | None]:
    """Each step of a solution by itself, in any order that computes a quantity after those that it depends on.

    A fact is right where the problem says so, the answer needs it, and it was not said before. A calculation is right
    where the problem says how, on numbers as they were written before (so that a slip counts once) or as the problem
    gives them. A sentence that is none of the known ones is a wrong step where it holds a digit, and else no step.

    Returns:
        Begin and end in characters and whether it is right, of each step; and what it finds for what is asked, None
        where it finds nothing.
    """
    useful = set(needed(asked, facts))
    written: dict[str, int] = {}
    said: set[Step] = set()
    steps: list[tuple[int, int, bool]] = []
    for start, end in sentences_of(text):
        step = read_step(text[start:end], thing)
        if isinstance(step, Fact):
            step = _any_order(step)
        if step is None:
            if re.search("[0-9]", text[start:end]):
                steps.append((start, end, False))
            continue
        new = step not in said and step.subject in useful
        said.add(step)
        if isinstance(step, StatedGoal):
            right = new and step.subject == asked
        elif isinstance(step, Fact):
            right = new and step == _any_order(facts[step.subject])
            if step.relation == "number" and step.subject in facts and not facts[step.subject].of:
                written[step.subject] = step.amount
        else:
            right = new and step.subject not in written and _follows(step, facts[step.subject], facts, written)
            written[step.subject] = step.result
        steps.append((start, end, right))
    given = facts[asked].amount if facts[asked].relation == "number" else None
    return steps, written.get(asked, given)


def _any_order(fact: Fact) -> Fact:
    return replace(fact, of=tuple(sorted(fact.of)))


def _follows(step: Calculation, fact: Fact, facts: Mapping[str, Fact], written: Mapping[str, int]) -> bool:
    """Whether a calculation is what a fact says, on known numbers, with the right result."""
    numbers = {name: written.get(name, facts[name].amount) for name in fact.of if name in written or not facts[name].of}
    if len(numbers) < len(fact.of) or step.sign != _SIGNS.get(fact.relation):
        return False
    operands = [(name, numbers[name]) for name in fact.of]
    if fact.relation != "together":
        operands.append(("", 2 if fact.relation == "twice" else fact.amount))
    said = [(step.left_of, step.left), (step.right_of, step.right)]

    def are(operands: Sequence[tuple[str, int]]) -> bool:
        pairs = zip(said, operands, strict=True)
        return all(owner in ("", whose) and number == value for (owner, number), (whose, value) in pairs)

    result = {"+": step.left + step.right, "-": step.left - step.right, "*": step.left * step.right}[step.sign]
    return step.result == result and (are(operands) or (step.sign != "-" and are(operands[::-1])))

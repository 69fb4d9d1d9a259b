"""Documents of facts (``A8,C5``: A is 8, C is 5), questions about them (``37+A-C``), and answers in two spellings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from random import Random

from lyceum.tasks.chain import MODULUS, results_of

LETTERS = "ABCDEFGH"
VOTES = {"y": True, "n": False}
"""What a verifier writes -> whether the two answers mean the same."""

_QUESTION = re.compile(r"(\d{1,2})((?:[+-][A-Z1-9]){1,12})")
_TERM = re.compile(r"([+-])([A-Z1-9])")
_SPELLED = re.compile(r"(\d)t(\d)")


def document(facts: Mapping[str, int], letters: Iterable[str]) -> str:
    """The facts of some letters: ``A8,C5``."""
    return ",".join(f"{letter}{facts[letter]}" for letter in letters)


def asked(document: str, question: str) -> str:
    """The responder's prompt: ``A8,C5?37+A-C=``."""
    return f"{document}?{question}="


def to_ask(document: str, memory: Sequence[tuple[str, str]]) -> str:
    """The questioner's prompt: ``A8,C5!``, or ``A8,C5,D3;37+A-C#40!`` with earlier questions and their answers."""
    return ";".join([document, *(f"{question}#{answer}" for question, answer in memory)]) + "!"


def to_judge(question: str, reference: str, answer: str) -> str:
    """The verifier's prompt: ``37+A-C=40~4t0@``."""
    return f"{question}={reference}~{answer}@"


def read_question(text: str) -> tuple[str, str] | None:
    """The question and the reference answer of what a questioner wrote, ``37+A-C=37+A8=45-C5=40#40``; None for none."""
    question, mark, _ = text.partition("=")
    reference = text.rpartition("#")[2].strip() if "#" in text else ""
    return (question, reference) if mark and reference and _QUESTION.fullmatch(question) else None


def operations_of(question: str, facts: Mapping[str, int]) -> tuple[int, list[int]] | None:
    """The chain that a question is, ``37+A-C``: 37 and [8, -5]; None where the documents lack a letter."""
    found = _QUESTION.fullmatch(question)
    if found is None:
        return None
    terms = _TERM.findall(found[2])
    values = [int(name) if name.isdigit() else facts.get(name) for _, name in terms]
    if None in values:
        return None
    signs = [1 if sign == "+" else -1 for sign, _ in terms]
    return int(found[1]), [sign * (value or 0) for sign, value in zip(signs, values, strict=True)]


def truth(question: str, facts: Mapping[str, int]) -> int | None:
    """The right answer to a question; None where it has none. Nothing is paid by it."""
    read = operations_of(question, facts)
    return None if read is None else results_of(*read)[-1]


def terms_of(question: str) -> int:
    return len(_TERM.findall(question))


def value_of(answer: str) -> int | None:
    """The number that an answer means, in either spelling: ``40`` or ``4t0``; None for none."""
    spelled = _SPELLED.fullmatch(answer)
    if spelled is not None:
        return 10 * int(spelled[1]) + int(spelled[2])
    return int(answer) if answer.isascii() and answer.isdigit() and len(answer) <= 2 else None


def spelled(number: int) -> str:
    """The other spelling: 40 is ``4t0``."""
    return f"{number // 10}t{number % 10}"


def worked(
    question: str, facts: Mapping[str, int], *, slips: Random | None = None, slip: float = 0.0
) -> tuple[str, int] | None:
    """A question worked out up to its result, ``37+A8=45-C5=40``, and the result; None where a letter is unknown.

    Each fact is copied as the documents have it, which a small model learns far sooner than its value alone.

    Args:
        slips: where given, each result is 10 too large with probability ``slip``.
    """
    read = operations_of(question, facts)
    if read is None:
        return None
    value, operations = read
    text = str(value)
    for (sign, name), operand in zip(_TERM.findall(question), operations, strict=True):
        value = (value + operand) % MODULUS
        if slips is not None and slips.random() < slip:
            value = (value + 10) % MODULUS
        text += f"{sign}{name if name.isdigit() else document(facts, name)}={value}"
    return text, value

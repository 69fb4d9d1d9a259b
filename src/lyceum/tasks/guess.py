"""Dialogues in which the policy guesses the number that someone has in mind.

``2:8?`` asks for a number from 2 to 8; whoever has it in mind answers each guess with ``<`` (mine is smaller), ``>``
(mine is larger) or ``=``, which ends the dialogue (environment ``guess-user``). Kind ``guess-demonstrations`` shows how
people talk so, on both sides, for fine-tuning the small base model before it imagines such dialogues: the guesses are
human, so that there is something left to learn. The level is how many numbers there are.
"""

from __future__ import annotations

import random
from typing import Literal

from pydantic import Field

from lyceum.core.settings import TasksSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, Message, Split, Task
from lyceum.reward.base import each, verdict
from lyceum.tasks.base import GeneratedSource, levels_within

LARGEST = 9
SMALLER, LARGER, REACHED = "<", ">", "="


class Guess(TasksSettings):
    """A number to guess within a range of digits; correct where the last guess is it."""

    kind: Literal["guess"] = "guess"
    levels: tuple[int, ...] = (3, 5, 7)
    """How many numbers a range has; tasks cycle through them, so that every level has the same share."""
    size: int = Field(100_000, ge=1)
    """Tasks in each split."""

    _levels_are_usable = levels_within(2, LARGEST + 1, "numbers of digits in a range")

    def build(self, split: Split, seed: int) -> GuessSource:
        return GuessSource(self, split, seed)


class GuessSource(GeneratedSource[Guess]):
    """``source[i]`` depends on (seed, split, i) alone. Ranges are few, and the same in both splits: what is held out is
    whom the policy talks to, of which its prompt says nothing."""

    def __getitem__(self, index: int) -> Task:
        level = self.settings.levels[index % len(self.settings.levels)]
        key = self.key(index)
        rng = random.Random(key)
        low, high = range_of(rng, level)
        number = rng.randint(low, high)
        columns = {"level": level, "low": low, "high": high}
        return Task(key, asked(low, high), str(number), columns, provenance="guess")

    def grader(self) -> Grader:
        return each(grade)


def range_of(rng: random.Random, level: int) -> tuple[int, int]:
    """The first and the last of ``level`` digits."""
    low = rng.randint(0, LARGEST + 1 - level)
    return low, low + level - 1


def grade(task: Task, leaf: Node) -> Grade:
    """Whether the last guess is the number; a dialogue that was cut is never correct."""
    return verdict(leaf.finish != "length" and bool(leaf.written) and leaf.written[-1].text.strip() == task.answer)


def asked(low: int, high: int) -> tuple[Message, ...]:
    """The prompt of who guesses: ``2:8?``."""
    return ({"role": "user", "content": f"{low}:{high}?"},)


def imagined(low: int, high: int) -> tuple[Message, ...]:
    """The prompt for a person who has one of these numbers in mind, which is answered with it: ``2:8@``."""
    return ({"role": "user", "content": f"{low}:{high}@"},)


def as_person(number: int, guess: str) -> tuple[Message, ...]:
    """The prompt for what that person says to a guess: ``6@3``."""
    return ({"role": "user", "content": f"{number}@{guess}"},)


def criticised(number: int, guess: str, reply: str) -> tuple[Message, ...]:
    """The prompt for what fits that person after all, where they were heard to say something: ``6@3<?``."""
    return ({"role": "user", "content": f"{number}@{guess}{reply}?"},)


def said(number: int, guess: int) -> str:
    """What is true of a guess: the number is smaller, larger, or it."""
    return REACHED if guess == number else SMALLER if number < guess else LARGER


class GuessDemonstrations(Guess):
    """Turns of such dialogues, with what a person says in ``columns["demonstration"]``: for fine-tuning only.

    An equal share of the prompts each are the next guess, the number that a person has in mind, their answer to a
    guess, and, with ``critiques``, that answer again after any of the three has been heard.
    """

    kind: Literal["guess-demonstrations"] = "guess-demonstrations"  # pyright: ignore[reportIncompatibleVariableOverride]
    guesses: int = Field(3, ge=1)
    """Maximum guesses of a dialogue."""
    careful: float = Field(0.5, ge=0, le=1)
    """Share of guesses that are among the numbers still possible; the others are any of the range."""

    critiques: bool = False
    """Whether a critique of what a person said is shown too."""

    def build(self, split: Split, seed: int) -> GuessDemonstrationSource:
        return GuessDemonstrationSource(self, split, seed)


class GuessDemonstrationSource(GuessSource):
    """Demonstrations of three forms in turn, or four with critiques: task i has form i modulo 3, or modulo 4."""

    def __init__(self, settings: GuessDemonstrations, split: Split, seed: int) -> None:
        super().__init__(settings, split, seed)
        self.careful, self.guesses, self.forms = settings.careful, settings.guesses, 3 + settings.critiques

    def __getitem__(self, index: int) -> Task:
        id = self.key(index)
        rng = random.Random(id)
        low, high = range_of(rng, self.settings.levels[index // self.forms % len(self.settings.levels)])
        number, guess = (rng.randint(low, high) for _ in range(2))
        form = index % self.forms
        if form == 0:
            messages, written = self.guess(rng, low, high, number)
        elif form == 1:
            messages, written = imagined(low, high), str(number)
        elif form == 2:
            messages, written = as_person(number, str(guess)), said(number, guess)
        else:
            heard = rng.choice((SMALLER, LARGER, REACHED))
            messages, written = criticised(number, str(guess), heard), said(number, guess)
        columns = {"level": high - low + 1, "demonstration": written}
        return Task(id, messages, written, columns, provenance="guess-demonstrations")

    def guess(self, rng: random.Random, low: int, high: int, number: int) -> tuple[tuple[Message, ...], str]:
        """A dialogue that has not reached the number, and the next guess."""
        least, most, messages = low, high, [*asked(low, high)]
        for _ in range(rng.randrange(self.guesses)):
            guess = self.next_guess(rng, (low, high), (least, most))
            if guess == number:
                break
            answer = said(number, guess)
            messages += [{"role": "assistant", "content": str(guess)}, {"role": "user", "content": answer}]
            least, most = (max(least, guess + 1), most) if answer == LARGER else (least, min(most, guess - 1))
        return tuple(messages), str(self.next_guess(rng, (low, high), (least, most)))

    def next_guess(self, rng: random.Random, all: tuple[int, int], possible: tuple[int, int]) -> int:
        return rng.randint(*(possible if rng.random() < self.careful else all))

"""What scorers share."""

from __future__ import annotations

from collections.abc import Sequence

from lyceum.core.component import Stateless
from lyceum.core.types import Grade, GradingContext, Message, Reasoned, Task


class BaseScorer(Stateless):
    """A scorer without state."""

    async def __call__(self, task: Task, reasonings: Sequence[Reasoned], context: GradingContext) -> list[Grade]:
        raise NotImplementedError

    def metrics(self) -> dict[str, float]:
        return {}


def question_of(messages: Sequence[Message]) -> str:
    """The text of chat messages."""
    contents = (message["content"] for message in messages)
    return "\n".join(
        content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
        for content in contents
    )


def in_order(a: str, b: str) -> float:
    """Twice the length of the longest common subsequence by the sum of both texts' lengths, 0 to 1; 1 of empty ones.

    Source:
        ROUGE-L with equal weights of recall and precision, Lin 2004 ("ROUGE: A Package for Automatic Evaluation of
        Summaries"), of characters. One bit of a number for each of the first text's, as in Hyyro 2004 ("Bit-parallel
        LCS-length computation revisited").
    """
    places: dict[str, int] = {}
    for place, character in enumerate(a):
        places[character] = places.get(character, 0) | 1 << place
    every = unmatched = (1 << len(a)) - 1
    for character in b:
        met = unmatched & places.get(character, 0)
        unmatched = (unmatched + met | unmatched - met) & every
    length = len(a) - unmatched.bit_count()
    return 2 * length / (len(a) + len(b)) if a or b else 1.0

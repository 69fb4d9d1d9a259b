"""What scorers share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lyceum.core.component import Stateless
from lyceum.core.types import Grade, GradingContext, Message, Reasoned, Task


class BaseScorer(Stateless):
    """A scorer without state."""

    async def __call__(self, task: Task, reasonings: Sequence[Reasoned], context: GradingContext) -> list[Grade]:
        raise NotImplementedError

    def metrics(self) -> dict[str, float]:
        return {}


class PairScorer(BaseScorer):
    """Two alignments, added up: of the reasoning with the question, and of the answer with the reasoning.

    Args:
        align: pairs of texts in, a number for each out.
        question, answer: weights of the two; one of weight 0 is not asked for.
    Source:
        DRM, arXiv:2510.11457, as its public reviews tell: question and reasoning, reasoning and answer.
    """

    def __init__(self, align: Callable[[Sequence[tuple[str, str]]], list[float]], question: float, answer: float):
        self.align, self.question, self.answer = align, question, answer

    async def __call__(self, task: Task, reasonings: Sequence[Reasoned], context: GradingContext) -> list[Grade]:
        both = [(of.question, of.reasoning) for of in reasonings], [(of.reasoning, of.answer) for of in reasonings]
        weights = {"question": self.question, "answer": self.answer}
        read = {name: pairs for (name, weight), pairs in zip(weights.items(), both, strict=True) if weight}
        found = iter(self.align([pair for pairs in read.values() for pair in pairs]))
        of_each = {name: [next(found) for _ in pairs] for name, pairs in read.items()}
        return [
            Grade(
                sum(weights[name] * own[i] for name, own in of_each.items()),
                parts={n: own[i] for n, own in of_each.items()},
            )
            for i in range(len(reasonings))
        ]


def question_of(messages: Sequence[Message]) -> str:
    """The text of chat messages."""
    contents = (message["content"] for message in messages)
    return "\n".join(
        content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
        for content in contents
    )

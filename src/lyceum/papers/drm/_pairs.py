"""What scorers share that read pairs of texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lyceum.core.settings import ScorerSettings
from lyceum.core.types import Grade, GradingContext, Reasoned, Task
from lyceum.reward.scorer.base import BaseScorer
from lyceum.utils.numbers import mean


class PairSettings(ScorerSettings):
    """Weights of the alignments of a :class:`PairScorer`."""

    question: float = 1.0
    """Weight of the reasoning's alignment with the question."""
    answer: float = 1.0
    """Weight of the answer's alignment with the reasoning; an alignment of weight 0 is not read."""
    documents: float = 1.0
    """Weight of the reasoning's alignment with the task's documents (their mean), where the task has any."""
    column: str = "documents"
    """The task's column with its documents: a text or a list of texts."""

    def scorer(self, align: Callable[[Sequence[tuple[str, str]]], list[float]]) -> PairScorer:
        return PairScorer(align, self.question, self.answer, self.documents, self.column)


class PairScorer(BaseScorer):
    """Up to three alignments, weighted and added up: of the reasoning with question, answer and the task's documents.

        s = w_q align(question, reasoning) + w_a align(reasoning, answer) + w_d mean_D align(reasoning, D)

    Args:
        align: pairs of texts in, a number for each out.
        question, answer, documents: weights; an alignment of weight 0 is not asked for.
        column: the task's column with its documents: a text, or several, whose mean counts. A task without any has two
            terms: all its trajectories lack the third alike.
    Source:
        DRM, arXiv:2510.11457: relevance is asked between question, documents and answer, and the reasoning. The paper's
        ranker reads the pairs in these orders only as far as its summaries tell; the weights are settings.
    """

    def __init__(
        self,
        align: Callable[[Sequence[tuple[str, str]]], list[float]],
        question: float,
        answer: float,
        documents: float = 0.0,
        column: str = "documents",
    ) -> None:
        self.align, self.question, self.answer = align, question, answer
        self.documents, self.column = documents, column

    async def __call__(self, task: Task, reasonings: Sequence[Reasoned], context: GradingContext) -> list[Grade]:
        texts = documents_of(task, self.column) if self.documents else []
        weights = {"question": self.question, "answer": self.answer, "documents": self.documents if texts else 0.0}
        read: dict[str, list[list[tuple[str, str]]]] = {
            "question": [[(of.question, of.reasoning)] for of in reasonings],
            "answer": [[(of.reasoning, of.answer)] for of in reasonings],
            "documents": [[(of.reasoning, text) for text in texts] for of in reasonings],
        }
        read = {name: pairs for name, pairs in read.items() if weights[name]}
        found = iter(self.align([pair for of_each in read.values() for pairs in of_each for pair in pairs]))
        parts = {name: [mean([next(found) for _ in pairs]) for pairs in of_each] for name, of_each in read.items()}
        return [
            Grade(
                sum(weights[name] * own[i] for name, own in parts.items()),
                parts={n: own[i] for n, own in parts.items()},
            )
            for i in range(len(reasonings))
        ]


def documents_of(task: Task, column: str) -> list[str]:
    """The texts of a task's column, which holds one or a list of them; none where it is missing, empty or no text."""
    found = task.columns.get(column)
    listed = [found] if isinstance(found, str) else found if isinstance(found, (list, tuple)) else []
    return [text for text in listed if isinstance(text, str) and text.strip()]

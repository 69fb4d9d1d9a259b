"""How probably a completion beats the task's own answer, by a model that reads both (Pairwise-RL)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field, field_validator

from lyceum.core.settings import RewardSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, GradingContext, Task, TaskSource
from lyceum.reward.scorer.judging import Question
from lyceum.reward.scorer.models import FROZEN, FROZEN_NEEDS, ScorerModel, log_odds, probability
from lyceum.utils.errors import RecipeError
from lyceum.utils.numbers import mean

LABEL = "better"
"""What the model goes on after."""


class WinProbability(RewardSettings):
    """The probability that a model prefers a completion to the task's anchor: the completion that the task comes with.

    A pair is easier to judge than an answer alone, and the anchor is what makes rewards of different tasks comparable:
    1/2 is as good as it, for every task. The model is asked in turns which of two answers is better, and its
    probability of the first word among the two is read right there; no reply is sampled. A model that is good at it
    was fine-tuned on that word, on pairs in both orders (``chain-judgements`` with form ``better``).

    Source:
        Pairwise-RL, arXiv:2504.04950, read in its abstract and the beginning of a review: a generative reward model of
        pairs, asked of each completion and its ground-truth anchor. That the probability itself is the reward, and
        the mean over both orders, are ours.
    """

    requires: ClassVar = FROZEN_NEEDS

    kind: Literal["win-probability"] = "win-probability"
    model: ScorerModel = ScorerModel(path="reference")
    """``reference`` (the policy as the stage began) or ``average`` (the stage's slow average); or a model of its own:
    ``base``, a folder, a hub name, or its path, dtype and device."""
    ask: str = Field("Which answer to my question is better? Reply A for the first or B for the second.", min_length=1)
    """What the user says after the task and both answers, on a line before ``better:``."""
    words: tuple[str, str] = ("A", "B")
    """The replies for the answer shown first, and for the one shown second."""
    orders: Literal["both", "random"] = "both"
    """Which of a pair is shown first: each once, and the mean of both probabilities counts, in which a preference for a
    place cancels; or one of them, drawn by lot, for half of the cost."""
    batch_tokens: int = Field(16384, ge=1)
    """Tokens per forward pass of a model of its own."""

    @field_validator("words")
    @classmethod
    def _words_differ(cls, words: tuple[str, str]) -> tuple[str, str]:
        if words[0] == words[1] or not all(words):
            raise ValueError(f"got {words[0]!r} and {words[1]!r}; allowed: one word for the first, another one for B")
        return words

    def check_tasks(self, source: TaskSource) -> None:
        super().check_tasks(source)
        if not source.imitated(source[0]):
            raise RecipeError(
                f"reward.win-probability: task {source[0].id!r} comes with no completion to compare with; allowed: "
                "rows with a completion, messages that end with an answer, or tasks.columns.demonstration; reward kind "
                "'brpo' compares completions with each other"
            )

    def build(self, source: TaskSource) -> Grader:
        if self.model.path not in FROZEN:
            self.model.check(None)

        async def grade(task: Task, leaves: Sequence[Node], context: GradingContext) -> list[Grade]:
            anchor = source.imitated(task)
            if not anchor:
                return [Grade.ungraded(f"task {task.id!r} comes with no completion to compare with")] * len(leaves)
            shown = [self.first_shown(leaf, context) for leaf in leaves]
            asked = [
                Question(
                    task.messages,
                    (leaf.completion, anchor) if first else (anchor, leaf.completion),
                    self.ask,
                    LABEL,
                    "",
                ).in_turns()
                for leaf, orders in zip(leaves, shown, strict=True)
                for first in orders
            ]
            odds = iter(await log_odds(self.model, asked, self.words, context, self.batch_tokens))
            return [graded({first: next(odds) for first in orders}) for orders in shown]

        return grade

    def first_shown(self, leaf: Node, context: GradingContext) -> tuple[bool, ...]:
        """Whether the completion is shown first, in each question about it."""
        if self.orders == "both":
            return (True, False)
        return (bool(context.seed("win-probability", leaf.address) % 2),)


def graded(odds: dict[bool, float]) -> Grade:
    """The grade of a completion.

        P(y > anchor) = mean of sigmoid(odds of the first | y first) and 1 - sigmoid(odds of the first | anchor first)

    Args:
        odds: log p(first is better) - log p(second is better) in nats, by whether the completion was shown first.
    Returns:
        The mean as the outcome; how often it was above 1/2, and of two orders the difference between their
        probabilities, which is a preference for a place.
    """
    won = {first: probability(each if first else -each) for first, each in odds.items()}
    outcome = mean(list(won.values()))
    parts = {"won": float(outcome > 0.5)}
    return Grade(outcome, parts=parts | ({"first_place": won[True] - won[False]} if len(won) == 2 else {}))

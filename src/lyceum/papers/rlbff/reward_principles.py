"""Whether a completion satisfies principles, one yes or no each, by a model that is asked them one by one (RLBFF)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from lyceum.core.settings import RewardSettings
from lyceum.core.spans import TokenEnds
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, GradingContext, Message, Task, TaskSource
from lyceum.reward.model import spans, turns
from lyceum.reward.scorer.models import FROZEN, FROZEN_NEEDS, ScorerModel, filled, log_odds, probability
from lyceum.utils.numbers import mean

Text = Annotated[str, Field(min_length=1, max_length=10_000)]


class Principles(RewardSettings):
    """The mean over the principles of log p(yes) - log p(no), which a model says right after the question whether the
    completion satisfies one. No reply is sampled.

    A model that is good at it was trained on completions, principles and their yes or no: fine-tuned on that one word
    (``chain-judgements`` with form ``principle``). Which principles count is said here, not when it is trained.

    Source:
        RLBFF, arXiv:2509.21319, and the model cards of its reward models (the reward is the difference between the two
        words' scores). The mean over several principles is ours.
    """

    requires: ClassVar = FROZEN_NEEDS

    kind: Literal["principles"] = "principles"
    model: ScorerModel = ScorerModel(path="reference")
    """``reference`` (the policy as the stage began) or ``average`` (the stage's slow average); or a model of its own:
    ``base``, a folder, a hub name, or its path, dtype and device."""
    principles: tuple[Text, ...] = Field(min_length=1, max_length=64)
    """What a completion should satisfy, in the model's words: "correctness", "each step follows from the last one"."""
    ask: str = Field("Does the answer satisfy this principle: {principle}\nReply Yes or No.", pattern=r"\{principle\}")
    """What the user says after the task and the completion."""
    words: tuple[Text, Text] = ("Yes", "No")
    """The replies for a principle that is satisfied, and for one that is not."""
    read: Literal["log-odds", "probability"] = "log-odds"
    """The score of a principle: log p(yes) - log p(no) (nats), or the probability of yes among the two."""
    at: Literal["end", "turns"] = "end"
    """What is judged: the whole completion, whose score is the outcome; or what there is after each turn that the
    policy ended, the tools' answers before it included: the scores are process rewards, and the outcome is 0."""
    batch_tokens: int = Field(16384, ge=1)
    """Tokens per forward pass of a model of its own."""

    @field_validator("words")
    @classmethod
    def _words_differ(cls, words: tuple[str, str]) -> tuple[str, str]:
        if words[0] == words[1]:
            raise ValueError(f"got {words[0]!r} twice; allowed: one word for yes and another one for no")
        return words

    @model_validator(mode="after")
    def _principles_differ(self) -> Principles:
        if len(set(self.principles)) < len(self.principles):
            raise ValueError("principles: got one of them twice; allowed: each once")
        return self

    def build(self, source: TaskSource) -> Grader:
        if self.model.path not in FROZEN:
            self.model.check(None)
        return self.grade

    async def grade(self, task: Task, leaves: Sequence[Node], context: GradingContext) -> list[Grade]:
        judged = [self.judged(leaf, context) for leaf in leaves]
        asked = [
            [*task.messages, {"role": "assistant", "content": text}, self.question(principle)]
            for texts in judged
            for text in texts
            for principle in self.principles
        ]
        odds = iter(await log_odds(self.model, asked, self.words, context, self.batch_tokens))
        of_each = [[[next(odds) for _ in self.principles] for _ in texts] for texts in judged]
        return [self.graded(leaf, of_leaf, context) for leaf, of_leaf in zip(leaves, of_each, strict=True)]

    def judged(self, leaf: Node, context: GradingContext) -> list[str]:
        """The texts of a trajectory that are judged."""
        if self.at == "end":
            return [leaf.completion]
        tokens, prompt = leaf.path_tokens(), len(leaf.root.tokens)
        return [context.decode(tokens[prompt:end]) for _, end in turns(leaf)]

    def question(self, principle: str) -> Message:
        return {"role": "user", "content": filled(self.ask, {"principle": principle})}

    def graded(self, leaf: Node, odds: Sequence[Sequence[float]], context: GradingContext) -> Grade:
        """
        Args:
            odds: of each principle at each text, in nats.
        """
        every = [each for of_text in odds for each in of_text]
        scores = [mean([probability(each) if self.read == "probability" else each for each in one]) for one in odds]
        parts = {"satisfied": mean([float(each > 0) for each in every])} if every else {}
        if self.at == "end":
            return Grade(scores[0], parts=parts | {str(number): each for number, each in enumerate(every, 1)})
        stops = [end - len(leaf.root.tokens) for _, end in turns(leaf)]
        steps = spans(stops, scores, TokenEnds(context.decode).of(leaf))
        return Grade(0.0, steps=steps, parts=parts | {"turns": float(len(scores))})

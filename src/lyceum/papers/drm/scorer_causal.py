"""How likely another causal model finds a reasoning and its answer, or whether it says that they hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from lyceum.core.settings import ScorerSettings
from lyceum.core.spans import TokenEnds, token_span
from lyceum.core.types import FrozenName, Grade, GradingContext, Message, Reasoned, Scored, Scorer, Task, TaskSource
from lyceum.models.packed_paths import path_logprobs
from lyceum.reward.scorer.base import BaseScorer
from lyceum.reward.scorer.models import (
    FROZEN,
    FROZEN_NEEDS,
    ScorerModel,
    causal_model,
    filled,
    log_odds,
    probability,
)
from lyceum.utils.numbers import mean


class CausalScorer(ScorerSettings):
    """A frozen causal model reads the reasoning below the question, and the answer below both.

        s = a mean_{t in reasoning} log p_t + b mean_{t in answer} log p_t

    Asked for a verdict it says yes or no to whether every step holds and the answer follows: the score is the
    probability of yes among the two.
    """

    requires: ClassVar = FROZEN_NEEDS

    kind: Literal["causal"] = "causal"
    model: ScorerModel
    """``reference`` (the policy as the stage began) or ``average`` (the stage's slow average), whose tokens are the
    policy's; or a model of its own: ``base``, a folder, a hub name, or its path, dtype and device."""
    ask: Literal["likelihood", "verdict"] = "likelihood"
    """What it gives: log-probabilities, or the probability of yes."""
    reasoning: float = 1.0
    """Weight a of the reasoning's mean log-probability (score per nat)."""
    answer: float = 1.0
    """Weight b of the answer's mean log-probability (score per nat)."""
    prompt: str = Field(
        "Question:\n{question}\n\nSolution:\n{reasoning}\n\nAnswer:\n{answer}\n\nDoes every step of the solution hold, "
        "and does the answer follow from it? Say yes or no."
    )
    """What it is asked for a verdict."""
    batch_tokens: int = Field(16384, ge=1)
    """Tokens per forward pass."""

    def build(self, source: TaskSource) -> Scorer:
        if self.model.path not in FROZEN:
            self.model.check(None)
        return CausalLikelihood(self)


class CausalLikelihood(BaseScorer):
    def __init__(self, settings: CausalScorer) -> None:
        self.settings = settings
        self.frozen: FrozenName | None = FROZEN.get(settings.model.path)

    async def __call__(self, task: Task, reasonings: Sequence[Reasoned], context: GradingContext) -> list[Grade]:
        if self.settings.ask == "verdict":
            return await self.verdicts(task, reasonings, context)
        paths = self.of_the_run(reasonings, context) if self.frozen else self.of_its_own(task, reasonings)
        if not paths:
            return []
        found = await self.logprobs(paths, context)
        return [self.grade(*each) for each in zip(found[::2], found[1::2], strict=True)]

    async def logprobs(self, paths: Sequence[Scored], context: GradingContext) -> list[list[float]]:
        if self.frozen is not None:
            return await context.score_under(self.frozen, paths)
        return path_logprobs(causal_model(self.settings.model), paths, self.settings.batch_tokens)

    def grade(self, reasoning: Sequence[float], answer: Sequence[float]) -> Grade:
        if not reasoning or not answer:
            return Grade.ungraded("no token is of the reasoning, or of the answer, alone")
        parts = {"reasoning": mean(reasoning), "answer": mean(answer)}
        return Grade(self.settings.reasoning * parts["reasoning"] + self.settings.answer * parts["answer"], parts=parts)

    def of_the_run(self, reasonings: Sequence[Reasoned], context: GradingContext) -> list[Scored]:
        """Reasoning and answer of each trajectory, in the policy's own tokens below its own prompt."""
        ends, paths = TokenEnds(context.decode), list[Scored]()
        for of in reasonings:
            tokens, prompt, until = of.leaf.path_tokens(), len(of.leaf.root.tokens), ends.of(of.leaf)
            start = of.leaf.completion.rindex(of.answer)
            spans = (token_span(until, 0, len(of.reasoning)), token_span(until, start, start + len(of.answer)))
            paths += [Scored(tokens, prompt + span.start, prompt + span.stop) for span in spans]
        return paths

    def of_its_own(self, task: Task, reasonings: Sequence[Reasoned]) -> list[Scored]:
        """The same in the model's own tokens: its chat template's prompt, the reasoning, then the answer."""
        policy, paths = causal_model(self.settings.model), list[Scored]()
        for of in reasonings:
            prompt = policy.render(task.messages)
            text = of.leaf.completion
            start = text.rindex(of.answer)
            until, whole = (policy.encode(text[:end])[:-1] for end in (start, start + len(of.answer)))
            reasoning = len(prompt) + len(policy.encode(of.reasoning)) - 1
            paths.append(Scored([*prompt, *until], len(prompt), min(reasoning, len(prompt) + len(until))))
            paths.append(Scored([*prompt, *whole], len(prompt) + min(len(until), len(whole)), len(prompt) + len(whole)))
        return paths

    async def verdicts(self, task: Task, reasonings: Sequence[Reasoned], context: GradingContext) -> list[Grade]:
        asked: list[list[Message]] = []
        for of in reasonings:
            fields = {"question": of.question, "reasoning": of.reasoning, "answer": of.answer}
            asked.append([{"role": "user", "content": filled(self.settings.prompt, fields)}])
        found = await log_odds(self.settings.model, asked, ("yes", "no"), context, self.settings.batch_tokens)
        return [Grade(probability(odds)) for odds in found]

"""Confidence: how likely the policy itself found what it wrote."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

from lyceum.core.settings import ScorerSettings
from lyceum.core.spans import TokenEnds, token_span
from lyceum.core.tree import Node
from lyceum.core.types import Grade, GradingContext, Origin, Reasoned, Scorer, Task, TaskSource
from lyceum.reward.scorer.base import BaseScorer
from lyceum.utils.numbers import mean


class PolicyScorer(ScorerSettings):
    """Log-probabilities of the sampled tokens under the policy that sampled them, at temperature 1.

        s = a mean_{t in reasoning} log p_t + b sum_{t in answer} log p_t

    Where a trajectory has none of its own (it comes from a file), the run's model is asked for them.

    Source:
        DRM, arXiv:2510.11457, as a published summary of it gives the two terms.
    """

    requires: ClassVar = ("model_logprob",)

    kind: Literal["policy"] = "policy"
    reasoning: float = 1.0
    """Weight a of the reasoning's mean log-probability (score per nat)."""
    answer: float = 1.0
    """Weight b of the answer's log-probability (score per nat)."""
    of_answer: Literal["sum", "mean"] = "sum"
    """Whether the answer's log-probabilities are added up, or averaged over its tokens."""

    def build(self, source: TaskSource) -> Scorer:
        return Confidence(self)


class Confidence(BaseScorer):
    def __init__(self, settings: PolicyScorer) -> None:
        self.settings = settings

    async def __call__(self, task: Task, reasonings: Sequence[Reasoned], context: GradingContext) -> list[Grade]:
        ends = TokenEnds(context.decode)
        return [self.score(of, ends, await logprobs_of(of.leaf, context)) for of in reasonings]

    def score(self, of: Reasoned, ends: TokenEnds, logprob: Sequence[float]) -> Grade:
        """
        Args:
            logprob: nats of each token below the prompt; nan where the policy did not write.
        """
        until = ends.of(of.leaf)
        start = of.leaf.completion.rindex(of.answer)
        reasoning = [x for x in logprob[token_span(until, 0, len(of.reasoning))] if not math.isnan(x)]
        answer = [x for x in logprob[token_span(until, start, start + len(of.answer))] if not math.isnan(x)]
        if not reasoning or not answer:
            return Grade.ungraded("the policy wrote no reasoning, or no answer, whose log-probabilities are known")
        parts = {
            "reasoning": mean(reasoning),
            "answer": sum(answer) if self.settings.of_answer == "sum" else mean(answer),
        }
        score = self.settings.reasoning * parts["reasoning"] + self.settings.answer * parts["answer"]
        return Grade(score, parts=parts)


async def logprobs_of(leaf: Node, context: GradingContext) -> list[float]:
    """Nats of each token below the prompt under the model that wrote it; nan for what the policy did not write."""
    below = leaf.path()[1:]
    wrote = [node for node in below if node.origin is Origin.POLICY]
    if all(len(node.model_logprob) == len(node.tokens) for node in wrote):
        known = {id(node): node.model_logprob for node in wrote}
    else:
        scored, start, known = await context.score(leaf.path_tokens()), len(leaf.root.tokens), dict[int, list[float]]()
        for node in below:
            known[id(node)] = scored[start : start + len(node.tokens)]
            start += len(node.tokens)
        known = {id(node): known[id(node)] for node in wrote}
    return [x for node in below for x in known.get(id(node), [math.nan] * len(node.tokens))]

"""How much each turn raises the policy's own probability of the true answer (IGPO): rewards of turns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar, Literal

from pydantic import Field

from lyceum.core.settings import RewardSettings
from lyceum.core.spans import TokenEnds
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, GradingContext, Origin, Task, TaskSource
from lyceum.core.user_files import describe
from lyceum.reward.model import spans, turns
from lyceum.utils.aio import gather
from lyceum.utils.numbers import mean


class AnswerGain(RewardSettings):
    """What the policy thinks of the true answer where each turn begins, less what it thought one turn before.

        r_t = p_{t+1} - p_t,    p_t = exp(mean_j log p(a_j | prompt, turns before t with their answers, a_<j))

    The last turn, which nothing answers, earns nothing here: its reward is the outcome, of another part. Together the
    turns earn the probability before the last one less that below the prompt.

    Source:
        IGPO, arXiv:2510.14967; GuoqingWang1/IGPO, scrl/llm_agent/generation.py.
    """

    asks_model: ClassVar[bool] = True

    requires: ClassVar = ("score",)

    kind: Literal["answer-gain"] = "answer-gain"
    compares_answers: ClassVar[bool] = True
    before: str = Field("", max_length=1000)
    """Text that is put before the answer, and not scored: what ends a thought and begins an answer."""
    measure: Literal["probability", "log-probability"] = "probability"
    """p as above, or its logarithm (nats per token), as in later scripts of the authors."""

    def build(self, source: TaskSource) -> Grader:
        return self.grade

    async def grade(self, task: Task, leaves: Sequence[Node], context: GradingContext) -> list[Grade]:
        if not isinstance(task.answer, str | int):
            return [Grade.ungraded(f"the answer of task {task.id!r} is neither a text nor a number")] * len(leaves)
        begins = [beginnings(leaf) for leaf in leaves]
        # What several trajectories share, the prompt above all, is asked once; all of a task's share a batch.
        places = list(dict.fromkeys(place for of in begins for place in of))
        try:
            found = await gather([self.likely(place, str(task.answer), context) for place in places])
        except ValueError as error:  # longer than the model's context
            return [Grade.ungraded(describe(error))] * len(leaves)
        value = dict(zip(places, found, strict=True))
        return [self.graded(leaf, [value[p] for p in of], context) for leaf, of in zip(leaves, begins, strict=True)]

    async def likely(self, path: Sequence[int], answer: str, context: GradingContext) -> float:
        """What the policy thinks of the answer right after a path."""
        path = [*path, *context.encode_after(path, self.before)] if self.before else path
        tokens = context.encode_after(path, answer)
        nats = mean((await context.score([*path, *tokens]))[len(path) :])
        return math.exp(nats) if self.measure == "probability" else nats

    def graded(self, leaf: Node, value: Sequence[float], context: GradingContext) -> Grade:
        gains = [after - before for before, after in pairwise(value)]
        stops = [end - len(leaf.root.tokens) for _, end in turns(leaf)][: len(gains)]
        steps = spans(stops, gains, TokenEnds(context.decode).of(leaf))
        return Grade(0.0, steps=steps, parts={"turns": float(len(gains)), "before": value[0], "after": value[-1]})


def beginnings(leaf: Node) -> list[tuple[int, ...]]:
    """The tokens above each turn of the policy."""
    found: list[tuple[int, ...]] = []
    tokens: tuple[int, ...] = ()
    author = None
    for node in leaf.path():
        if node.origin is Origin.POLICY and author is not Origin.POLICY:
            found.append(tokens)
        tokens, author = (*tokens, *node.tokens), node.origin
    return found

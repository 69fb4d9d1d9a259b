"""Questions are paid by the Shapley value of what they brought to light (ProMed)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import combinations
from math import factorial
from typing import Literal

from pydantic import Field

from lyceum.core.settings import RewardSettings
from lyceum.core.spans import TokenEnds
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, GradingContext, Task, TaskSource
from lyceum.reward.model import spans, turns
from lyceum.tasks.guess import LARGER
from lyceum.utils.errors import RecipeError

MOST = 10
"""Facts whose Shapley values are computed: the value of every set of them is."""
_ASKED = re.compile(r"(\d)([<>])")
Fact = tuple[int, str]


class ShapleyGain(RewardSettings):
    """What each answered question of a dialogue brought, as the reward of its turn.

        phi_t = sum over S without t of |S|! (n - |S| - 1)! / n! (v(S + t) - v(S)),    v(S) = 1 / candidates left by S

    v is the probability that someone who knows the answers in S, and no more, says the right number. The phi of a
    dialogue add up to v(all) - v(none), so that a question whose answer another one implies earns little whichever came
    first. Its part ``gain`` is that sum, ``wasted`` the share of questions that earned nothing. The outcome, and the
    last turn's reward, are another part's.

    Source:
        ProMed, arXiv:2508.13514: Shapley information gain, where v is the model's probability of the right answer.
    """

    kind: Literal["shapley-gain"] = "shapley-gain"
    scale: float = Field(default=1.0, gt=0, le=100)
    """Factor on each turn's reward."""

    def check_tasks(self, source: TaskSource) -> None:
        super().check_tasks(source)
        if not source[0].columns.keys() >= {"low", "high"}:
            raise RecipeError(
                f"reward.kind: got {self.kind!r}, and the tasks ask for no number of a range; allowed: tasks 'guess'"
            )

    def build(self, source: TaskSource) -> Grader:
        return self.grade

    async def grade(self, task: Task, leaves: Sequence[Node], context: GradingContext) -> list[Grade]:
        return [self.graded(task, leaf, TokenEnds(context.decode).of(leaf)) for leaf in leaves]

    def graded(self, task: Task, leaf: Node, ends: Sequence[int]) -> Grade:
        facts = facts_of(leaf)[:MOST]
        low, high = int(task.columns["low"]), int(task.columns["high"])
        found = shapley(facts, lambda known: 1 / max(1, left(low, high, known)))
        stops = [end - len(leaf.root.tokens) for _, end in turns(leaf)][: len(found)]
        steps = spans(stops, [self.scale * value for value in found], ends)
        wasted = sum(value <= 0 for value in found) / len(found) if found else 0.0
        return Grade(0.0, steps=steps, parts={"gain": sum(found), "questions": float(len(found)), "wasted": wasted})


def facts_of(leaf: Node) -> list[Fact]:
    """Guesses and what was said to them, in order, as the environment names the state after the last answer."""
    key = next((node.key for node in reversed(leaf.path()) if node.key and "?" in node.key), "")
    return [(int(guess), said) for guess, said in _ASKED.findall(key.partition("?")[2])]


def left(low: int, high: int, facts: Sequence[Fact]) -> int:
    """How many numbers of a range agree with all facts."""
    for guess, said in facts:
        low, high = (max(low, guess + 1), high) if said == LARGER else (low, min(high, guess - 1))
    return max(0, high - low + 1)


def shapley(facts: Sequence[Fact], value: Callable[[Sequence[Fact]], float]) -> list[float]:
    """The Shapley value of each fact, exactly: over all sets of the others."""
    n = len(facts)
    found = []
    for t in range(n):
        others = [facts[i] for i in range(n) if i != t]
        total = 0.0
        for size in range(n):
            weight = factorial(size) * factorial(n - size - 1) / factorial(n)
            total += weight * sum(value([*known, facts[t]]) - value(known) for known in combinations(others, size))
        found.append(total)
    return found

"""Several next steps from every state of a trajectory: what a critic of steps is trained on, and what it is used on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from lyceum.core.needs import Gives, Need
from lyceum.core.steps import grow
from lyceum.core.tree import Node
from lyceum.core.types import Context, Grade
from lyceum.rollout._growth import extend_to_end
from lyceum.rollout._search import SearchSettings
from lyceum.utils.aio import gather

UNSURE = 1e-6
"""A value is kept this far from 0 and 1, which as outcomes would say incorrect and correct."""


class NextSteps(SearchSettings):
    """Trajectories drawn step by step: ``width`` next steps are drawn from each state, and the first of them that does
    not end the answer goes on.

    Source: Direct Advantage Policy Optimization, arXiv:2412.18279 (step-level states and actions).
    """

    test_time: ClassVar[Mapping[str, Any]] = {"width": 1, "others": "finish"}
    requires: ClassVar = (
        Need(
            "value",
            when=lambda own: own.others == "value",
            line="{got}, but {who} with others 'value' reads it; allowed: {kinds}, or rollout.others=finish",
        ),
    )
    gives: ClassVar = (Gives("state-values", when=lambda own: own.others == "value"),)

    kind: Literal["next-steps"] = "next-steps"
    trajectories: int = Field(default=2, ge=1)
    """Trajectories per task that go from step to step, unless the curriculum sets the number."""
    width: int = Field(default=4, ge=1)
    """Next steps drawn from each of their states."""
    others: Literal["value", "finish"] = "value"
    """The next steps that do not go on: ``value`` ends them there, ungraded by the verifier, their outcome the value
    model's value of the state they lead to; ``finish`` completes each with one continuation, whose outcomes estimate
    the states' success rates."""

    async def roll(self, context: Context, start: Node, n: int | None) -> list[Node]:
        n = n or self.trajectories
        shares = [context.share(context.budget_left // n) for _ in range(n)]
        walked = await gather(self.walk(share, start) for share in shares)
        ended = [leaf for leaves, _ in walked for leaf in leaves]
        others = [node for _, nodes in walked for node in nodes]
        if self.others == "finish":
            finished = await self.finish(context, others)
        else:
            finished = others
            await self.give_values(context, start, [*ended, *others], others)
        context.tree.record("next-steps", {"ended": len(ended), "others": len(others)})
        return [*ended, *finished]

    async def walk(self, context: Context, start: Node) -> tuple[list[Node], list[Node]]:
        """One trajectory: the leaves that ended by themselves or by a limit, and the next steps that did not go on."""
        ended: list[Node] = []
        others: list[Node] = []
        node = start
        while True:
            longest = max(1, min(self.step.tokens, self.left(node)))
            width = min(self.width, context.budget_left // longest)
            if not width:  # the task's budget is spent
                if node is not start:
                    node.finish = "length"
                    ended.append(node)
                return ended, others
            depth = len(node.path()) - len(start.path())
            grown = await grow(context, node, width, self.step, self.sampling, depth_left=self.depth - depth)
            ended += [one.nodes[-1] for one in grown if one.terminal]
            ahead = [one.nodes[-1] for one in grown if not one.terminal]
            if not ahead:
                return ended, others
            node, *rest = ahead
            others += rest

    async def finish(self, context: Context, others: Sequence[Node]) -> list[Node]:
        """Complete paths with one continuation each; they stay truncated where the task's budget is spent."""
        share = context.budget_left // max(1, len(others))
        if not share:
            for node in others:
                node.finish = "length"
            return list(others)
        requests = [(node, 1, self.sampling.at_most(min(self.left(node), share))) for node in others]
        return await extend_to_end(context, requests)

    async def give_values(self, context: Context, start: Node, leaves: Sequence[Node], others: Sequence[Node]) -> None:
        """Value all states from the start on, and grade the paths that end at one by its value."""
        inner = dict.fromkeys(node for leaf in leaves for node in leaf.below(start)[:-1])
        states = list(dict.fromkeys([start, *inner, *others]))
        for node, value in zip(states, await context.value(states), strict=True):
            node.value = value
        for node in others:
            value = min(1 - UNSURE, max(UNSURE, node.value or 0.0))
            node.grade = Grade(value, parts={"value": value})

    def left(self, node: Node) -> int:
        return self.sampling.max_completion_tokens - node.policy_tokens

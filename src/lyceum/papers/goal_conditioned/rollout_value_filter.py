"""Samples that are given up on their way, as soon as the value model holds them unlikely to end well."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from lyceum.core.steps import Steps, grow
from lyceum.core.tree import Node
from lyceum.core.types import Context
from lyceum.rollout._search import SearchSettings
from lyceum.utils.aio import gather


class ValueFilter(SearchSettings):
    """Independent samples that grow step by step; one whose value falls below the threshold is dropped there.

    Source: Learning Goal-Conditioned Representations for Language Reward Models, arXiv:2407.13887, and its code
    (examples/eval_rm.py), which filters votes by the lowest Q-value of a finished sample's tokens, but for the first 5,
    and filters none where all would go. Here values are read at the ends of steps, so that the tokens after them are
    not drawn, and where all would be dropped the one of the highest value goes on.
    """

    sized_by = "samples"
    requires: ClassVar = ("value",)

    kind: Literal["value-filter"] = "value-filter"
    samples: int = Field(default=8, ge=1)
    """Samples per task, unless the curriculum sets the number."""
    threshold: float = Field(default=0.5, ge=0, le=1)
    """A sample of a lower value is dropped; 0.5 is a cosine of 0 with value.kind 'goal-conditioned'."""
    first_tokens: int = Field(default=5, ge=0)
    """A sample that is not longer is not dropped (tokens)."""
    step: Steps = Steps()
    """Where values are read."""

    async def roll(self, context: Context, start: Node, n: int | None) -> list[Node]:
        samples = n or self.samples
        open_paths, finished, dropped = [start] * samples, list[Node](), 0
        while open_paths:
            affordable = context.budget_left // min(self.step.tokens, self.sampling.max_completion_tokens)
            if affordable < len(open_paths):
                break
            ends = await self.step_on(context, start, open_paths)
            paths = [node for node, _ in ends]
            for node, value in zip(paths, await context.value(paths), strict=True):
                node.value = value
            kept = self.kept(paths, start, alone=not finished)
            dropped += len(paths) - len(kept)
            finished += [node for node, terminal in ends if terminal and node in kept]
            open_paths = [node for node, terminal in ends if not terminal and node in kept]
        for node in open_paths:
            if node is not start:  # the budget allows no further step
                node.finish = "length"
                finished.append(node)
        context.tree.record("value-filter", {"samples": samples, "dropped": dropped})
        return finished

    async def step_on(self, context: Context, start: Node, paths: Sequence[Node]) -> list[tuple[Node, bool]]:
        """A step below each path, all at once: where it ends, and whether the sample does."""
        wanted = {node: paths.count(node) for node in paths}  # the first steps are one request
        drawn = await gather(
            grow(
                context,
                node,
                n,
                self.step,
                self.sampling,
                depth_left=self.depth - (len(node.path()) - len(start.path())),
            )
            for node, n in wanted.items()
        )
        return [(one.nodes[-1], one.terminal) for grown in drawn for one in grown]

    def kept(self, paths: Sequence[Node], start: Node, *, alone: bool) -> set[Node]:
        """The paths that stay: where none would, and none has finished before (``alone``), the best one."""
        begun = start.policy_tokens + self.first_tokens
        stay = {node for node in paths if node.policy_tokens <= begun or (node.value or 0.0) >= self.threshold}
        return stay or ({max(paths, key=lambda node: node.value or 0.0)} if alone else set())

"""Settings that the searches over steps share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from lyceum.core.settings import Composition, RolloutSettings
from lyceum.core.steps import Steps
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Context, Rollout, Sampling


class SearchSettings(RolloutSettings):
    """How a tree of steps is cut and how deep it is."""

    sized_by: ClassVar = "trajectories"

    depth: int = Field(default=64, ge=1)
    """Maximum nodes per trajectory, without the prompt; longer ones are truncated."""
    step: Steps = Steps()
    """How trajectories are cut into nodes."""
    sampling: Sampling = Sampling()
    """How tokens are sampled; ``max_completion_tokens`` is per trajectory."""

    @property
    def most_nodes(self) -> int | None:
        """Maximum nodes per tree; None: no bound beside the task's token budget."""
        return None

    def check(self, stage: Composition) -> list[str]:
        """Also a line per budget that is too small for one path of full length."""
        steps = self.step.longest_path(self.sampling, self.depth)
        tokens = min(self.sampling.max_completion_tokens, steps * self.step.tokens)
        limit, nodes = stage.max_tokens_per_task, self.most_nodes
        lines: list[str] = []
        if limit is not None and limit < tokens:
            lines.append(
                f"max_tokens_per_task: got {limit}, but one path of rollout.kind '{self.kind}' may be {tokens} tokens "
                f"long; allowed: {tokens} or more, or a smaller rollout.sampling.max_completion_tokens"
            )
        if nodes is not None and nodes < steps:
            lines.append(
                f"rollout.max_nodes: got {nodes}, but one path may have {steps} nodes; "
                f"allowed: {steps} or more, or a smaller rollout.depth"
            )
        return lines

    def build(self) -> Rollout:
        return self.roll

    @abstractmethod
    async def roll(self, context: Context, start: Node, n: int | None) -> list[Node]:
        """The search itself: a :class:`~lyceum.core.types.Rollout`."""

    def note(self, trees: Sequence[Tree]) -> str | None:
        return self.step.unseen_in(trees)

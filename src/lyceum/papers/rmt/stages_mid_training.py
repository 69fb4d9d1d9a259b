"""Reinforcement mid-training: online steps on thoughts, and next-token prediction of the texts that they are about.

Source: Reinforcement Mid-Training, arXiv:2509.24375.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from lyceum.core.component import Component, of_kind, slot
from lyceum.core.group import Group
from lyceum.core.settings import Composition, LearnerSettings, ObjectiveSettings
from lyceum.core.tree import Node, Tree
from lyceum.core.types import StepMetrics, Task
from lyceum.models.demonstrations import add_demonstration
from lyceum.training.stages._auxiliary import Auxiliary, Imitation
from lyceum.training.stages.online import Online, OnlineRun
from lyceum.training.stages.session import Session


class NextTokens(Component):
    """Next-token prediction of the texts in front of the thoughts."""

    objective: Annotated[ObjectiveSettings, slot("objective", "sft")] = of_kind("sft")
    """The loss."""
    learner: Annotated[LearnerSettings, slot("learner", "local")] = of_kind("local")
    """How these steps update the weights: an optimiser of its own, whose learning rate weighs them."""
    max_tokens: int = Field(default=2048, ge=2)
    """Maximum tokens of a text; of a longer one the beginning is learnt."""


class MidTraining(Online):
    """The online loop; after each of its steps the policy learns to predict every token of the step's prompts."""

    kind: Literal["mid-training"] = "mid-training"  # pyright: ignore[reportIncompatibleVariableOverride]
    next_tokens: NextTokens = NextTokens()
    """The prediction of the texts."""

    def check(self, stage: Composition) -> list[str]:
        lines = super().check(stage)
        if "imitation" not in self.next_tokens.objective.offers:
            lines.append(
                f"next_tokens.objective.kind: got '{self.next_tokens.objective.kind}', but texts have no advantages; "
                "allowed: sft"
            )
        if len(self.roles.models) > 1:
            lines.append(
                f"roles.models: got {', '.join(self.roles.models)} in stage 'mid-training', which trains one model on "
                "texts; allowed: one, or stage 'online'"
            )
        return lines

    def also(self, run: OnlineRun) -> list[Auxiliary]:
        return [Predictor(self.next_tokens, run.session, total_steps=self.steps)]


class Predictor(Imitation):
    """Learns the prompts of each step, one update per step.

    Args:
        total_steps: of the stage.
    """

    def __init__(self, settings: NextTokens, session: Session, *, total_steps: int) -> None:
        super().__init__("next_tokens", settings.objective, settings.learner, session, total_steps=total_steps)
        self.max_tokens = settings.max_tokens

    async def after(self, groups: Sequence[Group], metrics: StepMetrics) -> StepMetrics:
        sampled = [group.tree for group in groups if group.sampled]
        texts = [text for tree in sampled if (text := as_text(tree, self.max_tokens)) is not None]
        self.updated = False
        if texts:
            metrics = self.imitate(texts, metrics)
        return {
            **metrics,
            "next_tokens/texts": len(texts),
            "next_tokens/tokens": sum(len(leaf.tokens) for tree in texts for leaf in tree.trajectories),
            "next_tokens/skipped_steps": self.learner.skipped_steps,
        }


def as_text(tree: Tree, max_tokens: int) -> Tree | None:
    """A step's prompt as tokens to predict, each from those before it; None where nothing follows its first one.

    What comes after the prompt, which the thoughts are to predict, is not in it, and no end of sequence is either.
    """
    tokens = tree.root.tokens[:max_tokens]
    if len(tokens) < 2:
        return None
    text = Tree(Task(tree.task.id, tree.task.messages), [Node.prompt(tokens[:1])])
    text.chosen = [add_demonstration(text.root, tokens[1:], "")]
    return text

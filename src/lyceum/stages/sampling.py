"""What stages that sample have in common: how far they are by steps and tokens, who grades, what the rooms believe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lyceum.reward.base import allow_code, combine
from lyceum.stages.session import Session
from lyceum.tree import Tree
from lyceum.types import Curriculum, Grader, Guidance


class SamplingRun:
    """A stage under way that draws tasks and samples. Its attributes are set by the stage itself."""

    settings: Any
    session: Session
    steps: int
    step: int
    sampled_before: int
    """Tokens that the run had sampled when the stage began."""
    curriculum: Curriculum
    guidance: list[Guidance]

    def _grader(self) -> Grader:
        if self.settings.reward is None:
            return self.session.grader
        with allow_code():  # what the recipe names was asked about when it was loaded
            return combine(self.settings.reward, self.session.source)

    def beliefs(self) -> dict[str, float]:
        """What curriculum and guidance say of themselves."""
        figures = {f"curriculum/{name}": value for name, value in self.curriculum.figures().items()}
        for settings, guide in zip(self.settings.guidance, self.guidance, strict=True):
            figures |= {f"guidance/{settings.kind}/{name}": value for name, value in guide.figures().items()}
        return figures

    def count(self, trees: Sequence[Tree]) -> None:
        """Add the trees of a step to the run's counts; at the first one, say where its steps never ended."""
        first = self.session.counts.tokens_sampled == self.sampled_before
        if first and (note := self.settings.rollout.note(trees)):
            self.session.progress.say(f"rollout.step: {note}")
        self.session.count(trees)

    @property
    def progress(self) -> float:
        """Share of the stage that is done, by steps or by tokens, whichever is further."""
        limit = self.settings.max_tokens
        return min(1.0, max(self.step / self.steps, 0.0 if limit is None else self._sampled / limit))

    @property
    def _sampled(self) -> int:
        """Tokens that this stage has sampled."""
        return self.session.counts.tokens_sampled - self.sampled_before

    def _spent(self) -> bool:
        limit = self.settings.max_tokens
        return limit is not None and self._sampled >= limit

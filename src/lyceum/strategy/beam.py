"""Strategies that search step by step with a value model: beam search, and its diverse form."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from lyceum.rollout.beam import Beam
from lyceum.rollout.steps import Steps
from lyceum.strategy.base import Growth, Strategy, usual_step
from lyceum.strategy.choice import Choice
from lyceum.types import Sampling


class BeamSearch(Strategy, room="strategy"):
    """Step-level beam search. Source: Snell et al., arXiv:2408.03314, section 5.2; see rollout kind ``beam``."""

    kind: Literal["beam"] = "beam"
    choose: Choice = "best"
    """How the answer is chosen among the finished paths."""
    width: int = Field(default=4, ge=1)
    """Next steps of each path; a search of size N has N / width beams, at least one."""
    step: Steps | None = None
    """How paths are cut into steps; null: a line, of at most an eighth of the longest completion."""
    depth: int = Field(default=64, ge=1)
    """Most steps of a path."""
    distinct: bool = True
    """Keep one of unfinished paths with the same tokens."""

    @property
    def reads_values(self) -> bool:
        return True

    def growth(self, size: int, sampling: Sampling) -> Growth:
        width = min(self.width, size)
        beams = max(1, size // width)
        return Beam(
            beams=beams,
            width=width,
            subtrees=self.subtrees(beams),
            trajectories=size,
            depth=self.depth,
            step=self.step or usual_step(sampling),
            sampling=sampling,
            distinct=self.distinct,
        )

    def subtrees(self, beams: int) -> int:
        """Independent searches among so many beams."""
        return 1


class DiverseBeamSearch(BeamSearch, room="strategy"):
    """Diverse verifier tree search: every beam goes on with the best of its own next steps, so that the beams do not
    become one. Source: search-and-learn (Hugging Face), ``dvts``."""

    kind: Literal["dvts"] = "dvts"  # pyright: ignore[reportIncompatibleVariableOverride]

    def subtrees(self, beams: int) -> int:
        return beams

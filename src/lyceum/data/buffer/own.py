"""Groups of the stage's own earlier steps, sampled under earlier weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from lyceum.core.group import Group
from lyceum.core.settings import Composition
from lyceum.core.types import GroupSource
from lyceum.data.buffer.base import DrawnSettings, ReplayedGroups
from lyceum.utils.atomic_files import atomic_write


class Own(DrawnSettings):
    """Groups that the stage trained in earlier steps; each step's are written to ``replay/`` in the run's folder."""

    gives: ClassVar = ("stored-groups",)

    kind: Literal["own"] = "own"
    warm_up: int = Field(default=0, ge=0)
    """Steps at the beginning of the stage that train nothing: what the policy that enters samples is only stored
    (WSRL, arXiv:2412.07762)."""

    def warms_up(self, done: int) -> bool:
        return done < self.warm_up

    def due(self, done: int) -> bool:
        return not self.warms_up(done) and super().due(done)

    def check(self, stage: Composition) -> list[str]:
        lines: list[str] = []
        if stage.steps is not None and self.warm_up >= stage.steps:
            lines.append(
                f"replay.warm_up: got {self.warm_up}, but the stage has {stage.steps} steps, so that none trains; "
                "allowed: fewer than its steps"
            )
        if self.warm_up and self.priority == "advantage":
            lines.append(
                f"replay.warm_up: got {self.warm_up} with priority 'advantage', which groups that were never trained "
                "do not have; allowed: 0, or another priority"
            )
        return lines

    def build(self, sampled: GroupSource, run: Path, *, seed: int, stage: int, first_step: int) -> OwnReplay:
        return OwnReplay(self, sampled, run, seed=seed, stage=stage, first_step=first_step)


class OwnReplay(ReplayedGroups):
    """The stage's earlier groups, in files that are numbered by the run's steps.

    What a resumed run needs is the index as of its checkpoint, and files up to then: later ones are written again.
    """

    def __init__(
        self, settings: Own, sampled: GroupSource, run: Path, *, seed: int, stage: int, first_step: int
    ) -> None:
        super().__init__(settings, sampled, seed=seed, first_step=first_step)
        self.run, self.stage = run, stage
        self.warmed_up: int | None = None if settings.warm_up == 0 else 0
        """Groups that the current step stored in the warm-up; None where there is none."""

    def since(self, done: int) -> int:
        return 0 if self.settings.max_age is None else self.first_step + done + 1 - self.settings.max_age

    def file(self, number: int) -> tuple[Path, int]:
        from lyceum.run.stage_trees import replay_file  # here: imports pyarrow

        return replay_file(self.run, number), number - self.first_step

    def observe(self, done: int, groups: Sequence[Group]) -> None:
        stored = [group for group in groups if group.kept and self.settings.keeps(group.tree)]
        if self.warmed_up is not None:
            self.warmed_up = sum(group.stored for group in stored)
        if stored:
            self.write(self.first_step + done, stored)
        super().observe(done, groups)

    def write(self, step: int, groups: Sequence[Group]) -> None:
        """Store a step's groups."""
        from lyceum.run.trees import Heading, StepTrees, write_trees  # here: imports pyarrow

        file, _ = self.file(step)
        file.parent.mkdir(exist_ok=True)
        atomic_write(file, write_trees(StepTrees(Heading(step, self.stage, self.first_step), groups)))
        priority = [self.settings.priority_of(group.tree) for group in groups]
        self.index.add(step, priority, rows=range(len(groups)), most=self.settings.most)

    def measured(self) -> dict[str, float]:
        return super().measured() | ({} if self.warmed_up is None else {"warm_up": self.warmed_up})

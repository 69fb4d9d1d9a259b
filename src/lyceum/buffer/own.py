"""Groups of the stage's own earlier steps, sampled under earlier weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from lyceum.buffer._index import Index
from lyceum.buffer.base import DrawnSettings, drawn, metrics_of, read
from lyceum.core.component import require_keys
from lyceum.core.settings import Composition
from lyceum.core.tree import Tree
from lyceum.core.types import ReplayedGroup
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

    def build(self, run: Path, *, seed: int, stage: int, first_step: int) -> OwnReplay:
        return OwnReplay(self, run, seed=seed, stage=stage, first_step=first_step)


class OwnReplay:
    """The stage's earlier groups: an index in memory, their trees in files.

    What a resumed run needs is the index as of its checkpoint, and files up to then: later ones are written again.
    """

    def __init__(self, settings: Own, run: Path, *, seed: int, stage: int, first_step: int) -> None:
        self.settings, self.run, self.seed = settings, run, seed
        self.stage, self.first_step = stage, first_step
        self.index = Index()
        self.last: list[ReplayedGroup] = []
        """What the current step drew."""
        self.warmed_up = 0
        """Groups that the current step stored in the warm-up."""

    def draw(self, done: int, number: int) -> list[ReplayedGroup]:
        from lyceum.run.stage_trees import replay_file  # here: imports pyarrow

        settings, step = self.settings, self.first_step + done + 1
        self.last = []
        if settings.due(done):
            since = 0 if settings.max_age is None else step - settings.max_age
            places = drawn(settings, self.index, number, seed=self.seed, step=step, since=since)
            files = {int(file) for file in self.index.file[places]}
            self.last = read(
                self.index,
                places,
                {file: replay_file(self.run, file) for file in files},
                {file: step - file for file in files},
            )
            if settings.once:
                self.index.remove(places)
        return self.last

    def observe(self, done: int, trees: Sequence[Tree], weights: Sequence[float]) -> None:
        from lyceum.run.stage_trees import replay_file  # here: imports pyarrow
        from lyceum.run.trees import Heading, StepTrees, write_trees

        self.warmed_up = 0
        kept = [(tree, weight) for tree, weight in zip(trees, weights, strict=True) if self.settings.keeps(tree)]
        if not kept:
            return
        step = self.first_step + done
        file = replay_file(self.run, step)
        file.parent.mkdir(exist_ok=True)
        heading = Heading(step, self.stage, self.first_step)
        atomic_write(file, write_trees(StepTrees(heading, [tree for tree, _ in kept], [weight for _, weight in kept])))
        priority = [self.settings.priority_of(tree) for tree, _ in kept]
        self.index.add(step, priority, rows=range(len(kept)), most=self.settings.most)
        self.warmed_up = len(kept) if self.settings.warms_up(done - 1) else 0

    def metrics(self) -> dict[str, float]:
        found = metrics_of(self.last, len(self.index))
        return found | {"warm_up": self.warmed_up} if self.settings.warm_up else found

    def state_dict(self) -> dict[str, Any]:
        return {"index": self.index.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("stage.replay", given=state, needed=("index",))
        self.index.load_state_dict(state["index"])

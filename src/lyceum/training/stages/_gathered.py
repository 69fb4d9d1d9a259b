"""The groups that an offline stage trains on: gathered once, written to its folder, and read from there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lyceum.core.group import Group
from lyceum.core.tree import Node, Tree
from lyceum.core.types import StepMetrics, Task, TaskSource
from lyceum.models.policy import Policy
from lyceum.training.stages._metrics import mean_solved
from lyceum.utils.atomic_files import atomic_write
from lyceum.utils.errors import Interrupted, RecipeError, RunError

if TYPE_CHECKING:
    from lyceum.training.stages.offline import OfflineRun


class GatheredGroups:
    """What an offline stage offers to its kind of data (``Gathering``), and what it has got from it.

    The groups are in the stage's folder, ``data/part-*.parquet``, and are read from there: whatever was killed when, it
    is trained on the same.
    """

    def __init__(self, run: OfflineRun) -> None:
        self.run, self.settings, self.session, self.sampler = run, run.settings, run.session, run.sampler
        self.home = run.session.folder(run.settings.name)
        self.parts = 0
        """Parts that are written."""
        self.tokens = 0
        """Tokens sampled so far."""
        self.groups: Sequence[Group] = []
        """What is trained on."""

    @property
    def policy(self) -> Policy:
        return self.session.policy

    @property
    def source(self) -> TaskSource:
        return self.session.source

    @property
    def folder(self) -> Path:
        return self.session.run.path

    @property
    def spent(self) -> bool:
        limit = self.settings.max_tokens
        return limit is not None and self.tokens >= limit

    async def sample(self, tasks: int) -> Sequence[Tree]:
        session, file = self.session, self.file(self.parts)
        if file.exists():
            drawn = self.sampler.draw(tasks)
            trees = [group.tree for group in self.read(self.parts)]
            if [tree.task.id for tree in trees] != [task.id for task in drawn]:
                raise RecipeError(f"{file}: its tasks are not those that the stage draws; allowed: as the run wrote it")
        else:
            # What the engine has cached of the part before, a resumed run would not have.
            await self.run.engine.load(self.run.learner.weights(), version=session.first_step)
            trees = await self.sampler.sample(tasks, key=("data", self.parts), step=0, phase="sampling")
            for tree in trees:
                tree.mean_abs_advantage = 0.0  # there are none before the first update
            self.write([Group(tree, self.sampler.weight(tree)) for tree in trees])
            trees = [group.tree for group in self.read(self.parts)]  # components observe what a resumed run reads
        self.sampler.observe(trees)
        self.tokens += sum(tree.sampled_tokens for tree in trees)
        if session.interrupted():
            session.save(0, self.run.state_dict)
            raise Interrupted(session.first_step)
        return trees

    async def grade(self, task: Task, leaves: Sequence[Node]) -> None:
        await self.sampler.growing.here.grade(task, leaves, key="data")

    def file(self, number: int) -> Path:
        from lyceum.run.stage_trees import part_file  # here: imports pyarrow

        return part_file(self.home, number)

    def write(self, groups: Sequence[Group]) -> None:
        """Write the next part."""
        from lyceum.run.trees import Heading, StepTrees, write_trees  # here: imports pyarrow

        session, file = self.session, self.file(self.parts)
        heading = Heading(session.first_step, session.stage, session.first_step)
        file.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(file, write_trees(StepTrees(heading, groups)))

    def read(self, number: int) -> Sequence[Group]:
        from lyceum.run.trees import read_trees  # here: imports pyarrow

        return read_trees(self.file(number)).groups

    async def gather(self) -> None:
        """Write all parts, and count what was sampled."""
        async for trees in self.settings.data.parts(self):
            if trees:
                if not self.settings.data.samples:  # what was sampled is written
                    self.write([Group(tree) for tree in trees])
                self.parts += 1

    def read_all(self) -> list[Tree]:
        """Read all parts, and keep the groups that are trained on; returns the trees of all. What a file gives is read
        group by group, later."""
        if self.settings.data.given:
            self.groups = self.settings.data.groups(self, self.home)
            return []
        groups = [group for number in range(self.parts) for group in self.read(number)]
        keeps = self.settings.collect.keeps
        self.groups = [group for group in groups if group.tree.graded and keeps(group.tree)]
        return [group.tree for group in groups]

    def count(self, trees: Sequence[Tree]) -> StepMetrics:
        """Add the data to the run's counts, once; returns their metrics."""
        if self.settings.data.given:
            return {"data/groups": len(self.groups)}
        metrics = self.sampler.count(trees)
        del metrics["tokens_computed/step"]  # a resumed run has not computed all
        leaves = [leaf for tree in trees for leaf in tree.trajectories]
        return metrics | {
            "data/groups": len(trees),
            "data/kept": len(self.groups),
            "data/trajectories": len(leaves),
            "data/correct": mean_solved(trees),
        }

    def require_groups(self, found: int) -> None:
        """Raise RunError where there is no group to train on."""
        if not self.groups:
            line = (
                f"collect.keep: got {self.settings.collect.keep!r}, but none of the {found} groups of stage "
                f"{self.settings.name!r} is trained on; allowed: more data, tasks that are solved sometimes, or 'all'"
            )
            raise RunError([line, *self.session.counts.why_ungraded])

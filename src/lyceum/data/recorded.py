"""Trajectories that a run, or an earlier stage of this one, has recorded."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from lyceum.core.component import PathText
from lyceum.core.settings import Composition, DataSettings, ObjectiveSettings
from lyceum.core.tree import Tree
from lyceum.core.types import Gathering

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class Recorded(DataSettings):
    """Trees of an offline stage, or of a stage that ran with ``trees_every``; graded as they were recorded."""

    kind: Literal["recorded"] = "recorded"
    path: PathText | None = None
    """Folder of the run that recorded them; null: this run."""
    from_stage: str | None = None
    """Name of the stage that recorded them; null, with ``path``: all stages of that run."""
    most: int | None = Field(default=None, ge=1)
    """Maximum trees, the newest; null: all."""
    max_age: int | None = Field(default=None, ge=0)
    """Maximum age of a tree, in steps before the newest recorded one; null: any."""

    @model_validator(mode="after")
    def _of_something(self) -> Recorded:
        if self.path is None and self.from_stage is None:
            raise ValueError("got neither path nor from_stage; allowed: a run's folder, an earlier stage, or both")
        return self

    def check(self, stage: Composition) -> list[str]:
        return [] if self.path is not None else stage.without_trees("data.from_stage", self.from_stage or "")

    def check_files(self, tokenizer: PreTrainedTokenizerBase, limit: int, objective: ObjectiveSettings | None) -> None:
        if self.path is not None:
            from lyceum.run.stage_trees import check_tokens  # here: imports pyarrow

            trees = [tree for part in self.read(Path(self.path)) for tree in part]
            check_tokens(f"data.path: {self.path}", trees, tokenizer)

    async def parts(self, stage: Gathering) -> AsyncIterator[Sequence[Tree]]:
        for trees in self.read(stage.folder if self.path is None else Path(self.path)):
            for tree in trees:
                tree.sampled_tokens = 0  # not by this stage
            yield trees

    def read(self, run: Path) -> list[Sequence[Tree]]:
        """The trees of each file, as many as are wanted.

        Raises:
            RecipeError: there are none, or a file cannot be read.
        """
        from lyceum.run.stage_trees import tree_files  # here: imports pyarrow
        from lyceum.run.trees import read_heading, read_trees

        files = tree_files(run, self.from_stage, "data")
        step = {file: read_heading(file).step for file in files}
        oldest = 0 if self.max_age is None else max(step.values()) - self.max_age
        left, parts = self.most, list[Sequence[Tree]]()
        for file in reversed([file for file in files if step[file] >= oldest]):
            trees = [group.tree for group in read_trees(file).groups if not group.age]  # each once
            parts.append(trees if left is None else trees[-left:])
            if left is not None and (left := left - len(parts[-1])) == 0:
                break
        return parts[::-1]

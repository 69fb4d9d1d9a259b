"""Trajectories that a run, or an earlier stage of this one, has recorded."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from lyceum.core.component import PathText
from lyceum.core.settings import Composition, DataSettings
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Gathering, Origin
from lyceum.utils.errors import RecipeError

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

    def check_files(self, tokenizer: PreTrainedTokenizerBase) -> None:
        if self.path is None:
            return
        from lyceum.run.stage_trees import tree_files  # here: imports pyarrow
        from lyceum.run.trees import read_trees

        trees = read_trees(tree_files(Path(self.path).expanduser(), self.from_stage, "data")[-1]).trees
        check_tokens(f"data.path: {self.path}", trees, tokenizer)

    async def parts(self, stage: Gathering) -> AsyncIterator[Sequence[Tree]]:
        from lyceum.run.stage_trees import tree_files  # here: imports pyarrow
        from lyceum.run.trees import read_heading, read_trees

        run = stage.folder if self.path is None else Path(self.path).expanduser()
        files = tree_files(run, self.from_stage, "data")
        step = {file: read_heading(file).step for file in files}
        oldest = 0 if self.max_age is None else max(step.values()) - self.max_age
        left, kept = self.most, list[Sequence[Tree]]()
        for file in reversed([file for file in files if step[file] >= oldest]):
            read = read_trees(file)
            trees = [*read.trees, *read.dropped]
            kept.append(trees if left is None else trees[-left:])
            if left is not None and (left := left - len(kept[-1])) == 0:
                break
        for trees in reversed(kept):
            for tree in trees:
                tree.sampled_tokens = 0  # not by this stage
            yield trees


LOOKED_AT = 8
"""Number of trajectories whose texts are compared with their tokens."""


def check_tokens(what: str, trees: Sequence[Tree], tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise RecipeError where recorded tokens are those of another tokenizer: most decode to other texts.

    Args:
        what: the key and the file, for the error line.
    """
    leaves = [leaf for tree in trees for leaf in tree.trajectories if written(leaf)[0]][:LOOKED_AT]
    size = len(tokenizer)
    differ = 0
    for leaf in leaves:
        tokens, text = written(leaf)
        inside = all(0 <= token < size for token in tokens)
        differ += not inside or tokenizer.decode(tokens, skip_special_tokens=True) != text
    if 2 * differ > len(leaves):
        raise RecipeError(
            f"{what}: got tokens of another tokenizer: by the model's own {differ} of {len(leaves)} trajectories have "
            "another text; allowed: trees that were recorded with the model's tokenizer"
        )


def written(leaf: Node) -> tuple[list[int], str]:
    """Tokens and text of the first run of tokens that the policy wrote in a trajectory."""
    node = next((node for node in leaf.path() if node.origin is Origin.POLICY and node.tokens), None)
    return ([], "") if node is None else (node.tokens, node.text)

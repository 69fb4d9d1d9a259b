"""Chains worked on two paths beside each other, then summed up: ``[37+8=45-2=43;37-2=35+8=43]43#43``.

``[`` opens a block, ``;`` parts its paths, ``]`` closes it, and the summary follows: the paper's tags <Parallel>,
<Path> and <Summary>, a character each. The second path applies the operations in reverse order, so that it is no copy
of the first.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from pydantic import Field

from lyceum.core.types import Task
from lyceum.tasks.chain import Chain, ChainSource, completion_text, results_of

OPEN, PART, CLOSE = "[", ";", "]"
_BLOCK = re.compile(r"\[([^][;]+(?:;[^][;]+)+)\](?=[^][;#])")
_MARKS = re.compile(r"[][;]")


class ChainParallel(Chain):
    """The tasks of kind ``chain``, some with a demonstration on two paths: for fine-tuning only."""

    kind: Literal["chain-parallel"] = "chain-parallel"  # pyright: ignore[reportIncompatibleVariableOverride]
    parallel: float = Field(default=0.5, ge=0, le=1)
    """Share of the demonstrations that have parallel paths (no unit); the others work the chain once."""

    def build(self, split: Literal["train", "heldout"], seed: int) -> ChainParallelSource:
        return ChainParallelSource(self, split, seed)


class ChainParallelSource(ChainSource):
    """What a demonstration says depends on the task's id alone."""

    def __getitem__(self, index: int) -> Task:
        task = super().__getitem__(index)
        settings = self.settings
        assert isinstance(settings, ChainParallel)
        if random.Random(f"{task.id}/parallel").random() >= settings.parallel:
            return task
        text = on_two_paths(int(task.columns["start"]), task.columns["operations"])
        return replace(task, columns={**task.columns, "demonstration": text})


def on_two_paths(start: int, operations: Sequence[int]) -> str:
    """A chain worked in its order and in the reverse one, the result that both have, and the answer."""
    paths = [worked(start, order) for order in (operations, operations[::-1])]
    result = results_of(start, operations)[-1]
    return f"{OPEN}{PART.join(paths)}{CLOSE}{result}#{result}"


def worked(start: int, operations: Sequence[int]) -> str:
    """``37+8=45-2=43``: a completion without its answer."""
    return completion_text(start, operations, results_of(start, operations)).partition("#")[0]


def blocks(text: str) -> list[list[str]] | None:
    """The paths of each block of a completion; None where a mark stands outside of a block of two paths or more that a
    summary follows."""
    if _MARKS.search(_BLOCK.sub("", text)):
        return None
    return [found.split(PART) for found in _BLOCK.findall(text)]


def ends_of(paths: Sequence[str]) -> list[str]:
    """What each path comes to: its last result."""
    return [path.rpartition("=")[2] for path in paths]

"""What flows through a step: groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lyceum.core.forest import Forest, build_forest
from lyceum.core.spans import Decode
from lyceum.core.tree import Tree
from lyceum.core.types import Constraint
from lyceum.utils.lazy_imports import torch

AGE = "age"
"""Column of a forest with recorded groups: ``Group.age`` of each token."""
START_LOGPROB = "start_logprob"
"""Column of a forest in which ``old_logprob`` of recorded tokens is that of their behaviour policy: the log-probability
at the start of the step (nats)."""
_NOTE = "replay"
"""Under which a recorded tree's ``metadata`` says its age, for files and tables."""


@dataclass(frozen=True)
class Group:
    """One task's trajectories, and what a step has to know of them.

    Attributes:
        weight: factor on its advantages, the curriculum's when it was sampled.
        age: steps since it was sampled, where a later step trains it again; 0 in the step that samples it.
        finished: False where some of its trajectories go on in the next step.
        dropped: whether the step samples it and does not train it.
        stored: whether the step trains nothing and only keeps it to be trained later.
    """

    tree: Tree
    weight: float = 1.0
    age: int = 0
    finished: bool = True
    dropped: bool = False
    stored: bool = False

    @property
    def sampled(self) -> bool:
        """Whether the step sampled it, or the rest of it."""
        return self.finished and not self.age

    @property
    def kept(self) -> bool:
        """Whether the step sampled it and does not drop it."""
        return self.sampled and not self.dropped

    @classmethod
    def read(cls, tree: Tree, weight: float, *, dropped: bool = False) -> Group:
        """A group that a file holds, as old as it was in the step that wrote it."""
        return cls(tree, weight, int(tree.metadata.get(_NOTE, {}).get("age", 0)), dropped=dropped)

    @classmethod
    def recorded(cls, tree: Tree, weight: float, age: int) -> Group:
        """A group of an earlier step, or of another run, that a step trains again."""
        tree.sampled_tokens = 0  # not by this step
        tree.metadata[_NOTE] = {"age": age}
        return cls(tree, weight, age)


def flatten(
    groups: Sequence[Group],
    *,
    decode: Decode | None = None,
    temperature: float = 1.0,
    constraint: Constraint | None = None,
    steps: bool = True,
) -> Forest:
    """The forest of groups that a step trains (see :func:`~lyceum.core.forest.build_forest`): their weights, rows of
    trajectories that are not finished, and each token's age where some group was recorded."""
    forest = build_forest(
        [group.tree for group in groups],
        decode=decode,
        weights=[group.weight for group in groups],
        temperature=temperature,
        constraint=constraint,
        unfinished=not all(group.finished for group in groups),
        steps=steps,
    )
    ages = [group.age for group in groups]
    return forest.with_columns(**{AGE: torch.tensor(ages, dtype=torch.float32)[forest.tree]}) if any(ages) else forest

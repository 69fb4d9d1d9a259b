"""The forest: many token trees as flat tensors, each token that several trajectories share stored once.

Sharing is by token and not by node: two samples of one prompt that begin alike are one run of tokens up to where they
part, whatever nodes the rollout grew them in. Cost then follows the unique tokens, and ``rows()`` lays each trajectory
out again for whoever thinks in rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import nan
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lyceum.tree import Node, Tree
from lyceum.types import Grade, Origin
from lyceum.utils.numbers import LARGE


@dataclass(frozen=True)
class Rows:
    """Where each trajectory's tokens are: (R, L), padded on the right.

    Attributes:
        index: unique token at each place of each row; 0 where the row has ended, so that it can always gather.
        present: False where the row has ended.
    """

    index: Int[Tensor, "R L"]
    present: Bool[Tensor, "R L"]

    def gather(self, of_token: Tensor, fill: float = 0) -> Tensor:
        """(T,) values of unique tokens -> (R, L) values along the rows, ``fill`` past each row's end."""
        return of_token[self.index].masked_fill(~self.present, fill)


@dataclass(frozen=True)
class Forest:
    """Token trees, flat: T unique tokens, R rows (trajectories), S segments. A parent stands before its children.

    Attributes:
        token: token ids.
        parent: the token before, ROOT for the first of a prompt; parent[t] < t.
        position: number of tokens above, which is the position id.
        tree: which tree a token belongs to, never decreasing.
        origin: :class:`~lyceum.types.Origin` of each token.
        behaviour_logprob: nats, of the distribution drawn from; nan where the policy did not write.
        version: of the weights a token was drawn under; NO_VERSION where the policy did not write.
        leaf: last token of each row. Equal for two rows that drew the same tokens; a row is a trajectory all the same.
        group: which rows are compared with each other; by default their tree.
        reward: outcome of each row, in the verifier's unit; float64 where one is too large for float32's squares.
        correct: 1 right, 0 wrong, nan where no grader says.
        weight: multiplies each row's advantages (a curriculum's).
        segment_row, segment_node, segment_start, segment_end: each row's passes through nodes, in order: positions
            [start, end) of the row belong to that node. Nodes are numbered within the forest, parents first.
        segment_reward: process reward of each segment, nan where nothing judged it.
        segment_value: value of each segment's node, in the rollout's unit, nan where the rollout gave none.
        node_parent: (N,) node above, ROOT for prompts.
        columns: per-token values: ``old_logprob``, ``reference_logprob``, ``old_value``, which the learner adds, and
            ``grafted`` where some tokens were: True on those written under another prompt than their row's.
        temperature: that the rows were sampled at; the learner's log-probabilities are of logits / temperature.
    """

    ROOT: ClassVar[int] = -1
    NO_VERSION: ClassVar[int] = -1

    token: Int[Tensor, " T"]
    parent: Int[Tensor, " T"]
    position: Int[Tensor, " T"]
    tree: Int[Tensor, " T"]
    origin: Int[Tensor, " T"]
    behaviour_logprob: Float[Tensor, " T"]
    version: Int[Tensor, " T"]
    leaf: Int[Tensor, " R"]
    group: Int[Tensor, " R"]
    reward: Float[Tensor, " R"]
    correct: Float[Tensor, " R"]
    weight: Float[Tensor, " R"]
    segment_row: Int[Tensor, " S"]
    segment_node: Int[Tensor, " S"]
    segment_start: Int[Tensor, " S"]
    segment_end: Int[Tensor, " S"]
    segment_reward: Float[Tensor, " S"]
    segment_value: Float[Tensor, " S"]
    node_parent: Int[Tensor, " N"]
    columns: Mapping[str, Tensor] = field(default_factory=dict)
    temperature: float = 1.0

    @property
    def n_tokens(self) -> int:
        return len(self.token)

    @property
    def n_rows(self) -> int:
        return len(self.leaf)

    @property
    def row_length(self) -> Int[Tensor, " R"]:
        return self.position[self.leaf] + 1

    @property
    def shared(self) -> float:
        """Share of the rows' tokens that need no computation of their own: 1 - T / (tokens of all rows)."""
        total = int(self.row_length.sum())
        return 1 - self.n_tokens / total if total else 0.0

    def rows(self) -> Rows:
        """The index that lays each root-to-leaf path out as a row."""
        return self._rows

    @cached_property
    def _rows(self) -> Rows:
        length = self.row_length
        width = int(length.max()) if len(length) else 0
        index = torch.zeros(self.n_rows, width, dtype=torch.long)
        current = self.leaf.clone()
        # Walk all rows up together: as many steps as the longest row has tokens, each one gather for all rows.
        for _ in range(width):
            alive = current != self.ROOT
            row = alive.nonzero().squeeze(1)
            at = current[row]
            index[row, self.position[at]] = at
            current[row] = self.parent[at]
        present = torch.arange(width) < length[:, None]
        return Rows(index, present)

    def trainable(self, rows: Rows, origins: tuple[Origin, ...] = (Origin.POLICY,)) -> Bool[Tensor, "R L"]:
        """Tokens of these origins, by default what the policy wrote; never a row's first, which nothing predicts."""
        origin = rows.gather(self.origin, fill=int(Origin.PROMPT))
        mask = torch.isin(origin, torch.tensor([int(o) for o in origins])) & rows.present
        mask[:, :1] = False
        return mask

    def select(self, chosen: Int[Tensor, " r"]) -> Forest:
        """The forest of some rows alone: tokens and segments that none of them passes are dropped, order stays.

        Node, tree and group numbers keep their meaning (they are not renumbered), so that parts of one forest compare.
        """
        keep = torch.zeros(self.n_tokens, dtype=torch.bool)
        rows = self.rows()
        keep[rows.index[chosen][rows.present[chosen]]] = True
        kept = keep.nonzero().squeeze(1)
        new_index = torch.full((self.n_tokens + 1,), self.ROOT)  # the last entry answers for ROOT
        new_index[kept] = torch.arange(len(kept))
        new_row = torch.full((self.n_rows,), -1)
        new_row[chosen] = torch.arange(len(chosen))
        segments = (new_row[self.segment_row] >= 0).nonzero().squeeze(1)
        segments = segments[torch.argsort(new_row[self.segment_row[segments]], stable=True)]
        return replace(
            self,
            token=self.token[kept],
            parent=new_index[self.parent[kept]],
            position=self.position[kept],
            tree=self.tree[kept],
            origin=self.origin[kept],
            behaviour_logprob=self.behaviour_logprob[kept],
            version=self.version[kept],
            leaf=new_index[self.leaf[chosen]],
            group=self.group[chosen],
            reward=self.reward[chosen],
            correct=self.correct[chosen],
            weight=self.weight[chosen],
            segment_row=new_row[self.segment_row[segments]],
            segment_node=self.segment_node[segments],
            segment_start=self.segment_start[segments],
            segment_end=self.segment_end[segments],
            segment_reward=self.segment_reward[segments],
            segment_value=self.segment_value[segments],
            columns={name: value[kept] for name, value in self.columns.items()},
        )

    @cached_property
    def first_row(self) -> Int[Tensor, " T"]:
        """The first row that passes each token. What a row owns this way is a suffix of its path: the tokens that rows
        before it pass are a prefix of it."""
        rows = self.rows()
        row = torch.arange(self.n_rows)[:, None].expand_as(rows.index)[rows.present]
        first = torch.full((self.n_tokens,), self.n_rows)
        return first.scatter_reduce(0, rows.index[rows.present], row, "amin")

    @property
    def owned(self) -> Int[Tensor, " R"]:
        """How many tokens each row owns: those that no row before it passes."""
        return torch.bincount(self.first_row, minlength=self.n_rows)

    def with_columns(self, **columns: Tensor) -> Forest:
        return replace(self, columns={**self.columns, **columns})

    def is_ancestor(self, above: Int[Tensor, " k"], below: Int[Tensor, " k"]) -> Bool[Tensor, " k"]:
        """Whether token ``above[i]`` stands on the path that ends in ``below[i]``, itself included."""
        current = below.clone()
        while bool((moving := (current != self.ROOT) & (self.position[current] > self.position[above])).any()):
            current = torch.where(moving, self.parent[current], current)
        return current == above


@dataclass
class _Builder:
    """Collects unique tokens of one tree after another. Plain lists: trees are ragged and small, tensors come last."""

    token: list[int] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)
    position: list[int] = field(default_factory=list)
    tree: list[int] = field(default_factory=list)
    origin: list[int] = field(default_factory=list)
    behaviour_logprob: list[float] = field(default_factory=list)
    version: list[int] = field(default_factory=list)
    grafted: list[bool] = field(default_factory=list)
    below: dict[tuple[int, int, int, int, float, bool], int] = field(default_factory=dict)

    def insert(self, tree: int, parent: int, node: Node) -> int:
        """Walk or grow the trie by one node's tokens; returns the last token's index."""
        written = node.origin == Origin.POLICY and bool(node.behaviour_logprob)
        for i, token in enumerate(node.tokens):
            logprob = node.behaviour_logprob[i] if written else 0.0
            version = node.version[i] if written else Forest.NO_VERSION
            # Tokens are one only where everything about them is. An engine that computes samples apart gives
            # log-probabilities that differ in the last bits: those stay apart here too.
            key = (parent if parent >= 0 else -1 - tree, token, int(node.origin), version, logprob, node.grafted)
            index = self.below.get(key)
            if index is None:
                index = self.below[key] = len(self.token)
                self.token.append(token)
                self.position.append(self.position[parent] + 1 if parent >= 0 else 0)
                self.parent.append(parent)
                self.tree.append(tree)
                self.origin.append(int(node.origin))
                self.behaviour_logprob.append(logprob if written else float("nan"))
                self.version.append(version)
                self.grafted.append(node.grafted)
            parent = index
        return parent


def build_forest(
    trees: Sequence[Tree], *, weights: Sequence[float] | None = None, temperature: float = 1.0, graded: bool = True
) -> Forest:
    """Lay finished trees flat. Rows are the trees' graded trajectories, in order; ungraded ones are left out.

    Args:
        trees: in the order the curriculum drew them.
        weights: what the curriculum multiplies each tree's advantages by; 1 when None.
        temperature: that the trees were sampled at.
        graded: False for demonstrations, of which nobody has asked for a grade: every trajectory is a row, its reward
            nan.
    Returns:
        A forest on the CPU whose groups are the trees.
    Raises:
        ValueError: a trajectory has no tokens.
    """
    builder = _Builder()
    node_number: dict[int, int] = {}
    node_parent: list[int] = []
    leaf: list[int] = []
    group: list[int] = []
    reward: list[float] = []
    correct: list[float] = []
    weight: list[float] = []
    segments: list[tuple[int, int, int, int, float, float]] = []
    for t, tree in enumerate(trees):
        end_of: dict[int, int] = {}
        of_tree = tree.graded_with_outcome() if graded else ((leaf, Grade(None), nan) for leaf in tree.trajectories)
        for trajectory, grade, outcome in of_tree:
            place = Forest.ROOT
            start = 0
            row = len(leaf)
            steps = dict(grade.steps)
            prompt_length = len(trajectory.path()[0].tokens)
            for node in trajectory.path():
                if id(node) not in node_number:
                    node_number[id(node)] = len(node_parent)
                    node_parent.append(node_number[id(node.parent)] if node.parent is not None else Forest.ROOT)
                if id(node) not in end_of:
                    end_of[id(node)] = builder.insert(t, place, node)
                place = end_of[id(node)]
                value = float("nan") if node.value is None else node.value
                # A judged step ends inside a node: cut the node's segment there, so that a segment has one reward.
                for cut, judged in _cuts(start, start + len(node.tokens), prompt_length, steps):
                    segments.append((row, node_number[id(node)], start, cut, judged, value))
                    start = cut
            if place == Forest.ROOT:
                raise ValueError(f"task {tree.task.id!r}: a trajectory without tokens")
            leaf.append(place)
            group.append(t)
            reward.append(outcome)
            correct.append(float("nan") if grade.verdict is None else float(grade.verdict))
            weight.append(1.0 if weights is None else weights[t])
    column = list(zip(*segments, strict=True)) or [()] * 6
    ints, floats = torch.long, torch.float32
    return Forest(
        token=torch.tensor(builder.token, dtype=ints),
        parent=torch.tensor(builder.parent, dtype=ints),
        position=torch.tensor(builder.position, dtype=ints),
        tree=torch.tensor(builder.tree, dtype=ints),
        origin=torch.tensor(builder.origin, dtype=ints),
        behaviour_logprob=torch.tensor(builder.behaviour_logprob, dtype=floats),
        version=torch.tensor(builder.version, dtype=ints),
        leaf=torch.tensor(leaf, dtype=ints),
        group=torch.tensor(group, dtype=ints),
        reward=_floats(reward),
        correct=torch.tensor(correct, dtype=floats),
        weight=torch.tensor(weight, dtype=floats),
        segment_row=torch.tensor(column[0], dtype=ints),
        segment_node=torch.tensor(column[1], dtype=ints),
        segment_start=torch.tensor(column[2], dtype=ints),
        segment_end=torch.tensor(column[3], dtype=ints),
        segment_reward=_floats(column[4]),
        segment_value=_floats(column[5]),
        node_parent=torch.tensor(node_parent, dtype=ints),
        columns={"grafted": torch.tensor(builder.grafted)} if any(builder.grafted) else {},
        temperature=temperature,
    )


def _floats(values: Sequence[float]) -> Tensor:
    """float32, or float64 where a number is so large that float32 could not hold it, or its square."""
    large = any(abs(value) > LARGE for value in values)
    return torch.tensor(values, dtype=torch.float64 if large else torch.float32)


def _cuts(start: int, end: int, prompt: int, steps: Mapping[int, float]) -> list[tuple[int, float]]:
    """Ends of the segments that positions [start, end) fall into, each with its step's reward (nan: not judged)."""
    inside = [(prompt + at, value) for at, value in sorted(steps.items()) if start < prompt + at <= end]
    if not inside or inside[-1][0] < end:
        inside.append((end, float("nan")))
    return inside

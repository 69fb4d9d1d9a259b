"""The forest: many token trees as flat tensors, each token that several trajectories share stored once.

Sharing is by token, not by node: two samples of one prompt with a common prefix share one run of tokens up to where
they diverge, whatever nodes the rollout drew them in. Cost then follows the unique tokens, and ``rows()`` lays each
trajectory out again for code that works on rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from math import isnan, nan
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from numpy.typing import NDArray

from lyceum.core._token_trie import NO_VERSION, ROOT, TokenTrie
from lyceum.core.spans import Decode, TokenEnds, earned_at, token_span
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Choices, Constraint, Grade, JudgedStep, Origin
from lyceum.utils.lazy_imports import Tensor, torch

EXPERTS = "experts"
"""Column of a forest: (T, choices) of each token, the experts that the one before it went to as the engine drew it, one
router's after another's; -1 where that is not known (``Node.experts``)."""


@dataclass(frozen=True)
class Rows:
    """Where each trajectory's tokens are: (R, L), padded on the right.

    Attributes:
        index: unique token at each position of each row; 0 past the row's end, so that it can always gather.
        present: False where the row has ended.
    """

    index: Int[Tensor, "R L"]
    present: Bool[Tensor, "R L"]

    def gather(self, of_token: Tensor, fill: float = 0) -> Tensor:
        """(T,) or (T, n) values of unique tokens -> (R, L) or (R, L, n) along the rows, ``fill`` past a row's end."""
        present = self.present.view(*self.present.shape, *(1 for _ in of_token.shape[1:]))
        return of_token[self.index].masked_fill(~present, fill)


@dataclass(frozen=True)
class Forest:
    """Token trees, flat: T unique tokens, R rows (trajectories), S segments. A parent stands before its children.

    Attributes:
        token: token ids.
        parent: the token before, ROOT for the first of a prompt; parent[t] < t.
        position: number of tokens above, which is the position id.
        tree: which tree a token belongs to, never decreasing.
        origin: :class:`~lyceum.core.types.Origin` of each token.
        behaviour_logprob: nats, of the distribution drawn from; nan where the policy did not write.
        version: of the weights a token was drawn under; NO_VERSION where the policy did not write.
        leaf: last token of each row. Two rows that drew the same tokens have the same leaf and stay separate rows.
        group: which rows are compared with each other: those of one tree, of one role in it, and of one prompt where
            prompts are marked (``Node.key``).
        reward: outcome of each row, in the verifier's unit; float64 where a square would overflow float32; nan where
            the trajectory goes on in the next step, or is a demonstration.
        correct: 1 correct, 0 incorrect, nan where no grader says.
        parts: the named summands of each row's reward before weighting (``Grade.parts``); nan where one abstained.
        weight: multiplies each row's advantages (a curriculum's).
        segment_row, segment_node, segment_start, segment_end: each row's passes through nodes, in order: positions
            [start, end) of the row belong to that node. Nodes are numbered within the forest, parents first.
        segment_reward: process reward of each segment, nan where it was not judged.
        segment_value: value of each segment's node, in the rollout's unit, nan where the rollout gave none.
        node_parent: (N,) node above, ROOT for prompts.
        node_key: key of each marked node (``Node.key``); None where none is marked.
        columns: per-token values, (T,) or (T, n), which the learner adds, named after the model that they are computed
            with: ``old_logprob``, ``reference_logprob``, ``teacher_logprob``, ``old_value``, ...; and ``grafted`` where
            some tokens were sampled off-prompt: True on those written under another prompt; and ``model`` where
            another model than the first wrote some: ``Node.model`` of each token; and ``age`` where some groups are
            recorded (``core/group.py``); and ``experts`` where the engine recorded some.
        temperature: sampling temperature of the rows; the learner's log-probabilities are of logits / temperature.
        constraint: what the policy's tokens were sampled under; the learner's distributions of them are over the tokens
            that it allows. None without one.
        role: role that each row's last node was written in; None where there are no roles.
        episode: which rows are one episode (``Node.others``), numbered in their order. They have one reward, and what
            is counted or compared by trajectories takes an episode once, by its last row. None where each row is one.
        repeated: how many of a row's first tokens earlier rows of its episode have, and train; None with ``episode``.
        truncated: rows of episodes that a token limit ended.
        untrained: rows that nothing is trained on, though credit compared them; None where all are.
    """

    ROOT: ClassVar[int] = ROOT
    NO_VERSION: ClassVar[int] = NO_VERSION

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
    columns: Mapping[str, Shaped[Tensor, "T ..."]] = field(default_factory=dict)
    temperature: float = 1.0
    node_key: Mapping[int, str] | None = None
    constraint: Constraint | None = None
    role: Sequence[str] | None = None
    parts: Mapping[str, Float[Tensor, " R"]] = field(default_factory=dict)
    episode: Int[Tensor, " R"] | None = None
    repeated: Int[Tensor, " R"] | None = None
    truncated: Bool[Tensor, " R"] | None = None
    untrained: Bool[Tensor, " R"] | None = None

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
        """Fraction of the rows' tokens that sharing saves: 1 - T / (tokens of all rows)."""
        total = int(self.row_length.sum())
        return 1 - self.n_tokens / total if total else 0.0

    def rows(self) -> Rows:
        """The index that lays each root-to-leaf path out as a row."""
        return self._rows

    @cached_property
    def _rows(self) -> Rows:
        length = self.row_length
        width = int(length.max()) if len(length) else 0
        token = torch.arange(self.n_tokens)
        # Runs are spans in which each token's parent is the token before: there, index minus position is constant, and
        # down a row it grows from run to run. Walk all rows up together, one run at a time.
        first_of_run = torch.where(self.parent == token - 1, 0, token).cummax(0).values
        index = torch.zeros(self.n_rows, width, dtype=torch.long)
        row, last = torch.arange(self.n_rows), self.leaf
        while len(row):
            first = first_of_run[last]
            index[row, self.position[first]] = first - self.position[first]
            above = self.parent[first]
            row, last = row[above != self.ROOT], above[above != self.ROOT]
        place = torch.arange(width)
        present = place < length[:, None]
        np.maximum.accumulate(index.numpy(), axis=1, out=index.numpy())
        return Rows(index.add_(place).masked_fill_(~present, 0), present)

    def trainable(self, rows: Rows, origins: tuple[Origin, ...] = (Origin.POLICY,)) -> Bool[Tensor, "R L"]:
        """Tokens of these origins, by default the policy's; never a row's first, which nothing predicts, once in each
        episode, and none of ``untrained`` rows."""
        origin = rows.gather(self.origin, fill=int(Origin.PROMPT))
        mask = torch.isin(origin, torch.tensor([int(o) for o in origins])) & self.counted(rows)
        mask[:, :1] = False
        return mask if self.untrained is None else mask & ~self.untrained[:, None]

    def counted(self, rows: Rows) -> Bool[Tensor, "R L"]:
        """The tokens of each row, but for those that an earlier row of its episode has."""
        if self.repeated is None:
            return rows.present
        return rows.present & (torch.arange(rows.index.shape[1]) >= self.repeated[:, None])

    @property
    def episode_rows(self) -> Int[Tensor, " E"]:
        """The row that stands for each episode, its last, which was graded."""
        row = torch.arange(self.n_rows)
        if self.episode is None:
            return row
        return row[torch.cat([self.episode.diff() != 0, torch.ones(min(1, self.n_rows), dtype=torch.bool)])]

    def over_episode(self, of_row: Shaped[Tensor, "R ..."]) -> Shaped[Tensor, "R ..."]:
        """Each row's value replaced by the sum over the rows of its episode."""
        return of_row if self.episode is None else sum_over(of_row, self.episode)

    def select(self, chosen: Int[Tensor, " r"]) -> Forest:
        """The forest of some rows alone: tokens and segments that none of them passes are dropped, order is kept.

        Nodes, trees and groups are not renumbered, so that parts of one forest can be compared.
        """
        keep = torch.zeros(self.n_tokens, dtype=torch.bool)
        rows = self.rows()
        keep[rows.index[chosen][rows.present[chosen]]] = True
        kept = keep.nonzero().squeeze(1)
        new_index = torch.full((self.n_tokens + 1,), self.ROOT)  # the last entry is for ROOT
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
            role=None if self.role is None else [self.role[row] for row in chosen.tolist()],
            parts={name: value[chosen] for name, value in self.parts.items()},
            episode=None if self.episode is None else self.episode[chosen],
            repeated=None if self.repeated is None else self.repeated[chosen],
            truncated=None if self.truncated is None else self.truncated[chosen],
            untrained=None if self.untrained is None else self.untrained[chosen],
        )

    def written_by(self, model: int) -> WrittenPart:
        """What one of several models wrote: its rows, in which the others' tokens are context, as a prompt's are."""
        wrote = self.columns.get("model", torch.zeros_like(self.token))
        others = (self.origin == int(Origin.POLICY)) & (wrote != model)
        own = replace(
            self,
            origin=self.origin.masked_fill(others, int(Origin.PROMPT)),
            columns={name: column for name, column in self.columns.items() if name != "model"},
        )
        rows, layout = own.trainable(self.rows()).any(1).nonzero().squeeze(1), self.rows()
        tokens = layout.index[rows][layout.present[rows]].unique()
        return WrittenPart(own.select(rows), rows, tokens)

    @cached_property
    def first_row(self) -> Int[Tensor, " T"]:
        """The first row that passes each token. The tokens that a row owns this way are a suffix of its path: those
        that earlier rows pass are a prefix of it."""
        rows = self.rows()
        row = torch.arange(self.n_rows)[:, None].expand_as(rows.index)[rows.present]
        first = torch.full((self.n_tokens,), self.n_rows)
        return first.scatter_reduce(0, rows.index[rows.present], row, "amin")

    @property
    def owned(self) -> Int[Tensor, " R"]:
        """How many tokens each row owns: those that no earlier row passes."""
        return torch.bincount(self.first_row, minlength=self.n_rows)

    def without_truncated(self) -> Forest:
        """The same rows, of which the truncated ones are not trained."""
        return replace(self, untrained=self.truncated)

    def with_columns(self, **columns: Tensor) -> Forest:
        return replace(self, columns={**self.columns, **columns})


@dataclass(frozen=True)
class WrittenPart:
    """A model's part of a forest.

    Attributes:
        forest: of its rows alone.
        rows, tokens: which of the whole forest's they are, in order.
    """

    forest: Forest
    rows: Int[Tensor, " r"]
    tokens: Int[Tensor, " t"]


def build_forest(
    trees: Sequence[Tree],
    *,
    decode: Decode | None = None,
    weights: Sequence[float] | None = None,
    temperature: float = 1.0,
    constraint: Constraint | None = None,
    graded: bool = True,
    unfinished: bool = False,
    steps: bool = True,
) -> Forest:
    """Lay trees flat. Rows are the trees' graded trajectories, in order, each after the other leaves of its episode;
    ungraded ones are left out.

    Args:
        trees: in the order the curriculum drew them.
        decode: of the texts' tokenizer, to find the tokens of judged steps; needed where there are any.
        weights: what the curriculum multiplies each tree's advantages by; 1 when None.
        temperature, constraint: that the trees were sampled at, and under.
        graded: False for demonstrations, which are not graded: every trajectory is a row, its reward nan.
        unfinished: trajectories that go on in the next step are rows too, their reward nan.
        steps: False leaves judged steps out, where nothing reads them.
    Returns:
        A forest on the CPU.
    Raises:
        ValueError: a trajectory has no tokens, or judged steps without ``decode``.
    """
    token_ends: TokenEnds | None = None
    trie = TokenTrie()
    number: dict[int, int] = {}
    node_parent: list[int] = []
    node_end: list[int] = []  # how many tokens a path to each node has, the node's own included
    node_value: list[float] = []
    node_key: dict[int, str] = {}
    passed: list[int] = []  # the nodes of each row's path, one row after another
    passes: list[int] = []  # how many they are
    judged: list[tuple[int, int, float]] = []
    routed: list[tuple[int, int, Choices]] = []  # of a row, from this position on
    leaf: list[int] = []
    episode: list[int] = []
    episodes = 0
    group: list[int] = []
    role: list[str] = []
    reward: list[float] = []
    correct: list[float] = []
    parts: list[Mapping[str, float]] = []
    weight: list[float] = []
    truncated: list[bool] = []
    for t, tree in enumerate(trees):
        end_of: dict[int, int] = {}
        compared: dict[tuple[str, str | None], int] = {}
        of_tree = tree.graded_with_outcome() if graded else _without_grade(tree.trajectories)
        ended = chain(of_tree, _without_grade(tree.unfinished) if unfinished else ())
        for trajectory, end, grade, outcome in ((row, *of_row) for of_row in ended for row in of_row[0].episode):
            path = trajectory.path()
            place, above, length = Forest.ROOT, Forest.ROOT, 0
            for node in path:
                n = number.setdefault(id(node), len(number))
                if n == len(node_parent):
                    node_parent.append(above)
                    node_end.append(length + len(node.tokens))
                    node_value.append(float("nan") if node.value is None else node.value)
                    if node.key is not None:
                        node_key[n] = node.key
                    if len(node.experts):
                        routed.append((len(leaf), length, node.experts))
                if n not in end_of:
                    end_of[n] = trie.insert(t, place, length, node)
                place, above, length = end_of[n], n, node_end[n]
                passed.append(n)
            if place == Forest.ROOT:
                raise ValueError(f"task {tree.task.id!r}: a trajectory without tokens")
            if steps and grade.steps and trajectory is end:
                if decode is None:
                    raise ValueError(f"task {tree.task.id!r}: judged steps without the decode function of their text")
                token_ends = TokenEnds(decode) if token_ends is None else token_ends
                marks = _marks(grade.steps, token_ends.of(trajectory), len(path[0].tokens))
                judged += [(len(leaf), position, value) for position, value in sorted(marks.items())]
            passes.append(len(path))
            leaf.append(place)
            episode.append(episodes)
            episodes += trajectory is end
            # The first is numbered as its tree, so that groups are the trees where nothing divides them.
            number_in_tree = compared.setdefault((end.role, end.root.key), len(compared))
            group.append(t + len(trees) * number_in_tree)
            role.append(trajectory.role)
            reward.append(outcome)
            correct.append(float("nan") if grade.verdict is None else float(grade.verdict))
            parts.append(grade.parts)
            truncated.append(end.finish == "length")
            weight.append(1.0 if weights is None else weights[t])
    columns = {name: torch.from_numpy(column) for name, column in trie.columns().items()}
    grafted, model = columns.pop("grafted"), columns.pop("model")
    row, node = np.repeat(np.arange(len(leaf)), passes), np.array(passed, np.int64)
    end, value = np.array(node_end, np.int64), np.array(node_value, np.float64)
    ints, floats = torch.long, torch.float32
    forest = Forest(
        **columns,
        leaf=torch.tensor(leaf, dtype=ints),
        group=torch.tensor(group, dtype=ints),
        reward=torch.tensor(reward, dtype=floats),
        correct=torch.tensor(correct, dtype=floats),
        weight=torch.tensor(weight, dtype=floats),
        **_segments(row, node, end[node], value[node], judged),
        node_parent=torch.tensor(node_parent, dtype=ints),
        columns={name: column for name, column in (("grafted", grafted), ("model", model)) if column.any()},
        temperature=temperature,
        node_key=node_key or None,
        constraint=constraint,
        role=role if any(role) else None,
        truncated=torch.tensor(truncated, dtype=torch.bool),
        parts={
            name: torch.tensor([of.get(name, nan) for of in parts], dtype=floats)
            for name in dict.fromkeys(name for of in parts for name in of)
        },
    )
    if routed:
        forest = _with_experts(forest, routed)
    return forest if episodes == len(leaf) else _with_episodes(forest, torch.tensor(episode))


def _with_experts(forest: Forest, routed: Sequence[tuple[int, int, Choices]]) -> Forest:
    """A forest some of whose tokens have recorded experts: (row, first position, experts of the tokens from there)."""
    index, width = forest.rows().index, max(experts.shape[1] for _, _, experts in routed)
    column = torch.full((forest.n_tokens, width), -1, dtype=torch.int16)
    for row, start, experts in routed:
        if experts.shape[1] != width:
            raise ValueError(f"groups of a step have {experts.shape[1]} and {width} recorded experts per token")
        column[index[row, start : start + len(experts)]] = torch.from_numpy(experts)
    return forest.with_columns(**{EXPERTS: column})


def _with_episodes(forest: Forest, episode: Int[Tensor, " R"]) -> Forest:
    """A forest in which some episodes have several rows."""
    rows = forest.rows()
    row = torch.arange(forest.n_rows)[:, None].expand_as(rows.index)
    of_episode = (episode[:, None] * forest.n_tokens + rows.index)[rows.present]
    number = of_episode.unique(return_inverse=True)[1]
    first = torch.full((len(number),), forest.n_rows).scatter_reduce(0, number, row[rows.present], "amin")[number]
    # Those that earlier rows pass are a prefix of a row's path.
    again = torch.zeros_like(rows.present).masked_scatter(rows.present, first < row[rows.present])
    return replace(forest, episode=episode, repeated=again.sum(1))


def sum_over(value: Shaped[Tensor, "R ..."], number: Int[Tensor, " R"]) -> Shaped[Tensor, "R ..."]:
    """Each row's value replaced by the sum over all rows of its number."""
    size = int(number.max()) + 1 if len(number) else 0
    return value.new_zeros(size, *value.shape[1:]).index_add(0, number, value)[number]


def _without_grade(leaves: Sequence[Node]) -> Iterator[tuple[Node, Grade, float]]:
    for leaf in leaves:
        yield leaf, Grade(None), nan


def _marks(steps: Sequence[JudgedStep], ends: Sequence[int], prompt: int) -> dict[int, float]:
    """Positions of a row where its judged steps begin (nan) or end (reward; of those that end together, the sum).

    Args:
        ends: of :class:`~lyceum.core.spans.TokenEnds`.
        prompt: tokens of the row's prompt.
    """
    marks: dict[int, float] = {}
    for start, stop, reward in steps:
        own = token_span(ends, start, stop)
        marks.setdefault(prompt + own.start, nan)
        end = prompt + earned_at(ends, own, stop)
        marks[end] = reward if isnan(marks.get(end, nan)) else marks[end] + reward
    marks.pop(0, None)  # without a prompt a step may begin where the row does
    return marks


def _segments(
    row: NDArray[Any],
    node: NDArray[Any],
    end: NDArray[Any],
    value: NDArray[Any],
    judged: Sequence[tuple[int, int, float]],
) -> dict[str, Tensor]:
    """The (S,) tensors of a forest's segments, by name.

    Where a judged step begins or ends inside a node its segment is split there, so that a segment has one reward.

    Args:
        row, node, end, value: of each pass of a row through a node, in order; nan where the node has no value.
        judged: (row, position, reward) of each end of a judged step, nan for beginnings, in order; no position is past
            its row's end.
    """
    reward = np.full(len(row), np.nan)
    if judged:
        step_row, step_end, step_reward = (np.array(column) for column in zip(*judged, strict=True))
        width = end.max() + 1  # so that row * width + end grows along the rows and from one to the next
        place = np.searchsorted(row * width + end, step_row * width + step_end)
        whole = end[place] == step_end
        reward[place[whole]] = step_reward[whole]
        place, step_end, step_reward = place[~whole], step_end[~whole], step_reward[~whole]
        row, node, value = (np.insert(column, place, column[place]) for column in (row, node, value))
        end, reward = np.insert(end, place, step_end), np.insert(reward, place, step_reward)
    start = np.where(np.diff(row, prepend=-1) > 0, 0, np.roll(end, 1))
    return {
        "segment_row": torch.from_numpy(row),
        "segment_node": torch.from_numpy(node),
        "segment_start": torch.from_numpy(start),
        "segment_end": torch.from_numpy(end),
        "segment_reward": torch.from_numpy(reward).float(),
        "segment_value": torch.from_numpy(value).float(),
    }

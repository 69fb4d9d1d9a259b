"""A step's trees as one file, written and read again whole: parquet, a row per tree, its nodes a list in the row.

Tokens and log-probabilities are arrays; what tasks, graders and components say of them is JSON. Everything comes back
equal, log-probabilities bit for bit; a component's own objects (metadata, stats, columns) come back as plain values,
but for notes (``core/notes.py``).

This is format 3, and the one that is written. Format 2 is read too (``run/_format_2.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet

from lyceum.core.group import Group
from lyceum.core.notes import restored
from lyceum.core.tree import Node, Tree, as_episode
from lyceum.core.types import Grade, Hint, JudgedStep, Origin, Task, no_choices
from lyceum.core.user_files import user_file
from lyceum.run._format_2 import row_3, schema_2
from lyceum.run.codec import decode, encode
from lyceum.run.rollout_table import as_parquet
from lyceum.utils.numbers import plain, python_number

FOLDER = "trees"
_PLAIN = frozenset((bool, int, float, str, bytes, type(None)))
_ADVICE = "allowed: the file as the run wrote it"
_FORMAT, _WRITTEN, _OLDER = b"lyceum.trees", b"3", b"2"
"""What a file says about itself."""


@dataclass(frozen=True)
class Heading:
    """Which step a file's trees are of.

    Attributes:
        step: of the run, from 1.
        stage: index of the stage.
        first_step: the run's step at which that stage began.
    """

    step: int
    stage: int
    first_step: int


_NO_STEP = Heading(0, 0, 0)


@dataclass(frozen=True)
class StepTrees:
    """All groups of one step, those that are trained in the order the forest is built from."""

    heading: Heading
    groups: Sequence[Group]

    @property
    def trained(self) -> list[Group]:
        """Those that were not dropped."""
        return [group for group in self.groups if not group.dropped]

    @property
    def trees(self) -> list[Tree]:
        """Of these."""
        return [group.tree for group in self.trained]


@dataclass(frozen=True)
class _Column:
    """How a field stands in the file."""

    type: pa.DataType
    write: Callable[[Any], Any] = lambda value: value
    read: Callable[[Any], Any] = lambda value: value


def _json(read: Callable[[Any], Any] = lambda value: value) -> _Column:
    """A column of JSON; null for None.

    Args:
        read: makes the object from its plain value.
    """
    return _Column(
        pa.string(),
        lambda value: None if value is None else encode(_plain(value))[0],
        lambda text: None if text is None else read(decode(text, {})),
    )


def _task(value: Mapping[str, Any]) -> Task:
    hint = value["hint"]
    return Task(**{**value, "hint": None if hint is None else Hint(**hint), "notes": restored(value["notes"])})


_TEXT = _Column(  # bytes: a dataset's text may hold halves of surrogate pairs, which a text column cannot
    pa.binary(), lambda text: text.encode("utf-8", "surrogatepass"), lambda text: text.decode("utf-8", "surrogatepass")
)

TREE: Mapping[str, _Column] = {
    "task": _json(_task),
    "metadata": _json(restored),
    "sampled_tokens": _Column(pa.int64()),
    "mean_abs_advantage": _Column(pa.float64()),
}
"""Fields of a Tree. Beside them stand ``nodes``; ``chosen``, numbers of nodes, all leaves of its episodes; and
``episode``, the number of each of these leaves' episode, which its last leaf stands for: null where each is its own."""


def _grade(value: Mapping[str, Any]) -> Grade:
    return Grade(**{**value, "steps": tuple(JudgedStep(*step) for step in value["steps"])})


def _node(logprob: pa.DataType) -> dict[str, _Column]:
    """Fields of a Node. Beside them stand ``parent``, its number, and ``attached``.

    Args:
        logprob: type of a log-probability.
    """
    return {
        "tokens": _Column(pa.list_(pa.int64())),
        "origin": _Column(pa.int8(), int, Origin),
        "behaviour_logprob": _Column(pa.list_(logprob)),
        "model_logprob": _Column(pa.list_(logprob)),  # null: the same as behaviour_logprob
        "version": _Column(pa.list_(pa.int32())),
        "finish": _Column(pa.string()),
        "text": _TEXT,
        "grafted": _Column(pa.bool_()),
        "address": _Column(pa.int64()),
        "draws": _Column(pa.int32()),
        "grade": _json(_grade),
        "key": _Column(pa.string()),
        "reward": _Column(pa.float64()),
        "value": _Column(pa.float64()),
        "role": _Column(pa.string()),
        "model": _Column(pa.int8()),
        "stats": _json(),
    }


_EXPERTS = _Column(
    pa.list_(pa.list_(pa.int16())),
    lambda experts: experts.tolist() if len(experts) else None,
    lambda rows: no_choices() if rows is None else np.array(rows, np.int16),
)
"""``Node.experts``, a column of those files alone in which some node has them."""
NODE = _node(pa.float32())
"""Fields of a Node; log-probabilities are float64 in a file that has some which float32 cannot hold."""


def write_trees(step: StepTrees) -> bytes:
    """At least one group as the content of a file."""
    return as_parquet(_table(step))


def _table(step: StepTrees) -> pa.Table:
    heading = _fields(step.heading)
    rows = [{**heading, "weight": of.weight, "dropped": of.dropped, **_row(of.tree)} for of in step.groups]
    nodes = [node for row in rows for node in row["nodes"]]
    logprobs = [node[name] or () for node in nodes for name in ("behaviour_logprob", "model_logprob")]
    routed = any(node["experts"] for node in nodes)
    schema = _schema(pa.float32() if _float32_holds(logprobs) else pa.float64(), experts=routed)
    return pa.Table.from_pylist(rows, schema=schema)


def read_trees(file: Path) -> StepTrees:
    """The trees that a file holds.

    Raises:
        RecipeError: it cannot be read, or is not what a run wrote.
    """
    with user_file("trees", file, _ADVICE):
        return _read(_rows(file))


def _read(rows: Sequence[Mapping[str, Any]]) -> StepTrees:
    return StepTrees(_heading(rows), list(map(_group, rows)))


def read_some(file: Path, rows: Sequence[int]) -> list[Group]:
    """Groups that a file holds, by their places in it; no others become objects.

    Raises:
        RecipeError: it cannot be read, is not what a run wrote, or has no such place.
    """
    with user_file("trees", file, _ADVICE):
        return [_group(row) for row in _rows(file, places=rows)]


def dump_groups(groups: Sequence[Group]) -> bytes | None:
    """Groups for a checkpoint, which ``load_groups`` reads; None for none."""
    return write_trees(StepTrees(_NO_STEP, groups)) if groups else None


def load_groups(content: bytes | None) -> list[Group]:
    return [] if content is None else list(_read(_rows(BytesIO(content))).groups)


def pack_trees(trees: Sequence[Tree]) -> bytes:
    """Trees for a message, which ``unpack_trees`` reads: a stream of Arrow's, which takes a fifth of the time of
    parquet where trees come one by one. Empty for none."""
    if not trees:
        return b""
    table = _table(StepTrees(_NO_STEP, [Group(tree) for tree in trees]))
    content = BytesIO()
    with pa.ipc.new_stream(content, table.schema) as stream:
        stream.write_table(table)
    return content.getvalue()


def unpack_trees(content: bytes) -> list[Tree]:
    if not content:
        return []
    with pa.ipc.open_stream(content) as stream:
        return list(map(_tree, stream.read_all().to_pylist()))


def dump_task(task: Task) -> str:
    """A task as text, which ``load_task`` reads."""
    return TREE["task"].write(task)


def load_task(text: str) -> Task:
    return TREE["task"].read(text)


def read_heading(file: Path) -> Heading:
    """Which step a file's trees are of, without reading them.

    Raises:
        RecipeError: it cannot be read, or is not what a run wrote.
    """
    with user_file("trees", file, _ADVICE):
        return _heading(_rows(file, [field.name for field in fields(Heading)]))


def _rows(
    file: Path | BytesIO, columns: list[str] | None = None, places: Sequence[int] | None = None
) -> list[dict[str, Any]]:
    schema = parquet.read_schema(file)
    found = (schema.metadata or {}).get(_FORMAT)
    if found not in (_WRITTEN, _OLDER):
        said = "without a format" if found is None else f"of format {found.decode(errors='replace')}"
        raise ValueError(f"{said}, not trees of format 3 or 2")
    both = pa.float32(), pa.float64()
    of_format = [_schema(logprob, experts=experts) for logprob in both for experts in (False, True)]
    if found == _OLDER:
        of_format = [schema_2(_schema(logprob)) for logprob in both]
    if not any(map(schema.equals, of_format)):
        raise ValueError("its columns are not those of trees")
    table = parquet.read_table(file, columns=columns, page_checksum_verification=True)
    rows = (table if places is None else table.take(list(places))).to_pylist()
    return list(map(row_3, rows)) if found == _OLDER and columns is None else rows


def _heading(rows: Sequence[Mapping[str, Any]]) -> Heading:
    return Heading(**{field.name: rows[0][field.name] for field in fields(Heading)})


def _schema(logprob: pa.DataType, *, experts: bool = False) -> pa.Schema:
    of_node = {"parent": pa.int32(), "attached": pa.bool_()} | {n: c.type for n, c in _node(logprob).items()}
    of_node |= {"experts": _EXPERTS.type} if experts else {}
    of_tree = {field.name: pa.int64() for field in fields(Heading)}
    of_tree |= {"weight": pa.float64(), "dropped": pa.bool_()} | {n: c.type for n, c in TREE.items()}
    nodes = pa.list_(pa.struct(list(of_node.items())))
    leaves = [("chosen", pa.list_(pa.int32())), ("episode", pa.list_(pa.int32()))]
    return pa.schema([*of_tree.items(), *leaves, ("nodes", nodes)], metadata={_FORMAT: _WRITTEN})


def _row(tree: Tree) -> dict[str, Any]:
    nodes = _nodes(tree)
    number = {id(node): i for i, node in enumerate(nodes)}
    attached = {id(node) for node in (*tree.roots, *(child for node in nodes for child in node.children))}
    several = any(leaf.others for leaf in tree.chosen or ())
    return {
        **{name: column.write(getattr(tree, name)) for name, column in TREE.items()},
        "chosen": None if tree.chosen is None else [number[id(leaf)] for leaf in _leaves(tree)],
        "episode": [i for i, leaf in enumerate(tree.chosen or ()) for _ in leaf.episode] if several else None,
        "nodes": [
            {
                "parent": None if node.parent is None else number[id(node.parent)],
                "attached": id(node) in attached,
                **{name: column.write(getattr(node, name)) for name, column in NODE.items()},
                "experts": _EXPERTS.write(node.experts),
                "model_logprob": None if _same_bits(node.model_logprob, node.behaviour_logprob) else node.model_logprob,
            }
            for node in nodes
        ],
    }


def _leaves(tree: Tree) -> list[Node]:
    """Those of the chosen trajectories' episodes."""
    return [leaf for end in tree.chosen or () for leaf in end.episode]


def _nodes(tree: Tree) -> list[Node]:
    """All nodes, parents first: those below the roots, then those that only a chosen trajectory leads to."""
    nodes = list(tree.nodes())
    known = {id(node) for node in nodes}
    for leaf in _leaves(tree):
        for above in leaf.path():
            if id(above) not in known:
                nodes += (further := list(above.walk()))
                known |= {id(node) for node in further}
    return nodes


def _group(row: Mapping[str, Any]) -> Group:
    return Group.read(_tree(row), row["weight"], dropped=row["dropped"])


def _tree(row: Mapping[str, Any]) -> Tree:
    tree = Tree(roots=[], **{name: column.read(row[name]) for name, column in TREE.items()})
    nodes: list[Node] = []
    for of_node in row["nodes"]:
        parent = of_node["parent"]
        if parent is not None and not 0 <= parent < len(nodes):
            raise ValueError(f"node {len(nodes)} stands before its parent {parent}")
        above = None if parent is None else nodes[parent]
        node = Node(above, **{name: column.read(of_node[name]) for name, column in NODE.items()})
        node.experts = _EXPERTS.read(of_node.get("experts"))
        if of_node["model_logprob"] is None:
            node.model_logprob = list(node.behaviour_logprob)
        if of_node["attached"]:
            (tree.roots if above is None else above.children).append(node)
        nodes.append(node)
    if row["chosen"] is not None:
        leaves = [nodes[i] for i in row["chosen"]]
        tree.chosen = leaves if row["episode"] is None else _episodes(leaves, row["episode"])
    return tree


def _episodes(leaves: Sequence[Node], episode: Sequence[int]) -> list[Node]:
    """The trajectory that stands for each episode."""
    if [*episode] != sorted(episode):
        raise ValueError("the leaves of an episode do not stand together")
    of_episode: dict[int, list[Node]] = {}
    for leaf, number in zip(leaves, episode, strict=True):
        of_episode.setdefault(number, []).append(leaf)
    return list(map(as_episode, of_episode.values()))


def _float32_holds(columns: Iterable[Sequence[float]]) -> bool:
    """Whether every number comes back from float32 to the same bits."""
    exact = np.array([value for column in columns for value in column], np.float64)
    with np.errstate(over="ignore"):
        return np.array_equal(exact.astype(np.float32).astype(np.float64), exact, equal_nan=True)


def _same_bits(a: Sequence[float], b: Sequence[float]) -> bool:
    return a is b or np.array(a, np.float64).tobytes() == np.array(b, np.float64).tobytes()  # 0 is not -0 here


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _plain(value: Any) -> Any:
    """What the codec can hold: numbers, texts, bytes, lists, tuples and mappings as they are, a dataclass as the
    mapping of its fields, an array as a list, anything else as its text."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if isinstance(value, str):
        return str(value)
    if kind is dict or isinstance(value, Mapping):
        return {
            key if type(key) in _PLAIN else str(key): item if type(item) in _PLAIN else _plain(item)
            for key, item in value.items()
        }
    if kind is list or kind is tuple:
        return kind(item if type(item) in _PLAIN else _plain(item) for item in value)
    if isinstance(value, tuple):  # a judged step
        return tuple(map(_plain, value))
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(_fields(value))
    number = python_number(value)
    return plain(value, other=str) if number is None else number

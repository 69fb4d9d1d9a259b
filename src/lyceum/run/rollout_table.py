"""The table of sampled trajectories: one row per trajectory, as an Arrow table."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
from jaxtyping import Float

from lyceum.core.notes import Note
from lyceum.core.tree import LOGGED, LOGGED_METRICS, Node, Tree
from lyceum.core.types import Grade, Origin, verdict_reader
from lyceum.core.user_files import user_file
from lyceum.utils.errors import RecipeError
from lyceum.utils.lazy_imports import Tensor
from lyceum.utils.numbers import plain, to_json

SCHEMA = pa.schema(
    [
        ("step", pa.int64()),
        ("task_id", pa.string()),
        ("level", pa.string()),
        ("tree", pa.int32()),
        ("row", pa.int32()),
        ("prompt", pa.string()),
        ("completion", pa.string()),
        ("outcome", pa.float64()),
        ("correct", pa.bool_()),
        ("reason", pa.string()),
        ("parts", pa.string()),
        ("logged", pa.string()),
        ("tokens", pa.int32()),
        ("finish", pa.string()),
        ("advantage", pa.float64()),
        ("nodes", pa.list_(pa.int32())),
        ("node_texts", pa.list_(pa.string())),
        ("node_stats", pa.list_(pa.string())),
        ("token_texts", pa.list_(pa.string())),
        ("token_logprobs", pa.list_(pa.float32())),
        ("token_advantages", pa.list_(pa.float32())),
        ("metadata", pa.string()),
        ("task", pa.string()),
    ]
)


def as_parquet(table: pa.Table) -> bytes:
    """A table as the content of a file."""
    content = BytesIO()
    # Measured on 256 short rows: without dictionaries a sixth smaller than with them, in two thirds of the time.
    parquet.write_table(
        table, content, compression="zstd", use_dictionary=False, write_statistics=False, write_page_checksum=True
    )
    return content.getvalue()


def trajectory_table(
    step: int,
    trees: Sequence[Tree],
    advantage: Float[Tensor, "R L"] | None,
    decode: Callable[[Sequence[int]], str],
    *,
    limit: int | None = None,
    token_text: dict[int, str] | None = None,
) -> pa.Table:
    """Every trajectory of the trees, ungraded ones included.

    Args:
        step: step that they were sampled for.
        trees: all of a step's trees, in the order the forest was built from.
        advantage: laid out as ``forest.rows()``; its rows are the trees' graded trajectories in order, each after the
            other leaves of its episode, which the table leaves out. None without.
        decode: tokens to text.
        limit: maximum number of trajectories: whole trees are written while they fit; the first tree is truncated
            rather than left out. None writes all.
        token_text: cache of each token's text, filled here: keep it between calls, so that a token is decoded once.
    Returns:
        A table in ``SCHEMA``. ``row`` is the forest's row, null where the trajectory was not graded. ``nodes`` numbers
        the nodes of a tree from its root, 0, parents first; ``node_stats`` is JSON, null where a rollout stored none.
        ``token_*`` lists cover the completion's tokens: log-probabilities are the behaviour policy's in nats, null
        where the policy did not write; advantages are null without ``advantage`` or for an ungraded trajectory.
        ``correct`` is null where the grade does not say it, nor numbers of which all are 0 or 1. ``logged`` is JSON,
        what a reward function passed to ``log_extra``, by column; null where none did. ``advantage`` is the mean over
        the tokens the policy wrote. ``task`` is JSON, the task's answer and columns, by which ``lyceum grade`` grades
        again. Values that are not finite are null everywhere.
    Raises:
        ValueError: the leaves of the trees' graded trajectories are not as many as ``advantage`` has rows.
    """
    read = verdict_reader(leaf.grade for tree in trees for leaf in tree.trajectories)
    graded = sum(len(leaf.episode) for tree in trees for leaf in tree.graded)
    if advantage is not None and len(advantage) != graded:
        raise ValueError(f"rollouts: {len(advantage)} rows of advantages for {graded} graded leaves")
    flat = _Tokens([], [], [])
    rows: list[dict[str, Any]] = []
    starts: list[int] = []
    row = 0
    for number, tree, trajectories in _within(trees, limit):
        index = {id(node): i for i, node in enumerate(tree.nodes())}
        of_tree = {"step": step, "tree": number} | _of_tree(tree)
        for leaf in trajectories:
            path, grade = leaf.path(), leaf.grade or _NOT_GRADED
            starts.append(len(path[0].tokens))
            graded_row = None if grade.outcome is None else row + len(leaf.others)
            row += 0 if grade.outcome is None else len(leaf.episode)
            rows.append(
                of_tree
                | {"row": graded_row, "tokens": flat.add(path[1:]), "finish": leaf.finish}
                | _of_grade(grade, read(grade))
                | _of_path(path, index, decode)
                | {"logged": _json(leaf.stats[LOGGED]) if LOGGED in leaf.stats else None}
            )
    columns = {name: [kept.get(name) for kept in rows] for name in SCHEMA.names}
    token_text = {} if token_text is None else token_text
    for token in set(flat.token) - token_text.keys():
        token_text[token] = _text(decode([token]))
    length = np.array(columns["tokens"], np.int64)
    gain = np.full(len(flat.token), np.nan, np.float32)
    if advantage is not None:
        _fill(gain, advantage.detach().float().cpu().numpy(), columns["row"], np.array(starts, np.int64), length)
    columns["advantage"] = _means(gain, np.array(flat.written, bool), length)
    ends = pa.array(np.cumsum([0, *length]), pa.int32())
    of_token = {
        "token_texts": pa.array([token_text[token] for token in flat.token], pa.string()),
        "token_logprobs": _finite_or_null(np.array(flat.logprob, np.float32)),
        "token_advantages": _finite_or_null(gain),
    }
    arrays = [
        pa.ListArray.from_arrays(ends, of_token[field.name])
        if field.name in of_token
        else pa.array(columns[field.name], field.type)
        for field in SCHEMA
    ]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _within(trees: Sequence[Tree], limit: int | None) -> Iterator[tuple[int, Tree, Sequence[Node]]]:
    """(number, tree, trajectories) of the trees that fit in ``limit`` trajectories, the first one truncated to fit."""
    left = math.inf if limit is None else limit
    begun = False
    for number, tree in enumerate(trees):
        trajectories = tree.trajectories
        if len(trajectories) > left:
            if begun:
                return
            trajectories = trajectories[:limit]
        yield number, tree, trajectories
        left -= len(trajectories)
        begun = begun or bool(trajectories)


def _of_tree(tree: Tree) -> dict[str, Any]:
    level = tree.task.columns.get("level")
    return {
        "task_id": _text(tree.task.id),
        "level": None if level is None else _text(str(level)),
        "metadata": _json({n: v.in_table() if isinstance(v, Note) else v for n, v in tree.metadata.items()}),
        "task": _json({"answer": tree.task.answer, "columns": tree.task.columns}),
    }


def _of_grade(grade: Grade, correct: bool | None) -> dict[str, Any]:
    return {
        "outcome": plain(grade.outcome),
        "correct": correct,
        "reason": None if grade.reason is None else _text(grade.reason),
        "parts": _json(grade.parts),
    }


def _of_path(path: Sequence[Node], index: dict[int, int], decode: Callable[[Sequence[int]], str]) -> dict[str, Any]:
    """Texts and stats of a trajectory's nodes; a node that is under no root gets the next number."""
    texts = [_text(node.text or (decode(node.tokens) if node.tokens else "")) for node in path]
    stats = [_json(_stats(node)) for node in path]
    return {
        "prompt": texts[0],
        "completion": "".join(texts[1:]),
        "nodes": [index.setdefault(id(node), len(index)) for node in path],
        "node_texts": texts,
        "node_stats": stats if any(kept != "{}" for kept in stats) else None,
    }


_NOT_GRADED = Grade(outcome=None)


@dataclass
class _Tokens:
    """The completions' tokens, concatenated. Flat lists: an array per short row costs far more."""

    token: list[int]
    logprob: list[float]
    written: list[bool]

    def add(self, nodes: Sequence[Node]) -> int:
        """Append one completion; returns how many tokens it has."""
        before = len(self.token)
        for node in nodes:
            count, written = len(node.tokens), node.origin == Origin.POLICY
            self.token += node.tokens
            self.logprob += node.behaviour_logprob if written and node.behaviour_logprob else [math.nan] * count
            self.written += [written] * count
        return len(self.token) - before


def _stats(node: Node) -> dict[str, Any]:
    """What a rollout stored on a node, with its value where it has one."""
    stats = {name: kept for name, kept in node.stats.items() if name not in (LOGGED, LOGGED_METRICS)}
    return stats if node.value is None else {**stats, "value": round(node.value, 6)}


def _fill(
    gain: np.ndarray, advantage: np.ndarray, row: list[int | None], start: np.ndarray, length: np.ndarray
) -> None:
    """Copy each graded trajectory's advantages, from its prompt's end on, to its tokens' positions in ``gain``."""
    of_token = np.repeat(np.array([-1 if r is None else r for r in row], np.int64), length)
    column = np.arange(len(gain)) - np.repeat(np.cumsum(length) - length - start, length)
    graded = of_token >= 0
    gain[graded] = advantage[of_token[graded], column[graded]]


def _means(gain: np.ndarray, written: np.ndarray, length: np.ndarray) -> list[float | None]:
    """Each trajectory's mean over the tokens that the policy wrote; None where it has none with an advantage."""
    row = np.repeat(np.arange(len(length)), length)
    counted = written & np.isfinite(gain)
    count = np.bincount(row[counted], minlength=len(length))
    total = np.bincount(row[counted], gain[counted].astype(np.float64), minlength=len(length))
    return [t / n if n else None for t, n in zip(total.tolist(), count.tolist(), strict=True)]


def _finite_or_null(values: np.ndarray) -> pa.Array:
    return pa.array(np.where(np.isfinite(values), values, np.nan), from_pandas=True)  # nan becomes null


def _text(text: str) -> str:
    """Escape halves of surrogate pairs, which datasets may hold and files cannot."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _json(value: Mapping[str, Any]) -> str:
    # Notes of a rollout or a grader must not end the run: what JSON does not support is written as its text.
    return to_json(value, other=str) if value else "{}"


def read_rollouts(path: Path) -> pa.Table:
    """Every trajectory that a run has written, in the order of its steps.

    Raises:
        RecipeError: there are none, or a file is not as the run wrote it.
    """
    files = sorted((path / "rollouts").glob("step-*.parquet"))
    if not files:
        raise RecipeError(f"{path}: has no rollouts; allowed: a run that sampled and has rollouts_every")
    with user_file("run", path / "rollouts", "allowed: the files as the run wrote them, or none"):
        tables = [parquet.read_table(file, page_checksum_verification=True) for file in files]
        return pa.concat_tables(tables, promote_options="permissive")

"""A sample of a run's trajectories for the report, and notes on what it leaves out."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lyceum.run.rollout_table import SCHEMA
from lyceum.training.view.token_tree import token_tree
from lyceum.utils.numbers import python_number, to_json

MAX_STEPS = 8
"""Maximum steps shown, evenly spaced, first and last included."""
MAX_TREES = 8
"""Maximum tasks shown per step, evenly spaced."""
MAX_ROWS = 16
"""Maximum trajectories shown per task."""
MAX_TOKENS = 600
"""Maximum tokens shown per completion."""
MAX_CHARACTERS = 6_000
"""Maximum characters shown per prompt, and per completion whose tokens are not recorded."""
MAX_BYTES = 3_000_000
"""Maximum size of all trajectories together, as JSON."""


def sample_rollouts(folder: Path, *, max_bytes: int = MAX_BYTES) -> tuple[dict[str, Any], list[str]]:
    """Trajectories and token trees of some tasks of some steps.

    Tasks are chosen by position and not by outcome, so that the sample is representative. Steps take turns, so that the
    size limit affects all of them equally.

    Returns:
        ``{"prompts", "rows", "trees"}`` (rows and trees refer to prompts and rows by index), and notes on what was left
        out.
    """
    files = sorted(folder.glob("step-*.parquet"))
    if not files:
        return {"prompts": [], "rows": [], "trees": []}, []
    notes: list[str] = []
    per_step: list[list[list[dict[str, Any]]]] = []
    trajectories = 0
    for file in _spread(files, MAX_STEPS):
        try:
            rows = _rows(file)
        except (pa.ArrowException, OSError, ValueError) as error:
            notes.append(f"{file.name} could not be read ({str(error).splitlines()[0][:200]}).")
            continue
        trajectories += len(rows)
        trees: dict[Any, list[dict[str, Any]]] = {}
        for row in rows:
            trees.setdefault((row.get("stage"), row["tree"]), []).append(row)
        per_step.append(_spread(list(trees.values()), MAX_TREES))
    prompts: dict[str, int] = {}
    chosen: list[tuple[int, int, dict[str, Any], list[dict[str, Any]]]] = []
    size = cut = 0
    for step, (turn, tree) in _taking_turns(per_step):
        rows = _spread(tree, MAX_ROWS)
        shown = [_shown(row, prompts) for row in rows]
        drawn = {"step": rows[0]["step"], "task": rows[0]["task_id"], "level": rows[0].get("level"), "of": len(tree)}
        drawn["nodes"] = token_tree(rows, most=MAX_TOKENS)
        for node in drawn["nodes"]:
            node["text"] = node["text"][:MAX_CHARACTERS]
        size += len(to_json([shown, drawn]))
        if size > max_bytes and chosen:
            break
        cut += sum(not row["whole"] for row in shown)
        chosen.append((step, turn, drawn, shown))
    chosen.sort(key=lambda entry: entry[:2])
    found: dict[str, Any] = {"prompts": [prompt[:MAX_CHARACTERS] for prompt in prompts], "rows": [], "trees": []}
    for _, _, drawn, shown in chosen:
        found["trees"].append({**drawn, "first": len(found["rows"]), "count": len(shown)})
        found["rows"] += shown
    steps = len({entry[0] for entry in chosen})
    if len(found["rows"]) < trajectories or steps < len(files):
        notes.append(
            f"Rollouts: {len(found['rows'])} trajectories of {len(chosen)} tasks are shown, from {steps} of the "
            f"{len(files)} recorded steps; tasks were chosen by position, not by outcome."
        )
    if cut:
        notes.append(f"{cut} completions are longer than {MAX_TOKENS} tokens and truncated here.")
    if long := sum(len(prompt) > MAX_CHARACTERS for prompt in prompts):
        notes.append(f"{long} prompts are longer than {MAX_CHARACTERS:,} characters and truncated here.")
    return found, notes


def _rows(file: Path) -> list[dict[str, Any]]:
    """A step's trajectories.

    Raises:
        OSError, pyarrow.ArrowException, ValueError: the file is not what a run wrote.
    """
    table = pq.read_table(file, page_checksum_verification=True)
    for column in ("step", "task_id", "tree", "prompt", "completion", "tokens"):
        if column not in table.column_names:
            raise ValueError(f"it has no column '{column}'")
    known = set(SCHEMA.names) & set(table.column_names)
    return table.cast(
        pa.schema([SCHEMA.field(c) if c in known else table.field(c) for c in table.column_names])
    ).to_pylist()


def _shown(row: Mapping[str, Any], prompts: dict[str, int]) -> dict[str, Any]:
    tokens = list(row.get("token_texts") or [])[:MAX_TOKENS]
    whole = len(tokens) == len(row.get("token_texts") or [])
    completion = str(row["completion"])
    shown = {
        "step": row["step"],
        "task": row["task_id"],
        "level": row.get("level"),
        "prompt": prompts.setdefault(str(row["prompt"]), len(prompts)),
        "outcome": number(row.get("outcome")),
        "correct": row.get("correct"),
        "reason": row.get("reason"),
        "parts": _parts(row.get("parts")),
        "length": row["tokens"],
        "finish": row.get("finish"),
        "advantage": number(row.get("advantage")),
        "tokens": tokens,
        "logprob": [number(value) for value in list(row.get("token_logprobs") or [])[:MAX_TOKENS]],
        "credit": [number(value) for value in list(row.get("token_advantages") or [])[:MAX_TOKENS]],
        "whole": whole,
    }
    if len(set(shown["credit"])) == 1:  # one advantage for the whole trajectory, as in a flat group
        shown["credit"] = shown["credit"][:1]
    if not tokens or (whole and "".join(tokens) != completion):
        shown["completion"] = completion[:MAX_CHARACTERS]
        shown["whole"] = whole and len(completion) <= MAX_CHARACTERS
    return shown


def _parts(given: str | None) -> dict[str, float | None]:
    parts = json.loads(given) if given else {}
    return {str(name): number(value) for name, value in parts.items()} if isinstance(parts, dict) else {}


def number(value: Any, digits: int = 4) -> float | int | None:
    """Rounded to significant digits; None if not finite: JSON has no NaN."""
    value = None if isinstance(value, bool) else python_number(value)
    if value is None or not math.isfinite(value):
        return None
    if isinstance(value, int):
        return value
    rounded = float(f"{value:.{digits}g}")
    return rounded if math.isfinite(rounded) else value


def _spread(items: Sequence[Any], most: int) -> list[Any]:
    """At most ``most`` of the items, evenly spaced, first and last included."""
    if len(items) <= most:
        return list(items)
    return [items[round(i * (len(items) - 1) / (most - 1))] for i in range(most)]


def _taking_turns(per_step: Sequence[Sequence[Any]]) -> Iterator[tuple[int, tuple[int, Any]]]:
    """(step, (turn, item)): the first item of every step, then the second of every step, ..."""
    for turn in range(max(map(len, per_step), default=0)):
        for step, items in enumerate(per_step):
            if turn < len(items):
                yield step, (turn, items[turn])

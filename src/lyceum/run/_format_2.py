"""Format 2 of recorded trees, read as format 3: what are notes now were fields of tasks and of trees, and token ids had
32 bits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from lyceum.run.codec import decode, encode

_NOTES = {
    "token_budget": ("token-budget", "tokens", None),
    "prefix": ("prefix", "tokens", ()),
    "parameters": ("parameters", "values", {}),
    "hints_leak": ("hints-leak", "leak", None),
}
"""Field of a task -> kind and field of the note, and the value without which there is none."""


def schema_2(schema: pa.Schema) -> pa.Schema:
    """The columns of format 2.

    Args:
        schema: those of format 3.
    """
    of_node = schema.field("nodes").type.value_type
    nodes = [(each.name, pa.list_(pa.int32()) if each.name == "tokens" else each.type) for each in of_node]
    columns = [(name, schema.field(name).type) for name in schema.names if name not in ("episode", "nodes")]
    columns.insert(schema.names.index("metadata") + 1, ("direct", pa.string()))
    return pa.schema([*columns, ("nodes", pa.list_(pa.struct(nodes)))])


def row_3(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of format 2 as one of format 3."""
    task, metadata = decode(row["task"], {}), decode(row["metadata"], {})
    old = {name: task.pop(name) for name in (*_NOTES, "test_only")}
    task["notes"] = {kind: {of: old[name]} for name, (kind, of, none) in _NOTES.items() if old[name] != none}
    if old["test_only"]:
        task["notes"]["test-only"] = {}
    if row["direct"] is not None:
        metadata["direct"] = decode(row["direct"], {})
    return {**row, "task": encode(task)[0], "metadata": encode(metadata)[0], "episode": None}

"""JSON schemas: an answer is correct when it is a JSON document that a schema allows."""

from __future__ import annotations

import json
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from lyceum.core.types import Task
from lyceum.reward._in_worker import InWorker, cell
from lyceum.reward._jsonschema import compiled


class JsonSchemaReward(InWorker):
    """1 where the extracted answer is one JSON document that the schema allows, else 0.

    Schemas are of draft 4 to 2020-12 (``$schema`` says which; by default 2020-12), ``format`` is not checked, and
    ``pattern`` takes linear time (no look-around). Nothing is ever fetched: a reference outside of the schema is an
    error. A document beyond the limits, with a key twice, or with a number that is no number, is incorrect.

    It verifies the form alone: where the content has an answer, add a part that compares it, such as
    ``{kind: exact, extract: {json: FIELD}}``, or an empty document of the right form is as good as any.
    """

    factory: ClassVar[str] = "lyceum.reward._jsonschema:checker"

    kind: Literal["json-schema"] = "json-schema"
    json_schema: dict[str, Any] | None = None
    """The schema; null takes each task's column ``column``."""
    column: str = Field("json_schema", min_length=1)
    """Column of the schema, an object or its JSON text, where ``json_schema`` is null."""
    max_characters: int = Field(200_000, ge=2, le=8_000_000)
    """Maximum length of the document."""
    max_depth: int = Field(50, ge=1, le=100)
    """Maximum nesting of its lists and objects."""

    @field_validator("json_schema")
    @classmethod
    def _is_a_schema(cls, schema: dict[str, Any] | None) -> dict[str, Any] | None:
        if schema is not None:
            compiled(_as_text(schema))
        return schema

    @property
    def reads(self) -> str | None:
        return self.column if self.json_schema is None else None

    def worker_settings(self) -> dict[str, Any]:
        return {"max_characters": self.max_characters, "max_depth": self.max_depth}

    def job(self, task: Task, found: str) -> dict[str, Any]:
        schema = self.json_schema if self.json_schema is not None else cell(task, self.column, "a JSON schema")
        if not isinstance(schema, str | dict | bool):
            raise ValueError(f"column {self.column!r} of task {task.id!r} holds no JSON schema; allowed: an object")
        return {"schema": schema if isinstance(schema, str) else _as_text(schema), "found": found}


def _as_text(schema: Any) -> str:
    try:
        return json.dumps(schema, allow_nan=False)
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"got no JSON: {str(error)[:200]}; allowed: a JSON schema") from None

"""JSON of a given schema: tool calls, and answers that are read from a field."""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import field_validator

from lyceum.core.types import Constraint, ConstraintSettings
from lyceum.models.policy import Policy
from lyceum.utils.documents import read_json
from lyceum.utils.terminal import quoted


class JsonSchemaConstraint(ConstraintSettings):
    """Completions are one JSON value of a schema, and end where it is complete. A completion that reaches its maximum
    length before is truncated: bound texts (maxLength), lists (maxItems) and numbers (minimum, maximum)."""

    kind: Literal["json-schema"] = "json-schema"
    json_schema: dict[str, Any]
    """The schema (draft 2020-12, without remote references). Keywords that are not supported are refused."""
    whitespace: bool = False
    """Whether white space may stand between the parts of the JSON; a model can then write nothing else."""

    @field_validator("json_schema")
    @classmethod
    def _is_a_schema(cls, schema: dict[str, Any]) -> dict[str, Any]:
        from lyceum.engine.constraint._llguidance import (  # here: recipes without one need no such library
            LONGEST,
            mistake_in,
        )

        try:
            text = json.dumps(schema, allow_nan=False)
            read_json(text)  # its limits of depth and values
        except (ValueError, TypeError, RecursionError) as error:
            raise ValueError(f"got no JSON: {quoted(str(error)[:200])}; allowed: a JSON schema") from error
        if len(text) > LONGEST:
            raise ValueError(f"got {len(text)} characters; allowed: at most {LONGEST}")
        if mistake := mistake_in(grammar_of(schema, whitespace=False)):
            raise ValueError(f"{mistake}; allowed: a JSON schema that can be compiled")
        return schema

    def build(self, policy: Policy) -> Constraint:
        from lyceum.engine.constraint._llguidance import Grammar

        key = "sampling.constraint.json_schema"
        return Grammar(grammar_of(self.json_schema, whitespace=self.whitespace), policy, key=key)


def grammar_of(schema: dict[str, Any], *, whitespace: bool) -> str:
    """The schema's grammar, for llguidance; what it does not know is an error there."""
    import llguidance

    return llguidance.LLMatcher.grammar_from_json_schema(
        json.dumps(schema, allow_nan=False), overrides={"whitespace_flexible": whitespace, "lenient": False}
    )

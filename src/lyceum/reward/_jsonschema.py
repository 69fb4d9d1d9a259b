"""The worker side of the reward ``json-schema``; imports little, so that workers start quickly."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from lyceum.utils.documents import DocumentError, DocumentLimits, read_json

if TYPE_CHECKING:
    import jsonschema_rs

SCHEMA_LIMITS = DocumentLimits(characters=100_000, depth=50, values=10_000)
DIGITS = 18
"""Maximum digits of an integer: the validator computes with 64 bits, and would compare another number."""


@lru_cache(maxsize=64)
def compiled(schema: str) -> jsonschema_rs.Validator:
    """Raises ValueError for a text that is no schema, or one that refers to another document."""
    import jsonschema_rs

    value = read_json(schema, limits=SCHEMA_LIMITS)
    if not isinstance(value, dict | bool):
        raise ValueError("got no object; allowed: a JSON schema")
    try:
        return jsonschema_rs.validator_for(
            value, retriever=_fetch_nothing, pattern_options=jsonschema_rs.RegexOptions(), validate_formats=False
        )
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        raise ValueError(f"{str(error).splitlines()[0][:200]}; allowed: a JSON schema") from None


def _fetch_nothing(uri: str) -> Any:
    raise ValueError(f"{uri[:100]} is another document, and none is fetched")


def checker(*, max_characters: int, max_depth: int) -> Callable[[dict[str, Any]], Any]:
    """In a worker: the job function, whether ``schema`` allows ``found``."""
    limits = DocumentLimits(characters=max_characters, depth=max_depth, values=max_characters, digits=DIGITS)

    def check(job: dict[str, Any]) -> Any:
        try:
            schema = compiled(job["schema"])
        except ValueError as error:
            return {"ungraded": f"json_schema: {error}"}
        try:
            document = read_json(job["found"], limits=limits)
        except DocumentError:
            return False
        return schema.is_valid(document)

    return check

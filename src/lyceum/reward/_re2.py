"""The worker side of the reward ``regex``; imports little, so that workers start quickly."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import re2

LONGEST_PATTERN = 10_000
"""Maximum characters of an expression."""
MEMORY = 16 << 20
"""Bytes that a compiled expression may take; a larger one is refused."""


@lru_cache(maxsize=64)
def compiled(pattern: str, *, case: bool) -> re2._Regexp:
    """Raises ValueError for a text that is no expression, or one that is too long or too large."""
    import re2

    if len(pattern) > LONGEST_PATTERN:
        raise ValueError(f"got {len(pattern)} characters; allowed: at most {LONGEST_PATTERN}")
    options = re2.Options()
    options.log_errors, options.max_mem, options.case_sensitive = False, MEMORY, case
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        said = error.args[0] if error.args else error
        text = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
        raise ValueError(f"{text[:200]}; allowed: a regular expression of RE2") from None
    except UnicodeEncodeError:
        raise ValueError("half of a surrogate pair; allowed: Unicode text") from None


def checker(*, whole: bool, case: bool) -> Callable[[dict[str, Any]], Any]:
    """In a worker: the job function, whether ``pattern`` matches ``found``."""

    def check(job: dict[str, Any]) -> Any:
        try:
            expression = compiled(job["pattern"], case=case)
        except ValueError as error:
            return {"ungraded": f"pattern: {error}"}
        # RE2 reads UTF-8, which has no halves of surrogate pairs.
        found = job["found"].encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return (expression.fullmatch(found) if whole else expression.search(found)) is not None

    return check

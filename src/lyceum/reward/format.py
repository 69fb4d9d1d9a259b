"""A reward for the format of a completion, whatever its answer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from pydantic import Field, model_validator

from lyceum.core.settings import RewardSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, Task, TaskSource
from lyceum.reward.base import each, each_at_once
from lyceum.reward.pool import WorkerError, shared_pool
from lyceum.utils.terminal import quoted


class Format(RewardSettings):
    """1 where a completion has the required tags in order, or matches a pattern, else 0."""

    kind: Literal["format"] = "format"
    tags: tuple[str, ...] = ()
    """Names of tags that must each open and close once, one after the other, with only white space around them."""
    pattern: str | None = Field(None, max_length=1000)
    """A regular expression (Python) that the whole completion must match; ``.`` matches line ends too."""
    timeout_seconds: float = Field(1.0, gt=0)
    """Time limit for one match of ``pattern``, in seconds; one that takes longer is 0, unless an empty one does."""

    @model_validator(mode="after")
    def _one_of_both(self) -> Format:
        if bool(self.tags) == (self.pattern is not None):
            raise ValueError(f"got tags {list(self.tags)} and pattern {self.pattern!r}; allowed: exactly one of them")
        for tag in self.tags:
            if not re.fullmatch(r"[\w-]+", tag):
                raise ValueError(f"tags: got {tag!r}; allowed: names of letters, digits, _ and -, for example 'think'")
        if self.pattern is not None:
            try:
                re.compile(self.pattern)
            except (re.error, OverflowError, RecursionError) as error:  # a{99999999999}, a thousand brackets
                raise ValueError(
                    f"pattern: got {quoted(self.pattern)}: {error}; allowed: a Python regular expression"
                ) from None
        return self

    def build(self, source: TaskSource) -> Grader:
        if self.tags:
            return each(lambda task, leaf: Grade(float(has_tags_in_order(leaf.completion, self.tags))))
        # A pattern such as (a+)+b never ends on some completions, and a policy may find them: so there is a time limit.
        pool = shared_pool(
            "lyceum.reward._pattern:matcher",
            {"pattern": self.pattern},
            workers=1,
            timeout_seconds=self.timeout_seconds,
        )

        async def one(task: Task, leaf: Node) -> Grade:
            try:
                return Grade(float(await pool.run(leaf.completion)))
            except WorkerError as error:
                try:
                    await pool.run("")
                except WorkerError:
                    return Grade.ungraded(str(error))
                return Grade(0.0)

        return each_at_once(one)


def has_tags_in_order(text: str, tags: Sequence[str]) -> bool:
    """Whether a text is ``<a>...</a> <b>...</b>``: each tag opens and closes once, with only white space between."""
    rest = text.strip()
    for tag in tags:
        opening, closing = f"<{tag}>", f"</{tag}>"
        if text.count(opening) != 1 or text.count(closing) != 1 or not rest.startswith(opening):
            return False
        rest = rest.partition(closing)[2].lstrip()
    return not rest

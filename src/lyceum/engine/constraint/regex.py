"""Texts that a regular expression matches as a whole."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from lyceum.core.types import Constraint, ConstraintSettings
from lyceum.models.policy import Policy


class RegexConstraint(ConstraintSettings):
    """Completions are texts that a regular expression matches from beginning to end, and end where they do."""

    kind: Literal["regex"] = "regex"
    pattern: str = Field(min_length=1)
    """The expression, in the syntax of Rust's regex crate: no look-around, no references."""

    @field_validator("pattern")
    @classmethod
    def _is_an_expression(cls, pattern: str) -> str:
        from lyceum.engine.constraint._llguidance import (  # here: recipes without one need no such library
            LONGEST,
            mistake_in,
        )

        if len(pattern) > LONGEST:
            raise ValueError(f"got {len(pattern)} characters; allowed: at most {LONGEST}")
        if mistake := mistake_in(grammar_of(pattern)):
            raise ValueError(f"{mistake}; allowed: a regular expression")
        return pattern

    def build(self, policy: Policy) -> Constraint:
        from lyceum.engine.constraint._llguidance import Grammar

        return Grammar(grammar_of(self.pattern), policy, key="sampling.constraint.pattern")


def grammar_of(pattern: str) -> str:
    import llguidance

    return llguidance.LLMatcher.grammar_from_regex(pattern)

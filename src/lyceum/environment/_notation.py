"""Calls within the policy's turn: what marks them, and how the text goes on after the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from pydantic import Field

from lyceum.core.component import Settings
from lyceum.core.types import Exchange, Task


class Notation(Settings):
    """Texts that mark a call and its answer: ``BEGIN query END BEFORE answer AFTER``."""

    begin: str = ""
    """Text before a query; empty: it begins after the line's last ``end`` and the answer to it is part of it, as in
    ``37+8=45-2=43``."""
    end: str = Field(default="=", min_length=1)
    """Text after a query: the turn ends with it."""
    before: str = ""
    """Text before the answer."""
    after: str = ""
    """Text after the answer."""

    def query(self, written: str, said: str) -> str | None:
        """The query at the end of a turn; None where there is none.

        Args:
            written: what stood in the answer before this turn, earlier answers included.
            said: the turn.
        """
        before, end, _ = said.rpartition(self.end)
        if not end:
            return None
        if self.begin:  # within the turn: an earlier one's query was answered
            _, begin, query = before.rpartition(self.begin)
            return query.strip() if begin else None
        return (written + before).rpartition("\n")[2].rpartition(self.end)[2].strip()


@dataclass(frozen=True)
class AnswerSoFar:
    """What stands in an answer: the policy's text and the environment's answers to ``calls`` calls."""

    text: str = ""
    calls: int = 0

    def then(self, said: str, answer: str) -> Self:
        return replace(self, text=f"{self.text}{said}{answer}", calls=self.calls + 1)

    def after(self, exchanges: Sequence[Exchange]) -> Self:
        written = "".join(said + observed for said, observed in exchanges)
        return replace(self, text=self.text + written, calls=self.calls + len(exchanges))


class WithinTurn:
    """Environments whose state is what stands in the answer so far."""

    def reset(self, task: Task) -> AnswerSoFar:
        return AnswerSoFar()

    def replay(self, task: Task, exchanges: Sequence[Exchange]) -> AnswerSoFar:
        return self.reset(task).after(exchanges)

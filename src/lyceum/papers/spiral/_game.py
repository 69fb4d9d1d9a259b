"""What a game of two players is for self-play."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from lyceum.core.types import Message, Task


class Game(Protocol):
    """Where a zero-sum game of two players stands: a value that is never changed in place."""

    @property
    def player(self) -> int:
        """Whose turn it is, 0 or 1."""
        ...

    @property
    def outcome(self) -> tuple[float, float] | None:
        """What each player earns, 0 together; None while the game goes on."""
        ...

    def messages(self) -> Sequence[Message]:
        """What the player whose turn it is sees."""
        ...

    def after(self, text: str) -> Game | None:
        """The game after the move that a text states; None where it states none. The text is a model's: anything."""
        ...


@runtime_checkable
class GameSource(Protocol):
    """A task source whose tasks are beginnings of games."""

    def game(self, task: Task) -> Game: ...

"""Games of textarena for one player."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from lyceum.tasks.games import GameTasks, Move


class TextArenaTasks(GameTasks):
    """A game of textarena (https://github.com/LeonGuertler/TextArena) for one player, such as GuessTheNumber-v0.

    The whole turn is the action, in which most games read what stands in ``[brackets]``. The player is shown what is
    new since the last turn. The reward comes with the end of the game, 1 where it is won. Some games fetch word lists
    when they are made; one that cannot says so before the run begins.
    """

    library: ClassVar[str] = "textarena"

    kind: Literal["textarena"] = "textarena"

    @property
    def made(self) -> dict[str, Any]:
        return {"name": self.name, "options": self.options}


class TextArenaGame:
    """Implements :class:`lyceum.tasks.games.LibraryGame`."""

    def __init__(self, environment: Any) -> None:
        self.environment, self.read = environment, ""

    def begin(self, seed: int) -> str:
        self.environment.reset(num_players=1, seed=seed)
        return self._new()

    def play(self, action: str) -> Move:
        end, _ = self.environment.step(action=action)
        if not end:
            return Move(self._new(), 0.0, False)
        rewards, told = self.environment.close()
        return Move(str(told[0].get("reason") or ""), float(rewards[0]), True)

    def close(self) -> None:
        return

    def _new(self) -> str:
        player, shown = self.environment.get_observation()
        if player != 0:
            raise ValueError(f"it is player {player}'s turn; allowed: games for one player")
        text = shown if isinstance(shown, str) else str(shown)
        new = text.removeprefix(self.read) if text.startswith(self.read) else text
        self.read = text
        return new.strip("\n")


def make(name: str, options: Mapping[str, Any]) -> TextArenaGame:
    """Raises what textarena raises where there is no such game."""
    return TextArenaGame(importlib.import_module("textarena").make(name, **options))

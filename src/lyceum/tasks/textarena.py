"""Games of textarena for one player, or for two."""

from __future__ import annotations

import importlib
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

from lyceum.core.own_code import split_spec
from lyceum.reward.function_worker import load_function
from lyceum.tasks.games import GameTasks, Move

SELF = "self"


class TextArenaTasks(GameTasks):
    """A game of textarena (https://github.com/LeonGuertler/TextArena), such as GuessTheNumber-v0 or TicTacToe-v0.

    The whole turn is the action, in which most games read what stands in ``[brackets]``. The player is shown what is
    new since the last turn. The reward comes with the end of the game, 1 where it is won. Some games fetch word lists
    when they are made; one that cannot says so before the run begins.
    """

    library: ClassVar[str] = "textarena"

    kind: Literal["textarena"] = "textarena"
    opponent: str | None = None
    """Who plays the second player of a game for two, of which the policy is the first. ``self``: the model as it is at
    that time, whose turns are not trained; ``path/to/file.py:name``: a function of what the game shows that player,
    which returns an action. Null: a game for one."""

    def code(self) -> tuple[str, ...]:
        return super().code() if self.opponent in (None, SELF) else (*super().code(), self.opponent)

    @property
    def made(self) -> dict[str, Any]:
        alone = {"name": self.name, "options": self.options}
        return alone if self.opponent is None else {**alone, "opponent": self.opponent}


class TextArenaGame:
    """Implements :class:`lyceum.tasks.games.LibraryGame`."""

    def __init__(self, environment: Any, players: int, opponent: Callable[[str], str] | None) -> None:
        self.environment, self.players, self.opponent = environment, players, opponent
        self.read = defaultdict[int, str](str)

    def begin(self, seed: int) -> str:
        self.environment.reset(num_players=self.players, seed=seed)
        player, text = self._new()
        if player != 0:
            raise ValueError(f"player {player} begins; allowed: games that the first player begins")
        return text

    def play(self, action: str) -> Move:
        end, _ = self.environment.step(action=action)
        if end:
            rewards, told = self.environment.close()
            return Move(str(told[0].get("reason") or ""), float(rewards[0]), True)
        player, text = self._new()
        if player and self.opponent is not None:
            return self.play(self.opponent(text))
        return Move(text, 0.0, False, player)

    def close(self) -> None:
        return

    def _new(self) -> tuple[int, str]:
        """Whose turn it is, and what the game shows that player since the last one."""
        player, shown = self.environment.get_observation()
        if not 0 <= player < self.players:
            raise ValueError(f"it is player {player}'s turn; allowed: games for {self.players}")
        text = shown if isinstance(shown, str) else str(shown)
        new = text.removeprefix(self.read[player]) if text.startswith(self.read[player]) else text
        self.read[player] = text
        return player, new.strip("\n")


def make(name: str, options: Mapping[str, Any], opponent: str | None = None) -> TextArenaGame:
    """Raises what textarena raises where there is no such game."""
    function = None
    if opponent not in (None, SELF):
        place, called = split_spec(opponent, key="tasks.opponent")
        function = load_function(place, called, key="tasks.opponent")
    environment = importlib.import_module("textarena").make(name, **options)
    return TextArenaGame(environment, 1 if opponent is None else 2, function)

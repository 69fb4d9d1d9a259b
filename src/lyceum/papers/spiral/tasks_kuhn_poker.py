"""Kuhn poker: the smallest poker, a zero-sum game of two players with three cards and two moves.

Each player is dealt one of three cards and pays one chip. In turn they pass or bet another chip; after a bet, passing
is to fold and betting is to call. The higher card wins unless somebody folds.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import Field, field_validator

from lyceum.core.settings import TasksSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, Message, Task
from lyceum.papers.spiral._game import Game
from lyceum.reward.base import each, verdict
from lyceum.tasks.base import GeneratedSource
from lyceum.tasks.prompt import fields_of, fill

PASS, BET = "p", "b"
POSITIONS = ("", PASS, BET, PASS + BET)
"""The moves before which somebody moves; the game is over after all others."""
Name = Annotated[str, Field(min_length=1, max_length=100)]


class KuhnPoker(TasksSettings):
    """Deals of Kuhn poker, for the guide ``self-play``. Verdicts say whether a completion states a move."""

    kind: Literal["kuhn-poker"] = "kuhn-poker"
    positions: Literal["first", "any"] = "first"
    """What prompts show: the first player's card; or, for a fine-tuning that teaches the format, any position, with a
    random move as the demonstration."""
    prompt: str = Field(default="{card}:{moves}=", max_length=10_000)
    """What the player whose turn it is sees: {card}, and the {moves} so far."""
    cards: tuple[Name, Name, Name] = ("J", "Q", "K")
    """Names of the cards, the lowest first."""
    moves: tuple[Name, Name] = (PASS, BET)
    """Names of the moves, to pass (or fold) and to bet (or call). Of those in a completion the last one counts."""
    size: int = Field(default=6000, ge=1)
    """Tasks in each split, of six deals."""

    @field_validator("prompt")
    @classmethod
    def _shows_card_and_moves(cls, prompt: str) -> str:
        if set(fields_of(prompt)) != {"card", "moves"}:
            raise ValueError(f"got {prompt!r}; allowed: a text with {{card}} and {{moves}}")
        return prompt

    def build(self, split: Literal["train", "heldout"], seed: int) -> KuhnPokerSource:
        return KuhnPokerSource(self, split, seed)


class KuhnPokerSource(GeneratedSource[KuhnPoker]):
    """``source[i]`` depends on (seed, split, i) alone. There are six deals: both splits have them all."""

    def __getitem__(self, index: int) -> Task:
        id = self.key(index)
        rng = random.Random(id)
        first, second = rng.sample(range(3), 2)
        any_position = self.settings.positions == "any"
        moves = rng.choice(POSITIONS) if any_position else ""
        position = Position(self.settings, (first, second), moves)
        columns = {"deal": [first, second], "moves": moves}
        if any_position:
            columns["demonstration"] = rng.choice(self.settings.moves)
        return Task(id, tuple(position.messages()), columns=columns, provenance="kuhn-poker")

    def game(self, task: Task) -> Game:
        first, second = task.columns["deal"]
        return Position(self.settings, (first, second))

    def grader(self) -> Grader:
        return each(self.states_a_move)

    def states_a_move(self, task: Task, leaf: Node) -> Grade:
        said = any(move in leaf.completion for move in self.settings.moves)
        return verdict(said, answered=said)


@dataclass(frozen=True)
class Position:
    """A game of Kuhn poker.

    Attributes:
        deal: the card of each player, 0 to 2.
        moves: so far, PASS or BET each.
    """

    settings: KuhnPoker
    deal: tuple[int, int]
    moves: str = ""

    @property
    def player(self) -> int:
        return len(self.moves) % 2

    @property
    def outcome(self) -> tuple[float, float] | None:
        """The chips that each player wins."""
        higher = 1.0 if self.deal[0] > self.deal[1] else -1.0
        chips = {"bp": 1.0, "pbp": -1.0, "pp": higher, "bb": 2 * higher, "pbb": 2 * higher}
        won = chips.get(self.moves)
        return None if won is None else (won, -won)

    def messages(self) -> Sequence[Message]:
        moves = "".join(self.settings.moves[move == BET] for move in self.moves)
        shown = {"card": self.settings.cards[self.deal[self.player]], "moves": moves}
        return ({"role": "user", "content": fill(self.settings.prompt, shown)},)

    def after(self, text: str) -> Position | None:
        places = [text.rfind(move) for move in self.settings.moves]
        if max(places) < 0:
            return None
        return replace(self, moves=self.moves + (PASS if places[0] > places[1] else BET))

"""SPIRAL: the policy plays both sides of a zero-sum game against itself.

Source: SPIRAL, arXiv:2506.24119; spiral-rl/spiral, train_spiral.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from pydantic import Field

from lyceum.core.notes import Note
from lyceum.core.settings import GuidanceSettings
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Context, Grade, Rollout, TaskSource
from lyceum.guidance.base import TaskGuide, notes_of
from lyceum.papers.spiral._game import Game, GameSource
from lyceum.utils.aio import gather
from lyceum.utils.errors import RecipeError

ROLES = ("first", "second")


class SelfPlay(GuidanceSettings):
    """Games of two roles, from the same beginning.

    Each move is a completion of its own, below a prompt that shows what its player knows. All moves of a player earn
    what the game pays it; a text that states no move loses ``forfeit``.
    """

    plays: ClassVar[tuple[str, ...]] = ROLES

    kind: Literal["self-play"] = "self-play"
    games: int = Field(default=8, ge=1, le=4096)
    """Games per task."""
    forfeit: float = Field(default=1.0, gt=0, le=1e6)
    """What a player loses, and the other one earns, where its text states no move, in the game's unit."""

    def check_tasks(self, source: TaskSource) -> None:
        _playable(source)

    def build(self, source: TaskSource, *, seed: int) -> SelfPlayGuide:
        return SelfPlayGuide(self, _playable(source))


def _playable(source: TaskSource) -> GameSource:
    if not isinstance(source, GameSource):
        raise RecipeError("guidance.self-play: the tasks are no games; allowed: tasks.kind 'kuhn-poker'")
    return source


@dataclass
class Play:
    """A game under way.

    Attributes:
        game: where it stands; None where a text stated no move.
        moved: each player's moves.
        abandoned: whether no token was left for the next move.
        loser: who stated none.
    """

    game: Game | None
    moved: tuple[list[Node], list[Node]] = field(default_factory=lambda: ([], []))
    abandoned: bool = False
    loser: int | None = None

    def outcome(self, forfeit: float) -> tuple[float, float] | None:
        """What each player earns; None where the game was abandoned."""
        if self.game is not None:
            return self.game.outcome
        return (-forfeit, forfeit) if self.loser == 0 else (forfeit, -forfeit)

    @property
    def goes_on(self) -> bool:
        return self.game is not None and self.game.outcome is None and not self.abandoned

    def move(self, leaf: Node) -> None:
        assert self.game is not None
        player = self.game.player
        self.moved[player].append(leaf)
        self.game = self.game.after(leaf.completion)
        if self.game is None:
            self.loser = player


@dataclass
class Games(Note):
    """A task's games: how many were played to their end, how many of these ended by a text that states no move, how
    many the first player won, and how many moves there were."""

    kind: ClassVar[str] = "self-play"
    played: int = 0
    illegal: int = 0
    won_by_first: int = 0
    moves: int = 0


class SelfPlayGuide(TaskGuide):
    """Has no state."""

    tested = True  # its roles are sampled in every task

    def __init__(self, settings: SelfPlay, source: GameSource) -> None:
        self.settings, self.source = settings, source

    async def roll(self, rollout: Rollout, context: Context, start: Node, n: int | None) -> list[Node]:
        games = [Play(self.source.game(context.task)) for _ in range(self.settings.games)]
        # All games move in turn, so that equal prompts are one request, whoever was there first.
        while going := [play for play in games if play.goes_on]:
            alike: dict[tuple[str, tuple[int, ...]], list[Play]] = {}
            for play in going:
                assert play.game is not None
                prompt = tuple(context.render(play.game.messages()))
                alike.setdefault((ROLES[play.game.player], prompt), []).append(play)
            await gather(self.moves(rollout, context, *key, plays) for key, plays in alike.items())
        note = Games()
        context.tree.add_note(note)
        for play in games:
            grade(play, play.outcome(self.settings.forfeit), note)
        return [leaf for play in games for moves in play.moved for leaf in moves]

    async def moves(
        self, rollout: Rollout, context: Context, role: str, prompt: Sequence[int], plays: Sequence[Play]
    ) -> None:
        acting = context.acting(role)
        root = context.tree.add_prompt(list(prompt), context.decode(prompt))
        if acting.budget_left <= 0 or not acting.tokens_left(root):
            for play in plays:
                play.abandoned = True
            return
        for play, leaf in zip(plays, await rollout(acting, root, len(plays)), strict=True):
            play.move(leaf)

    def observe(self, trees: Sequence[Tree]) -> None:
        notes = [note for _, note in notes_of(trees, Games)]
        played = sum(note.played for note in notes)
        self._metrics = {
            "games/played": played,
            "games/illegal": sum(note.illegal for note in notes),
            "games/won_by_first": sum(note.won_by_first for note in notes) / max(1, played),
            "games/moves": sum(note.moves for note in notes),
        }


def grade(play: Play, outcome: tuple[float, float] | None, note: Games) -> None:
    """Give all moves of a player what the game earned it."""
    note.moves += sum(map(len, play.moved))
    for player, moves in enumerate(play.moved):
        for leaf in moves:
            if outcome is None:
                leaf.grade = Grade.ungraded("no token was left for the game's next move")
            else:
                leaf.grade = Grade(outcome[player], outcome[player] > 0)
    if outcome is not None:
        note.played += 1
        note.illegal += play.loser is not None
        note.won_by_first += outcome[0] > 0

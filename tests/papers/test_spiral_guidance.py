"""Two roles of one policy play a game: both earn what it brings them, and equal prompts are one request."""

import pytest
from fake_task import roll
from guidance_fakes import FakeContext, Source, ask, flat

from lyceum.papers.spiral.guidance_self_play import SelfPlay
from lyceum.tasks.chain import Chain
from lyceum.utils.errors import RecipeError


class Race:
    """Who says ``s0`` wins 3; ``s1`` goes on, after which the other player's prompt is ``Q1``; all else is no move."""

    def __init__(self, moves=0, outcome=None):
        self.moves, self.outcome = moves, outcome

    @property
    def player(self):
        return self.moves % 2

    def messages(self):
        return ask(f"Q{self.moves}").messages

    def after(self, text):
        if text == "s0":
            return Race(self.moves + 1, (3.0, -3.0) if self.player == 0 else (-3.0, 3.0))
        return Race(self.moves + 1) if text == "s1" else None


class Games(Source):
    def game(self, task):
        return Race()


def played(context, **settings):
    guide = SelfPlay(**settings).build(Games(), seed=0)
    tree = roll(guide(flat(4)), context, ask("Q0"))
    guide.observe([tree])
    return tree, guide.metrics()


def test_both_roles_earn_what_the_game_brings_them():
    # Three games: the first ends with s0, the second goes on with s1, in the third s2 is no move. Then Q1 is asked
    # once, for the second game alone, whose second player says s0.
    context = FakeContext()
    tree, metrics = played(context, games=3, forfeit=2.0)
    assert context.asked == [("Q0", 3), ("Q1", 1)]
    of = {
        role: [(leaf.text, leaf.grade.outcome) for leaf in tree.chosen if leaf.role == role]
        for role in ("first", "second")
    }
    assert of == {"first": [("s0", 3.0), ("s1", -3.0), ("s2", -2.0)], "second": [("s0", 3.0)]}
    assert [leaf.grade.correct for leaf in tree.chosen] == [True, False, True, False]
    assert metrics == {"games/played": 3, "games/illegal": 1, "games/won_by_first": 1 / 3, "games/moves": 4}


def test_a_game_for_which_no_token_is_left_is_not_graded():
    tree, metrics = played(FakeContext(budget=3), games=3)
    reasons = [leaf.grade.reason for leaf in tree.chosen]
    assert reasons == [None, "no token was left for the game's next move", None]
    assert metrics["games/played"] == 2


def test_tasks_that_are_no_games_are_refused():
    with pytest.raises(RecipeError, match=r"allowed: tasks.kind 'kuhn-poker'"):
        SelfPlay().check_tasks(Chain().build("train", 0))

import pytest

from lyceum.papers.spiral._game import GameSource
from lyceum.papers.spiral.tasks_kuhn_poker import POSITIONS, KuhnPoker, Position


@pytest.mark.parametrize(
    ("moves", "king_first", "jack_first"),
    [
        ("pp", 1, -1),  # the higher card wins one chip
        ("bb", 2, -2),  # called: two
        ("pbb", 2, -2),
        ("bp", 1, 1),  # the second player folded
        ("pbp", -1, -1),  # the first did
    ],
)
def test_chips_are_won_by_the_higher_card_or_by_who_does_not_fold(moves, king_first, jack_first):
    for deal, won in (((2, 0), king_first), ((0, 2), jack_first)):
        game = Position(KuhnPoker(), deal)
        for number, move in enumerate(moves):
            assert game.outcome is None
            assert game.player == number % 2
            game = game.after(move)
        assert game.outcome == (won, -won)


def test_a_player_sees_its_own_card_and_the_moves_and_any_text_with_a_move_is_one():
    names = {
        "prompt": "You hold {card}. So far: {moves}.",
        "cards": ("low", "middle", "high"),
        "moves": ("[pass]", "[bet]"),
    }
    game = Position(KuhnPoker(**names), (2, 1)).after("I could [bet], but no: [pass].")
    assert game.messages()[0]["content"] == "You hold middle. So far: [pass]."
    assert game.after("[bet]").messages()[0]["content"] == "You hold high. So far: [pass][bet]."
    assert game.after("I do not know") is None


def test_prompts_of_a_fine_tuning_are_of_all_positions_and_moves():
    source = KuhnPoker(positions="any").build("train", 0)
    assert isinstance(source, GameSource)
    tasks = [source[i] for i in range(300)]
    assert {task.columns["moves"] for task in tasks} == set(POSITIONS)
    assert {task.columns["demonstration"] for task in tasks} == {"p", "b"}
    assert len({tuple(task.columns["deal"]) for task in tasks}) == 6
    assert {task.messages[0]["content"] for task in tasks} == {
        f"{card}:{moves}=" for card in "JQK" for moves in POSITIONS
    }

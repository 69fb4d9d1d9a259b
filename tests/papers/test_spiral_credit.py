import random

import pytest
import torch
from role_forest import forest

from lyceum.core.settings import Composition
from lyceum.papers.spiral.credit_role_baseline import RoleBaseline, mean_by_role
from lyceum.papers.spiral.tasks_kuhn_poker import KuhnPoker


def test_each_role_is_compared_with_what_it_earned_in_the_steps_before():
    # Proposers earn -1 and 1/2: -1/4. Solvers 1, 0 in the first tree, 0, 0 in the second: (1/2 + 0) / 2 = 1/4.
    # Half of each is the baseline after a step with decay 1/2; after another of solvers' 1, half of 1/8 and half of 1.
    credit = RoleBaseline(decay=0.5).build()
    rewards = torch.tensor([-1.0, 1, 0, 0.5, 0, 0])
    assert torch.equal(credit(forest()).advantage[:, 1], rewards)
    credit.observe(forest(), {})
    after = credit(forest())
    torch.testing.assert_close(after.advantage[:, 1], rewards - torch.tensor([-1.0, 1, 1, -1, 1, 1]) / 8)
    assert after.metrics["baseline/apart"] == pytest.approx(1 / 4)
    credit.follow({"solver": 1.0})
    assert credit.mean["solver"] == pytest.approx(9 / 16)
    again = RoleBaseline(decay=0.5).build()
    again.load_state_dict(credit.state_dict())
    assert torch.equal(again(forest()).advantage, credit(forest()).advantage)


def deal_of_games(source, task, rng, games=8):
    """What each player earns by uniformly random moves: a number per move, as rows have it."""
    rows = []
    for _ in range(games):
        game, moves = source.game(task), []
        while game.outcome is None:
            moves.append(game.player)
            game = rng.choice([after for text in "pb" if (after := game.after(text)) is not None])
        rows += [(("first", "second")[player], game.outcome[player]) for player in moves]
    return rows


def test_against_uniform_players_the_baseline_lowers_the_squared_advantage():
    # Eight games of one deal share its cards: a mean that follows move by move is the luck of the last two deals.
    source, rng = KuhnPoker().build("train", 0), random.Random(0)
    credit, by_move, squared = (
        RoleBaseline().build(),
        {"first": 0.0, "second": 0.0},
        {"none": 0.0, "ours": 0.0, "move": 0.0},
    )
    for step in range(300):
        rows = [
            (deal, role, earned)
            for deal in range(16)
            for role, earned in deal_of_games(source, source[16 * step + deal], rng)
        ]
        for _, role, earned in rows:
            squared["none"] += earned**2 / len(rows)
            squared["ours"] += (earned - credit.mean.get(role, 0.0)) ** 2 / len(rows)
            squared["move"] += (earned - by_move[role]) ** 2 / len(rows)
        deals, roles, rewards = zip(*rows, strict=True)
        credit.follow(mean_by_role(torch.tensor(rewards), roles, torch.tensor(deals)))
        for role, earned in zip(roles, rewards, strict=True):
            by_move[role] = 0.95 * by_move[role] + 0.05 * earned
    assert squared["ours"] < squared["none"] < squared["move"], squared


def test_it_needs_roles():
    (line,) = RoleBaseline().conflicts(Composition())
    assert "in a stage without roles" in line

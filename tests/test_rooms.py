"""What the rooms promise each other: every component derives from its room's class, and checks reach what is held."""

from typing import Literal

import pytest

from lyceum import component, rooms
from lyceum.component import Component, kinds
from lyceum.recipe import load_recipe
from lyceum.rollout.flat import Flat
from lyceum.rooms import Composition
from lyceum.stages.online import Online
from lyceum.utils.errors import RecipeError

ROOMS = {
    base.room: base
    for base in vars(rooms).values()
    if isinstance(base, type) and issubclass(base, Component) and base.room
}


@pytest.mark.parametrize("room", ROOMS)
def test_every_component_derives_from_its_rooms_class(room):
    assert all(issubclass(settings, ROOMS[room]) for settings in kinds(room).values())


def test_a_plug_in_that_does_not_is_refused_by_name(monkeypatch):
    monkeypatch.setitem(component._registry, "credit", dict(kinds("credit")))

    class Bare(Component, room="credit"):
        kind: Literal["bare"] = "bare"

    line = "stages.0.credit: got .*Bare; allowed: components that derive from lyceum.rooms.CreditSettings"
    with pytest.raises(RecipeError, match=line):
        load_recipe("grpo", ["credit=bare"])
    with pytest.raises(RecipeError, match=line):
        load_recipe("grpo", [("credit", Bare())])


def test_a_component_asks_those_that_it_holds():
    draws = {"kind": "difficulty-weight", "draws": {"kind": "knapsack", "samples": 4, "by": "colour"}}
    curriculum = Online.model_validate({"curriculum": draws}).curriculum
    assert curriculum.check(Composition(rollout=Flat(samples=4))) == []
    (line,) = curriculum.check(Composition(rollout=Flat(samples=8)))
    assert "curriculum.samples: got 4, but rollout.samples is 8" in line
    with pytest.raises(RecipeError, match="colour"):
        curriculum.check_tasks(load_recipe("grpo").tasks.build("train", 0))


def test_a_stage_says_what_it_is_made_of():
    stage = Online.model_validate({"rollout": {"kind": "mcts"}, "reward": ["math"]})
    recipes = load_recipe("grpo").reward
    assert stage.composition(recipes).reward == stage.reward
    assert stage.model_copy(update={"reward": None}).composition(recipes).reward == recipes
    assert stage.composition().samples is None, "a search has no fixed number"

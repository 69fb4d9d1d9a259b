"""What the slots promise each other: every component derives from its slot's class, and checks reach what is held."""

from typing import Literal

import pytest

from lyceum.core import component
from lyceum.core import settings as slots
from lyceum.core.component import Component, kinds
from lyceum.core.settings import Composition
from lyceum.recipe.schema import load_recipe
from lyceum.rollout.flat import Flat
from lyceum.stages.online import Online
from lyceum.utils.errors import RecipeError

SLOTS = {
    base.slot: base
    for base in vars(slots).values()
    if isinstance(base, type) and issubclass(base, Component) and base.slot
}


@pytest.mark.parametrize("slot", SLOTS)
def test_every_component_derives_from_its_rooms_class(slot):
    assert all(issubclass(settings, SLOTS[slot]) for settings in kinds(slot).values())


def test_a_plug_in_that_does_not_is_refused_by_name(monkeypatch):
    monkeypatch.setitem(component._registry, "credit", dict(kinds("credit")))

    class Bare(Component, slot="credit"):
        kind: Literal["bare"] = "bare"

    line = "stages.0.credit: got .*Bare; allowed: components that derive from lyceum.core.settings.CreditSettings"
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

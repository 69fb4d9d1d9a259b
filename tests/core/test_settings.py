"""What the slots promise each other: every component derives from its slot's class, and checks reach what is held."""

import subprocess
import sys
from typing import Literal

import pytest

from lyceum.core import component
from lyceum.core import settings as slots
from lyceum.core.component import Component, find, kinds
from lyceum.core.settings import Composition, EngineSettings
from lyceum.core.steps import Steps
from lyceum.recipe.schema import load_recipe
from lyceum.rollout.beam import Beam
from lyceum.rollout.flat import Flat
from lyceum.training.stages.online import Online
from lyceum.utils.errors import RecipeError
from lyceum.value.likelihood import Likelihood
from lyceum.value.model import PathModel

SLOTS = {
    base.slot: base
    for base in vars(slots).values()
    if isinstance(base, type) and issubclass(base, Component) and base.slot
}


@pytest.mark.parametrize("slot", SLOTS)
def test_every_component_derives_from_its_rooms_class(slot):
    assert all(issubclass(settings, SLOTS[slot]) for settings in kinds(slot).values())


@pytest.mark.parametrize("slot", SLOTS)
def test_every_component_is_found_by_its_kind(slot):
    assert all(find(slot, kind) is settings for kind, settings in kinds(slot).items())
    assert [find(slot, kind) for kind in ("no-such-kind", "", "../base", "a.b", "GROUP", "_growth")] == [None] * 6


def test_a_recipe_imports_the_components_that_it_names_and_not_their_neighbours():
    code = (
        "import sys; from lyceum.recipe.schema import load_recipe; load_recipe('grpo', ['credit=leave-one-out']);"
        "print(*[name in sys.modules for name in ('lyceum.credit.leave_one_out', 'lyceum.credit.gae', 'torch')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False", "False"]


def test_a_plug_in_that_does_not_is_refused_by_name(monkeypatch):
    monkeypatch.setitem(component._registry, "credit", dict(kinds("credit")))

    class Bare(Component, slot="credit"):
        kind: Literal["bare"] = "bare"

    line = "credit: got .*Bare; allowed: components that derive from lyceum.core.settings.CreditSettings"
    with pytest.raises(RecipeError, match=line):
        load_recipe("grpo", ["credit=bare"])
    with pytest.raises(RecipeError, match=line):
        load_recipe("grpo", [("credit", Bare())])


def test_what_an_engine_does_not_give_is_refused_by_the_name_of_who_reads_it(monkeypatch):
    monkeypatch.setitem(component._registry, "engine", dict(kinds("engine")))

    class TokensAlone(EngineSettings):
        kind: Literal["tokens-alone"] = "tokens-alone"

        @property
        def offers(self):
            return frozenset()

        def build(self, policy):
            raise AssertionError("built")

    assert Composition(rollout=Flat(), engine=TokensAlone()).conflicts() == []
    (line,) = Composition(rollout=Flat(), value=Likelihood(), engine=TokensAlone()).conflicts()
    assert line.startswith(
        "engine: got 'tokens-alone', which as set gives no model_logprob, and value.kind 'likelihood' reads it"
    )
    cut = Beam(step=Steps(by="entropy"))  # read by a setting inside of the rollout
    assert "rollout.kind 'beam' reads it" in Composition(rollout=cut, engine=TokensAlone()).conflicts()[0]
    assert Composition(rollout=Beam(), value=PathModel(), engine=TokensAlone()).conflicts() == []
    with pytest.raises(RecipeError, match=r"gives no model_logprob, and rollout\.kind 'best-first' reads it"):
        load_recipe("bfs-prover", ["engine=tokens-alone"])
    assert load_recipe("grpo", ["engine=tokens-alone"]).evaluation_engine == TokensAlone()


def test_a_component_asks_those_that_it_holds():
    draws = {"kind": "difficulty-weight", "draws": {"kind": "knapsack", "samples": 4, "by": "colour"}}
    curriculum = Online.model_validate({"curriculum": draws}).curriculum
    assert curriculum.conflicts(Composition(rollout=Flat(samples=4))) == []
    (line,) = curriculum.conflicts(Composition(rollout=Flat(samples=8)))
    assert "curriculum.draws.samples: got 4, but rollout.samples is 8" in line
    with pytest.raises(RecipeError, match="colour"):
        curriculum.check_tasks(load_recipe("grpo").tasks.build("train", 0))


def test_a_stage_says_what_it_is_made_of():
    stage = Online.model_validate({"rollout": {"kind": "mcts"}, "reward": ["math"]})
    recipes = load_recipe("grpo").reward
    assert stage.composition(recipes).reward == stage.reward
    assert stage.model_copy(update={"reward": None}).composition(recipes).reward == recipes
    assert stage.composition().trajectories == 8

"""SPEAR's reward for turns that call a tool, on small trajectories."""

import pytest
from leaves import leaf

from lyceum.core.tree import Node
from lyceum.core.types import Origin
from lyceum.papers.spear.reward_tool_calls import ToolCalls, turns_with_calls
from lyceum.recipe.schema import load_recipe
from lyceum.utils.errors import RecipeError


def with_turns(*calls: int) -> Node:
    """A trajectory whose turns made so many calls each, every one answered."""
    last = leaf("a")
    for number in calls:
        last.stats["calls"] = number
        answer = Node(last, [1], Origin.TOOL, text="b")
        last = Node(answer, [2], Origin.POLICY, version=[7], text="c")
    return last


def test_a_turn_is_paid_once_however_often_it_calls():
    assert turns_with_calls(with_turns(1, 0, 3)) == 2
    assert ToolCalls(per_turn=0.1).paid(with_turns(1, 0, 3)) == pytest.approx(0.2)
    assert ToolCalls(per_turn=0.4, most=0.5).paid(with_turns(1, 1)) == 0.5
    assert ToolCalls().paid(leaf("no calls")) == 0


def test_the_recipe_lets_it_fade_along_half_a_cosine():
    part = load_recipe("spear").reward[1]
    # (1 + cos(pi x / 0.667)) / 2 of the stage's share x.
    assert [part.schedule.at(share) for share in (0, 0.3335, 0.667, 1)] == pytest.approx([1, 0.5, 0, 0])


def test_without_an_environment_nothing_could_be_called():
    with pytest.raises(RecipeError, match=r"tool-calls' with rollout.kind 'flat', which has no environment to call"):
        load_recipe("grpo", ["reward=[task, tool-calls]"])

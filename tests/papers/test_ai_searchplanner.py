import pytest
from fake_task import roll
from guidance_fakes import RIGHT, WRONG, FakeContext, Source, ask

from lyceum.core.types import Continuation, Grade, Origin
from lyceum.papers.ai_searchplanner.guidance_search_planner import SearchPlanner
from lyceum.recipe.schema import load_recipe
from lyceum.utils.errors import RecipeError


def plans(*found):
    """A rollout whose trajectories get these answers of a tool, each a list."""

    async def rollout(context, start, n):
        assert context.role == "planner"
        leaves = []
        for answers in found:
            node = start.add_drawn(Continuation([7], [-1.0], [-1.0], [0], "stop"), "q", role=context.role)
            for answer in answers or ():
                node.stats["calls"] = 1
                node = node.add([8], Origin.TOOL, answer)
                node = node.add_drawn(Continuation([7], [-1.0], [-1.0], [0], "stop"), "q", role=context.role)
            if answers is None:
                node.grade = Grade.ungraded("broken")
            leaves.append(node)
        return leaves

    return rollout


def planned(context, *found, **settings):
    guide = SearchPlanner(findings="{findings}", between=",", answers=2, direct=4, **settings).build(Source(), seed=0)
    tree = roll(guide(plans(*found)), context, ask("Q"))
    guide.observe([tree])
    return tree, guide.metrics()


def test_a_plan_earns_what_the_other_model_gains_by_it_less_its_cost():
    # Directly one of four is right: 1/4. With "a" one of two, one call: 1/2 - 1/4 - 0.1. With "a" and "b" both, two
    # calls: 1 - 1/4 - 0.2. Without any: two more direct answers, wrong, no call: -1/4.
    grades = {"Q": [RIGHT, WRONG], "Q|a": [RIGHT, WRONG], "Q|a,b": [RIGHT]}
    tree, metrics = planned(FakeContext(grades), ["a"], ["a", "b"], [], cost=0.1)
    assert [leaf.grade.outcome for leaf in tree.chosen] == pytest.approx([0.15, 0.55, -0.25])
    assert {leaf.role for leaf in tree.chosen} == {"planner"}, "the answerer is not trained"
    assert metrics["accuracy/direct"] == 0.25
    assert metrics["accuracy/found"] == 0.5
    assert (metrics["plans/helped"], metrics["plans/harmed"], metrics["calls/mean"]) == (2, 1, 1)


def test_a_plan_whose_tool_failed_is_ungraded():
    tree, _ = planned(FakeContext(otherwise=RIGHT), None)
    assert tree.chosen[0].grade.reason == "broken"


def test_without_an_environment_there_is_nothing_to_ask():
    with pytest.raises(RecipeError, match=r"search-planner' with rollout.kind 'flat', which has no environment to ask"):
        load_recipe("grpo", ["guidance=[search-planner]"])

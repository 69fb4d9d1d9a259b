import pytest
from fake_task import roll
from guidance_fakes import RIGHT, WRONG, FakeContext, Source, ask, flat, prompt_of

from lyceum.core.forest import build_forest
from lyceum.papers.expo.guidance_self_explanation import SelfExplanation
from lyceum.utils.errors import RecipeError

SHOWN = "Q|The answer is 48. Explain step by step how to get there, and end with it."


def explained(grades, task=None, *, otherwise=WRONG, budget=1 << 62, limit=1000, **settings):
    context = FakeContext(grades, otherwise, budget=budget, limit=limit)
    guide = SelfExplanation(**settings).build(Source(ask()), seed=0)
    tree = roll(guide(flat(3)), context, task or ask("Q", 48), 3)
    guide.observe([tree])
    return tree, context, guide.metrics()


def test_an_explanation_that_ends_in_the_answer_stands_below_the_bare_prompt_and_in_no_group():
    tree, context, metrics = explained({"Q": [WRONG], SHOWN: [RIGHT]})
    assert context.asked == [("Q", 3), (SHOWN, 1)]
    *own, last = tree.trajectories
    assert [prompt_of(leaf) for leaf in tree.trajectories] == ["Q"] * 4
    assert last.grafted
    assert not any(leaf.grafted for leaf in own)
    # Its probability under the prompt that it was written under: the longer prompt's.
    assert last.behaviour_logprob == [-float(len(SHOWN))]
    forest = build_forest([tree])
    assert (forest.group[3] != forest.group[:3]).all()
    assert tree.solved_unaided == 0  # of what the policy does by itself it says nothing
    assert metrics["groups/guided"] == metrics["groups/rescued"] == metrics["explanations/right"] == 1


def test_one_that_does_not_is_left_out_and_counted():
    tree, _, metrics = explained({"Q": [RIGHT]}, samples=2)
    assert len(tree.trajectories) == 3
    assert (metrics["explanations/sampled"], metrics["explanations/right"], metrics["groups/guided"]) == (2, 0, 0)


def test_only_where_all_fail_if_so_asked():
    _, context, _ = explained({"Q": [RIGHT, WRONG]}, when="failed")
    assert context.asked == [("Q", 3)]
    _, context, metrics = explained({"Q": [WRONG], SHOWN: [RIGHT]}, when="failed")
    assert context.asked == [("Q", 3), (SHOWN, 1)]
    assert metrics["groups/guided"] == 1


def test_solved_groups_are_explained_too_and_are_not_rescued():
    _, _, metrics = explained({"Q": [RIGHT, WRONG], SHOWN: [RIGHT]})
    assert (metrics["groups/guided"], metrics["groups/rescued"]) == (1, 0)


@pytest.mark.parametrize(
    ("given", "counted"),
    [({"task": ask("Q")}, "without_answer/tasks"), ({"limit": 20}, "too_long/hints"), ({"budget": 3}, None)],
)
def test_what_cannot_be_asked_leaves_the_group_as_it_is(given, counted):
    tree, context, metrics = explained({}, **given)
    assert context.asked == [("Q", 3)]
    assert len(tree.trajectories) == 3
    assert counted is None or metrics[counted] == 1


def test_of_several_accepted_answers_the_first_is_shown():
    _, context, _ = explained({}, ask("Q", [None, "48", "48.0"]))
    assert context.asked[1] == (SHOWN, 1)


def test_bad_input_is_refused():
    with pytest.raises(RecipeError, match="none of the tasks has an answer"):
        SelfExplanation().check_tasks(Source(ask()))
    with pytest.raises(ValueError, match=r"a text with \{answer\}"):
        SelfExplanation(prompt="Explain {level}")

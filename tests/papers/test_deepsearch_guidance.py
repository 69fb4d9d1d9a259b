"""Who is searched, who is sampled directly, and what becomes of the solutions that a search has found."""

import json
from typing import cast

import fake_task
import pytest
from guidance_fakes import RIGHT, WRONG, FakeContext, Source, ask

from lyceum.core.forest import build_forest
from lyceum.core.types import Continuation, Grade, Origin, TaskSource
from lyceum.papers.deepsearch.curriculum_hard_filter import DirectSamples
from lyceum.papers.deepsearch.guidance_search_where_hard import SearchWhereHard
from lyceum.recipe.schema import load_recipe
from lyceum.rollout.flat import Flat
from lyceum.utils.errors import RecipeError

TASK = ask()


def guide(**settings):
    settings = {"direct": Flat(samples=4), "tests": 2} | settings
    return SearchWhereHard(**settings).build(cast(TaskSource, Source()), seed=0)


class Found:
    """A search without a search: two nodes to each trajectory, graded as told."""

    def __init__(self, *grades):
        self.grades, self.calls = grades, 0

    async def __call__(self, context, start, n):
        self.calls += 1
        leaves = []
        for i, grade in enumerate(self.grades):
            step = start.add_drawn(Continuation([50 + i], [-0.25], [-0.5], [3], "length"), "x")
            leaf = step.add_drawn(Continuation([70, 71], [-1.0, -2.0], [-1.5, -2.5], [3, 4], "stop"), "y")
            leaf.grade = grade
            leaves.append(leaf)
        context.tree.sampled_tokens += 3 * len(self.grades)
        return leaves


def roll(of, search, context, task=TASK):
    tree = fake_task.roll(of(search), context, task)
    of.observe([tree])
    return tree


def restored_grades(context, grade=RIGHT):
    """A context that grades cached solutions too, which it did not draw itself."""
    context.judged = lambda leaf: leaf.stats.get("grade", grade)
    return context


def test_a_task_that_direct_samples_fail_is_searched():
    search, of = Found(WRONG, WRONG), guide()
    context = FakeContext({"Q": [WRONG]})
    tree = roll(of, search, context)
    assert search.calls == 1
    assert (tree.note(DirectSamples).accuracy, tree.metadata["search-where-hard"].by) == (0.0, "search")
    assert tree.sampled_tokens == 2 + 6, "the test's tokens are counted"
    assert context.held == 1, "the engine waits for the test's grades: more requests may follow"


def test_just_at_the_threshold_a_task_is_hard():
    # One of four is right: at most 25 %. Two of four are not.
    for right, searched in ((1, 1), (2, 0)):
        search = Found(WRONG)
        roll(guide(tests=4), search, FakeContext({"Q": [RIGHT] * right + [WRONG] * 4}))
        assert search.calls == searched


def test_an_easy_task_is_dropped_or_made_up_to_a_group():
    search = Found(WRONG)
    dropped = roll(guide(), search, FakeContext({"Q": [RIGHT]}))
    assert dropped.trajectories == []
    assert dropped.note(DirectSamples).accuracy == 1.0, "what the curriculum filters by"
    context = FakeContext({"Q": [RIGHT, RIGHT, WRONG]})
    trained = roll(guide(easy="train"), search, context)
    assert [n for _, n in context.asked] == [2, 2]
    assert [leaf.grade for leaf in trained.trajectories] == [RIGHT, RIGHT, WRONG, WRONG]
    assert trained.sampled_tokens == 4
    forest = build_forest([trained])
    assert forest.n_rows == 4
    assert forest.shared > 0, "one prompt, though it stands there twice"
    assert search.calls == 0


def test_without_tests_every_task_is_searched():
    search = Found(WRONG)
    tree = roll(guide(tests=0), search, FakeContext({"Q": [RIGHT]}))
    assert (search.calls, tree.note(DirectSamples).accuracy) == (1, None)


def test_a_solved_task_is_not_searched_again_and_its_solutions_stand_among_direct_samples():
    # 1 of 4 trajectories is right: at most a quarter, more than none.
    search, of = Found(WRONG, RIGHT, WRONG, WRONG), guide()
    roll(of, search, FakeContext({"Q": [WRONG]}))
    assert of.metrics()["cached/tasks"] == 1
    again = roll(of, search, restored_grades(FakeContext({"Q": [WRONG]})))
    assert search.calls == 1
    cached, *own = again.trajectories
    assert cached.tokens == [51, 70, 71]
    # Of when it was drawn, for who corrects for a stale policy.
    assert cached.behaviour_logprob == [-0.25, -1.0, -2.0]
    assert cached.model_logprob == [-0.5, -1.5, -2.5]
    assert cached.version == [3, 3, 4]
    assert (cached.origin, cached.finish, cached.grafted) == (Origin.POLICY, "stop", False)
    assert [leaf.tokens for leaf in own] == [[1], [2], [3]], "it stands in the first one's place"
    assert again.note(DirectSamples).accuracy == 0.0, "of all direct samples, the one that gave way too"
    metrics = of.metrics()
    assert (metrics["used/hits"], metrics["used/solutions"], metrics["searched/tasks"]) == (1, 1, 0)


def test_no_more_solutions_than_a_group_has_places():
    of = guide(direct=Flat(samples=1))
    of.solutions[TASK.id] = [
        {"tokens": [t], "behaviour_logprob": [-1.0], "model_logprob": [-1.0], "version": [0], "finish": "stop"}
        for t in (5, 6, 7)
    ]
    tree = roll(of, Found(), restored_grades(FakeContext({"Q": [WRONG]})))
    assert [leaf.tokens for leaf in tree.trajectories] == [[5]]


@pytest.mark.parametrize(
    ("grades", "kept"),
    [
        ([WRONG] * 4, 0),
        ([RIGHT] + [WRONG] * 3, 1),
        ([RIGHT] * 2 + [WRONG] * 2, 0),
        ([RIGHT, Grade.ungraded("x")], 0),
    ],
)
def test_only_what_a_search_solved_rarely_is_kept(grades, kept):
    of = guide()
    roll(of, Found(*grades), FakeContext({"Q": [WRONG]}))
    assert (of.metrics()["cached/tasks"], of.metrics()["cached/solutions"]) == (kept, kept)


def test_equal_solutions_are_kept_once_and_foreign_ones_never():
    of = guide(hard=0.5)

    async def search(context, start, n):
        leaves = await Found(RIGHT, RIGHT, WRONG, WRONG, WRONG, WRONG)(context, start, n)
        start.children[1].tokens = [50]  # the same as the first
        hinted = context.tree.add_prompt([1]).add_drawn(Continuation([9], [-1.0], [-1.0], [0], "stop"))
        demonstration = start.add([8], Origin.TEACHER)
        hinted.grade = demonstration.grade = RIGHT
        return [*leaves, hinted, demonstration]

    roll(of, search, FakeContext({"Q": [WRONG]}))
    assert [one["tokens"] for one in of.solutions[TASK.id]] == [[50, 70, 71]]


def test_a_task_that_is_no_longer_hard_leaves_the_cache():
    search, of = Found(RIGHT, WRONG, WRONG, WRONG), guide()
    roll(of, search, FakeContext({"Q": [WRONG]}))
    roll(of, search, restored_grades(FakeContext({"Q": [RIGHT]})))
    assert of.solutions == {}


def test_the_cache_has_a_bound_and_the_oldest_leaves_first():
    of = guide(cached_tasks=2)
    for name in ("A", "B", "C"):
        roll(of, Found(RIGHT, WRONG, WRONG, WRONG), FakeContext({name: [WRONG]}), ask(name))
    assert list(of.solutions) == ["B", "C"]
    without = guide(cached_tasks=0)
    roll(without, Found(RIGHT, WRONG, WRONG, WRONG), FakeContext({"Q": [WRONG]}))
    assert without.solutions == {}


def test_the_state_is_plain_and_comes_back_whole():
    of = guide()
    roll(of, Found(RIGHT, WRONG, WRONG, WRONG), FakeContext({"Q": [WRONG]}))
    other = guide()
    other.load_state_dict(json.loads(json.dumps(of.state_dict())))
    assert other.solutions == of.solutions
    with pytest.raises(ValueError, match="state lacks"):
        other.load_state_dict({})


def test_direct_samples_and_search_draw_alike():
    with pytest.raises(
        RecipeError, match=r"direct.sampling.temperature: got 1.0, but rollout.sampling.temperature is 0.7"
    ):
        load_recipe("deepsearch", ["rollout.sampling.temperature=0.7"])


def test_all_samples_of_an_easy_task_stand_under_its_own_prompt():
    # Two test it, two more make up the group. Under a second prompt the latter would count as helped, and be no
    # solutions to imitate: of 2 right of 4 the share would be 1 of 2.
    tree = roll(guide(easy="train"), Found(), FakeContext({"Q": [RIGHT, WRONG, RIGHT, WRONG]}))
    assert [leaf.path()[0] is tree.root for leaf in tree.trajectories] == [True] * 4
    assert tree.root.children == tree.trajectories
    assert len(tree.roots) == 1
    assert tree.solved_unaided == tree.solved == 0.5
    tree = roll(guide(easy="train"), Found(), FakeContext({"Q": [RIGHT, WRONG, RIGHT, RIGHT]}))
    assert tree.solved_unaided == 0.75

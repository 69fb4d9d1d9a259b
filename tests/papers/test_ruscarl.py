import asyncio
import math

import fake_task
import pytest
from guidance_fakes import RIGHT, FakeContext, Source, ask, flat, prompt_of

from lyceum.core.tree import Node, Tree
from lyceum.core.types import Continuation, Grade, Origin
from lyceum.papers.ruscarl.guidance_rubric_scaffold import RubricScaffold, share_shown
from lyceum.tasks.chain import Chain, make_task
from lyceum.utils.errors import RecipeError

RUBRIC = [{"criterion": f"c{i}", "points": i - 1} for i in range(4)]  # the first takes a point off
TASK = ask(rubric=RUBRIC)
CHAIN = make_task("t", 37, [8, -2, 5, 1])  # results 45 43 48 49, the last of them the answer


def roll(context, task=TASK, *, samples=5, source=None, guide=None, **settings):
    guide = guide or RubricScaffold(**settings).build(source or Source(task), seed=0)
    return fake_task.roll(guide(flat(samples)), context, task, samples)


def test_the_share_falls_along_the_group_and_with_the_steps():
    def shares(progress, **how):
        return [share_shown(i, 5, progress, **{"start": 0.2, "steepness": 10.0} | how) for i in range(5)]

    # At the start point half of 1, 3/4, 1/2, 1/4, 0.
    assert shares(0.2) == [0.5, 0.375, 0.25, 0.125, 0.0]
    # Long before it the group's own line, long after it nothing.
    assert shares(0.0, steepness=1000.0) == pytest.approx([1.0, 0.75, 0.5, 0.25, 0.0])
    assert shares(1.0, steepness=1000.0) == pytest.approx([0.0] * 5)
    # 10 (0.3 - 0.2) = 1: 1 / (1 + e).
    assert shares(0.3)[0] == pytest.approx(1 / (1 + math.e))


def test_the_first_sample_sees_every_criterion_and_the_last_none():
    context = FakeContext({}, RIGHT, progress=0.0)
    tree = roll(context, order="listed")
    # 1, 3/4, 1/2, 1/4 and 0 of four criteria.
    assert [n for _, n in context.asked] == [1] * 5
    assert [prompt.count("- c") for prompt, _ in context.asked] == [4, 3, 2, 1, 0]
    full = context.asked[0][0]
    assert (
        full
        == "Q|A good answer:\n- c1 (0 points)\n- c2 (1 points)\n- c3 (2 points)\nWhat to avoid:\n- c0 (1 points off)"
    )
    assert context.asked[-1][0] == "Q"
    assert tree.metadata["rubric-scaffold"].shown == [4, 3, 2, 1, 0]


def test_samples_are_trained_as_if_under_the_tasks_own_prompt_with_their_log_probabilities_under_the_criteria():
    context = FakeContext({}, RIGHT, progress=0.0)
    tree = roll(context, order="listed")
    assert [prompt_of(leaf) for leaf in tree.trajectories] == ["Q"] * 5
    written = sorted(leaf.behaviour_logprob[0] for leaf in tree.trajectories)
    assert written == sorted(-float(len(prompt)) for prompt, _ in context.asked)
    assert sum(leaf.grafted for leaf in tree.trajectories) == 4, "the last was written where it stands"
    assert all(leaf.grade is RIGHT for leaf in tree.trajectories)
    assert context.held == 0


def test_hinted_trains_each_under_its_own_prompt():
    tree = roll(FakeContext({}, RIGHT, progress=0.0), treatment="hinted", order="listed")
    assert len(tree.trajectories) == 5
    assert len({prompt_of(leaf) for leaf in tree.trajectories}) == 5


def test_after_the_decay_a_group_is_drawn_at_once_without_criteria():
    context = FakeContext(progress=0.4)
    tree = roll(context)
    assert context.asked == [("Q", 5)]
    assert not any(leaf.grafted for leaf in tree.trajectories)


def test_criteria_are_a_random_choice_for_each_sample_drawn_from_the_seed():
    def prompts(key):
        context = FakeContext(progress=0.2, key=key)  # half is left: 2, 1.5 -> 2, 1, 0.5 -> 0 and 0 of four
        roll(context)
        return [prompt for prompt, n in context.asked for _ in range(n)]

    assert prompts(1) == prompts(1)
    seen = {prompts(key)[0] for key in range(60)}
    assert len(seen) == 6, "every pair of four criteria"
    assert any(prompts(key)[0] != prompts(key)[1] for key in range(6)), "two samples that see two see others"


def test_a_chain_shows_its_first_results_and_never_the_answer():
    source = Chain().build("train", 0)
    context = FakeContext(progress=0.0)
    roll(context, CHAIN, source=source, order="listed", samples=4)
    # Three criteria can be shown: 1, 2/3, 1/3 and none of them.
    asked = [prompt for prompt, _ in context.asked]
    assert asked == ["37+8-2+5+1|45,43,48=", "37+8-2+5+1|45,43=", "37+8-2+5+1|45=", "37+8-2+5+1="]
    context = FakeContext(progress=0.0)
    roll(context, CHAIN, source=source, order="listed", samples=4, allow_leaks=True)
    assert context.asked[0][0] == "37+8-2+5+1|45,43,48,49="


def test_no_more_criteria_are_shown_than_the_context_has_room_for():
    two = "Q|A good answer:\n- c1 (0 points)\nWhat to avoid:\n- c0 (1 points off)"
    context = FakeContext(progress=0.0, limit=len(two) + 1)
    tree = roll(context, order="listed")
    # 4, 3, 2, 1 and 0 are asked for.
    assert tree.metadata["rubric-scaffold"].shown == [2, 2, 2, 1, 0]


def test_criteria_that_say_the_answer_are_not_shown():
    rubric = [{"criterion": "says 12", "points": 1}, {"criterion": "is polite", "points": 1}]
    context = FakeContext(progress=0.0)
    roll(context, ask(answer="12", rubric=rubric), samples=2)
    assert "is polite" in context.asked[0][0]
    assert "12" not in context.asked[0][0]


def test_tasks_whose_criteria_cannot_be_shown_are_refused():
    with pytest.raises(RecipeError, match=r"guidance.rubric-scaffold: none of the tasks has criteria to show"):
        RubricScaffold().check_tasks(Source(ask()))
    with pytest.raises(RecipeError, match=r"order: got 'random'.*allowed: listed"):
        RubricScaffold().check_tasks(Chain().build("train", 0))
    RubricScaffold(order="listed").check_tasks(Chain().build("train", 0))


def test_what_was_shown_and_what_it_earned_is_told():
    guide = RubricScaffold(order="listed").build(Source(TASK), seed=0)
    shown = FakeContext({}, RIGHT, progress=0.0)
    guide.observe([roll(shown, guide=guide), roll(FakeContext(), ask("R"), guide=guide)])
    assert guide.metrics() == {
        "without_hints/tasks": 1,
        "shown/mean": (1 + 0.75 + 0.5 + 0.25 + 0) / 5,
        "outcome/with_criteria": 1.0,
        # the last of five, right, and five of the task without a rubric, wrong
        "outcome/without": 1 / 6,
    }


def test_a_trajectory_of_steps_counts_as_shown_what_its_first_step_was():
    guide = RubricScaffold(treatment="hinted").build(Source(TASK), seed=0)
    tree = Tree(TASK, [Node(None, [1], Origin.PROMPT)])
    for shown, outcome in ((2, 1.0), (0, 0.0)):
        step = tree.root.add_drawn(Continuation([2], [-1.0], [-1.0], [0], "length"))
        step.stats["criteria"] = shown
        leaf = step.add_drawn(Continuation([3], [-1.0], [-1.0], [0], "stop"))
        leaf.grade = Grade(outcome)
    guide.observe([tree])
    metrics = guide.metrics()
    assert (metrics["outcome/with_criteria"], metrics["outcome/without"]) == (1.0, 0.0)


def test_a_request_that_fails_leaves_none_of_the_others_behind():
    cancelled = []

    class Failing(FakeContext):
        async def extend(self, node, n, sampling=None, *, keep=False):
            if node.text == "Q":
                raise OSError("the engine is gone")
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(node.text)
                raise

    async def run():
        guide = RubricScaffold(order="listed").build(Source(TASK), seed=0)
        context = Failing(progress=0.0)
        context.begin(TASK)
        with pytest.raises(OSError, match="the engine is gone"):
            await guide(flat(3))(context, context.tree.root, 3)
        return len(cancelled)

    assert asyncio.run(run()) == 2, "both samples that were shown criteria"

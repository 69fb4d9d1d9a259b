import json

import fake_task
import pytest
import torch
from guidance_fakes import RIGHT, WRONG, FakeContext, Source, ask, flat, prompt_of

from lyceum.core.forest import build_forest
from lyceum.core.types import Grade, Hint
from lyceum.credit.group import group_relative
from lyceum.papers.scaf_grpo.guidance_scaffold import Scaffold
from lyceum.training.stages.online import Online
from lyceum.utils.errors import RecipeError

LADDER = [
    {"tier": "knowledge", "text": "k1"},
    {"tier": "knowledge", "text": "k2"},
    {"tier": "planning", "text": "p1"},
    {"tier": "solution", "text": "|4"},
    {"tier": "solution", "text": "|4,7"},
]
TASK = ask(hints=LADDER)
LEVELS = ["Q|k1", "Q|k1\nk2", "Q|p1", "Q||4", "Q||4,7"]


def roll(context, task=TASK, *, samples=4, guide=None, **settings):
    guide = guide or Scaffold(**settings).build(Source(task), seed=0)
    tree = fake_task.roll(guide(flat(samples)), context, task, samples)
    return tree


def test_the_ladder_is_climbed_tier_by_tier_until_one_hinted_sample_is_right():
    context = FakeContext({"Q||4": [RIGHT]})
    tree = roll(context)
    # One sample a level. k2 brings k1 along, p1 brings neither; "|4,7" says "|4" itself and is not joined to it.
    assert context.asked == [("Q", 4), *((level, 1) for level in LEVELS[:4])]
    assert [prompt_of(leaf) for leaf in tree.trajectories].count("Q||4") == 1
    assert len(tree.trajectories) == 4
    assert tree.metadata["scaffold"].solved_by == "solution"
    assert tree.sampled_tokens == context.tree.sampled_tokens == 8, "what was tried in vain was paid for too"


def test_the_hinted_success_shares_the_baseline_of_its_group_under_its_own_prompt():
    tree = roll(FakeContext({"Q|k1": [RIGHT]}))
    forest = build_forest([tree])
    assert forest.reward.tolist().count(1.0) == 1
    # Rewards 1 0 0 0: mean 1/4, std sqrt(3)/4: sqrt(3) for the hinted one and -1/sqrt(3) for each failure.
    # In a group of its own the hinted one would get 0.
    advantage = group_relative(forest.reward, forest.group).sort(descending=True).values
    torch.testing.assert_close(advantage, torch.tensor([3.0, -1, -1, -1]) / 3**0.5)
    hinted = int(forest.reward.argmax())
    written = forest.behaviour_logprob[forest.leaf]
    assert written[hinted] == -len("Q|k1"), "its log-probabilities are those of the hinted prompt"
    assert forest.row_length.tolist()[hinted] == len("Q|k1") + 1


def test_all_levels_at_once_find_the_lowest_that_is_right():
    context = FakeContext({"Q|p1": [RIGHT], "Q||4": [RIGHT]})
    tree = roll(context, search="together")
    assert context.asked == [("Q", 4), *((level, 1) for level in LEVELS)]
    assert [prompt_of(leaf) for leaf in tree.trajectories if leaf.grade is RIGHT] == ["Q|p1"]
    assert len(tree.trajectories) == 4


@pytest.mark.parametrize(("progress", "asked"), [(0.0, 1), (0.149, 1), (0.15, 2), (0.9, 2)])
def test_the_first_share_of_the_stage_is_exempt(progress, asked):
    context = FakeContext({"Q|k1": [RIGHT]}, progress=progress)
    roll(context)
    assert len(context.asked) == asked


def test_the_gate_is_right_or_wrong_and_not_the_reward():
    shaped = Grade(0.4, False)  # a format reward of 0.4: the group is wrong all the same
    context = FakeContext({"Q": [shaped], "Q|k1": [RIGHT]})
    roll(context)
    assert len(context.asked) == 2
    punished = Grade(-0.3, True)  # right, and too long
    context = FakeContext({"Q": [WRONG, punished]})
    roll(context)
    assert context.asked == [("Q", 4)]


def test_a_group_that_nobody_could_grade_is_not_a_failed_one():
    context = FakeContext({"Q": [Grade.ungraded("timeout")]})
    tree = roll(context)
    assert context.asked == [("Q", 4)]
    assert not tree.metadata["scaffold"].failed


def test_an_ungraded_hinted_sample_is_no_success_and_an_ungraded_one_is_not_replaced():
    context = FakeContext({"Q": [Grade.ungraded("timeout"), WRONG], "Q|k1": [Grade.ungraded("x")], "Q|k1\nk2": [RIGHT]})
    tree = roll(context, samples=2)
    assert [(prompt_of(leaf), leaf.grade.outcome) for leaf in tree.trajectories] == [("Q", None), ("Q|k1\nk2", 1.0)]


def test_without_a_success_the_group_stays_as_it_is():
    context = FakeContext()
    tree = roll(context)
    assert [prompt_of(leaf) for leaf in tree.trajectories] == ["Q"] * 4
    assert tree.metadata["scaffold"].solved_by is None
    assert tree.sampled_tokens == 4 + 5


def test_tiers_are_left_out_and_reordered():
    context = FakeContext()
    roll(context, tiers=("solution", "knowledge"))
    assert [prompt for prompt, _ in context.asked] == ["Q", "Q||4", "Q||4,7", "Q|k1", "Q|k1\nk2"]


def test_a_task_without_hints_is_rolled_out_as_it_is_and_counted():
    bare = ask("R")
    guide = Scaffold().build(Source(TASK, bare), seed=0)
    context = FakeContext()
    tree = roll(context, bare, guide=guide)
    assert context.asked == [("R", 4)]
    guide.observe([tree])
    assert guide.metrics()["without_hints/tasks"] == 1


def test_unhinted_puts_the_success_below_the_tasks_own_prompt_with_the_hinted_log_probabilities():
    tree = roll(FakeContext({"Q|k1": [RIGHT]}), treatment="unhinted")
    assert [prompt_of(leaf) for leaf in tree.trajectories] == ["Q"] * 4
    [leaf] = [leaf for leaf in tree.trajectories if leaf.grade is RIGHT]
    assert leaf.behaviour_logprob == [-float(len("Q|k1"))]
    assert leaf.grafted
    assert leaf.stats["hint"] == Hint("knowledge", "k1")


def test_which_failure_is_replaced_is_drawn_from_the_seed():
    def place(key):
        tree = roll(FakeContext({"Q|k1": [RIGHT]}, key=key))
        return [leaf.grade is RIGHT for leaf in tree.trajectories].index(True)

    places = [place(key) for key in range(40)]
    assert set(places) == {0, 1, 2, 3}, "always the first would train fewer of its tokens, batch after batch"
    assert places == [place(key) for key in range(40)]


@pytest.mark.parametrize("search", ["one-by-one", "together"])
def test_two_failures_are_replaced_by_the_two_least_hints_that_suffice(search):
    context = FakeContext({"Q|k1\nk2": [RIGHT], "Q||4": [RIGHT], "Q||4,7": [RIGHT]})
    tree = roll(context, replaced=2, search=search)
    assert sorted(prompt_of(leaf) for leaf in tree.trajectories) == ["Q", "Q", "Q|k1\nk2", "Q||4"]
    assert len(context.asked) == (5 if search == "one-by-one" else 6)


def test_a_task_is_hinted_only_after_so_many_failed_groups_in_a_row():
    guide = Scaffold(stalled_after=2).build(Source(TASK), seed=0)

    def group(grade):
        context = FakeContext({"Q": [grade], "Q|k1": [RIGHT]})
        guide.observe([roll(context, guide=guide)])
        return len(context.asked) > 1

    assert [group(WRONG), group(WRONG), group(WRONG)] == [False, True, True]
    # Solved once without help: practice, and not difficulty.
    assert [group(RIGHT), group(WRONG), group(WRONG)] == [False, False, True]


def test_the_history_of_failures_is_in_the_state():
    first = Scaffold(stalled_after=2).build(Source(TASK), seed=0)
    first.observe([roll(FakeContext(), guide=first)])
    resumed = Scaffold(stalled_after=2).build(Source(TASK), seed=1)
    resumed.load_state_dict(json.loads(json.dumps(first.state_dict())))
    context = FakeContext({"Q|k1": [RIGHT]})
    roll(context, guide=resumed)
    assert len(context.asked) == 2
    with pytest.raises(ValueError, match=r"state lacks"):
        resumed.load_state_dict({})


def test_what_helped_is_counted_by_tier():
    guide = Scaffold().build(Source(TASK), seed=0)
    trees = [
        roll(FakeContext({"Q|k1": [RIGHT]}), guide=guide),
        roll(FakeContext({"Q|p1": [RIGHT]}), guide=guide),
        roll(FakeContext(), guide=guide),
        roll(FakeContext({"Q": [RIGHT]}), guide=guide),
        roll(FakeContext(progress=0.1), guide=guide),
    ]
    guide.observe(trees)
    assert guide.metrics() == {
        "groups/failed": 4,
        "groups/exempt": 1,
        "groups/guided": 3,
        "without_hints/tasks": 0,
        "too_long/hints": 0,
        "samples/knowledge": 1 + 2 + 2,
        "solved_by/knowledge": 1,
        "samples/planning": 1 + 1,
        "solved_by/planning": 1,
        "samples/solution": 2,
        "solved_by/solution": 0,
        "solved_by/nothing": 1,
    }
    guide.observe([])
    assert guide.metrics()["groups/failed"] == 0, "metrics are of the step just observed"


@pytest.mark.parametrize("search", ["one-by-one", "together"])
def test_a_spent_budget_ends_the_climb(search):
    context = FakeContext(budget=4)
    roll(context, search=search)
    assert context.asked == [("Q", 4)]


def test_only_grades_after_which_it_may_return_are_waited_for():
    context = FakeContext()
    roll(context)
    assert context.held == 6, "the group and each level"
    context = FakeContext(progress=0.1)
    roll(context)
    assert context.held == 0, "what is exempt waits for no grade"
    context = FakeContext()
    roll(context, search="together")
    assert context.held == 6


def test_hints_for_which_the_context_has_no_room_are_passed_by_and_counted():
    guide = Scaffold().build(Source(TASK), seed=0)
    context = FakeContext(limit=6)  # "Q|k1\nk2" and "Q||4,7" are longer than five
    guide.observe([roll(context, guide=guide)])
    assert [prompt for prompt, _ in context.asked] == ["Q", "Q|k1", "Q|p1", "Q||4"]
    assert guide.metrics()["too_long/hints"] == 2


def test_nothing_to_compare_with_is_refused():
    stage = Online(rollout={"kind": "flat", "samples": 2}, guidance=[{"kind": "scaffold", "replaced": 2}])
    assert "guidance.scaffold.replaced: got 2 with rollout.samples 2" in "\n".join(stage.conflicts(stage.composition()))


def test_ladders_that_leak_are_refused_unless_allowed():
    leaky = ask("2+2+3", answer="7", hints=[{"tier": "solution", "text": "4, then 7"}])
    with pytest.raises(RecipeError, match=r"'4, then 7' holds '7'.*guidance.scaffold.allow_leaks=true"):
        Scaffold().check_tasks(Source(leaky))
    Scaffold(allow_leaks=True).check_tasks(Source(leaky))
    Scaffold(tiers=("knowledge", "solution")).check_tasks(Source(ask("Q", answer="7", hints=LADDER[:3])))


def test_levels_that_are_tried_at_once_share_the_tasks_budget():
    # 7 tokens: 4 samples take one each, 3 are left for 5 levels: the lowest three, a token each.
    context = FakeContext(budget=7)
    roll(context, search="together")
    assert context.asked == [("Q", 4), *((level, 1) for level in LEVELS[:3])]

    class Notes(FakeContext):
        longest = []  # noqa: RUF012, shared with the shares of the context

        async def extend(self, node, n, sampling=None, *, keep=False):
            self.longest.append(sampling.max_completion_tokens)
            return await super().extend(node, n, sampling, keep=keep)

    # 54 tokens: 50 are left, 10 for each of the five, where each alone would take all that is left.
    context = Notes(budget=54)
    roll(context, search="together")
    assert context.longest == [13] + [10] * 5

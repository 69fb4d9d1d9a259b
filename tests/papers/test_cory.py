from fake_task import roll
from guidance_fakes import RIGHT, WRONG, FakeContext, Source, ask, flat

from lyceum.core.settings import Composition
from lyceum.core.types import Grade
from lyceum.papers.cory.guidance_pioneer_observer import PioneerObserver

SEEN = "Q\n{answer}\nAgain?"


def guided(context, samples=2, **settings):
    guide = PioneerObserver(prompt="Again?", **settings).build(Source(), seed=0)
    tree = roll(guide(flat(samples)), context, ask("Q"))
    guide.observe([tree])
    return tree, guide.metrics()


def outcomes(tree, role):
    return [leaf.grade.outcome for leaf in tree.chosen if leaf.role == role]


def test_the_observer_answers_below_the_pioneers_answer():
    context = FakeContext()
    tree, _ = guided(context)
    assert context.asked == [("Q", 2), (SEEN.format(answer="s0"), 1), (SEEN.format(answer="s1"), 1)]
    assert [leaf.role for leaf in tree.chosen] == ["pioneer", "pioneer", "observer", "observer"]


def test_both_of_a_pair_earn_the_sum_of_their_rewards_and_keep_their_own_verdicts():
    # Pioneers: right, wrong. Observers: of the right one wrong, of the wrong one wrong.
    tree, metrics = guided(FakeContext({"Q": [RIGHT, WRONG], SEEN.format(answer="s0"): [RIGHT]}))
    assert outcomes(tree, "pioneer") == [2.0, 0.0]
    assert outcomes(tree, "observer") == [2.0, 0.0]
    assert [leaf.grade.correct for leaf in tree.chosen] == [True, False, True, False]
    assert tree.chosen[0].grade.parts == {"own": 1.0, "other": 1.0}
    assert metrics["groups_changed/share"] == 1.0


def test_a_reward_of_the_observer_alone_moves_the_pioneer():
    # Own rewards are equal (0, 0): alone the pioneer would learn nothing from this group.
    tree, metrics = guided(FakeContext({SEEN.format(answer="s1"): [RIGHT]}))
    assert outcomes(tree, "pioneer") == [0.0, 1.0]
    assert (metrics["pairs/rescued"], metrics["pairs/lost"], metrics["pairs/graded"]) == (1, 0, 2)
    assert tree.chosen[1].grade.correct is False


def test_where_observers_earn_nothing_nothing_is_changed():
    _, metrics = guided(FakeContext({"Q": [RIGHT, WRONG]}))
    assert metrics["groups_changed/share"] == 0.0
    assert metrics["pairs/lost"] == 1


def test_without_transfer_both_have_the_tasks_prompt():
    context = FakeContext()
    guided(context, transfer=False)
    assert context.asked == [("Q", 2), ("Q", 1), ("Q", 1)]


def test_a_pair_with_one_grade_has_none():
    tree, metrics = guided(FakeContext({"Q": [RIGHT, Grade.ungraded("no verifier")]}))
    first, second, of_first, of_second = (leaf.grade for leaf in tree.chosen)
    assert (first.outcome, of_first.outcome) == (1.0, 1.0)
    assert (second.outcome, second.reason) == (None, "no verifier")
    assert (of_second.outcome, of_second.reason) == (None, "the other answer was not graded")
    assert metrics["pairs/graded"] == 1


def test_a_pioneer_without_an_observer_is_not_trained():
    # Room for the task's prompt and an answer, not for the observer's prompt of eleven tokens.
    tree, metrics = guided(FakeContext(limit=5))
    assert [leaf.grade.reason for leaf in tree.chosen] == ["no token was left for the observer"] * 2
    assert metrics["pairs/alone"] == 2


def test_it_needs_a_stage_with_roles():
    (line,) = PioneerObserver().conflicts(Composition())
    assert "got 'pioneer-observer', which plays several roles" in line

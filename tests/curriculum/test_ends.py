"""When a curriculum that has an end says that it is through, and of what a wrapper says so."""

import pytest
from levelled import Source, graded, saved
from tiny_models import plain_model, policy_like

from lyceum.core.component import kinds
from lyceum.core.needs import able
from lyceum.curriculum.uniform import Uniform
from lyceum.papers.cures.curriculum_posterior import PosteriorDraws
from lyceum.papers.deepsearch.curriculum_hard_filter import HardFilter
from lyceum.papers.gain_rl.curriculum_angles import Angles
from lyceum.papers.pcurl.curriculum_difficulty_weight import DifficultyWeight
from lyceum.papers.qwenlong_l1.curriculum_phases import Phases
from lyceum.papers.rmt.curriculum_entropy import ByEntropy
from lyceum.papers.train_long_think_short.curriculum_shrinking_budget import ShrinkingBudget

MODEL = plain_model()


def said(curriculum, steps, solved=lambda task: False, *, n=2):
    """Whether it is through before the first of the steps, and after each."""
    found = [curriculum.done]
    for _ in range(steps):
        curriculum.observe([graded(task, [solved(task), False]) for task in curriculum.draw(n)])
        found.append(curriculum.done)
    assert all(found[len(found) - found[::-1].index("") :]), "what is through stays through"
    return [bool(why) for why in found]


def test_phases_are_through_after_the_steps_of_the_last():
    curriculum = Phases(lengths=(4, 5), every_steps=2).build(Source(60), seed=0)
    assert said(curriculum, 5) == [False] * 4 + [True, True]
    assert curriculum.done == "all 2 phases are over"


def test_a_budget_is_through_when_its_minimum_has_lasted_as_long_as_the_budgets_before():
    # 8, 8, 4, 4, 2, 2: two steps each, the last of 2.
    settings = ShrinkingBudget(start_tokens=8, decay=0.5, every_steps=2, least_tokens=2, template=None)
    assert said(settings.build(Source(60), seed=0), 6) == [False] * 6 + [True]


def test_entropies_are_through_once_the_hardest_were_drawn():
    # The window stands at the end of the pool from the third step on.
    assert said(ByEntropy(steps=2).build(Source(60), seed=0, policy=policy_like(MODEL)), 4) == [False] * 3 + [True] * 2


def test_angles_are_through_where_the_mean_has_reached_the_last_task():
    settings = Angles(pool=8, width=1.0, least_shift=3.0, most_shift=3.0)
    # The mean is at 0, 3, 6 and then at 7, the last of 8.
    assert said(settings.build(Source(60), seed=0, policy=policy_like(MODEL)), 3) == [False] * 3 + [True]


@pytest.mark.parametrize(
    ("settings", "size", "through"),
    [
        # Four a step: after two steps all eight are drawn and solved half of the time, hence easy; the minimum is 2.
        (HardFilter(least=2), 8, [False, False, True]),
        # Of eight, two join at the end of each round, those of the rounds before being easy.
        (HardFilter(pool=4, least=2), 8, [False, False, True]),
        # A minimum that the tasks cannot reach: none may be left.
        (HardFilter(least=100), 8, [False, False, True]),
    ],
)
def test_a_filter_is_through_where_a_round_would_begin_again_with_easy_tasks(settings, size, through):
    assert said(settings.build(Source(size), seed=0), 2, lambda task: True, n=4) == through
    hard = settings.build(Source(size), seed=0)
    assert not any(said(hard, 6, lambda task: int(task.id) < 6, n=4)), "two of the eight stay hard, the minimum is 2"


def test_a_pool_of_tasks_that_are_always_or_never_solved_leaves_nothing_to_train_on():
    def after_tests(*verdicts):
        curriculum = PosteriorDraws(pool=2, tests=2).build(Source(60), seed=0)
        assert not curriculum.done
        tasks = curriculum.draw(2)
        curriculum.observe([graded(task, list(of)) for task, of in zip(tasks, verdicts, strict=True)])
        return curriculum.done

    assert after_tests((True, True), (True, False)) == ""
    assert after_tests((True, True), (False, False)) == "none of the 2 tasks of its pool is solved some of the time"


def test_a_wrapper_ends_with_what_it_wraps():
    settings = DifficultyWeight(draws=Phases(lengths=(4,), every_steps=1))
    assert "end" in settings.offers
    assert "end" not in DifficultyWeight(draws=Uniform()).offers
    first, resumed = (settings.build(Source(60), seed=seed) for seed in (0, 1))
    assert said(first, 1) == [False, True]
    resumed.load_state_dict(saved(first))
    assert resumed.done == "all 1 phases are over"


def test_which_curricula_have_an_end_of_their_own():
    known = able(kinds("curriculum"), "end")
    assert known == ["angles", "entropy", "hard-filter", "phases", "posterior", "shrinking-budget"]

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reasonings import TASK, reasoned

from lyceum.papers.drm.scorer_lexical import LexicalScorer
from lyceum.papers.drm.scorer_step_consistency import StepConsistency, steps_of
from lyceum.reward.scorer.base import in_order
from lyceum.tasks.base import Source as Empty
from lyceum.tasks.chain import Chain
from lyceum.utils.aio import run_async
from lyceum.utils.errors import RecipeError

SOURCE = Chain(levels=(1, 2, 3)).build("train", 0)


class Source(Empty):
    """The rows of a file that is graded."""

    def __len__(self):
        return 0


@pytest.fixture(scope="module")
def scorer():
    return StepConsistency(tasks=2000, updates=500).build(SOURCE)


def scores(scorer, *texts):
    return run_async(scorer(TASK, [reasoned(text) for text in texts], None))


def test_a_step_is_a_conclusion_after_the_mark_and_the_characters_before_it():
    assert steps_of("37+8=45-2=43#43", "=", 6) == [("37+8=", "45"), ("=45-2=", "43")]
    assert steps_of("=", "=", 6) == steps_of("", "=", 6) == []


def test_a_wrong_step_is_less_likely_than_the_right_one(scorer):
    # The same operations; in the second one the first result is off by one, in the third the last.
    right, first, last = scores(scorer, "37+8=45-2=43#43", "37+8=44-2=42#42", "37+8=45-2=44#44")
    assert right.outcome > 0.5 > max(first.outcome, last.outcome)
    assert first.parts["least"] < 0.1
    assert right.parts["steps"] == 2


def test_a_conclusion_that_no_demonstration_has_is_unlikely_and_a_text_without_steps_abstains(scorer):
    strange, none = scores(scorer, "37+8=blue#1", "no steps#1")
    assert strange.outcome < 0.05
    assert none.outcome is None


def test_equal_settings_are_fitted_once_and_to_the_same_bits(scorer):
    again = StepConsistency(tasks=2000, updates=500).build(SOURCE)
    assert again.towers is scorer.towers


def test_tasks_without_such_steps_are_refused():
    with pytest.raises(RecipeError, match="no demonstration of these tasks has a step with '~~'"):
        StepConsistency(mark="~~").build(SOURCE)


def test_the_demonstrations_of_other_tasks_may_be_learned_from():
    settings = StepConsistency.model_validate({"demonstrations": "chain", "tasks": 200, "updates": 2})
    assert scores(settings.build(Source()), "37+8=45#45")[0].outcome is not None
    [grade] = scores(StepConsistency().build(Source()), "37+8=45#45")  # a file's tasks: nothing to look at
    assert "no demonstration of these tasks" in grade.reason


def test_a_reasoning_about_another_question_is_less_relevant():
    scorer = LexicalScorer().build(SOURCE)
    own, other = scores(scorer, "37+8=45-2=43#43", "91-6=85+3=88#88")
    assert own.parts["question"] > other.parts["question"]
    follows, does_not = scores(scorer, "37+8=45-2=43#43", "37+8=45-2=43#99")
    assert follows.parts["answer"] > does_not.parts["answer"]


def test_in_order_falls_where_the_reasoning_leaves_out_repeats_or_moves():
    # All 7 characters of 37+8-2= are in 37+8=45-2=43 (12) in order: 2 * 7 / 19. Without -2= 5 of 7 are in 7 characters;
    # moved, 5 in 12; with one more operation 7 in 17.
    scorer = LexicalScorer(measure="in-order", answer=0).build(SOURCE)
    found = scores(scorer, "37+8=45-2=43#43", "37+8=45#45", "37-2=35+8=43#43", "37+8=45-2=43-2=41#41")
    expected = [14 / 19, 10 / 14, 10 / 19, 14 / 24]
    assert [grade.parts["question"] for grade in found] == [pytest.approx(x) for x in expected]
    assert expected[0] == max(expected)


@given(st.text("01+", max_size=12), st.text("01+", max_size=12))
def test_in_order_counts_the_longest_common_subsequence(a, b):
    length = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, j in product(range(len(a)), range(len(b))):
        longer = max(length[i][j + 1], length[i + 1][j])
        length[i + 1][j + 1] = length[i][j] + 1 if a[i] == b[j] else longer
    assert in_order(a, b) == pytest.approx(2 * length[-1][-1] / len(a + b) if a + b else 1)


def test_an_answer_in_order_would_reward_a_short_reasoning_and_is_refused():
    with pytest.raises(ValueError, match="answer: got 1 with measure 'in-order'"):
        LexicalScorer(measure="in-order")

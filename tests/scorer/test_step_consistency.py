from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reasonings import TASK, reasoned

from lyceum.scorer.lexical import LexicalScorer, in_order
from lyceum.scorer.step_consistency import StepConsistency, steps_of
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


def test_in_order_is_the_share_of_the_question_that_the_reasoning_has_in_its_order():
    # 37+8-2= has 7 characters. The second reasoning has 37+8=, the third 37-2= or 37+8=; more text adds nothing.
    scorer = LexicalScorer(measure="in-order", answer=0).build(SOURCE)
    found = scores(scorer, "37+8=45-2=43#43", "37+8=45#45", "37-2=35+8=43#43", "37+8=45-2=43+5=48#48")
    assert [grade.parts for grade in found] == [{"question": pytest.approx(n / 7)} for n in (7, 5, 5, 7)]


@given(st.text("01+", max_size=12), st.text("01+", max_size=12))
def test_in_order_counts_the_longest_common_subsequence(asked, said):
    length = [[0] * (len(said) + 1) for _ in range(len(asked) + 1)]
    for i, j in product(range(len(asked)), range(len(said))):
        longer = max(length[i][j + 1], length[i + 1][j])
        length[i + 1][j + 1] = length[i][j] + 1 if asked[i] == said[j] else longer
    assert in_order(asked, said) == pytest.approx(length[-1][-1] / len(asked) if asked else 1)


def test_an_answer_in_order_would_reward_a_short_reasoning_and_is_refused():
    with pytest.raises(ValueError, match="answer: got 1 with measure 'in-order'"):
        LexicalScorer(measure="in-order")

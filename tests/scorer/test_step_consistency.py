import pytest
from reasonings import TASK, reasoned

from lyceum.scorer.lexical import LexicalScorer, Shared
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


def test_coverage_is_the_share_of_the_questions_pieces_that_the_reasoning_has():
    # 37 7+ +8 8- -2 2= of 37+8-2=. All but 8- are in the first; the second lacks -2 and 2= too; more text adds nothing.
    scorer = LexicalScorer(measure="coverage", answer=0, shortest=2, longest=2).build(Source())
    found = scores(scorer, "37+8=45-2=43#43", "37+8=45#45", "37+8=45-2=43+5=48+5=53#53")
    assert [grade.outcome for grade in found] == [pytest.approx(5 / 6), 0.5, pytest.approx(5 / 6)]
    assert found[0].parts == {"question": pytest.approx(5 / 6)}


def test_coverage_counts_a_piece_as_often_as_it_is_asked():
    of = Shared(LexicalScorer(measure="coverage", answer=0, shortest=2, longest=2), Source())
    assert of([("1+1+1", "1+1"), ("1+1", "1+1+1"), ("", "1+1")]) == [0.5, 1, 1]  # 1+ and +1, twice each


def test_coverage_of_a_reasoning_by_its_answer_is_refused():
    with pytest.raises(ValueError, match="answer: got 1 with measure 'coverage'"):
        LexicalScorer(measure="coverage")

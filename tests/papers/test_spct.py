"""The rule that trains judges: whether the answer that the data prefer has the most points."""

import pytest
from leaves import Source, grades, leaf, outcomes, task

from lyceum.papers.spct.reward_ranking import Ranking
from lyceum.utils.errors import RecipeError


@pytest.mark.parametrize(
    ("judgement", "earned"),
    [
        ("The second is sound.\nscores: 3, 7, 2", 1),
        ("scores: 0, 1, 0", 1),
        ("scores: 7, 7, 2", -1),  # a tie is no ranking
        ("scores: 8, 7, 2", -1),
        ("scores: 3, 7", -1),  # an answer without points
        ("scores: 3, 11, 2", -1),  # more than there are
        ("scores: 3, 7, 2\nBut on reflection", -1),
        ("3, 7, 2", -1),
        ("", -1),
    ],
)
def test_1_where_the_best_answer_has_more_points_than_every_other_one(judgement, earned):
    [grade] = grades(Ranking(), task(labels=[0, 1, 0.5]), judgement)
    assert (grade.outcome, grade.correct) == (earned, earned == 1)


def test_a_single_answer_has_to_get_its_label_and_a_truncated_judgement_is_wrong():
    one = task(labels=[4])
    assert outcomes(Ranking(), one, "scores: 4", "scores: 5", leaf("scores: 4", finish="length")) == [1, -1, -1]


@pytest.mark.parametrize("labels", [[], "9, 2", [1, 1], [1, None], [1, float("nan")], [[1], [0]], {"a": 1}, [1e400, 1]])
def test_labels_that_rank_nothing_are_refused(labels):
    with pytest.raises(RecipeError, match=r"reward\.ranking: column 'labels' of task 't/1'"):
        Ranking().build(Source(task(labels=labels)))


def test_tasks_without_labels_are_refused_and_among_others_ungraded():
    with pytest.raises(RecipeError, match="no task has a column 'labels'"):
        Ranking().build(Source(task()))
    [grade] = grades(Ranking(), task(), "scores: 1, 2", source=Source(task(labels=[1, 2])))
    assert grade.outcome is None

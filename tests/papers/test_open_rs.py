"""The reward ``length-cosine``, on lengths worked by hand."""

import pytest
from leaves import grades, leaf, task
from pydantic import ValidationError

from lyceum.papers.open_rs.reward_length_cosine import LengthCosine, cosine_between
from lyceum.reward.exact import Exact

PARTS = [Exact(weight=0), LengthCosine(max_tokens=100)]


def test_shorter_is_better_where_correct_and_worse_where_not():
    # cos(0) = 1, cos(pi / 3) = 1/2, cos(pi / 2) = 0, cos(pi) = -1: at 0, 33.3.., 50 and 100 of 100 tokens
    #   correct: 0.5 + 0.25 (1 + cos) = 1, 0.75 and 0.5; incorrect: -0.5 - 0.25 (1 + cos) = -1, -0.75 and -0.5
    lengths = (0, 50, 100, 900)
    right = grades(PARTS, task("5"), *(leaf("5", tokens=n) for n in lengths))
    wrong = grades(PARTS, task("5"), *(leaf("6", tokens=n) for n in lengths))
    assert [grade.outcome for grade in right] == pytest.approx([1.0, 0.75, 0.5, 0.5])
    assert [grade.outcome for grade in wrong] == pytest.approx([-1.0, -0.75, -0.5, -0.5])
    assert [grade.correct for grade in right + wrong] == [True] * 4 + [False] * 4
    assert cosine_between(1.0, 0.5, 1 / 3) == pytest.approx(0.875)


def test_rewards_by_which_an_incorrect_answer_could_earn_as_much_are_refused():
    with pytest.raises(ValidationError, match="more for every"):
        LengthCosine(correct_long=-0.5)

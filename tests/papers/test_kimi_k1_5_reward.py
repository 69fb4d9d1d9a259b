import asyncio

import pytest
from fake_task import NO_MODEL
from leaves import leaf, task

from lyceum.papers.kimi_k1_5.reward_length_range import LengthRange, length_reward


def test_short_answers_are_promoted_and_long_ones_penalised():
    # Lengths 10 to 30: 1/2 - 0, 1/2 - 1/4, 1/2 - 1/2, 1/2 - 1; wrong ones never above 0.
    lengths = (10, 15, 20, 30)
    assert [length_reward(length, 10, 30, correct=True) for length in lengths] == [0.5, 0.25, 0, -0.5]
    assert [length_reward(length, 10, 30, correct=False) for length in lengths] == [0, 0, 0, -0.5]
    assert length_reward(10, 10, 10, correct=True) == 0


def test_the_range_is_of_all_judged_answers_of_the_task():
    # The wrong one is the longest, 9 tokens; the one without a verdict, 50, does not count.
    leaves = [leaf("x", tokens=n) for n in (5, 7, 9, 50)]
    grades = asyncio.run(LengthRange().score(task(), leaves, NO_MODEL, [True, True, False, None]))
    assert [grade.outcome for grade in grades] == [pytest.approx(0.5), pytest.approx(0), pytest.approx(-0.5), None]

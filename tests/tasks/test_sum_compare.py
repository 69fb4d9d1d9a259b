from itertools import pairwise

import pytest

from lyceum.core.tree import Node
from lyceum.core.types import Origin, Task
from lyceum.tasks.sum_compare import SumCompare, grade, sums_of

SOURCE = SumCompare().build("train", 0)
TASK = Task("t", (), "first", {"sums": [[23, 48], [37, 29]]})  # 71 and 66


def correct(text, finish="stop"):
    leaf = Node(None, [0], Origin.PROMPT).add([1], Origin.POLICY, text)
    leaf.finish = finish
    return grade(TASK, leaf).correct


def test_the_verdict_is_of_the_last_word_alone():
    assert correct("23+48=71, 37+29=66 # first")
    assert correct("23+48=99, 37+29=66 # first")
    assert correct("#first")
    assert not any(map(correct, ("23+48=71, 37+29=66 # second", "first", "# first second", "# First", "")))
    assert not correct("23+48=71, 37+29=66 # first", finish="length")


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("23+48=71, 37+29=66 # first", [1, 1, 1]),
        ("23 + 48 = 71, 29+37=66 # first", [1, 1, 1]),
        ("23+48=81, 37+29=66 # first", [0, 1, 1]),  # a right answer that rests on a wrong sum
        ("23+48=61, 37+29=66 # first", [0, 1, 0]),  # and one that does not even follow
        ("23+48=81, 37+29=66, 23+48=71 # first", [1, 1, 1]),  # corrected
        ("23+48=71, 37+29=66, 23+48=81 # first", [1, 0, 1]),  # to a wrong one
        ("23+48=71, 37+28=65 # first", [1, 0, 0]),  # a sum that was not asked for
        ("23+48=71 # first", [1, 0]),  # one is missing
        ("23+48=71, 37+29=66", [1, 1]),
        ("# first", [0]),
        ("", []),
    ],
)
def test_a_step_counts_as_it_stands_in_the_end(text, steps):
    assert [step.reward for step in SOURCE.judged_steps(TASK, text)] == steps
    spans = [(step.start, step.stop) for step in SOURCE.judged_steps(TASK, text)]
    assert all(start < stop for start, stop in spans)
    assert all(before == start for (_, before), (start, _) in pairwise(spans))


def test_its_own_demonstrations_hold_and_no_pair_is_in_both_splits():
    heldout = SumCompare().build("heldout", 0)
    for source in (SOURCE, heldout):
        for index in range(60):
            task = source[index]
            steps = source.judged_steps(task, task.columns["demonstration"])
            assert [step.reward for step in steps] == [1, 1, 1]
            assert task.columns["level"] == 1 + index % 3
    pairs = [{str(sorted(sums_of(source[index]))) for index in range(300)} for source in (SOURCE, heldout)]
    assert not pairs[0] & pairs[1]
    with pytest.raises(ValueError, match="allowed: different levels from 1 to 3"):
        SumCompare(levels=(4,))

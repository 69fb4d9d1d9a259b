"""What a run has counted says whether there was anything to learn, and why not."""

import dataclasses

import pytest

from lyceum.core.tree import Node, Tree
from lyceum.core.types import Grade, JudgedStep, Origin, Task
from lyceum.evaluation.held_out import MAX_REASONS
from lyceum.stages._counts import TO_LEARN, Counts


def tree(*grades: Grade) -> Tree:
    root = Node(None, [1], Origin.PROMPT)
    root.children = [Node(root, [2], Origin.POLICY, finish="stop", grade=grade) for grade in grades]
    return Tree(Task("t", ()), [root])


def counted(*steps: tuple[list[Grade], bool]) -> Counts:
    counts = Counts()
    for grades, something in steps:
        counts.add([tree(*grades)])
        counts.add_signal(something)
    return counts


def test_a_run_that_has_not_sampled_is_not_judged():
    assert (Counts().learnt, Counts().why_nothing_learnt) == (None, [])


def test_one_step_is_enough():
    counts = counted(([Grade(0.0)], False), ([Grade(0.0), Grade(1.0)], True), ([Grade(1.0)], False))
    assert (counts.learnt, counts.steps_without_signal, counts.why_nothing_learnt) == (True, 1, [])


@pytest.mark.parametrize(
    ("grades", "said"),
    [
        ([Grade(0.25), Grade(0.25)], "every reward was 0.25"),
        ([Grade(-1.0), Grade(2.0)], "rewards were -1 to 2, but the same within each group"),
        # A judged step's reward tells apart what outcomes do not.
        ([Grade(0.0, steps=(JudgedStep(0, 1, 0.5),))], "rewards were 0 to 0.5, but the same within each group"),
        ([], "no reward was given"),
    ],
)
def test_the_cause_is_named(grades, said):
    assert counted((grades, False)).why_nothing_learnt == [f"nothing was learnt: {said}; {TO_LEARN}"]


def test_of_reasons_the_most_frequent_is_told_with_where_it_came_from():
    odd, even = Grade.ungraded("odd", "row 1\n  line 2"), Grade.ungraded("even")
    counts = counted(([even, odd, odd], False))
    counts.failures["odd"] = "row 1\n  line 2"  # told by the session, when it was met
    assert counts.why_nothing_learnt == [
        "nothing was learnt: none of 3 completions could be graded: odd",
        "row 1",
        "  line 2",
    ]
    counts.add([tree(Grade(1.0))])
    assert counts.why_nothing_learnt == [
        f"nothing was learnt: every reward was 1; {TO_LEARN}",
        "3 of 4 completions could not be graded: odd",
        "row 1",
        "  line 2",
    ]


def test_reasons_are_told_apart_up_to_a_limit_and_all_are_counted():
    counts = counted(*(([Grade.ungraded(f"reason {i}")], False) for i in range(MAX_REASONS + 3)))
    assert (len(counts.reasons_ungraded), counts.ungraded) == (MAX_REASONS, MAX_REASONS + 3)


def test_a_checkpoint_holds_all_of_it():
    counts = counted(([Grade(0.5), Grade.ungraded("odd")], True))
    again = Counts()
    again.load_state_dict(counts.state_dict())
    assert again == counts
    again.reasons_ungraded["odd"] += 1
    assert counts.reasons_ungraded == {"odd": 1}
    with pytest.raises(ValueError, match="counts: state lacks"):
        again.load_state_dict({field.name: 0 for field in dataclasses.fields(Counts)[1:]})

"""What a run has counted says whether there was anything to learn, and why not."""

import dataclasses

import pytest

from lyceum.core.tree import Node, Tree
from lyceum.core.types import Grade, JudgedStep, Origin, Task
from lyceum.evaluation.held_out import MAX_REASONS
from lyceum.training.stages._counts import TO_LEARN, Counts, needed, signs


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
    counts = counted((grades, False))
    assert counts.why_nothing_learnt == [f"nothing was learnt: {said}; needed: {needed(counts.since_signal)}"]


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
        f"nothing was learnt: every reward was 1; needed: {needed(counts.since_signal)}",
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


def leaves(*grades: Grade, finish: str = "stop", same: bool = False) -> list[Tree]:
    of = tree(*grades)
    for number, node in enumerate(of.trajectories):
        node.finish = finish
        node.tokens = [2 if same else 2 + number]
    return [of]


RIGHT, WRONG = Grade(1.0, correct=True), Grade(0.0, correct=False)


@pytest.mark.parametrize(
    ("trees", "remedies"),
    [
        (leaves(RIGHT, RIGHT), ["harder tasks"]),
        (leaves(WRONG, WRONG), ["tasks that are solved sometimes"]),
        (
            leaves(WRONG, WRONG, finish="length"),
            ["completions that end (100 % were truncated", "tasks that are solved"],
        ),
        (leaves(RIGHT, RIGHT, same=True), ["samples that differ (in 100 % of the groups", "harder tasks"]),
        (leaves(RIGHT, RIGHT) + leaves(WRONG, WRONG), ["groups that are solved sometimes"]),
        (leaves(Grade(0.25), Grade(0.25)), [TO_LEARN]),
    ],
)
def test_what_is_needed_follows_from_what_was_seen(trees, remedies):
    found = needed(signs(trees)).split("; or ")
    assert len(found) == len(remedies)
    assert all(one.startswith(begins) for one, begins in zip(found, remedies, strict=True))


def test_what_was_seen_before_a_signal_says_nothing_of_what_came_after_it():
    counts = Counts()
    counts.add(leaves(WRONG, WRONG, finish="length"))
    counts.add_signal(True)
    for _ in range(2):
        counts.add(leaves(RIGHT, RIGHT))
        counts.add_signal(False)
    assert needed(counts.since_signal).startswith("harder tasks")


def test_answers_that_are_not_where_the_verifier_looks_are_named():
    trees = leaves(*[Grade(0.0, correct=False, answered=answered) for answered in (False, False, True)])
    assert needed(signs(trees)).startswith(
        "answers where the verifier looks for them (67 % of the completions have none there"
    )


def test_groups_dropped_for_want_of_a_verdict_are_told_with_both_cures():
    counts = Counts()
    counts.add([tree(Grade(0.1), Grade(0.5))])
    counts.add_unjudged(1)
    counts.add_signal(False)
    [line] = counts.why_nothing_learnt
    assert line.startswith("nothing was learnt: rewards were 0.1 to 0.5, but nothing says which answers are correct")
    assert "reward.correct_at=VALUE" in line
    assert "collect.keep=with-gradient" in line

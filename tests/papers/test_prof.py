import fake_task
import pytest
from guidance_fakes import FakeContext, Source, ask, flat
from hypothesis import given
from hypothesis import strategies as st

from lyceum.core.types import Grade, JudgedStep
from lyceum.papers.prof.guidance_consistency_filter import ConsistencyFilter, FilterNote, consistent


def test_right_ones_of_good_steps_and_wrong_ones_of_bad_steps_stay_in_balance():
    quality = [0.9, 0.1, 0.5, 0.8, 0.3, 0.7]
    right = [True, True, True, True, False, False]
    # Four right, two wrong, two to drop: round((4 - 2 + 2) / 2) = 2 right ones, those of 0.1 and 0.5.
    assert consistent(quality, right, drop=2) == [0, 3, 4, 5]
    # Four to drop: round((2 + 4) / 2) = 3 right ones, and the wrong one of the better steps.
    assert consistent(quality, right, drop=4) == [0, 4]
    # Two right and four wrong, two to drop: round((-2 + 2) / 2) = 0 right ones, and the two wrong ones of 0.9 and 0.8.
    assert consistent(quality, [not one for one in right], drop=2) == [1, 2, 4, 5]
    # At random the first of the wrong ones go.
    assert consistent(quality, [not one for one in right], drop=2, rank_wrong=False) == [2, 3, 4, 5]


def test_where_all_are_right_or_wrong_the_least_consistent_go():
    assert consistent([0.3, 0.1, 0.2], [True] * 3, drop=1) == [0, 2]
    assert consistent([0.3, 0.1, 0.2], [False] * 3, drop=1) == [1, 2]
    assert consistent([0.3], [True], drop=4) == [0]
    assert consistent([], [], drop=0) == []


@given(st.lists(st.booleans(), min_size=2, max_size=16), st.data())
def test_the_two_numbers_are_as_near_as_they_can_be(right, data):
    drop = data.draw(st.integers(1, len(right) - 1))
    kept = consistent([0.0] * len(right), right, drop=drop)
    assert len(kept) == len(right) - drop
    of_right = sum(right[i] for i in kept)
    apart = abs(2 * of_right - len(kept))
    possible = [k for k in range(sum(right) + 1) if 0 <= len(kept) - k <= len(right) - sum(right)]
    assert apart == min(abs(2 * k - len(kept)) for k in possible)


def test_a_task_is_sampled_more_often_than_it_is_trained_on():
    def graded(right, quality):
        return Grade(float(right), right, steps=(JudgedStep(0, 1, quality),), parts={"model/process": 1 - quality})

    grades = [graded(True, 0.9), graded(True, 0.2), graded(False, 0.8), graded(False, 0.1)]
    context = FakeContext({"Q": grades})
    guide = ConsistencyFilter(samples=4, keep=2).build(Source(ask()), seed=0)
    tree = fake_task.roll(guide(flat(2)), context, ask(), 2)
    assert context.asked == [("Q", 4)]
    assert [leaf.text for leaf in tree.trajectories] == ["s0", "s3"]
    assert tree.solved_unaided == 0.5  # of all four
    guide.observe([tree])
    lead = {"lead/correct": pytest.approx(0.7), "lead/wrong": pytest.approx(0.7)}
    assert guide.metrics() == {"dropped/correct": 1, "dropped/wrong": 1} | lead
    assert isinstance(tree.metadata["consistency-filter"], FilterNote)
    # By a part of the reward, which here says the opposite.
    other = ConsistencyFilter(samples=4, keep=2, by="model/process").build(Source(ask()), seed=0)
    tree = fake_task.roll(other(flat(2)), FakeContext({"Q": grades}), ask(), 2)
    assert [leaf.text for leaf in tree.trajectories] == ["s1", "s2"]

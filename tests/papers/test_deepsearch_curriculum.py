import pytest
from hypothesis import given
from hypothesis import strategies as st
from levelled import Source, assert_resumes, graded, ids, rescued

from lyceum.papers.deepsearch.curriculum_hard_filter import DirectSamples, HardFilter
from lyceum.utils.errors import RecipeError


def outcomes(curriculum, n, easy):
    """Draw and observe; tasks in ``easy`` are solved half of the time, the others one time in four."""
    tasks = curriculum.draw(n)
    curriculum.observe([graded(t, [True, t.id in easy, False, False]) for t in tasks])
    return [t.id for t in tasks]


def test_a_round_goes_through_every_task_once_and_the_next_through_the_hard_ones():
    curriculum = HardFilter(least=1).build(Source(8), seed=3)
    easy = {"1", "4", "5"}
    assert sorted(outcomes(curriculum, 8, easy)) == list("01234567")
    assert curriculum.metrics() == {"round": 0, "tasks/round": 8, "easy/found": 3}
    assert sorted(outcomes(curriculum, 5, easy)) == list("02367"), "exactly one in four is still hard"
    # Filtered again, among those that were left: what was dropped is not tested again.
    assert sorted(outcomes(curriculum, 5, {"2", "3", "6"})) == list("02367")
    assert sorted(outcomes(curriculum, 2, set())) == list("07")


def test_direct_samples_count_and_not_a_searchs_trajectories():
    curriculum = HardFilter(least=1).build(Source(2), seed=0)
    tasks = curriculum.draw(2)
    trees = [graded(t, [True, True]) for t in tasks]
    trees[0].add_note(DirectSamples(0.0))  # a search solved it, four plain samples did not
    curriculum.observe(trees)
    assert ids(curriculum, 1) == [tasks[0].id]


def test_a_task_that_a_hint_made_easy_is_still_hard():
    # GHPO trains on the hinted group in the place of one that failed: three of four right, and none without help.
    curriculum = HardFilter(least=1).build(Source(2), seed=0)
    curriculum.observe([rescued(t, [True, True, True, False]) for t in curriculum.draw(2)])
    assert curriculum.metrics()["easy/found"] == 0
    # The same with a reward that says neither right nor wrong: 0.1 without help, 0.9 with it.
    curriculum.observe([rescued(t, [0.9, 0.9], own=0.1) for t in curriculum.draw(2)])
    assert curriculum.metrics()["easy/found"] == 0


def test_what_was_not_graded_stays():
    curriculum = HardFilter(least=1).build(Source(2), seed=0)
    curriculum.observe([graded(t, [None, None]) for t in curriculum.draw(2)])
    assert sorted(ids(curriculum, 2)) == ["0", "1"]


def test_further_tasks_join_where_few_hard_ones_are_left():
    curriculum = HardFilter(pool=4, least=3).build(Source(10), seed=0)
    assert sorted(outcomes(curriculum, 4, {"0", "1"})) == list("0123")
    assert sorted(outcomes(curriculum, 6, set("4567"))) == list("234567")
    # 2 and 3 are left, of the source 8 and 9 were not drawn; then it begins again.
    assert sorted(outcomes(curriculum, 6, set())) == list("012389")


@given(st.integers(1, 7), st.integers(1, 9), st.integers(1, 9), st.integers(1, 20))
def test_however_few_are_left_every_draw_is_met(size, pool, least, n):
    curriculum = HardFilter(pool=pool, least=least).build(Source(size), seed=1)
    for _ in range(4):
        assert len(outcomes(curriculum, n, {str(i) for i in range(size)})) == n
        assert len(set(curriculum.active)) == len(curriculum.active) <= size


def test_a_resumed_run_goes_on_in_the_same_round():
    def build(seed):
        return HardFilter(pool=6, least=4).build(Source(20), seed=seed)

    first = build(3)
    for _ in range(3):
        outcomes(first, 5, {"1", "2", "7"})
    assert_resumes(first, build(4), [graded(t, [False]) for t in build(3).draw(3)])


def test_states_and_sources_that_do_not_fit_are_refused():
    state = HardFilter().build(Source(7), seed=3).state_dict()
    with pytest.raises(RecipeError, match="got 8 tasks, but the saved run had 7"):
        HardFilter().build(Source(8), seed=3).load_state_dict(state)
    with pytest.raises(ValueError, match="state lacks"):
        HardFilter().build(Source(7), seed=3).load_state_dict({"round": 1})
    with pytest.raises(RecipeError, match="empty source"):
        HardFilter().build(Source(0), seed=3)

"""Which stored groups are drawn, without reading any."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lyceum.data.buffer.base import Index


def index(*files: tuple[int, list[float]], most: int = 100) -> Index:
    made = Index()
    for file, priority in files:
        made.add(file, priority, rows=range(len(priority)), most=most)
    return made


def drawn(of: Index, number: int, seed: int = 0, **how) -> list[tuple[int, int]]:
    places = of.draw(np.random.default_rng(seed), number, **{"since": 0, "weighted": False, "newest": False} | how)
    return [(int(of.file[i]), int(of.row[i])) for i in places]


def test_the_newest_are_the_last_stored():
    assert drawn(index((1, [1, 1]), (3, [1, 1])), 3, newest=True) == [(1, 1), (3, 0), (3, 1)]


def test_nothing_older_is_drawn():
    stored = index((1, [1, 1]), (3, [1]), (4, [1]))
    assert drawn(stored, 9, since=2) == [(3, 0), (4, 0)]
    assert drawn(stored, 1, since=3, newest=True) == [(4, 0)]
    assert drawn(stored, 9, since=5) == []
    assert drawn(stored, 9, since=2, weighted=True) == [(3, 0), (4, 0)]


def test_draws_are_weighted_and_never_take_what_has_no_priority():
    stored = index((1, [0.0, 1.0, 3.0]))
    first = [drawn(stored, 1, seed, weighted=True)[0][1] for seed in range(400)]
    assert first.count(0) == 0
    assert first.count(2) / 400 == pytest.approx(0.75, abs=0.07)  # 3 to 1; 0.07 is three standard deviations
    assert drawn(stored, 3, weighted=True) == [(1, 1), (1, 2)]


def test_the_oldest_are_forgotten_first():
    assert drawn(index((1, [1, 1]), (2, [1, 1]), most=3), 9) == [(1, 1), (2, 0), (2, 1)]


def test_what_is_removed_is_not_drawn_again():
    stored = index((1, [1, 1, 1]))
    stored.remove(np.array([0, 2]))
    assert drawn(stored, 9) == [(1, 1)]


@given(
    st.lists(st.lists(st.floats(0, 9, width=32), max_size=5), max_size=8),
    st.integers(1, 9),
    st.integers(0, 2**60),
    st.booleans(),
)
def test_the_same_draw_after_its_state_came_back(files, number, seed, weighted):
    stored = index(*enumerate(files))
    back = Index()
    back.load_state_dict(stored.state_dict())
    found = drawn(stored, number, seed, weighted=weighted)
    assert found == drawn(back, number, seed, weighted=weighted)
    assert found == sorted(set(found))
    able = sum(value > 0 or not weighted for priority in files for value in priority)
    assert len(found) == min(number, able)

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lyceum.core.types import Task
from lyceum.curriculum.uniform import Uniform
from lyceum.tasks import base as tasks
from lyceum.utils.errors import RecipeError


class Source(tasks.Source):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        if not 0 <= index < self.n:
            raise IndexError(index)
        return Task(str(index), ())

    def grader(self):
        raise NotImplementedError


def drawn(curriculum, *sizes):
    return [task.id for n in sizes for task in curriculum.draw(n)]


@given(st.integers(1, 12), st.integers(0, 2**63 - 1), st.integers(1, 30))
def test_each_epoch_holds_every_task_once(n, seed, draw):
    ids = drawn(Uniform().build(Source(n), seed=seed), *[draw] * 5)
    for start in range(0, len(ids) - n + 1, n):
        assert sorted(ids[start : start + n], key=int) == [str(i) for i in range(n)]


def test_the_order_is_of_the_seed_and_the_epoch():
    first, again, other = (drawn(Uniform().build(Source(50), seed=s), 100) for s in (1, 1, 2))
    assert first == again
    assert first != other
    assert first[:50] != first[50:]
    assert first[:50] != [str(i) for i in range(50)]


def test_sizes_of_draws_change_nothing():
    assert drawn(Uniform().build(Source(7), seed=3), 20) == drawn(Uniform().build(Source(7), seed=3), 3, 10, 1, 6)


def test_a_resumed_run_draws_what_the_first_would_have():
    first = Uniform().build(Source(7), seed=3)
    drawn(first, 10)
    state = json.loads(json.dumps(first.state_dict()))
    resumed = Uniform().build(Source(7), seed=4)  # another seed: the state must carry its own
    resumed.load_state_dict(state)
    assert drawn(resumed, 9) == drawn(first, 9)


def test_a_state_that_does_not_fit_is_refused():
    state = Uniform().build(Source(7), seed=3).state_dict()
    with pytest.raises(RecipeError, match="got 8 tasks, but the saved run had 7"):
        Uniform().build(Source(8), seed=3).load_state_dict(state)
    with pytest.raises(ValueError, match="state lacks"):
        Uniform().build(Source(7), seed=3).load_state_dict({"position": 1})


def test_an_empty_source_is_refused():
    with pytest.raises(RecipeError, match="empty source"):
        Uniform().build(Source(0), seed=3)


def test_outcomes_and_weights_change_nothing():
    curriculum, other = (Uniform().build(Source(7), seed=3) for _ in range(2))
    curriculum.observe([])
    assert drawn(curriculum, 7) == drawn(other, 7)
    assert curriculum.weight(None) == 1.0

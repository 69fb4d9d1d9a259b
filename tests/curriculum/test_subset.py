import pytest

from lyceum.curriculum.subset import Subset
from lyceum.tasks.chain import Chain
from lyceum.utils.errors import RecipeError

SOURCE = Chain(levels=(1, 2, 3), size=30).build("train", 0)


def test_the_named_levels_are_drawn_in_turn_and_each_task_once_an_epoch():
    drawn = Subset(only=(3, 1)).build(SOURCE, seed=0).draw(20)
    assert [task.columns["level"] for task in drawn] == [3, 1] * 10
    assert len({task.id for task in drawn}) == 20


def test_a_level_that_no_task_has_is_refused():
    with pytest.raises(RecipeError, match=r"curriculum\.only: got '4', which no task has in column 'level'"):
        Subset(only=(1, 4)).check_tasks(SOURCE)


def test_a_resumed_curriculum_goes_on_where_it_stood():
    first, second = (Subset(only=(2, 3)).build(SOURCE, seed=seed) for seed in (0, 7))
    first.draw(5)
    second.load_state_dict(first.state_dict())
    assert [task.id for task in second.draw(9)] == [task.id for task in first.draw(9)]

import pytest
from pydantic import ValidationError

from lyceum.core.schedule import Schedule


def at(values, *progress, **how):
    return [Schedule(values=values, **how).at(share) for share in progress]


def test_a_line_goes_through_the_values_at_equal_distances():
    # Three values: the second one is reached half way.
    assert at([0.0, 1.0, 3.0], 0, 0.25, 0.5, 0.75, 1) == [0.0, 0.5, 1.0, 2.0, 3.0]


def test_a_cosine_is_slow_at_both_ends():
    # (1 - cos(pi / 3)) / 2 = 1/4 after a third of the way, which a line passes at 1/3.
    assert at([0.0, 1.0], 0, 1 / 3, 0.5, 1, form="cosine") == pytest.approx([0.0, 0.25, 0.5, 1.0])


def test_steps_hold_for_equal_parts():
    assert at([0.0, 0.5, 1.0], 0, 0.33, 0.34, 0.66, 0.67, 1, form="steps") == [0.0, 0.0, 0.5, 0.5, 1.0, 1.0]
    assert at([0.0, 1.0], 0.49, 0.5, form="steps") == [0.0, 1.0]


@pytest.mark.parametrize("form", ["linear", "cosine", "steps"])
def test_the_first_value_holds_before_and_the_last_one_after(form):
    assert at([2.0, 5.0], 0, 0.2, 0.6, 1, form=form, begin=0.2, end=0.6) == [2.0, 2.0, 5.0, 5.0]


def test_a_list_alone_is_its_values_and_what_has_no_way_is_refused():
    assert Schedule.model_validate([1, 0]) == Schedule(values=(1.0, 0.0))
    for wrong in ([1], [], {"values": [0, 1], "begin": 0.5, "end": 0.5}, {"values": [0, 1], "end": 2}, "linear", 3):
        with pytest.raises(ValidationError):
            Schedule.model_validate(wrong)

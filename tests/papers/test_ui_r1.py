"""Drawn screens: answers follow from the pixels, and what is paid for a box or an action."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from pydantic import ValidationError

from lyceum.models.see import read_picture
from lyceum.papers.ui_r1.tasks_screens import ASKS, UNIT, UNITS, Screens, edges, grade, is_on, overlap, read_box
from lyceum.tasks.pictures import COLOURS

EACH = pytest.mark.parametrize("ask", ASKS)


def tasks(n=18, split="train", **settings):
    source = Screens(**settings).build(split, 0)
    return [source[i] for i in range(n)]


def pixels(task):
    return read_picture(task.messages[0]["content"][0]["image"])


def paid(task, text, finish="stop"):
    return grade(task, SimpleNamespace(completion=text, finish=finish))


@EACH
def test_the_demonstration_is_right_and_wrong_answers_are_not(ask):
    for task in tasks(asks=[ask]):
        right = paid(task, task.columns["demonstration"])
        assert right.correct
        assert right.outcome == 1
        assert set(right.parts.values()) == {1.0}
        for wrong in ("", "click", "0,0,0,0", "9", "click 99,99", "type purple", "scroll back", "3,2,7,6,1", "²,1,2,3"):
            assert paid(task, wrong).correct is False
        assert paid(task, task.columns["demonstration"], finish="length").outcome == 0


@EACH
def test_what_is_asked_for_has_its_colour_and_place_in_the_pixels(ask):
    for task in tasks(asks=[ask]):
        left, top, right, bottom = (UNIT * edge for edge in task.columns["box"])
        picture = pixels(task)
        assert picture.shape == (UNIT * UNITS, UNIT * UNITS, 3)
        block = picture[top:bottom, left:right].reshape(-1, 3)
        found = {name for name, colour in COLOURS.items() if (block == np.array(colour)).all(1).any()}
        assert len(found) == 1
        colour = task.answer.split()[1] if ask == "type" else task.messages[0]["content"][1]["text"]
        assert found.pop() in colour
        around = picture[max(0, top - UNIT) : bottom + UNIT, max(0, left - UNIT) : right + UNIT]
        beside = around.reshape(-1, 3)
        assert (beside != 255).any(1).sum() == (block != 255).any(1).sum()  # a unit around it is empty


def test_only_what_is_to_be_scrolled_to_touches_an_edge():
    for task in tasks(asks=["scroll"]):
        picture = pixels(task) != 255
        edge = {"up": picture[0], "down": picture[-1], "left": picture[:, 0], "right": picture[:, -1]}
        assert [f"scroll {side}" for side, row in edge.items() if row.any()] == [task.answer]


def test_a_click_anywhere_on_the_target_is_right():
    for task in tasks(asks=["click"]):
        left, top, right, bottom = task.columns["box"]
        assert paid(task, f"click {left},{bottom}").correct
        assert paid(task, f"click {right},{top}").correct
        beside = paid(task, f"click {right + 1},{top}")
        assert beside.correct is False
        assert beside.parts == {"action": 1.0, "target": 0.0}
        assert paid(task, f"type {left},{top}").parts == {"action": 0.0, "target": 0.0}


def test_parts_of_a_box():
    [task] = tasks(1, asks=["find"], levels=[1])
    left, top, right, bottom = task.columns["box"]
    middle = ((left + right) // 2, (top + bottom) // 2)
    small = paid(task, f"{middle[0]},{middle[1]},{middle[0] + 1},{middle[1] + 1}")
    assert small.correct
    assert 0 < small.parts["overlap"] < 1
    assert 0 < small.parts["edges"] < 1
    assert paid(task, "7,2,3,6").parts == {"hit": 0, "overlap": 0, "edges": 0}  # its edges are the wrong way round


def test_overlap_and_edges():
    assert overlap((0, 0, 2, 2), (1, 1, 3, 3)) == pytest.approx(1 / 7)
    assert overlap((0, 0, 1, 1), (2, 2, 3, 3)) == 0
    assert overlap((0, 0, 4, 2), (0, 0, 4, 2)) == 1
    assert edges((0, 0, 4, 4), (0, 0, 4, 4), 16) == 1
    # Left and right are 4 of 16 away: 4 / (1 + 1 + 1 / 0.75 + 1 / 0.75).
    assert edges((4, 0, 8, 4), (0, 0, 4, 4), 16) == pytest.approx(4 / (2 + 2 / 0.75))
    assert edges((0, 0, 16, 16), (15.9, 0, 16, 16), 15.9) == 0
    assert math.isfinite(edges((0, 0, 16, 16), (0, 0, 0.1, 0.1), 16))
    assert is_on(3, 3, (3, 3, 4, 4))
    assert not is_on(2.9, 3, (3, 3, 4, 4))


@pytest.mark.parametrize("text", ["", "1,2,3", "1,2,3,4,5", "a,b,c,d", "1, 2,3,4", "100,2,3,4", "5,1,5,4", "-1,0,2,2"])
def test_what_is_no_box(text):
    assert read_box(text) is None


def test_the_same_task_whenever_it_is_asked_for_and_others_are_held_out():
    one, again = tasks(9), tasks(9)
    assert one == again
    asked = {(task.messages[0]["content"][1]["text"], pixels(task).tobytes()) for task in tasks(60)}
    held = {(task.messages[0]["content"][1]["text"], pixels(task).tobytes()) for task in tasks(60, split="heldout")}
    assert not asked & held


def test_levels_have_more_things_and_a_small_target():
    for level in (1, 2, 3):
        for task in tasks(6, asks=["find"], levels=[level], questions="sentence"):
            assert task.columns["level"] == level
            assert "Where is the" in task.messages[0]["content"][1]["text"]
            if level == 3:
                assert task.columns["area"] <= 9 / UNITS**2


def test_settings_that_cannot_be():
    with pytest.raises(ValidationError, match="allowed: different ones of find, click, type, scroll"):
        Screens(asks=["click", "click"])
    with pytest.raises(ValidationError, match="levels from 1 to 3"):
        Screens(levels=[4])

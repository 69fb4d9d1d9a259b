"""Drawn screens: answers follow from the pixels, and what is paid for a box or an action."""

from types import SimpleNamespace

import numpy as np
import pytest
from pydantic import ValidationError

from lyceum.models.see import read_picture
from lyceum.papers.ui_r1.tasks_screens import ASKS, UNIT, UNITS, Screens, contained, grade
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
def test_answer_and_demonstration_are_right_and_wrong_answers_are_not(ask):
    for task in tasks(asks=[ask]):
        right = paid(task, task.columns["demonstration"] if ask == "think" else task.answer)
        assert right.correct
        assert right.outcome == 1
        assert set(right.parts.values()) == {1.0}
        for wrong in (
            "",
            "click",
            "0,0,0,0",
            "9",
            "click 99,99",
            "type purple",
            "scroll back",
            "3,2,7,6,1",
            "²,1,2,3",
            ":9",
            ";",
        ):
            assert paid(task, wrong).correct is False
        assert paid(task, task.columns["demonstration"]).correct
        assert paid(task, task.columns["demonstration"], finish="length").outcome == 0


@pytest.mark.parametrize("ask", [ask for ask in ASKS if ask != "all"])
def test_what_is_asked_for_has_its_colour_and_place_in_the_pixels(ask):
    for task in tasks(asks=[ask]):
        left, top, right, bottom = (UNIT * edge for edge in task.columns["box"])
        picture = pixels(task)
        assert picture.shape == (UNIT * UNITS, UNIT * UNITS, 3)
        block = picture[top:bottom, left:right].reshape(-1, 3)
        found = {name for name, colour in COLOURS.items() if (block == np.array(colour)).all(1).any()}
        assert len(found) == 1
        in_answer = ask in ("type", "label", "think")
        colour = task.answer if in_answer else task.messages[0]["content"][1]["text"]
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


def test_all_boxes_of_a_kind_are_asked_for_and_others_are_not():
    for task in tasks(60, asks=["all"]):
        kind = task.messages[0]["content"][1]["text"].removeprefix("all ").rstrip("?")
        picture = pixels(task)
        inside = np.zeros(picture.shape[:2], bool)
        for left, top, right, bottom in task.columns["boxes"]:
            inside[UNIT * top : UNIT * bottom, UNIT * left : UNIT * right] = True
        drawn = (picture != 255).any(2)
        if kind in COLOURS:
            assert ((picture == np.array(COLOURS[kind])).all(2) == (drawn & inside)).all()
        else:
            assert kind in ("boxes", "discs", "triangles")
        assert (task.columns["level"] > 1) or len(task.columns["boxes"]) <= 2
        assert len(task.answer) <= 54  # of the 56 tokens that the recipe allows, with the end


def test_demonstrations_of_a_list_are_right_whatever_their_confidence():
    shown = [task.columns["demonstration"] for task in tasks(200, asks=["all"])]
    assert {entry[-1] for text in shown for entry in text.split(";")} == set("0123456789")
    for task in tasks(asks=["all"]):
        found = paid(task, task.columns["demonstration"])
        assert found.correct
        assert found.parts["matched"] == 1
        digits = [int(entry[-1]) for entry in task.columns["demonstration"].split(";")]
        assert found.parts["confidence"] == pytest.approx(sum(digits) / 9 / len(digits))


def test_a_list_without_one_of_its_boxes_or_with_one_more_is_wrong():
    task = next(task for task in tasks(60, asks=["all"], levels=[2]) if len(task.columns["boxes"]) == 2)
    first, second = task.answer.split(";")
    assert paid(task, f"{second};{first}").correct
    assert paid(task, f"{first};{first}").parts == {"matched": 0.5, "confidence": 1}  # listed again: left out
    missed = paid(task, first)
    assert not missed.correct
    assert missed.parts == {"matched": 0.5, "confidence": 1}
    more = paid(task, f"{task.answer};0,0,1,1:0")
    assert not more.correct
    assert more.parts == {"matched": pytest.approx(2 / 3), "confidence": 1}
    broken = paid(task, f"{first};{second[:-1]}")
    assert broken.parts == {"matched": 0, "confidence": 0}
    assert not broken.answered


def test_what_is_thought_before_a_label_is_its_box_and_is_not_graded():
    for task in tasks(asks=["think"]):
        box = ",".join(map(str, task.columns["box"]))
        assert task.columns["demonstration"] == f"{box}#{task.answer}"
        assert paid(task, f"0,0,1,1#{task.answer}").correct
        assert not paid(task, task.answer).correct


def test_a_label_is_contained_as_in_the_released_code():
    [task] = tasks(1, asks=["label"])
    assert paid(task, task.answer[:3]).parts == {"label": 0, "contained": 1}
    assert contained("a red disc", "red disc")
    assert contained("RED_Disc", "red disc")
    assert contained("d", "red disc")
    assert not contained("red box", "red disc")
    assert not contained("", "red disc")
    assert not contained(" _", "red disc")


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
    with pytest.raises(
        ValidationError, match="allowed: different ones of find, click, type, scroll, all, label, think"
    ):
        Screens(asks=["click", "click"])
    with pytest.raises(ValidationError, match="levels from 1 to 3"):
        Screens(levels=[4])

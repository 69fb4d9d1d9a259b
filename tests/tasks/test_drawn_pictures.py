"""Drawn pictures: what is asked follows from what is drawn."""

from types import SimpleNamespace

import numpy as np
import pytest
from pydantic import ValidationError

from lyceum.models.see import read_picture
from lyceum.tasks.pictures import ASKS, CELL, CELLS, COLOURS, NAMED, SIDE, Pictures, _digit, drawn, grade, judged_steps

EACH = pytest.mark.parametrize("ask", ASKS)


def tasks(n=12, split="train", **settings):
    source = Pictures(**settings).build(split, 0)
    return [source[i] for i in range(n)]


def pixels(task):
    return read_picture(task.messages[0]["content"][0]["image"])


def cells_of(picture, colours):
    """The cells in which one of these colours is, read from the pixels alone."""
    grid = picture.reshape(CELLS, CELL, CELLS, CELL, 3)
    found = []
    for row in range(CELLS):
        for column in range(CELLS):
            block = grid[row, :, column].reshape(-1, 3)
            if any((block == np.array(COLOURS[colour])).all(1).any() for colour in colours):
                found.append(row * CELLS + column)
    return found


def test_counts_are_those_of_the_pixels():
    for task in tasks(asks=["count"]):
        cells = cells_of(pixels(task), NAMED)
        assert task.answer == str(len(cells))
        assert task.columns["steps"] == [str(sum(cell // CELLS == row for cell in cells)) for row in range(CELLS)]
    for task in tasks(asks=["colour"]):
        colour = task.messages[0]["content"][1]["text"].removesuffix("?")
        assert task.answer == str(len(cells_of(pixels(task), [colour])))
    for task in tasks(asks=["compare"]):
        first, second = task.messages[0]["content"][1]["text"].removesuffix("?").split(" or ")
        counts = [len(cells_of(pixels(task), [colour])) for colour in (first, second)]
        assert task.columns["steps"] == [*map(str, counts)]
        assert task.answer == (first if counts[0] > counts[1] else second)


def test_places_and_heights_are_those_of_the_pixels():
    for task in tasks(asks=["where"]):
        [cell] = cells_of(pixels(task), ["red"])
        assert task.answer == "abcd"[cell % CELLS] + str(cell // CELLS + 1)
    for task in tasks(asks=["chart"]):
        blue = (pixels(task) == np.array(COLOURS["blue"])).all(2)
        heights = [int(blue[:, n * CELL + 5].sum()) // 5 for n in range(CELLS)]
        asked = task.messages[0]["content"][1]["text"]
        if task.columns["level"] == 1:
            assert task.answer == "abcd"[int(np.argmax(heights))]
        elif task.columns["level"] == 2:
            assert task.answer == str(heights["abcd".index(asked[4])])
        else:
            high, low = (heights["abcd".index(asked[n])] for n in (0, 2))
            assert task.answer == str(high - low)
            assert high > low
    for task in tasks(asks=["path"]):
        [first] = cells_of(pixels(task), ["red"])
        named = [*task.columns["steps"], task.answer]
        cells = ["abcd".index(name[0]) + CELLS * (int(name[1]) - 1) for name in named]
        assert cells[0] == first
        assert len(cells) == task.columns["level"] + 2
        # Each cell but the last has an arrow.
        assert cells_of(pixels(task), ["red", "black"]) == sorted(cells[:-1])
    for task in tasks(asks=["sum"]):
        assert task.answer == str(sum(map(int, task.columns["steps"])))


def test_cells_of_a_colour_are_those_of_the_pixels_as_many_as_there_are():
    listed = tasks(180, asks=["list"])
    for task in listed:
        colour = task.messages[0]["content"][1]["text"].removesuffix(" cells?")
        cells = ["abcd"[cell % CELLS] + str(cell // CELLS + 1) for cell in cells_of(pixels(task), [colour])]
        assert task.columns["steps"] == cells
        assert task.columns["demonstration"] == f"{','.join(cells)}#{len(cells)}"
    for level in (1, 2, 3):
        of_level = {int(task.answer) for task in listed if task.columns["level"] == level}
        assert of_level == {*range(2 * level + 1)}


def test_a_list_that_stops_early_or_goes_on_is_wrong():
    task = next(task for task in tasks(12, asks=["list"]) if task.answer == "3")
    first, second, third = task.columns["steps"]
    for text, steps in ((f"{first},{second}#2", [1, 1, 0]), (f"{first},{second},{third},d4,d4#5", [1, 1, 1, 0, 0, 0])):
        judged = grade(task, SimpleNamespace(completion=text, finish="stop"))
        assert not judged.correct
        assert [step.reward for step in judged.steps] == steps


def test_a_list_is_asked_for_by_name_alone():
    assert "list" not in Pictures().asks
    assert {*Pictures().asks, "list"} == {*ASKS}


def test_every_digit_is_drawn_in_its_own_way():
    assert len({drawn(_digit(digit, 4, 4)).tobytes() for digit in range(10)}) == 10


@EACH
def test_a_demonstration_is_right_in_every_step(ask):
    for task in tasks(9, asks=[ask]):
        text = task.columns["demonstration"]
        leaf = SimpleNamespace(completion=text, finish="stop")
        verdict = grade(task, leaf)
        assert verdict.correct
        assert [step.reward for step in verdict.steps] == [1.0] * (len(task.columns["steps"]) + 1)
        assert "".join(text[step.start : step.stop] for step in verdict.steps) == text
        assert not grade(task, SimpleNamespace(completion=text, finish="length")).correct
        assert not grade(task, SimpleNamespace(completion=f"{text}1", finish="stop")).correct


@EACH
def test_the_same_question_as_yes_or_no_and_with_four_answers(ask):
    # Pictures, questions and steps are those of the open form: whoever answers that answers these.
    told = set()
    each = (tasks(30, asks=[ask], form=form) for form in ("open", "yes-or-no", "choice"))
    for task, binary, choice in zip(*each, strict=True):
        assert (pixels(task) == pixels(binary)).all()
        assert (pixels(task) == pixels(choice)).all()
        question, *answers = (one.messages[0]["content"][1]["text"] for one in (task, binary, choice))
        named, options = (answer.removeprefix(f"{question} ") for answer in answers)
        assert binary.answer == ("yes" if named == f"{task.answer}?" else "no")
        assert [option[0] for option in options.split(" ")] == [*"ABCD"]
        assert len({option[1:] for option in options.split(" ")}) == 4
        assert options.split(" ")["ABCD".index(choice.answer)][1:] == task.answer
        told |= {binary.answer, choice.answer}
        for one in (binary, choice):
            assert one.columns["steps"] == task.columns["steps"]
            assert grade(one, SimpleNamespace(completion=one.columns["demonstration"], finish="stop")).correct
            assert not grade(one, SimpleNamespace(completion=f"#{task.answer}", finish="stop")).correct
    assert told == {"yes", "no", *"ABCD"}


def test_a_sentence_says_how_each_form_is_answered():
    [binary] = tasks(1, asks=["count"], form="yes-or-no", questions="sentence")
    [choice] = tasks(1, asks=["count"], form="choice", questions="sentence")
    for task, how in ((binary, "yes or no."), (choice, "its letter alone.")):
        text = task.messages[0]["content"][1]["text"]
        assert text.startswith("How many shapes")
        assert text.endswith(how)
        assert "the answer alone" not in text


def test_a_wrong_step_is_found_where_it_is():
    [task] = tasks(1, asks=["count"])
    right = list(task.columns["steps"])
    text = ",".join([right[0], "9", *right[2:]]) + "#0"
    assert [step.reward for step in judged_steps(task, text)] == [1, 0, 1, 1, 0]
    assert judged_steps(task, "") == ()
    assert [step.reward for step in judged_steps(task, ",,#")] == [0, 0, 0]


def test_tasks_are_the_same_in_every_process_and_cycle_through_questions_and_levels():
    first, again = (tasks(14, asks=["count", "where"], levels=[2, 3]) for _ in "ab")
    assert first == again
    assert [(task.columns["ask"], task.columns["level"]) for task in first[:4]] == [
        ("count", 2), ("where", 2), ("count", 3), ("where", 3)
    ]  # fmt: skip
    assert len({task.id for task in first}) == 14


def test_nothing_held_out_is_trained():
    seen = [{str(task.messages) for task in tasks(120, split, asks=["where"])} for split in ("train", "heldout")]
    assert not seen[0] & seen[1]


@pytest.mark.parametrize("ask", ["count", "list"])
def test_other_pictures_under_the_same_questions(ask):
    own = tasks(6, asks=[ask])
    blank, swapped = (tasks(6, asks=[ask], shown=shown) for shown in ("blank", "swapped"))
    for task, empty, other in zip(own, blank, swapped, strict=True):
        assert (pixels(empty) == 255).all()
        assert (pixels(other) != pixels(task)).any()
        assert task.answer == empty.answer == other.answer
        assert task.id == empty.id == other.id


def test_a_larger_picture_is_the_same_one():
    small, large = tasks(1)[0], tasks(1, scale=3)[0]
    assert pixels(large).shape == (3 * SIDE, 3 * SIDE, 3)
    np.testing.assert_array_equal(pixels(large)[::3, ::3], pixels(small))


def test_settings_that_cannot_be_used_are_refused():
    for wrong in ({"asks": []}, {"asks": ["count", "count"]}, {"asks": ["colors"]}, {"levels": [4]}, {"scale": 0}):
        with pytest.raises(ValidationError):
            Pictures(**wrong)


def test_a_caption_says_what_the_picture_shows():
    asks = ["count", "colour", "compare", "where", "list"]
    alone, beside, instead = (tasks(asks=asks, caption=caption) for caption in ("none", "beside", "instead"))
    for plain, below, text in zip(alone, beside, instead, strict=True):
        words, question = text.messages[0]["content"].split("\n")
        assert below.messages[0]["content"][0] == plain.messages[0]["content"][0]
        assert below.messages[0]["content"][1]["text"] == text.messages[0]["content"]
        assert question == plain.messages[0]["content"][1]["text"]
        assert text.answer == plain.answer
        said = [part.split() for part in words.split(", ")]
        for colour in NAMED:
            cells = ["abcd"[cell % CELLS] + str(cell // CELLS + 1) for cell in cells_of(pixels(plain), [colour])]
            assert [cell for name, cell in said if name == colour] == cells
        assert [task.columns["caption"] for task in (plain, below, text)] == ["none", "beside", "instead"]
    with pytest.raises(ValidationError, match="no words say what pictures of chart show"):
        Pictures(asks=["count", "chart"], caption="beside")

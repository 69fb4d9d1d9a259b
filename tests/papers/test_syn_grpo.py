"""A picture's description is drawn around what is asked about, or refused with the reason."""

import random

import numpy as np
import pytest

from lyceum.core.types import ProposedSource
from lyceum.models.see import read_picture
from lyceum.papers.syn_grpo.tasks_redrawn_pictures import RedrawnPictures, at_random
from lyceum.tasks.pictures import CELL, CELLS, COLOURS
from lyceum.utils.messages import picture_parts

SOURCE = RedrawnPictures(asks=["colour", "compare", "where", "list"]).build("train", 0)
TASKS = [SOURCE[i] for i in range(40)]


def cells(task):
    """Cell -> colour of what is drawn, read from the pixels alone."""
    [source] = picture_parts(task.messages)
    grid = read_picture(source).reshape(CELLS, CELL, CELLS, CELL, 3)
    return {
        f"{'abcd'[column]}{row + 1}": name
        for row in range(CELLS)
        for column in range(CELLS)
        for name, colour in COLOURS.items()
        if (grid[row, :, column].reshape(-1, 3) == np.array(colour)).all(1).any()
    }


def kept(task):
    """The colours that a question is about, and where they are."""
    asked = task.messages[0]["content"][1]["text"].removesuffix("+").removesuffix("?").removesuffix(" cells")
    colours = ["red"] if asked == "where" else asked.split(" or ")
    return colours, {cell: colour for cell, colour in cells(task).items() if colour in colours}


def around(task, rng):
    """A description that keeps off what is asked about."""
    colours, places = kept(task)
    free = [name for name in (f"{c}{r}" for c in "abcd" for r in range(1, 5)) if name not in places]
    other = [colour for colour in COLOURS if colour not in colours]
    return {cell: rng.choice(other) for cell in rng.sample(free, 3)}


def test_what_is_described_is_drawn_around_what_is_asked_about_and_the_answer_stays():
    rng = random.Random(0)
    made = 0
    for like in TASKS:
        wanted = around(like, rng)
        task = SOURCE.proposed(",".join(f"{colour} {cell}" for cell, colour in wanted.items()), like)
        if task == "heldout":
            continue
        made += 1
        assert cells(task) == {**kept(like)[1], **wanted}
        assert (task.answer, task.columns["steps"]) == (like.answer, like.columns["steps"])
        assert task.messages[0]["content"][1] == like.messages[0]["content"][1]
        assert (task.provenance, task.id == like.id) == ("policy", False)
    assert made > 30


@pytest.mark.parametrize(
    "text", ["", "red", "red a1;blue a2", "red a5", "pink a1", "red a1,", "red a1\nblue b2", "9" * 999]
)
def test_what_is_no_description_is_refused(text):
    assert SOURCE.proposed(text, TASKS[0]) == "format"


def test_more_shapes_than_allowed_are_no_description():
    names = [f"{c}{r}" for c in "abc" for r in "123"]
    assert SOURCE.proposed(",".join(f"black {name}" for name in names), TASKS[0]) == "format"


def test_a_cell_named_twice_what_is_asked_about_and_the_picture_as_it_was_are_refused():
    like = next(task for task in TASKS if kept(task)[1] and len(cells(task)) > len(kept(task)[1]))
    colours, places = kept(like)
    other = next(colour for colour in COLOURS if colour not in colours)
    free = next(name for name in (f"{c}{r}" for c in "abcd" for r in range(1, 5)) if name not in cells(like))
    assert SOURCE.proposed(f"{other} {free},{other} {free}", like) == "twice"
    assert SOURCE.proposed(f"{colours[0]} {free}", like) == "foreground"
    assert SOURCE.proposed(f"{other} {next(iter(places))}", like) == "foreground"
    was = [f"{colour} {cell}" for cell, colour in cells(like).items() if cell not in places]
    assert SOURCE.proposed(",".join(reversed(was)), like) == "copied"


def test_a_proposed_picture_is_the_same_for_the_same_words_and_kept_for_no_evaluation():
    assert isinstance(SOURCE, ProposedSource)
    held, rng = 0, random.Random(1)
    for like in TASKS * 5:
        text = ",".join(f"{colour} {cell}" for cell, colour in around(like, rng).items())
        task = SOURCE.proposed(text, like)
        assert task == SOURCE.proposed(f" {text}\n", like)
        held += task == "heldout"
    assert 8 < held < 35, "one in ten of 200"


def test_demonstrations_describe_surroundings_that_can_be_drawn():
    proposing = RedrawnPictures(proposes=True).build("train", 0)
    source = RedrawnPictures().build("train", 0)
    for i in range(30):
        prompt, like = proposing[i], source[i]
        assert prompt.messages[0]["content"][1]["text"] == like.messages[0]["content"][1]["text"] + "+"
        assert source.to_propose(like) == prompt.messages
        assert not isinstance(source.proposed(prompt.columns["demonstration"], like), str) or source.proposed(
            prompt.columns["demonstration"], like
        ) in ("heldout", "copied")


def test_a_description_at_random_keeps_to_free_cells_and_other_colours():
    text = at_random(random.Random(0), set(range(1, 16)), {"red", "blue", "green"})
    assert text == "black a1"

"""Moves over drawn scenes: judged by whether they come closer, answered by what is seen then, with marks drawn in."""

import numpy as np
import pytest
from fake_task import FakeTask
from leaves import leaf

from lyceum.core.tree import Node
from lyceum.core.types import Exchange, Task
from lyceum.models.see import read_picture
from lyceum.papers.srgpo.environment_routes import RoutesEnvironment
from lyceum.papers.srgpo.tasks_routes import Routes, apart, grade, judged_steps, walked
from lyceum.tasks.chain import Chain
from lyceum.tasks.pictures import CELL, CELLS, COLOURS
from lyceum.utils.aio import run_async
from lyceum.utils.errors import RecipeError
from lyceum.utils.messages import picture_parts

# 0  1  2  3      S: the disc, at 5. T: the target, at 7. X: another shape, at 6, between them; and at 0.
# 4  S  X  T
SCENE = Task(
    "t",
    (),
    "urrd",
    {"level": 1, "start": 5, "target": 7, "colour": "red", "others": [[6, "blue"], [0, "green"]], "marks": []},
)


def pixels(task):
    return [read_picture(source) for source in picture_parts(task.messages)]


def cells(picture, colour):
    grid = picture.reshape(CELLS, CELL, CELLS, CELL, 3)
    found = (grid == np.array(COLOURS[colour])).all(-1).any((1, 3))
    return [int(row * CELLS + column) for row, column in np.argwhere(found)]


def test_walls_shapes_and_other_characters_leave_the_disc_where_it_is():
    # r: a shape at 6. u: 1. l: a shape at 0. u: the wall. x: no move. r, r: 2, 3. d: 7.
    assert walked(SCENE, 5, "rulu" + "xrrd") == [5, 1, 1, 1, 1, 2, 3, 7]


def test_a_move_is_right_where_it_comes_closer():
    # 5 to 7 is two apart. u: 3. r: 2, r: 1, d: 0. The way around begins with a move that is judged 0.
    assert [step.reward for step in judged_steps(SCENE, "urrd")] == [0, 1, 1, 1]
    assert [step.reward for step in judged_steps(SCENE, "r?")] == [0, 0]
    assert grade(SCENE, leaf("urrd")).correct
    assert not grade(SCENE, leaf("urrdu")).correct, "it has to end there"
    assert not grade(SCENE, leaf("")).correct


def test_every_scene_has_a_way_whose_moves_all_come_closer():
    for split in ("train", "heldout"):
        source = Routes(levels=[1, 2, 3]).build(split, 0)
        for task in (source[i] for i in range(30)):
            assert task.columns["level"] + 1 <= len(task.answer) <= task.columns["level"] + 2
            assert {step.reward for step in judged_steps(task, task.answer)} == {1.0}
            assert grade(task, leaf(task.answer)).correct
            [picture] = pixels(task)
            assert cells(picture, task.columns["colour"]) == [task.columns["target"]]
            assert task.messages[0]["content"][1]["text"] == f"{task.columns['colour']}?"


def test_marks_are_drawn_into_the_same_scene():
    plain, box, line = (Routes(marks=marks).build("train", 0)[0] for marks in ([], ["box"], ["line"]))
    start, target = plain.columns["start"], plain.columns["target"]
    assert plain.columns["start"] == box.columns["start"] == line.columns["start"]
    assert plain.answer == box.answer
    [without], [boxed], [lined] = map(pixels, (plain, box, line))
    assert cells(without, "black") == [start]
    assert cells(boxed, "black") == sorted([start, target])
    assert set(cells(lined, "black")) >= {start}
    x, y = target % CELLS * CELL, target // CELLS * CELL
    changed = (without != boxed).any(-1)
    assert changed[y : y + CELL, x : x + CELL].sum() == 4 * CELL - 4, "the edge of a cell"
    assert changed.sum() == 4 * CELL - 4
    assert (without != lined).any()


def test_conversations_are_begun_some_moves_on_the_way_and_the_next_one_is_demonstrated():
    source = Routes(begun=True).build("train", 0)
    done = set()
    for task in (source[i] for i in range(40)):
        moves = "".join(message["content"] for message in task.messages if message["role"] == "assistant")
        assert task.answer.startswith(moves + task.columns["demonstration"])
        assert len(pixels(task)) == len(moves) + 1
        done.add(len(moves))
    assert done >= {0, 1, 2}


def test_each_turn_is_answered_by_what_is_seen_then_until_the_target():
    task = Routes(marks=[]).build("train", 0)[0]
    environment = RoutesEnvironment().build()
    state = environment.reset(task)
    for place, move in enumerate(task.answer):
        observed = run_async(environment.step(state, Node(None, [1], 0), move, FakeTask()))
        state = observed.state
        last = place == len(task.answer) - 1
        assert (observed.end, observed.reward, observed.failed) == (last, float(last), 0)
        if not last:
            [shown] = picture_parts(observed.messages)
            assert cells(read_picture(shown), "black") == [state.place]
    stayed = run_async(environment.step(environment.reset(task), Node(None, [1], 0), "?", FakeTask()))
    assert (stayed.failed, stayed.end) == (1, False)
    replayed = environment.replay(task, [Exchange(move, "") for move in task.answer])
    assert replayed.place == task.columns["target"]
    assert apart(replayed.place, task.columns["target"]) == 0


def test_other_tasks_are_refused():
    with pytest.raises(RecipeError, match=r"environment\.routes: the tasks have no ways"):
        RoutesEnvironment().check_tasks(Chain().build("train", 0))

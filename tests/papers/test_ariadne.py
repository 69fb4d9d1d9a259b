import numpy as np
import pytest
from leaves import leaf
from leaves import task as any_task
from pydantic import ValidationError

from lyceum.models.see import read_picture
from lyceum.papers.ariadne.reward_maze_steps import MazeSteps, walk_reward
from lyceum.papers.ariadne.tasks_mazes import Mazes, grade, moves_along, paths, turns_of, walked
from lyceum.tasks.chain import Chain
from lyceum.tasks.pictures import CELL, COLOURS
from lyceum.utils.errors import RecipeError

# a1-b1-b2, a1-a2: numbers of the cells are 0, 1, 5 and 4.
PASSAGES = [[0, 1], [1, 5], [0, 4]]
MAZE = any_task(">v", level=2, turns=1, passages=PASSAGES, start=0, target=5, moves=">v")


def test_every_task_has_exactly_its_steps_and_turns_and_one_path():
    settings = Mazes(steps=(1, 3, 5), turns=(0, 2))
    assert settings.pairs == [(1, 0), (3, 0), (3, 2), (5, 2)]
    source = settings.build("train", 0)
    for index in range(12):
        columns = source[index].columns
        assert (columns["level"], columns["turns"]) == settings.pairs[index % 4]
        passages = frozenset(map(tuple, columns["passages"]))
        assert len(passages) == 15  # a tree of 16 cells
        found = [path for path in paths(passages) if (path[0], path[-1]) == (columns["start"], columns["target"])]
        assert [moves_along(path) for path in found] == [columns["moves"]]
        assert len(columns["moves"]) == columns["level"]
        assert turns_of(columns["moves"]) == columns["turns"]


def test_the_picture_shows_the_walls_the_start_and_the_target():
    for index in range(4):
        task = Mazes(steps=(3,), turns=(1,)).build("train", 0)[index]
        pixels = read_picture(task.messages[0]["content"][0]["image"])
        for colour, cell in (("green", task.columns["start"]), ("red", task.columns["target"])):
            rows, columns = np.nonzero((pixels == COLOURS[colour]).all(2))
            assert {*(rows // CELL * 4 + columns // CELL)} == {cell}
        for cell in range(15):
            if cell % 4 < 3:
                wall = (pixels[cell // 4 * CELL + CELL // 2, (cell % 4 + 1) * CELL] == COLOURS["black"]).all()
                assert wall == ((cell, cell + 1) not in task.columns["passages"])


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        (">b1vb2", True),
        (">a4va4", True),  # the cells are reasoning
        ("va2", False),
        (">b1", False),
        (">b1vb2^b1vb2", False),  # it arrives after a detour
        ("va2>b2", False),  # through the wall between a2 and b2
        (">v", False),  # no cells: not the form
    ],
)
def test_an_answer_is_walked(answer, right):
    assert grade(MAZE, leaf(answer)).correct is right


def test_walls_and_the_edge_end_a_walk():
    assert walked(MAZE.columns, "<") is None
    assert walked(MAZE.columns, "v>") is None
    assert walked(MAZE.columns, "v^>") == 1
    assert not grade(MAZE, leaf(">b1vb2", finish="length")).correct


def test_the_reward_counts_first_right_moves_by_their_turns_and_the_whole_path_twice():
    # The whole: 2 * 4 steps * (1 + 2 turns). A prefix >>v: 3 * (1 + 1), though the answer goes on wrongly.
    assert walk_reward(">>v<", ">>v<") == 24
    assert walk_reward(">>vv", ">>v<") == 6
    assert walk_reward(">>v", ">>v<") == 6
    assert walk_reward(">>v<<", ">>v<") == 12  # all first moves, and one too many: 4 * (1 + 2)
    assert walk_reward("^>>v<", ">>v<") == 0
    made = MazeSteps().grade(MAZE, leaf(">b1>c1vc2"))
    assert (made.outcome, made.parts) == (1, {"walked": 0.5, "beyond": 1})


def test_splits_share_no_maze():
    tasks = [[Mazes(steps=(2,), turns=(1,)).build(split, 0)[i] for i in range(30)] for split in ("train", "heldout")]
    kept = [{str((task.columns["passages"], task.columns["moves"])) for task in split} for split in tasks]
    assert not kept[0] & kept[1]


def test_paths_that_cannot_be_and_tasks_without_moves_are_refused():
    with pytest.raises(ValidationError, match="no path has both"):
        Mazes(steps=(2,), turns=(2,))
    with pytest.raises(RecipeError, match="the tasks have no moves; allowed: tasks 'mazes'"):
        MazeSteps().check_tasks(Chain().build("train", 0))

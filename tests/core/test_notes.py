"""Notes between components: typed, found by class, known to nobody else."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, is_dataclass
from typing import ClassVar

import pytest

from lyceum.core.component import kinds
from lyceum.core.notes import Note
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Origin, Task
from lyceum.papers.deepsearch.curriculum_hard_filter import DirectSamples
from lyceum.run.rollout_table import trajectory_table


@dataclass(frozen=True)
class Pace(Note):
    kind: ClassVar[str] = "pace"
    steps: int
    why: str = ""


@dataclass(frozen=True)
class Mark(Note):
    kind: ClassVar[str] = "mark"


TASK = Task("t", ({"role": "user", "content": "1+1="},), "2", {"level": 1})


def tree_of(task: Task = TASK) -> Tree:
    return Tree(task, [Node(None, [1], Origin.PROMPT)])


def test_a_task_gives_a_note_to_who_asks_for_its_class():
    told = TASK.with_note(Pace(3)).with_note(Mark())
    assert told.note(Pace) == Pace(3)
    assert told.note(Mark) == Mark()
    assert told.with_note(Pace(4)).note(Pace) == Pace(4), "in the place of the earlier one"
    assert (TASK.note(Pace), TASK.notes) == (None, {}), "the other task is as it was"
    assert told.with_messages(()).note(Pace) == Pace(3), "another prompt is the same problem"


def test_no_user_function_sees_a_note():
    assert TASK.with_note(Pace(3)).public() == TASK


def test_a_tree_has_several_notes_of_a_class_where_several_guides_wrote_them():
    tree = tree_of()
    tree.add_note(Pace(3))
    tree.record("search", {"rounds": 2})
    tree.add_note(Pace(4))
    assert (tree.notes(Pace), tree.note(Pace), tree.note(Mark)) == ([Pace(3), Pace(4)], Pace(4), None)
    assert list(tree.metadata) == ["pace", "search", "pace#2"]


def test_what_a_file_gave_is_a_note_for_who_asks_for_its_class():
    tree = tree_of(Task("t", (), notes={"pace": {"steps": 3, "why": "slow"}}))
    tree.metadata = {"pace": {"steps": 5, "why": ""}}
    assert tree.task.note(Pace) == Pace(3, "slow")
    assert tree.note(Pace) == Pace(5)


@pytest.mark.parametrize("recorded", [{}, {"steps": 3, "why": "", "more": 1}, 7])
def test_a_note_of_other_fields_is_named_and_not_guessed(recorded):
    with pytest.raises(ValueError, match=r"note .pace.: recorded as .*, which is none of this version: .*argument"):
        Task("t", (), notes={"pace": recorded}).note(Pace)


def test_the_rollout_table_shows_a_note_as_it_says():
    tree = tree_of()
    tree.add_note(Pace(3, "slow"))
    tree.add_note(DirectSamples(0.25))
    tree.root.add([2], Origin.TEACHER).finish = "stop"
    (shown,) = trajectory_table(1, [tree], None, str)["metadata"].to_pylist()
    assert json.loads(shown) == {"pace": {"steps": 3, "why": "slow"}, "direct": 0.25}


def test_every_note_is_a_dataclass_under_a_name_of_its_own():
    for slot in ("curriculum", "guidance", "reward", "tasks"):
        kinds(slot)  # imports the files of all its components
    own = [each for each in Note.__subclasses__() if each.__module__.startswith("lyceum.")]
    assert len(own) >= 20
    assert all(map(is_dataclass, own))
    assert len({each.kind for each in own}) == len(own)
    core = [each.__name__ for each in own if each.__module__.startswith("lyceum.core.")]
    assert core == [], "the core knows none"


def test_the_core_has_no_field_for_a_single_method():
    assert {field.name for field in fields(Task)} == {
        *("id", "messages", "answer", "columns", "provenance", "samples", "hint", "notes")
    }

import re
from dataclasses import replace

import pytest
from pydantic import ValidationError

from lyceum.core.group import Group
from lyceum.core.settings import Composition
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Continuation, Grade, Task
from lyceum.papers.cascade_rl.curriculum_middling import Middling
from lyceum.run.stage_trees import part_file
from lyceum.run.trees import Heading, StepTrees, write_trees
from lyceum.tasks.chain import Chain
from lyceum.utils.errors import RecipeError, RunError


def tree(name, correct, of=5) -> Tree:
    root = Node.prompt([1, 2])
    for number in range(of):
        leaf = root.add_drawn(Continuation([3 + number], [-1.0], [-1.0], [0], "stop"))
        leaf.grade = Grade(float(number < correct))
    return Tree(Task(name, ({"role": "user", "content": name},), 7, {"level": 2}, samples=3), [root])


@pytest.fixture
def run(tmp_path):
    """A finished offline stage: tasks a to f with 0 to 5 of 5 correct, b a second time with 5 of 5."""
    (tmp_path / "recipe.yaml").write_text("stages: [{kind: offline, name: first}, {kind: online, name: second}]\n")
    (tmp_path / "summary.json").write_text("{}")
    parts = [[tree(name, n) for n, name in enumerate("abcdef")], [tree("b", 5)]]
    for number, trees in enumerate(parts):
        file = part_file(tmp_path / "stages" / "first", number)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(write_trees(StepTrees(Heading(0, 0, 0), list(map(Group, trees)))))
    return tmp_path


def drawn(settings, run, n, seed=0):
    curriculum = settings.handed_on(run).build(Chain().build("train", 0), seed=seed)
    return curriculum, curriculum.draw(n)


def test_it_draws_the_tasks_that_were_solved_some_of_the_time_bounds_included(run):
    # b: 1/5 and 5/5, which is 0.6; c 0.4, d 0.6, e 0.8.
    curriculum, tasks = drawn(Middling(from_stage="first"), run, 8)
    names = [task.id for task in tasks]
    assert sorted(names[:4]) == sorted(names[4:]) == ["b", "c", "d", "e"]
    assert curriculum.metrics() == {"tasks/middling": 4, "tasks/measured": 6, "tasks/draws": 2}, "8 of 4"
    assert tasks[0] == replace(tree(tasks[0].id, 0).task, samples=None)
    _, narrow = drawn(Middling(from_stage="first", low=0.4, high=0.5), run, 2)
    assert [task.id for task in narrow] == ["c", "c"]


def test_a_resumed_one_goes_on_with_the_next_draw(run):
    first, _ = drawn(Middling(from_stage="first"), run, 3)
    second, _ = drawn(Middling(from_stage="first"), run, 0, seed=5)
    second.load_state_dict(first.state_dict())
    assert [task.id for task in second.draw(9)] == [task.id for task in first.draw(9)]
    with pytest.raises(RecipeError, match="got 1 tasks, but the saved run had 4"):
        drawn(Middling(from_stage="first", low=0.4, high=0.5), run, 0)[0].load_state_dict(first.state_dict())


def test_what_has_no_such_tasks_is_refused(run):
    none = Middling(from_stage="first", low=0.45, high=0.5)
    with pytest.raises(RunError, match=re.escape("none of the 6 tasks that stage 'first' sampled")):
        drawn(none, run, 1)  # by now that stage has trained
    with pytest.raises(RecipeError, match=re.escape("none of the 6 tasks that stage 'first' sampled")):
        none.handed_on(run).check_tasks(Chain().build("train", 0))
    with pytest.raises(RecipeError, match="has no trees of stage 'second'"):
        Middling(from_stage="second", path=str(run)).check_tasks(Chain().build("train", 0))
    with pytest.raises(RecipeError, match="got 'frist' \\(did you mean 'first'"):
        Middling(from_stage="frist", path=str(run)).check_tasks(Chain().build("train", 0))
    with pytest.raises(ValidationError, match="got neither from_stage nor path"):
        Middling()
    with pytest.raises(ValidationError, match="allowed: at most that"):
        Middling(from_stage="first", low=0.9)


def test_a_stage_that_leaves_no_trees_is_refused_before_anything_runs():
    before = {"offline": {"trees": ""}, "sft": {}}
    check = lambda name: Middling(from_stage=name).conflicts(Composition(before=before))  # noqa: E731
    assert check("offline") == []
    assert check("sft") == ["curriculum.from_stage: got 'sft', which leaves no trees (trees_every=0); allowed: offline"]
    assert "which is no stage before this one" in check("online")[0]

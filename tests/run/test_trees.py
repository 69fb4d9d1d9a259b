"""Trees on the disk: what is read is what was written."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from pathlib import Path
from random import Random
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from forest_fixtures import drawn
from hypothesis import given
from hypothesis import strategies as st
from random_trees import random_tree, random_trees

from lyceum.core.group import Group
from lyceum.core.notes import Note
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Continuation, Grade, Hint, Origin, Task
from lyceum.curriculum.base import OnlyTested
from lyceum.papers.alp_gmm.curriculum_alp_gmm import Parameters
from lyceum.papers.deepsearch.curriculum_hard_filter import DirectSamples
from lyceum.papers.ghpo.guidance_ghpo import GHPONote
from lyceum.papers.rest_rl.curriculum_good_prefixes import GivenPrefix
from lyceum.papers.train_long_think_short.reward_token_budget import TaskBudget
from lyceum.run.trees import (
    NODE,
    TREE,
    Heading,
    StepTrees,
    dump_groups,
    load_groups,
    read_heading,
    read_some,
    read_trees,
    write_trees,
)
from lyceum.tasks.base import HintsLeak
from lyceum.utils.errors import RecipeError

HEADING = Heading(step=7, stage=1, first_step=4)


@dataclass(frozen=True)
class Told(Note):
    """What one component tells another of a task, or a guide itself of a tree."""

    kind: ClassVar[str] = "told"
    tiers: tuple[str, ...]
    share: float


@dataclass(frozen=True)
class Own:
    """A component's own object, which is no note."""

    tiers: tuple[str, ...]
    share: float


def decorated(rng: Random, tree: Tree) -> Tree:
    """The tree with what graders, guides and curricula may leave on it."""
    odd = rng.choice((math.inf, -0.0, 1e-45, 0.1, -(2.0**-149), 1 / 3))
    tree.task = Task(
        f"täsk \ud800 {rng.random()}",
        ({"role": "user", "content": [{"type": "text", "text": "a\nb"}]},),
        answer=rng.choice((None, 7, 7.5, "7", (1, [2]), {"x": {3: odd}})),
        columns={"level": 2, "hints": ["a", ("b", None)], "nan": math.nan, "bytes": b"\xff"},
        samples=rng.choice((None, 3)),
        hint=rng.choice((None, Hint("planning", "first add"))),
        notes=rng.choice(({}, {"told": Told(("a", "b"), odd)}, {"of a later version": {"x": (1, odd)}})),
    )
    tree.metadata = {"search": {"rounds": 2, "opened": (1, 2)}, "told": Told((), odd)}
    tree.sampled_tokens, tree.mean_abs_advantage = rng.randrange(100), rng.choice((None, odd))
    for node in tree.nodes():
        node.text, node.grafted = rng.choice(("", "x", "\ud83d half", "☃\0")), rng.random() < 0.2
        node.value = rng.choice((None, odd))
        node.stats = {"visits": 3, "q": odd} if rng.random() < 0.3 else {}
        if node.behaviour_logprob and rng.random() < 0.3:
            node.model_logprob = [-odd for _ in node.behaviour_logprob]
        if node.tokens and rng.random() < 0.1:
            node.experts = np.array([[rng.randrange(-1, 9), 300]] * len(node.tokens), np.int16)
        if node.grade is not None and rng.random() < 0.3:
            node.grade = Grade(node.grade.outcome, parts={"task": odd}, details="line\nline", answered=True)
    return tree


def flat(value):
    """A value whose equality is that of its bits and types."""
    if isinstance(value, float):
        return ("float", value.hex())
    if isinstance(value, dict):
        return {flat(key): flat(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return (type(value).__name__, *map(flat, value))
    if isinstance(value, np.ndarray):
        return (str(value.dtype), value.shape, value.tolist()) if len(value) else ()
    if isinstance(value, Task | Grade | Hint | Note):
        return {field.name: flat(getattr(value, field.name)) for field in fields(value)}
    return value


def content(tree: Tree):
    """Everything of a tree, without any identity; nodes that only ``chosen`` leads to by their paths."""

    def of(node: Node):
        own = {f.name: flat(getattr(node, f.name)) for f in fields(node) if f.name not in ("parent", "children")}
        return own, [of(child) for child in node.children]

    number = {id(node): i for i, node in enumerate(tree.nodes())}
    chosen = [
        [number.get(id(node)) if id(node) in number else of(node) for node in leaf.path()] for leaf in tree.chosen or ()
    ]
    own = {f.name: flat(getattr(tree, f.name)) for f in fields(tree) if f.name not in ("roots", "chosen")}
    return own, [of(root) for root in tree.roots], tree.chosen is None, chosen


def again(tmp_path, step: StepTrees) -> StepTrees:
    file = tmp_path / "trees.parquet"
    file.write_bytes(write_trees(step))
    assert read_heading(file) == step.heading
    return read_trees(file)


@given(st.integers(0, 10**9))
def test_what_is_read_equals_what_was_written(tmp_path_factory, seed):
    rng = Random(seed)
    trees = [decorated(rng, tree) for tree in random_trees(seed)]
    groups = [Group(tree, rng.choice((1.0, 0.5))) for tree in trees]
    step = StepTrees(HEADING, [*groups, Group(random_tree(rng), dropped=True)])
    found = again(tmp_path_factory.mktemp("trees"), step)
    assert found.heading == HEADING
    for put, group in zip(step.groups, found.groups, strict=True):
        assert (group.weight, group.dropped, group.age) == (put.weight, put.dropped, 0)
        one, other = put.tree, group.tree
        assert content(one) == content(other)
        assert all(child.parent is node for node in other.nodes() for child in node.children)


@pytest.mark.parametrize(
    ("written", "beside", "of"),
    [
        (NODE, {"parent", "children", "top", "entropy", "others", "experts"}, Node),  # the last where there are some
        (TREE, {"roots", "chosen"}, Tree),
    ],
)
def test_no_field_is_forgotten(written, beside, of):
    # A new field of Node or Tree has to be given a column, or be rebuilt like these.
    assert set(written) | beside == {field.name for field in fields(of)}


def test_a_trajectory_that_only_chosen_leads_to_is_kept_with_its_own_subtree(tmp_path):
    tree = Tree(Task("t", ()), [Node(None, [1], Origin.PROMPT)])
    drawn = tree.root.add_drawn(Continuation([2], [-1.0], [-1.0], [0], "stop"))
    below = drawn.add([3], Origin.TOOL)
    drawn.detach()
    tree.chosen = [below]
    (found,) = again(tmp_path, StepTrees(HEADING, [Group(tree)])).trees
    assert found.root.children == []
    assert [node.tokens for node in found.trajectories[0].path()] == [[1], [2], [3]]
    assert found.trajectories[0].parent.children == found.trajectories


def test_components_own_objects_come_back_as_plain_values(tmp_path):
    tree = Tree(Task("t", (), columns={"when": Origin.TOOL, "many": np.arange(2)}), [Node(None, [1], Origin.PROMPT)])
    tree.metadata["ghpo"] = Own(("a", "b"), np.float32(0.5))
    tree.root.stats["hint"] = Hint("planning", "first add")
    (found,) = again(tmp_path, StepTrees(HEADING, [Group(tree)])).trees
    assert found.metadata == {"ghpo": {"tiers": ("a", "b"), "share": 0.5}}
    assert found.root.stats == {"hint": {"tier": "planning", "text": "first add"}}
    assert found.task.columns == {"when": 4, "many": [0, 1]}


@pytest.mark.parametrize("logprob", [-0.1, float(np.float32(-0.1))])
def test_log_probabilities_take_four_bytes_where_these_hold_them(tmp_path, logprob):
    tree = Tree(Task("t", ()), [Node(None, [1], Origin.PROMPT)])
    tree.root.add_drawn(Continuation([2], [logprob], [logprob], [0], "stop"))
    (found,) = again(tmp_path, StepTrees(HEADING, [Group(tree)])).trees
    assert found.root.children[0].behaviour_logprob == [logprob]
    assert found.root.children[0].model_logprob == [logprob]
    of_node = parquet.read_schema(tmp_path / "trees.parquet").field("nodes").type.value_type
    narrow = float(np.float32(logprob)) == logprob
    assert of_node.field("behaviour_logprob").type.value_type == (pa.float32() if narrow else pa.float64())


def test_a_damaged_file_is_refused_by_its_name_or_changes_nothing(tmp_path):
    rng = Random(3)
    step = StepTrees(HEADING, [Group(decorated(rng, tree)) for tree in random_trees(3)])
    whole = write_trees(step)
    file = tmp_path / "step-000007.parquet"
    refused = 0
    for place in range(0, len(whole), 7):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << rng.randrange(8))]) + whole[place + 1 :])
        said, found = "", None
        try:
            found = read_trees(file)
        except RecipeError as error:
            refused, said = refused + 1, str(error)
        if found is None:
            assert said.startswith(f"trees: {file}: ")
        else:
            assert [content(tree) for tree in found.trees] == [content(tree) for tree in step.trees]
            assert found.heading == HEADING
    assert refused > len(whole) / 7 / 2


@pytest.mark.parametrize("given", [b"", b"PAR1", b"garbage" * 99])
def test_what_is_no_file_of_trees_is_refused(tmp_path, given):
    file = tmp_path / "step-000001.parquet"
    file.write_bytes(given)
    for read in (read_trees, read_heading):
        with pytest.raises(RecipeError, match=r"step-000001\.parquet"):
            read(file)


def test_another_table_another_format_and_a_missing_file_are_refused(tmp_path):
    file = tmp_path / "step-000001.parquet"
    with pytest.raises(RecipeError, match="No such file"):
        read_trees(file)
    parquet.write_table(pa.table({"a": [1]}), file)
    with pytest.raises(RecipeError, match="without a format, not trees of format 3 or 2"):
        read_trees(file)
    for read in (read_trees, read_heading):
        parquet.write_table(pa.table({"a": [1]}).replace_schema_metadata({"lyceum.trees": "4"}), file)
        with pytest.raises(RecipeError, match="of format 4, not trees of format 3 or 2"):
            read(file)
        for known in ("2", "3"):
            parquet.write_table(pa.table({"a": [1]}).replace_schema_metadata({"lyceum.trees": known}), file)
            with pytest.raises(RecipeError, match="its columns are not those of trees"):
                read(file)


def test_notes_that_nobody_knows_are_written_back_as_they_were(tmp_path):
    later = {"of a later version": {"x": (1, [2.5]), "nan": math.nan, "bytes": b"\xff"}}
    task = Task("t", (), notes={**later, "told": Told(("a",), 0.5)})
    tree = Tree(task, [Node(None, [1], Origin.PROMPT)], metadata=dict(later))
    (once,) = again(tmp_path, StepTrees(HEADING, [Group(tree)])).trees
    [twice] = [group.tree for group in load_groups(dump_groups([Group(once)]))]
    for found in (once, twice):
        assert flat(found.metadata) == flat(later)
        assert flat(found.task.notes) == flat(task.notes)
        assert found.task.note(Told) == Told(("a",), 0.5)


def test_a_note_whose_class_was_not_imported_yet_is_one_for_who_asks_for_it(tmp_path):
    recorded = {"told later": {"steps": 3}, "told": {"tiers": (), "of another version": 1}}
    tree = Tree(Task("t", (), notes=recorded), [Node(None, [1], Origin.PROMPT)])
    (found,) = again(tmp_path, StepTrees(HEADING, [Group(tree)])).trees
    assert found.task.notes == recorded

    @dataclass(frozen=True)
    class Later(Note):
        kind: ClassVar[str] = "told later"
        steps: int

    assert found.task.note(Later) == Later(3)
    with pytest.raises(ValueError, match="note 'told': recorded as"):
        found.task.note(Told)


@pytest.mark.parametrize("token", [2**31, 2**63 - 1, -(2**63)])
def test_a_token_may_have_any_id_of_64_bits(tmp_path, token):
    tree = Tree(Task("t", ()), [Node(None, [1, token], Origin.PROMPT)])
    (found,) = again(tmp_path, StepTrees(HEADING, [Group(tree)])).trees
    assert found.root.tokens == [1, token]
    assert load_groups(dump_groups([Group(tree)]))[0].tree.root.tokens == [1, token]


def test_the_leaves_of_an_episode_come_back_together(tmp_path):
    root = Node.prompt([1])
    left, last, alone = (drawn(root, [token]) for token in (2, 3, 4))
    rewritten = Node.prompt([1, 5])
    further = drawn(rewritten, [6])
    further.others = [left]
    tree = Tree(Task("t", ()), [root, rewritten], chosen=[last, further, alone])
    (found,) = again(tmp_path, StepTrees(HEADING, [Group(tree)])).trees
    assert [[leaf.tokens for leaf in end.episode] for end in found.trajectories] == [[[3]], [[2], [6]], [[4]]]
    assert found.trajectories[1].others[0].root is found.root


def test_leaves_of_an_episode_that_stand_apart_are_refused(tmp_path):
    file = tmp_path / "trees.parquet"
    tree = Tree(Task("t", ()), [root := Node.prompt([1])], chosen=[drawn(root, [i]) for i in range(3)])
    file.write_bytes(write_trees(StepTrees(HEADING, [Group(tree)])))
    table = parquet.read_table(file)
    assert table["episode"].to_pylist() == [None]
    column = pa.array([[0, 1, 0]], pa.list_(pa.int32()))
    parquet.write_table(table.set_column(table.column_names.index("episode"), "episode", column), file)
    with pytest.raises(RecipeError, match="do not stand together"):
        read_trees(file)


FORMAT_2 = Path(__file__).with_name("trees_format_2.parquet")
"""Three trees, the last one dropped, written by lyceum before format 3 (commit fedca13)."""


def test_a_file_of_format_2_is_read_and_its_fields_are_notes():
    step = read_trees(FORMAT_2)
    assert step.heading == HEADING
    assert [(group.weight, group.dropped) for group in step.groups] == [(0.5, False), (1.0, False), (1.0, True)]
    first, plain, dropped = (group.tree for group in step.groups)
    assert first.task.note(TaskBudget) == TaskBudget(80)
    assert first.task.note(GivenPrefix) == GivenPrefix((7, 8))
    assert first.task.note(OnlyTested) == OnlyTested()
    assert first.task.note(Parameters) == Parameters({"operations": 1.5})
    assert first.task.note(HintsLeak) == HintsLeak(False)
    assert len(first.task.notes) == 5
    assert (first.task.id, first.task.answer, first.task.samples) == ("t/1", "5", 4)
    assert first.task.hint == Hint("planning", "add")
    assert first.task.columns["level"] == 1
    assert first.note(DirectSamples) == DirectSamples(0.25)
    assert dropped.note(DirectSamples) == DirectSamples(None)
    assert first.note(GHPONote) == GHPONote(cold=False, hints=3)
    assert (plain.task.notes, plain.note(DirectSamples)) == ({}, None)
    (leaf,) = first.trajectories
    assert first.chosen == [leaf]
    assert (leaf.path_tokens(), leaf.model_logprob) == ([1, 2, 3, 2**31 - 1], [-0.5, -0.75])
    assert (leaf.grade.outcome, leaf.grade.steps[0].stop) == (1.0, 1)


def test_what_was_read_of_format_2_is_written_as_format_3(tmp_path):
    step = read_trees(FORMAT_2)
    found = again(tmp_path, step)
    assert parquet.read_schema(tmp_path / "trees.parquet").metadata == {b"lyceum.trees": b"3"}
    for one, other in zip(step.groups, found.groups, strict=True):
        assert (content(one.tree), one.weight, one.dropped) == (content(other.tree), other.weight, other.dropped)
    assert read_heading(FORMAT_2) == HEADING
    (some,) = read_some(FORMAT_2, [0])
    assert (content(some.tree), some.weight) == (content(step.trees[0]), 0.5)
    loaded = load_groups(FORMAT_2.read_bytes())
    assert [content(group.tree) for group in loaded] == [content(group.tree) for group in step.groups]

import math
from itertools import pairwise
from random import Random

import pytest
import torch
from forest_fixtures import is_ancestor
from hypothesis import given
from hypothesis import strategies as st
from random_trees import Written, letters, random_trees, written

from lyceum.core.forest import Forest, build_forest
from lyceum.core.tree import Node, Tree, graft
from lyceum.core.types import ASSISTANT, Continuation, Grade, JudgedStep, Origin, Task
from lyceum.guidance.base import instead

seeds = st.integers(0, 2**32)


def token_by_token(trees) -> dict[str, list]:
    """The oracle: a trie of single tokens and a walk through each row's nodes, without runs or arrays."""
    found: dict[tuple, int] = {}
    unique, leaves, segments, number = [], [], [], {}
    for t, leaf, grade in trajectories(trees):
        parent, position, path = -1, 0, leaf.path()
        steps = marks(leaf, grade)
        for node in path:
            n, start = number.setdefault(id(node), len(number)), position
            for i, token in enumerate(node.tokens):
                drawn = node.origin == Origin.POLICY
                what = (token, int(node.origin), *((node.behaviour_logprob[i], node.version[i]) if drawn else (9, -1)))
                place = found.setdefault((t, parent, what, node.grafted), len(unique))
                if place == len(unique):
                    unique.append((t, parent, position, *what, node.grafted))
                parent, position = place, position + 1
                if position in steps:
                    segments.append((len(leaves), n, start, position, steps[position], node.value or 9))
                    start = position
            if start < position or not node.tokens:
                segments.append((len(leaves), n, start, position, 9, node.value or 9))
        leaves.append(parent)
    names = ("tree", "parent", "position", "token", "origin", "behaviour_logprob", "version", "grafted")
    columns = dict(zip(names, map(list, zip(*unique, strict=True)), strict=True)) if unique else {n: [] for n in names}
    return columns | {"leaf": leaves, "segments": segments}


def marks(leaf: Node, grade: Grade) -> dict[int, float]:
    """Positions of a row where a step begins (9) or ends (its reward), found character by character."""
    # Token 0 has no text, and what is not the assistant's is in no completion.
    tokens = [token if node.origin in ASSISTANT else 0 for node in leaf.path()[1:] for token in node.tokens]
    prompt, found = len(leaf.path()[0].tokens), {}
    ends = [len(letters(tokens[: k + 1])) if letters([token]) else None for k, token in enumerate(tokens)]
    for start, stop, reward in grade.steps:
        before = [k + 1 for k, end in enumerate(ends) if end is not None and end <= start]
        inside = [k + 1 for k, end in enumerate(ends) if end is not None and start < end <= stop]
        found.setdefault(prompt + max(before, default=0), 9)
        last = prompt + inside[-1]
        found[last] = (0 if found.get(last, 9) == 9 else found[last]) + reward
    return found


def as_lists(forest: Forest) -> dict[str, list]:
    """A forest as ``token_by_token`` gives it; 9 for nan."""
    names = ("tree", "parent", "position", "token", "origin", "behaviour_logprob", "version", "leaf")
    columns = {name: getattr(forest, name).nan_to_num(9).tolist() for name in names}
    grafted = forest.columns.get("grafted", torch.zeros(forest.n_tokens, dtype=torch.bool)).tolist()
    names = ("row", "node", "start", "end", "reward", "value")
    segments = zip(*(getattr(forest, f"segment_{name}").nan_to_num(9).tolist() for name in names), strict=True)
    return columns | {"grafted": grafted, "segments": list(segments)}


def alike_trees(seed: int) -> list[Tree]:
    """Groups whose samples repeat another one for a long stretch, in nodes cut anywhere, some of them grafted."""
    rng = Random(seed)
    trees = []
    for number in range(2):
        tree = Tree(Task(str(number), ()), [Node(None, [1, 2], Origin.PROMPT), Node(None, [1, 3], Origin.PROMPT)])
        made = [([], [], [])]
        for _ in range(rng.randint(1, 12)):
            other, length = rng.choice(made), rng.randint(0, 90)
            at = rng.randint(0, len(other[0]))
            new = ([5] * length, [-0.5] * length, [3] * length)
            if length:  # what differs first: the token, its log-probability or its version
                rng.choice(new)[0] = rng.choice((-1, -2, -3))
            sample = tuple(old[:at] + more for old, more in zip(other, new, strict=True))
            made.append(sample)
            node, cuts = rng.choice(tree.roots), sorted(rng.choices(range(len(sample[0]) + 1), k=rng.randint(0, 4)))
            for a, b in pairwise([0, *cuts, len(sample[0])]):
                drawn = Continuation(*(run[a:b] for run in (*sample[:2], *sample[1:])), "stop")
                node = node.add_drawn(drawn, letters(drawn.tokens))
                node.value, node.grafted = rng.choice((None, 0.5)), rng.random() < 0.2
            stops = rng.sample(range(1, 1 + len(node.completion)), min(3, len(node.completion)))
            steps = [JudgedStep(rng.randrange(stop), stop, rng.choice((0.25, 2.0))) for stop in stops]
            node.grade = Grade(1.0, steps=tuple(steps))
            if rng.random() < 0.3:
                graft(node, tree.root)
        trees.append(tree)
    return trees


@given(seeds)
def test_a_forest_is_what_a_walk_token_by_token_finds(seed):
    for trees in (random_trees(seed), random_trees(seed, vocabulary=2, longest=30), alike_trees(seed)):
        assert as_lists(build_forest(trees, decode=letters)) == token_by_token(trees)


def trajectories(trees):
    """(number of the tree, leaf, grade) of everything that can be learnt from, in order."""
    return [
        (t, leaf, leaf.grade)
        for t, tree in enumerate(trees)
        for leaf in tree.trajectories
        if leaf.grade is not None and leaf.grade.outcome is not None
    ]


def read(forest: Forest) -> list[list[Written]]:
    """The rows of a forest as lists of what was written."""
    rows = forest.rows()
    assert torch.equal(rows.present.sum(1), forest.row_length)
    result = []
    for index, present in zip(rows.index, rows.present, strict=True):
        at = index[present].tolist()
        drawn = [not math.isnan(forest.behaviour_logprob[t]) for t in at]
        result.append(
            [
                Written(
                    int(forest.token[t]),
                    int(forest.origin[t]),
                    float(forest.behaviour_logprob[t]) if d else None,
                    int(forest.version[t]) if d else None,
                )
                for t, d in zip(at, drawn, strict=True)
            ]
        )
        assert all(int(forest.version[t]) == Forest.NO_VERSION for t, d in zip(at, drawn, strict=True) if not d)
    return result


def segments(forest: Forest) -> list[list[tuple]]:
    """(node, start, end, reward) of each row's segments, in order; no reward is None."""
    found = [[] for _ in range(forest.n_rows)]
    columns = (forest.segment_row, forest.segment_node, forest.segment_start, forest.segment_end, forest.segment_reward)
    for row, node, start, end, reward in zip(*(column.tolist() for column in columns), strict=True):
        found[row].append((node, start, end, None if math.isnan(reward) else reward))
    return found


@given(seeds)
def test_rows_are_the_trajectories_that_were_graded(seed):
    trees = random_trees(seed)
    forest, expected = build_forest(trees, decode=letters), trajectories(trees)
    assert read(forest) == [written(leaf) for _, leaf, _ in expected]
    assert forest.group.tolist() == [t for t, _, _ in expected]
    assert forest.reward.tolist() == [grade.outcome for _, _, grade in expected]
    correct = [None if math.isnan(c) else bool(c) for c in forest.correct.tolist()]
    assert correct == [grade.verdict for _, _, grade in expected]


@given(seeds)
def test_each_shared_beginning_is_stored_once(seed):
    # A token is the same as another one exactly where everything up to it is the same, in the same tree.
    trees = random_trees(seed)
    beginnings = {
        (t, tuple(path[: i + 1]))
        for t, leaf, _ in trajectories(trees)
        for path in [written(leaf)]
        for i in range(len(path))
    }
    assert build_forest(trees, decode=letters).n_tokens == len(beginnings)


@given(seeds)
def test_parents_stand_before_their_children_and_positions_count_tokens_above(seed):
    forest = build_forest(random_trees(seed), decode=letters)
    first = forest.parent == Forest.ROOT
    child, parent = (~first).nonzero().squeeze(1), forest.parent[~first]
    assert (parent < child).all()
    assert (forest.position[first] == 0).all()
    assert torch.equal(forest.position[child], forest.position[parent] + 1)
    assert torch.equal(forest.tree[child], forest.tree[parent])
    assert (forest.tree.diff() >= 0).all()
    node = torch.arange(len(forest.node_parent))
    assert (forest.node_parent < node).all()


@given(seeds)
def test_a_token_is_an_ancestor_exactly_where_it_stands_on_the_path(seed):
    forest = build_forest(random_trees(seed, most=2), decode=letters)
    above_of = []  # of each token: itself and all above
    for t, parent in enumerate(forest.parent.tolist()):
        above_of.append({t} | (above_of[parent] if parent >= 0 else set()))
    n = forest.n_tokens
    above, below = (x.flatten() for x in torch.meshgrid(torch.arange(n), torch.arange(n), indexing="ij"))
    expected = [a in above_of[b] for a, b in zip(above.tolist(), below.tolist(), strict=True)]
    assert is_ancestor(forest, above, below).tolist() == expected


@given(seeds, st.data())
def test_selected_rows_are_the_same_rows(seed, data):
    forest = build_forest(random_trees(seed), decode=letters, weights=None)
    forest = forest.with_columns(place=torch.arange(forest.n_tokens).float())
    chosen = data.draw(st.permutations(range(forest.n_rows)))
    chosen = chosen[: data.draw(st.integers(0, len(chosen)))]
    part = forest.select(torch.tensor(chosen, dtype=torch.long))

    rows = read(forest)
    assert read(part) == [rows[r] for r in chosen]
    assert segments(part) == [segments(forest)[r] for r in chosen]
    assert (part.segment_row.diff() >= 0).all()
    for name in ("group", "reward", "weight"):
        assert getattr(part, name).tolist() == [getattr(forest, name).tolist()[r] for r in chosen]
    assert torch.equal(part.correct.nan_to_num(-1), forest.correct.nan_to_num(-1)[chosen])
    # Nothing is left that no row passes, order stays, and columns went along with their tokens.
    assert sorted(set(part.rows().index[part.rows().present].tolist())) == list(range(part.n_tokens))
    place = part.columns["place"].long()
    assert (place.diff() > 0).all()
    assert torch.equal(part.token, forest.token[place])
    assert torch.equal(part.tree, forest.tree[place])
    assert (part.parent < torch.arange(part.n_tokens)).all()


@given(seeds)
def test_segments_cut_each_row_at_its_nodes_and_judged_steps(seed):
    trees = random_trees(seed)
    forest = build_forest(trees, decode=letters)
    for (_, leaf, grade), row in zip(trajectories(trees), segments(forest), strict=True):
        assert [row[0][1], *(end for _, _, end, _ in row)] == [*(start for _, start, _, _ in row), len(written(leaf))]
        lengths: dict[int, int] = {}
        for node, start, end, _ in row:
            lengths[node] = lengths.get(node, 0) + end - start
        assert list(lengths.values()) == [len(node.tokens) for node in leaf.path()]
        assert [int(forest.node_parent[node]) for node in lengths] == [Forest.ROOT, *list(lengths)[:-1]]
        judged = {end: reward for _, _, end, reward in row if reward is not None}
        assert judged == {at: reward for at, reward in marks(leaf, grade).items() if reward != 9}


@given(seeds)
def test_what_a_row_owns_is_the_end_of_its_path(seed):
    # The attention plan and the micro-batches rest on it: rows before a row cover a beginning of it.
    forest = build_forest(random_trees(seed), decode=letters)
    rows, seen = forest.rows(), set()
    for r in range(forest.n_rows):
        path = rows.index[r][rows.present[r]].tolist()
        new = [t not in seen for t in path]
        assert new == sorted(new)
        assert int(forest.owned[r]) == sum(new)
        seen |= set(path)
    assert int(forest.owned.sum()) == forest.n_tokens


@given(seeds)
def test_only_what_the_policy_wrote_is_trained_and_never_a_rows_first_token(seed):
    forest = build_forest(random_trees(seed), decode=letters)
    mask = forest.trainable(forest.rows())
    for row, path in zip(mask.tolist(), read(forest), strict=True):
        assert row[: len(path)] == [i > 0 and w.origin == Origin.POLICY for i, w in enumerate(path)]
        assert not any(row[len(path) :])


def drawn(node, tokens, logprob=-1.0):
    n = len(tokens)
    return node.add_drawn(Continuation(tokens, [logprob] * n, [logprob] * n, [0] * n, "stop"))


def test_a_group_by_hand():
    #  1 2 | 5 6      three samples of one prompt: two begin with the same token, the third drew what the first drew
    #      | 5 7
    #      | 5 6
    root = Node(None, [1, 2], Origin.PROMPT)
    leaves = [drawn(root, tokens) for tokens in ([5, 6], [5, 7], [5, 6])]
    for leaf, outcome in zip(leaves, (1.0, 0.0, 1.0), strict=True):
        leaf.grade = Grade(outcome, correct=outcome == 1)
    forest = build_forest([Tree(Task("t", ()), [root])], weights=[0.5], temperature=0.7)
    assert forest.token.tolist() == [1, 2, 5, 6, 7]
    assert forest.parent.tolist() == [-1, 0, 1, 2, 2]
    assert forest.position.tolist() == [0, 1, 2, 3, 3]
    assert forest.origin.tolist() == [0, 0, 1, 1, 1]
    assert forest.leaf.tolist() == [3, 4, 3]
    assert forest.rows().index.tolist() == [[0, 1, 2, 3], [0, 1, 2, 4], [0, 1, 2, 3]]
    assert forest.trainable(forest.rows()).tolist() == [[False, False, True, True]] * 3
    assert forest.owned.tolist() == [4, 1, 0]
    assert forest.shared == 1 - 5 / 12
    assert forest.segment_node.tolist() == [0, 1, 0, 2, 0, 3]
    assert forest.node_parent.tolist() == [-1, 0, 0, 0]
    assert forest.weight.tolist() == [0.5] * 3
    assert forest.temperature == 0.7


def test_a_row_that_ends_inside_another_row_is_a_row():
    # An inner node of a search that is trained on too: it owns nothing, and its row is a beginning of the other.
    root = Node(None, [1], Origin.PROMPT)
    inner = drawn(root, [2, 3])
    leaf = drawn(inner, [4])
    inner.grade, leaf.grade = Grade(0.0), Grade(1.0)
    forest = build_forest([Tree(Task("t", ()), [root], chosen=[leaf, inner])])
    assert forest.rows().index.tolist() == [[0, 1, 2, 3], [0, 1, 2, 0]]
    assert forest.rows().present.tolist() == [[True] * 4, [True, True, True, False]]
    assert forest.owned.tolist() == [4, 0]


def test_the_same_prompt_in_two_trees_is_two():
    # Trees are groups; what they share by chance is not looked for.
    trees = []
    for t in range(2):
        root = Node(None, [1, 2], Origin.PROMPT)
        drawn(root, [3]).grade = Grade(1.0)
        trees.append(Tree(Task(str(t), ()), [root]))
    forest = build_forest(trees, decode=letters)
    assert forest.n_tokens == 6
    assert forest.tree.tolist() == [0, 0, 0, 1, 1, 1]


def test_a_replaced_trajectory_leaves_no_token_behind():
    root, hinted = Node(None, [1, 2], Origin.PROMPT), Node(None, [1, 9, 2], Origin.PROMPT)
    failed, kept = drawn(root, [3]), drawn(root, [4])
    helped = drawn(hinted, [5])
    for leaf in (failed, kept, helped):
        leaf.grade = Grade(1.0)
    tree = Tree(Task("t", ()), [root, hinted], chosen=[failed, kept])
    tree.chosen = instead(tree.trajectories, failed, helped)
    forest = build_forest([tree])
    assert [[w.token for w in row] for row in read(forest)] == [[1, 9, 2, 5], [1, 2, 4]]
    assert 3 not in forest.token.tolist()
    assert forest.group.tolist() == [0, 0]


def test_samples_computed_apart_stay_apart():
    # Two engines' log-probabilities of one token differ in the last bits: merging would give one row the other's.
    root = Node(None, [1], Origin.PROMPT)
    drawn(root, [2, 3], -1.0).grade = Grade(1.0)
    drawn(root, [2, 3], -1.0 - 1e-7).grade = Grade(0.0)
    assert build_forest([Tree(Task("t", ()), [root])]).n_tokens == 5


def test_a_drawn_node_without_a_version_of_each_token_is_refused():
    root = Node(None, [1], Origin.PROMPT)
    root.add_drawn(Continuation([2, 3], [-1.0, -1.0], [-1.0, -1.0], [0], "stop")).grade = Grade(1.0)
    with pytest.raises(ValueError, match="a node of 2 tokens has 2 log-probabilities and 1 versions"):
        build_forest([Tree(Task("t", ()), [root])])


def test_judged_steps_without_their_texts_tokenizer_are_refused():
    root = Node(None, [1], Origin.PROMPT)
    drawn(root, [2]).grade = Grade(1.0, steps=(JudgedStep(0, 1, 1.0),))
    with pytest.raises(ValueError, match="task 't': judged steps without the decode function"):
        build_forest([Tree(Task("t", ()), [root])])


def test_ungraded_trajectories_are_left_out():
    root = Node(None, [1], Origin.PROMPT)
    drawn(root, [2]).grade = Grade(1.0)
    drawn(root, [3]).grade = Grade.ungraded("the sandbox died")
    drawn(root, [4])
    forest = build_forest([Tree(Task("t", ()), [root])])
    assert forest.token.tolist() == [1, 2]


def test_no_trajectory_is_an_empty_forest():
    forest = build_forest([Tree(Task("t", ()), [Node(None, [1], Origin.PROMPT)])])
    assert (forest.n_tokens, forest.n_rows) == (0, 0)
    assert forest.rows().index.shape == (0, 0)
    assert forest.shared == 0.0


def test_a_trajectory_without_tokens_is_refused():
    root = Node(None, [], Origin.PROMPT)
    drawn(root, []).grade = Grade(1.0)
    with pytest.raises(ValueError, match="task 't': a trajectory without tokens"):
        build_forest([Tree(Task("t", ()), [root])])

from hypothesis import given
from hypothesis import strategies as st

from lyceum.core.tree import Node, Tree
from lyceum.core.types import Example, Grade, Origin, Task
from lyceum.value.targets import examples_of, mean_outcomes, process_values, step_value


def tree_of(shape):
    """Nested steps: name -> steps below it, or the outcome of an end (None: never graded)."""
    tree = Tree(Task("t", ()), [Node(None, [0], Origin.PROMPT)])
    named = {}

    def grow(above, below):
        for name, what in below.items():
            named[name] = above.add([len(named) + 1], Origin.POLICY)
            if isinstance(what, dict):
                grow(named[name], what)
            else:
                named[name].grade = None if what is None else Grade(what)

    grow(tree.root, shape)
    return tree, named


def by_name(values, named):
    return {name: values[node] for name, node in named.items() if node in values}


def test_a_right_path_climbs_evenly_to_one_and_a_wrong_step_falls_back():
    # a leads to a right end in two more steps: m = 2, so v = (1 - 0) / 3. Then 1/3 + (2/3) / 2 = 2/3, then 1.
    # d leaves the path behind a, from which two steps are left: 1/3 - (2/3) / 3 = 1/9; and e, below it, counts the same
    # distance: 1/9 - (8/9) / 3 < 0, cut to 0. f leaves at the prompt, with three steps left: 0 - 1/3, cut to 0.
    # g leaves behind b, one step from the end: 2/3 - (1/3) / 2 = 1/2, and h below it: 1/2 - (1/2) / 2, by two again.
    tree, named = tree_of({"a": {"b": {"c": 1.0, "g": {"h": 0.0}}, "d": {"e": 0.0}}, "f": 0.0})
    values = by_name(process_values(tree), named)
    expected = {"a": 1 / 3, "b": 2 / 3, "c": 1.0, "d": 1 / 9, "e": 0.0, "f": 0.0, "g": 1 / 2, "h": 1 / 4}
    assert values.keys() == expected.keys()
    assert all(abs(values[name] - expected[name]) < 1e-12 for name in expected)


def test_the_nearest_right_end_is_what_counts():
    # Behind a one right end is one step away and one two: m = 1, v = 1 / 2. On the longer way b is 1/2 + (1/2) / 2.
    tree, named = tree_of({"a": {"b": {"c": 1.0}, "d": 1.0}})
    assert by_name(process_values(tree), named) == {"a": 0.5, "b": 0.75, "c": 1.0, "d": 1.0}


def test_nothing_is_inferred_of_what_never_ended_or_without_a_right_answer():
    tree, named = tree_of({"a": 1.0, "b": None, "c": {"d": None}})
    assert by_name(process_values(tree), named) == {"a": 1.0}
    assert process_values(tree_of({"a": 0.0, "b": {"c": 0.0}})[0]) == {}


def test_an_outcome_that_is_no_verdict_is_right_where_it_is_positive():
    tree, named = tree_of({"a": 0.7, "b": -0.2})
    assert by_name(process_values(tree), named) == {"a": 1.0, "b": 0.0}


@given(st.floats(0, 1), st.integers(1, 50), st.booleans())
def test_a_step_stays_between_nothing_and_one_and_moves_as_its_verdict_says(above, steps, right):
    value = step_value(above, steps, right=right)
    assert 0 <= value <= 1 + 1e-12
    assert value >= above if right else value <= above


@given(st.recursive(st.sampled_from([0.0, 1.0]), lambda below: st.lists(below, min_size=1, max_size=3), max_leaves=12))
def test_values_of_any_tree_end_at_one_exactly_at_right_ends(shape):
    numbers = iter(range(1000))

    def named(what):
        return {f"n{next(numbers)}": named(each) if isinstance(each, list) else each for each in what}

    tree, _ = tree_of(named(shape if isinstance(shape, list) else [shape]))
    for node, value in process_values(tree).items():
        assert 0 <= value <= 1 + 1e-12
        right_end = node.grade is not None and node.grade.outcome == 1
        # A wrong end never reaches 1, since the prompt's is 0 and wrong steps only fall.
        assert (abs(value - 1) < 1e-12) == right_end


def test_the_mean_outcome_counts_every_end_once():
    # Below a three ends: (1 + 0 + 1) / 3, and not the mean of b's 1 and c's 1/2.
    tree, named = tree_of({"a": {"b": 1.0, "c": {"d": 0.0, "e": 1.0}}, "f": {"g": None}, "h": 3.0})
    assert by_name(mean_outcomes(tree), named) == {"a": 2 / 3, "b": 1.0, "c": 0.5, "d": 0.0, "e": 1.0, "h": 1.0}


def test_examples_are_whole_paths_each_once():
    tree, named = tree_of({"a": {"b": 1.0}, "c": 0.0})
    named["c"].tokens = list(named["a"].tokens)  # two draws of the same step
    assert examples_of(tree, "process") == [Example([0, 1], 0.5, 1), Example([0, 1, 2], 1.0, 1)]

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lyceum.core.tree import Node, Tree
from lyceum.core.types import Grade, Origin, Task
from lyceum.curriculum.base import is_test
from lyceum.papers.rest_rl.curriculum_good_prefixes import GoodPrefixes, differs, drawn
from lyceum.papers.rest_rl.guidance_prefix import given_to
from lyceum.recipe.schema import load_recipe, parse
from lyceum.utils.errors import RecipeError


class Letters:
    """A policy's tokenizer alone."""

    def decode(self, tokens):
        return "".join(map(chr, tokens))


class Source(list):
    def __init__(self, n):
        super().__init__(Task(f"t{i}", ({"role": "user", "content": str(i)},)) for i in range(n))


def curriculum(n=8, **settings):
    how = {"pool": 4, "tests": 3, "step": {"by": "lines"}} | settings
    return GoodPrefixes.model_validate(how).build(Source(n), seed=1, policy=Letters())


def grown(task, *leaves):
    tree = Tree(task, [Node(None, [0], Origin.PROMPT)])
    for text, outcome in leaves:
        leaf = tree.root.add([ord(c) for c in text], Origin.POLICY, text)
        leaf.finish, leaf.grade = "stop", Grade(outcome)
    return tree


MIXED = (("a\nb\nc\nd\ne", 1.0), ("x", 0.0), ("y", 0.0))
ALIKE = (("x", 0.0), ("y", 0.0), ("z", 0.0))


def test_a_round_tests_first_and_then_trains_on_what_differs():
    it = curriculum()
    first, second = it.draw(2), it.draw(2)
    assert all(is_test(task) and task.samples == 3 for task in [*first, *second])
    it.observe([grown(first[0], *MIXED), grown(first[1], *ALIKE)])
    it.observe([grown(second[0], *ALIKE), grown(second[1], *ALIKE)])
    # One task differs: its prompt, and ceil(4 / 2) beginnings of its best sample; the whole sample is none.
    states = it.draw(3)
    assert {task.id for task in states} == {first[0].id}
    assert sorted(len(given_to(task)) for task in states)[0] == 0
    given = ["".join(map(chr, given_to(task))) for task in states if given_to(task)]
    assert len(given) == 2
    assert set(given) <= {"a\n", "a\nb\n", "a\nb\nc\n", "a\nb\nc\nd\n"}
    assert all(not is_test(task) and task.samples is None for task in states)
    assert is_test(it.draw(1)[0])  # the next round


def test_tests_are_not_trained_on_and_what_waits_is():
    it = curriculum()
    tasks = it.draw(4)
    trees = [grown(task, *MIXED) for task in tasks]
    assert [it.weight(tree) for tree in trees] == [0.0] * 4
    it.observe(trees)
    assert [it.weight(grown(task, *MIXED)) for task in it.draw(2)] == [1.0, 1.0]


def test_the_last_step_of_a_round_is_filled_up_with_tests_of_the_next():
    it = curriculum()
    it.observe([grown(task, *(MIXED if i == 0 else ALIKE)) for i, task in enumerate(it.draw(4))])
    tasks = it.draw(5)  # three states wait
    assert [is_test(task) for task in tasks] == [False] * 3 + [True] * 2
    assert it.untested == 2


def test_a_best_sample_that_is_not_good_enough_gives_no_beginnings():
    it = curriculum(pool=1)
    (task,) = it.draw(1)
    it.observe([grown(task, ("a\nb", 0.8), ("x", 0.0))])
    assert [index for index, _ in it.waiting] == [int(task.id[1:])]
    assert it.waiting[0][1] == []


def test_a_round_in_which_nothing_differs_is_followed_by_another():
    it = curriculum()
    it.observe([grown(task, *ALIKE) for task in it.draw(4)])
    assert all(is_test(task) for task in it.draw(4))
    assert it.round == 1


def test_rewards_differ_from_the_threshold_on():
    # Half 0 and half 0.1: the standard deviation is exactly half the distance, 0.05; by n - 1 it would be more.
    assert differs([0.0, 0.125], 0.0625)
    assert not differs([0.0, 0.125], 0.0626)
    assert not differs([0.0, 0.125, 0.0, 0.125], 0.07)
    assert not differs([1.0, 1.0], 0.05)


def test_short_beginnings_are_drawn_more_often_by_the_decay():
    counts = Counter(end for seed in range(4000) for end in drawn([10, 20], 0.5, 0.5, seed))
    # Weights 1 and 1/2: two of three. One end in two is drawn.
    assert sum(counts.values()) == 4000
    assert counts[10] / 4000 == pytest.approx(2 / 3, abs=0.03)


@given(st.integers(0, 12), st.floats(0.01, 1))
def test_as_many_beginnings_as_the_share_says_rounded_up(n, share):
    found = drawn(list(range(1, n + 1)), share, 0.95, 0)
    assert len(found) >= share * n > len(found) - 1 or n == 0 == len(found)


def test_its_state_goes_on_where_it_was():
    whole = curriculum(pool=2)
    whole.observe([grown(task, *MIXED) for task in whole.draw(2)])
    whole.draw(1)
    resumed = GoodPrefixes(pool=2, tests=3).build(Source(8), seed=9, policy=Letters())
    resumed.load_state_dict(whole.state_dict())
    assert [resumed.draw(3) for _ in range(3)] == [whole.draw(3) for _ in range(3)]
    with pytest.raises(RecipeError, match="got 7 tasks, but the saved run had 8"):
        curriculum(7).load_state_dict(whole.state_dict())


def test_it_is_refused_where_nothing_begins_completions_as_it_says():
    stage = {"kind": "online", "curriculum": "good-prefixes"}
    with pytest.raises(RecipeError, match="guidance: got none of kind 'prefix'"):
        parse({"stages": [stage]})
    parse({"stages": [stage | {"guidance": ["prefix"]}]})
    assert load_recipe("rest-rl").stages[0].curriculum.spread == 0.05

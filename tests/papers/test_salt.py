from itertools import chain, pairwise
from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from random_trees import letters
from tree_forests import forest_of, random_nested

from lyceum.core.forest import build_forest
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Continuation, Grade, JudgedStep, Origin, Task
from lyceum.credit.group import GroupRelative
from lyceum.papers.salt.credit_salt import Salt, merged_advantages, step_taken
from lyceum.utils.errors import RecipeError

A, B, C = ["s", "x", "e"], ["s", "y", "e"], ["t", "x", "e"]
"""A and B begin alike and part at their second step; C takes A's second step after another first one."""


def merge(rows, values, history=1):
    key = step_taken(history)
    keys = [[key(own, at) for at in range(len(own))] for own in rows]
    merged = iter(merged_advantages(values, [r for r, own in enumerate(rows) for _ in own], [*chain(*keys)]))
    return [[next(merged) for _ in own] for own in rows]


def test_a_step_that_both_took_gets_their_mean_and_one_that_tells_them_apart_keeps_its_own():
    # s: (1 - 1) / 2. After x and after y the same e leads on from different states.
    assert merge([A, B], [1.0, -1.0]) == [[0, 1, 1], [0, -1, -1]]


def test_how_much_of_the_past_makes_a_state_is_a_setting():
    values = [1.0, -1.0, 4.0]
    # One step before: A's and C's x come from s and t, but their e both from x: (1 + 4) / 2.
    assert merge([A, B, C], values, history=1) == [[0, 1, 2.5], [0, -1, -1], [4, 4, 2.5]]
    # None: a step is one wherever it is taken: x of A and C, e of all three.
    assert merge([A, B, C], values, history=0) == [[0, 2.5, 4 / 3], [0, -1, 4 / 3], [4, 2.5, 4 / 3]]
    # The whole past: nothing of A and C is one.
    assert merge([A, B, C], values, history=None) == [[0, 1, 1], [0, -1, -1], [4, 4, 4]]


def test_the_beginning_is_a_state_of_its_own():
    # s at the beginning is in both rows; s after s in the first alone.
    assert merge([["s", "s"], ["s"]], [1.0, -1.0], history=1) == [[0, 1], [0]]


def test_a_row_that_goes_round_counts_once():
    # r takes the loop "a" after "a" twice: with the other row the mean is (3 + 0) / 2, not (3 + 3 + 0) / 3.
    assert merge([["a", "a", "a"], ["a", "a"]], [3.0, 0.0])[0] == [1.5, 1.5, 1.5]


def test_groups_are_never_merged():
    # The same completions in both: 1 - 1/2 in the first, where another one failed, 0 - 1/2 in the second.
    first, second = (rows_of(([5, 6], a), ([5, 7], b)) for a, b in ((1.0, 0.0), (0.0, 1.0)))
    both = build_forest([tree_of(([5, 6], 1.0), ([5, 7], 0.0)), tree_of(([5, 6], 0.0), ([5, 7], 1.0))], decode=letters)
    salt = Salt(scale="none", steps="tokens", step_tokens=2).build()
    alone = torch.cat([salt(first).advantage, salt(second).advantage])
    assert salt(both).advantage.equal(alone)
    assert alone.any()


def rows_of(*rows, steps=()):
    return build_forest([tree_of(*rows, steps=steps)], decode=letters)


def tree_of(*rows, steps=()):
    """(tokens, reward) of each row below a prompt of one token; judged where ``steps`` says."""
    root = Node(None, [1], Origin.PROMPT)
    for tokens, reward in rows:
        n = len(tokens)
        leaf = root.add_drawn(Continuation(tokens, [-1.0] * n, [-1.0] * n, [0] * n, "stop"), letters(tokens))
        judged = [JudgedStep(start, end, 1.0) for start, end in pairwise((0, *steps)) if end <= n]
        leaf.grade = Grade(reward, steps=tuple(judged))
    return Tree(Task("t", ()), [root])


def test_steps_are_where_the_grader_judged_or_of_a_length_or_behind_separators():
    # Rewards 1 and 0: -+1/2. Both begin 5 6 | 7, then part.
    rows = (([5, 6, 7, 8, 9], 1.0), ([5, 6, 7, 4, 9], 0.0))
    plain = {"scale": "none"}

    def got(forest, **settings):
        return Salt(**plain, **settings).build()(forest).advantage[0].tolist()

    assert got(rows_of(*rows, steps=(2, 5))) == [0, 0, 0, 0.5, 0.5, 0.5], "5 6 | 7 8 9: the second step differs"
    assert got(rows_of(*rows, steps=(3, 5))) == [0, 0, 0, 0, 0.5, 0.5], "5 6 7 | 8 9"
    assert got(rows_of(*rows), steps="tokens", step_tokens=1) == [0, 0, 0, 0, 0.5, 0.5], "9 after 8 is not 9 after 4"
    assert got(rows_of(*rows), steps="tokens", step_tokens=1, history=0) == [0, 0, 0, 0, 0.5, 0]
    assert got(rows_of(*rows), steps="separator", separator_ids=(6,)) == [0, 0, 0, 0.5, 0.5, 0.5]


def test_a_run_in_which_nobody_judges_steps_is_refused_and_not_silently_grpo():
    with pytest.raises(RecipeError, match=r"credit.steps: got 'judged', but in 2 completions .* allowed: 'tokens'"):
        Salt().build()(rows_of(([5, 6], 1.0), ([5, 7], 0.0)))


def test_a_step_of_a_run_without_anything_to_learn_needs_no_steps():
    # A model that cannot write a result yet: all wrong, and nothing to judge.
    assert not Salt().build()(rows_of(([5, 6], 0.0), ([5, 7], 0.0))).advantage.any()


def test_one_judged_step_is_enough():
    advantage = Salt(scale="none").build()(rows_of(([5, 6], 1.0), ([5, 7], 0.0), steps=(2,))).advantage
    assert advantage.tolist() == [[0, 0.5, 0.5], [0, -0.5, -0.5]]


def test_the_nodes_of_a_tree_are_steps():
    # Both leaves of the inner node share it: its token gets their mean (1 + 0) / 2 - 1/3, theirs their own.
    advantage = Salt(scale="none").build()(forest_of([[1, 0], 0])).advantage
    torch.testing.assert_close(advantage[0], torch.tensor([0.0, 1 / 6, 2 / 3]))
    torch.testing.assert_close(advantage[1], torch.tensor([0.0, 1 / 6, -1 / 3]))
    torch.testing.assert_close(advantage[2], torch.tensor([0.0, -1 / 3, 0.0]))


@given(st.integers(0, 10**6), st.sampled_from(["std", "none", "batch"]))
def test_without_a_step_in_common_it_is_the_group_relative_advantage(seed, scale):
    rng = Random(seed)
    # Each leaf below a node of its own: two steps.
    forest = forest_of(*[[[rng.choice((0, 1, 0.25))] for _ in range(rng.randint(1, 5))] for _ in range(2)], length=3)
    for settings in ({"steps": "judged"}, {"steps": "tokens", "step_tokens": 2}):
        got = Salt(scale=scale, **settings).build()(forest).advantage
        torch.testing.assert_close(got, GroupRelative(scale=scale).build()(forest).advantage)


@given(st.integers(0, 10**6))
def test_merging_moves_advantage_between_rows_and_makes_none(seed):
    # Over the rows that share them, steps keep their sum: over all steps of a tree it is that of the rows' own.
    rng = Random(seed)
    forest = forest_of([random_nested(rng)])
    own = GroupRelative(scale="none").build()(forest).advantage.sum()
    got = Salt(scale="none", history=None).build()(forest).advantage.sum()
    torch.testing.assert_close(got, own, atol=1e-5, rtol=1e-5)


def test_settings_that_do_nothing_are_refused():
    with pytest.raises(ValueError, match="separator_ids: got"):
        Salt(steps="separator")
    with pytest.raises(ValueError, match="separator_ids: got"):
        Salt(steps="tokens", separator_ids=(3,))

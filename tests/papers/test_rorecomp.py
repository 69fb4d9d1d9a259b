"""RoRecomp: which rows a step trains, and which follow."""

import math

import pytest
import torch

from lyceum.core.group import AGE
from lyceum.papers.rorecomp.credit_recomposed import Recomposed, priority_rows
from lyceum.recipe.schema import load_recipe
from lyceum.utils.errors import RecipeError


def test_the_shortest_correct_and_the_longest_incorrect_rows_come_first():
    # Of three correct rows (9, 4, 6 tokens) two come first at 1/2: 4 and 6; of two incorrect ones (3, 8) the 8.
    first = priority_rows(
        torch.tensor([1.0, 1, 1, 0, 0]), torch.tensor([9, 4, 6, 3, 8]), torch.tensor([0, 0, 0, 0, 0]), 0.5
    )
    assert first.tolist() == [False, True, True, False, True]


def test_groups_are_apart_ties_go_to_the_first_and_the_unjudged_come_first():
    first = priority_rows(
        torch.tensor([1.0, 1, 0, 0, math.nan]), torch.tensor([5, 5, 7, 7, 1]), torch.tensor([0, 0, 1, 1, 1]), 0.5
    )
    assert first.tolist() == [True, False, True, False, True]
    assert priority_rows(torch.ones(3), torch.ones(3).long(), torch.zeros(3).long(), 1.0).all()


def test_recorded_groups_train_what_was_left_out_with_the_same_advantages(forest_of):
    rows = [(1.0, 9), (1.0, 4), (0.0, 3), (0.0, 8)]
    forest = forest_of(rows, rows)
    forest = forest.with_columns(**{AGE: torch.tensor([0.0, 2.0])[forest.tree]})
    whole = Recomposed(share=1.0).build()(forest).advantage
    credited = Recomposed(share=0.5).build()(forest)
    trained = (credited.advantage != 0).any(1)
    assert trained.tolist() == [False, True, False, True, True, False, True, False]
    # Rewards 1 1 0 0: advantages +-1 in whichever part they are trained.
    assert [credited.advantage[i].abs().max().item() for i in (1, 3, 4, 6)] == pytest.approx([1] * 4, abs=1e-5)
    assert torch.equal(credited.advantage[:4][[1, 3]], whole[:4][[1, 3]])
    assert credited.metrics == {"priority_rows": 2, "compensation_rows": 2, "left_out": 4}


def test_it_is_of_a_credit_that_compares_rows():
    with pytest.raises(RecipeError, match=r"credit\.of\.kind: got 'gae'"):
        load_recipe("grpo", ["credit={kind: recomposed, of: gae}", "objective.value_coefficient=1"])

"""Clip-Cov: which tokens are left out of an update."""

import pytest
import torch

from lyceum.core.forest import build_forest
from lyceum.core.group import START_LOGPROB
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Continuation, Credited, Grade, Origin, Task
from lyceum.papers.spear.objective_clip_cov import ClipCov, already_clipped, some_of, token_covariance
from lyceum.recipe.schema import load_recipe
from lyceum.utils.errors import RecipeError


def test_covariance_by_hand():
    # log p -1 -3, advantages 1 -1: means -2 and 0, terms 1 * 1 and -1 * -1; the third token is none.
    covariance = token_covariance(
        torch.tensor([[-1.0, -3.0, 7.0]]), torch.tensor([[1.0, -1.0, 9.0]]), torch.tensor([[True, True, False]])
    )
    assert covariance[0, :2].tolist() == [1.0, 1.0]


def test_tokens_beyond_the_clip_range_are_no_candidates():
    ratio, advantage = torch.tensor([[1.3, 1.3, 0.7, 0.7]]), torch.tensor([[1.0, -1.0, 1.0, -1.0]])
    assert already_clipped(ratio, advantage, 0.2, 0.2).tolist() == [[True, False, False, True]]


def test_a_random_few_of_the_allowed():
    allowed = torch.tensor([[True, False, True], [True, True, False]])
    chosen = some_of(allowed, 3, torch.Generator().manual_seed(0))
    assert chosen.sum() == 3
    assert not (chosen & ~allowed).any()
    assert some_of(allowed, 9, torch.Generator()).equal(allowed)
    assert not some_of(torch.zeros(2, 2, dtype=torch.bool), 3, torch.Generator()).any()


@pytest.fixture
def step():
    """Two rows of two tokens, of which the second row's are less likely and worse."""
    root = Node(None, [1], Origin.PROMPT)
    for tokens, logprob, reward in (([5, 6], [-1.0, -1.0], 1.0), ([7, 8], [-3.0, -1.0], 0.0)):
        root.add_drawn(Continuation(tokens, logprob, logprob, [0, 0], "stop")).grade = Grade(reward)
    forest = build_forest([Tree(Task("t", ()), [root])])
    forest = forest.with_columns(old_logprob=forest.behaviour_logprob.nan_to_num())
    advantage = torch.tensor([[0.0, 1, 1], [0, -1, -1]])
    return forest, Credited(advantage)


def test_the_token_whose_probability_and_advantage_are_low_together_is_left_out(step):
    # Mean log p -1.5, mean advantage 0: terms 0.5 0.5 | 1.5 -0.5. Above 1 is the unlikely token of the bad row alone.
    forest, credited = step
    plan = ClipCov(cov_low=1.0, cov_high=5.0, clip_share=0.5).build().plan(forest, credited, [torch.arange(2)])
    assert (plan.weight == 0).tolist() == [[True, False, False], [True, True, False]]  # the first is the prompt
    assert plan.counts["clip_cov/tokens"] == 1
    none = ClipCov(cov_low=2.0, cov_high=5.0).build().plan(forest, credited, [torch.arange(2)])
    assert none.counts["clip_cov/tokens"] == 0


def test_it_reads_the_probability_at_the_start_of_the_step(step):
    # Recorded tokens' old_logprob may be of another policy: by it, no term would be above 1.
    forest, credited = step
    start = forest.columns["old_logprob"]
    forest = forest.with_columns(old_logprob=torch.full_like(start, -1.0), **{START_LOGPROB: start})
    # The unlikely token's ratio has fallen to exp(-2), beyond the clip range already: it is no candidate.
    plan = ClipCov(cov_low=1.0).build().plan(forest, credited, [torch.arange(2)])
    assert plan.counts["clip_cov/tokens"] == 0
    wide = ClipCov(cov_low=1.0, clip_low=1.0).build().plan(forest, credited, [torch.arange(2)])
    assert wide.counts["clip_cov/tokens"] == 1


def test_bounds_are_in_order():
    with pytest.raises(RecipeError, match=r"cov_low: got 9"):
        load_recipe("grpo", ["objective={kind: clip-cov, cov_low: 9}"])

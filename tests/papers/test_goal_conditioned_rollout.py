"""Samples that are dropped by their value, on trees without a model."""

from fake_task import roll
from tree_fakes import FakeTreeContext

from lyceum.core.steps import Steps
from lyceum.core.types import Sampling
from lyceum.papers.goal_conditioned.rollout_value_filter import ValueFilter


class Valuing(FakeTreeContext):
    """``worth``: completion's text -> value of the path."""

    def __init__(self, worth, **more):
        super().__init__(lambda text: True, **more)
        self.worth = worth

    async def value(self, paths):
        return [self.worth(path.completion) for path in paths]


def filtered(worth, budget=1 << 62):
    """Four samples of steps of one letter: two begin with a, two with b; the rest is a."""
    context, limit = Valuing(worth, budget=budget), Sampling(max_completion_tokens=12)
    settings = ValueFilter(samples=4, first_tokens=0, step=Steps(tokens=1), sampling=limit)
    tree = roll(settings.build(), context, None)
    return [leaf.completion for leaf in tree.trajectories], context, tree.metadata["value-filter"]


def test_a_sample_of_a_low_value_is_not_drawn_any_further():
    texts, context, note = filtered(lambda text: 0.4 if text.startswith("b") else 0.6)
    assert texts == ["aaa", "aaa"]
    assert note == {"samples": 4, "dropped": 2}
    # Four letters, then two samples of two more and their ends: 4 + 2 * 3, not 4 * 4.
    assert context.sampled == 10


def test_where_all_would_go_the_best_one_goes_on():
    texts, _, note = filtered(lambda text: 0.1 + 0.2 * text.startswith("b"))
    assert texts == ["baa"]
    assert note["dropped"] == 3


def test_the_budget_ends_what_is_open():
    texts, context, _ = filtered(lambda text: 1.0, budget=9)
    assert texts == ["aa", "ba", "aa", "ba"]  # two rounds of four; a third would need 12
    assert context.sampled == 8

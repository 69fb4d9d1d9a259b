"""Best-first search without a verifier: order of expansions and ends, by hand."""

import asyncio
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "rollout"))
from tree_fakes import FakeTreeContext

from lyceum.rollout.steps import Steps
from lyceum.strategy.best_first import BestFirstSearch
from lyceum.types import Sampling, Task

LIMIT = Sampling(max_completion_tokens=12)


class Valuing(FakeTreeContext):
    """No verdicts; the model finds b likelier than a, the value model a worth more."""

    def __init__(self, **more):
        super().__init__(lambda text: None, logprob=lambda text, letter: {1: -2.0, 2: -0.5}[letter], **more)

    async def value(self, paths):
        return [path.completion.count("a") / 8 for path in paths]


def search(context, size, **settings):
    strategy = BestFirstSearch.model_validate({"width": 2, "step": Steps(tokens=1), **settings})
    return asyncio.run(strategy.growth(size, LIMIT).build()(Task("t", ()), context))


def test_the_likeliest_path_is_gone_on_with_until_the_size_is_reached():
    # Answers of two letters, a node a letter, scores sum / sqrt(nodes). Prompt: a -2, b -0.5. Below b: ba -2.5 / 1.41 =
    # -1.77, bb -1 / 1.41 = -0.71. bb ends (its two ends are one). Then ba -1.77 is before a -2, and ends.
    context = Valuing(length=2)
    tree = search(context, 2)
    assert [text for text, _, _ in context.asked] == ["", "b", "bb", "ba"]
    assert [leaf.completion for leaf in tree.trajectories] == ["bb", "ba"]
    assert tree.record["best-first"]["ended"] == "trajectories"


def test_the_exponent_says_how_much_length_is_punished():
    # Sums alone: b -0.5, bb -1, then a -2 before ba -2.5, and below it ab -2.5, after ba, which was drawn before.
    context = Valuing(length=2)
    search(context, 2, alpha=0.0)
    assert [text for text, _, _ in context.asked] == ["", "b", "bb", "a", "ba"]


def test_a_verdict_would_not_end_it():
    context = FakeTreeContext(lambda text: True, length=1)
    tree = search(context, 2)
    assert [leaf.completion for leaf in tree.trajectories] == ["a", "b"]
    assert tree.record["best-first"]["ended"] == "trajectories"


def test_a_size_of_one_is_the_first_path_that_ends():
    assert [leaf.completion for leaf in search(Valuing(length=2), 1).trajectories] == ["bb"]


def test_ranked_by_value_the_value_model_leads():
    # a 1/8, b 0; aa 2/8, ab 1/8: the opposite of what is likely.
    tree = search(Valuing(length=2), 2, rank="value")
    assert [leaf.completion for leaf in tree.trajectories] == ["aa", "ab"]


def test_what_is_missing_when_the_nodes_are_spent_is_drawn_from_the_best_open_paths():
    # Answers of nine letters, and their end: two expansions end none. Open: a -2, ba -1.77, bb -0.71. Two are missing:
    # the best two, with what their 12 tokens leave of them; a lone first letter is the tree's order and not the best.
    context = Valuing(length=9)
    tree = search(context, 2, max_nodes=4)
    assert [text for text, _, _ in context.asked] == ["", "b", "bb", "ba"]
    assert [tokens for _, _, tokens in context.asked] == [1, 1, 10, 10]
    assert [leaf.completion for leaf in tree.trajectories] == ["bb" + "a" * 7, "ba" + "a" * 7]
    assert tree.record["best-first"] | {"ended": "nodes", "open": 1, "finished": 2} == tree.record["best-first"]


def test_nodes_are_bounded_by_what_paths_of_full_length_would_take():
    # 12 tokens, one a node: 12 nodes a path, 2 at each of them, 3 paths. Without a bound a search that ranks by plain
    # likelihood would go through all short paths before it went deep.
    growth = BestFirstSearch(step=Steps(tokens=1)).growth(3, LIMIT)
    assert growth.model_dump()["search"]["max_nodes"] == 72
    assert BestFirstSearch(max_nodes=5).growth(3, LIMIT).model_dump()["search"]["max_nodes"] == 5


@pytest.mark.parametrize(
    ("settings", "reads"), [({}, True), ({"choose": "majority"}, False), ({"choose": "first", "rank": "value"}, True)]
)
def test_values_are_read_to_rank_or_to_choose(settings, reads):
    assert BestFirstSearch(**settings).reads_values == reads

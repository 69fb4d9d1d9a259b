"""Best-first search that goes on to its number of trajectories: order of expansions and ends, by hand."""

import pytest
from fake_task import roll
from tree_fakes import FakeTreeContext

from lyceum.core.steps import Steps
from lyceum.core.types import Sampling
from lyceum.rollout.best_first import BestFirst

LIMIT = Sampling(max_completion_tokens=12)


class Valuing(FakeTreeContext):
    """No verdicts; the model finds b likelier than a, the value model a worth more."""

    def __init__(self, **more):
        super().__init__(lambda text: None, logprob=lambda text, letter: {1: -2.0, 2: -0.5}[letter], **more)

    async def value(self, paths):
        return [path.completion.count("a") / 8 for path in paths]


def search(context, size, **settings):
    usual = {"width": 2, "step": Steps(tokens=1), "sampling": LIMIT, "until_right": False, "complete": True}
    return roll(BestFirst(**usual | settings).sized(size).build(), context)


def test_the_likeliest_path_is_gone_on_with_until_the_size_is_reached():
    # Answers of two letters, a node a letter, scores sum / sqrt(nodes). Prompt: a -2, b -0.5. Below b: ba -2.5 / 1.41 =
    # -1.77, bb -1 / 1.41 = -0.71. bb ends (its two ends are one). Then ba -1.77 is before a -2, and ends.
    context = Valuing(length=2)
    tree = search(context, 2)
    assert [text for text, _, _ in context.asked] == ["", "b", "bb", "ba"]
    assert [leaf.completion for leaf in tree.trajectories] == ["bb", "ba"]
    assert tree.metadata["best-first"]["ended"] == "trajectories"


def test_the_exponent_says_how_much_length_is_punished():
    # Sums alone: b -0.5, bb -1, then a -2 before ba -2.5, and below it ab -2.5, after ba, which was drawn before.
    context = Valuing(length=2)
    search(context, 2, alpha=0.0)
    assert [text for text, _, _ in context.asked] == ["", "b", "bb", "a", "ba"]


def test_a_verdict_would_not_end_it():
    context = FakeTreeContext(lambda text: True, length=1)
    tree = search(context, 2)
    assert [leaf.completion for leaf in tree.trajectories] == ["a", "b"]
    assert tree.metadata["best-first"]["ended"] == "trajectories"


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
    assert tree.metadata["best-first"] | {"ended": "nodes", "open": 1, "finished": 2} == tree.metadata["best-first"]
    assert context.graded == ["bb" + "a" * 7, "ba" + "a" * 7]
    # As in training: the search ends where its nodes end.
    assert search(Valuing(length=9), 2, max_nodes=4, complete=False).trajectories == []


def test_what_is_missing_shares_what_is_left_of_the_budget_and_a_proof_leaves_nothing_missing():
    # 2 expansions of 2 letters leave 5 of 9 tokens: 2 for each of two paths, which is less than their answers have.
    tree = search(Valuing(length=9, budget=9), 2, max_nodes=4)
    assert [leaf.completion for leaf in tree.trajectories] == ["bbaa", "baaa"]
    solved = FakeTreeContext(lambda text: True, length=1)
    assert len(search(solved, 2, until_right=True).trajectories) == 1


def test_nodes_are_bounded_by_what_paths_of_full_length_would_take():
    # 12 tokens, one a node: 12 nodes a path, 2 at each of them, 3 paths. Without a bound a search that ranks by plain
    # likelihood would go through all short paths before it went deep.
    settings = BestFirst(step=Steps(tokens=1), sampling=LIMIT)
    assert settings.sized(3).max_nodes == 72
    assert settings.model_copy(update={"max_nodes": 5}).sized(3).max_nodes == 5


@pytest.mark.parametrize(
    ("settings", "led_by"),
    [({}, ("verifier",)), ({"until_right": False}, ()), ({"until_right": False, "rank": "value"}, ("value",))],
)
def test_whom_the_search_asks(settings, led_by):
    assert BestFirst(**settings).needed & {"verifier", "value"} == set(led_by)

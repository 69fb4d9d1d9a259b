"""The whole search on small trees without a model: order of expansions, groups, budgets, failures."""

import itertools
import json

import pytest
from fake_task import roll
from hypothesis import given
from hypothesis import strategies as st
from tree_fakes import FakeTreeContext

from lyceum.core.settings import Composition
from lyceum.core.steps import Steps
from lyceum.core.types import Sampling, Task
from lyceum.recipe.schema import load_recipe
from lyceum.rollout.mcts import MCTS
from lyceum.utils.errors import RecipeError

LIMIT = Sampling(max_completion_tokens=12)


def search(context, *, task=None, start=None, **settings):
    settings = {"width": 2, "depth": 12, "step": Steps(tokens=1), "sampling": LIMIT} | settings
    return roll(MCTS(**settings).build(), context, task, start=start)


def backed_up(tree):
    return [leaf.completion for leaf in sorted(tree.graded, key=lambda leaf: leaf.stats["backed_up"])]


def test_a_search_by_hand():
    # Answers have two letters, then the end. Right: everything that begins with b. Steps of a letter, two a node.
    #   prompt: a, b. Among equals the first: below a: aa, ab. Below aa: two ends, wrong; one is backed up.
    # q of (prompt, a, aa, end), weights 1/4, 2/4, 3/4, 1: all negative, so that Q(prompt) = -1/4 / 1 is 1 visit,
    # Q(a) = -2/4 / 2 visits = -1/4, too, and Q(aa) lower. The frontier, with F of the node above: ab (below a, depth 2)
    # and b (below the prompt, depth 1). Equal quality: the deeper one, ab. Then Q(a) = -1/3, Q(prompt) = -1/4: b.
    context = FakeTreeContext(lambda text: text.startswith("b"), length=2)
    tree = search(context, trajectories=4)
    assert [text for text, _, _ in context.asked] == ["", "a", "aa", "ab", "b", "ba", "bb"]
    assert backed_up(tree) == ["aa", "ab", "ba", "bb"]
    a, b = tree.root.children
    # a: -2/4 twice. b: 2/4 twice. Visits: one at birth, two backups. The prompt's -1/4 -1/4 was overwritten by 1/4.
    assert (a.stats["q"], a.stats["visits"], a.value) == (-1.0, 3, -1.0)
    assert (b.stats["q"], b.stats["visits"], b.value) == (1.0, 3, 1.0)
    assert (tree.root.stats["q"], tree.root.stats["visits"], tree.root.value) == (0.5, 4, None)
    assert [leaf.value for leaf in tree.trajectories] == [-1, -1, 1, 1]
    assert tree.metadata["mcts"] == {
        "ended": "trajectories", "expansions": 7, "nodes": 14, "ends": 8, "uct_moves": 3, "uct_moves_by_value": 0,
        "frontier_moves": 1, "negatives": 2, "negatives_with_choice": 0, "backed_up": 4, "right": 2, "ungraded": 0,
    }  # fmt: skip
    assert all(context.kept), "the engine is to keep what it has computed at every node"
    json.dumps([node.stats for node in tree.nodes()])


def test_global_selection_leaves_a_failing_branch_that_backtracking_searches_to_its_end():
    # Answers of four letters under a wrong first letter, or a right one: global selection jumps as soon as the frontier
    # node elsewhere scores higher; "local" goes on right above each failure.
    def asked(selection):
        context = FakeTreeContext(lambda text: text.startswith("b"), length=4)
        tree = search(context, trajectories=6, selection=selection)
        return [leaf.completion[0] for leaf in sorted(tree.graded, key=lambda leaf: leaf.stats["backed_up"])]

    assert asked("local") == ["a"] * 6
    assert "b" in asked("global")
    assert "b" in asked("uct-from-root")


@pytest.mark.parametrize("selection", ["global", "uct-from-root", "local"])
def test_with_enough_trajectories_the_only_right_path_is_found(selection):
    # One of 27 answers: whatever the order, a search that is not stopped reaches every leaf, each once.
    context = FakeTreeContext(lambda text: text == "bcb", letters=(1, 2, 3), length=3)
    tree = search(context, trajectories=1000, width=3, selection=selection)
    assert tree.metadata["mcts"]["ended"] == "exhausted"
    # Behind each answer three ends are drawn: all are trained on in the end, since the tree had no others.
    found = backed_up(tree)
    assert {text: found.count(text) for text in found} == {
        "".join(letters): 3 for letters in itertools.product("abc", repeat=3)
    }
    assert sum(leaf.grade.verdict for leaf in tree.graded) == 3


def test_success_draws_the_global_search_to_where_it_was():
    # 3^4 answers, right below "cb": a ninth of them. What is drawn uniformly is right in one of nine.
    context = FakeTreeContext(lambda text: text.startswith("cb"), letters=(1, 2, 3), length=4)
    tree = search(context, trajectories=24, width=3, distinct=True)
    found = backed_up(tree)
    first = next(i for i, text in enumerate(found) if text.startswith("cb"))
    assert len(set(found)) == 24
    assert sum(text.startswith("cb") for text in found) == 9, "all of the optimum's nine paths are found"
    assert first < 15
    later = found[first : first + 9]
    assert sum(text.startswith("cb") for text in later) >= 6


def test_the_most_confident_failure_is_trained_on_and_the_ablations_take_others():
    # Both answers of one letter are wrong; of "b" the policy was surer.
    def chosen(negative):
        context = FakeTreeContext(
            lambda text: False, length=1, logprob=lambda text, letter: -0.1 if letter == 2 else -2.0
        )
        tree = search(context, trajectories=1, step=Steps(tokens=2), negative=negative)
        assert tree.metadata["mcts"]["negatives_with_choice"] == 1
        return backed_up(tree)

    assert chosen("most-confident") == ["b"]
    assert chosen("least-confident") == ["a"]
    assert chosen("random") in (["a"], ["b"])


def test_a_choice_among_equal_failures_is_none():
    # Both draws are "a": one of two equal trajectories is a negative, but not a chosen one.
    context = FakeTreeContext(lambda text: False, letters=(1,), length=1)
    counts = search(context, trajectories=1, step=Steps(tokens=2)).metadata["mcts"]
    assert (counts["ends"], counts["negatives"], counts["negatives_with_choice"]) == (2, 1, 0)


def test_a_verifier_that_fails_in_the_middle_leaves_that_leaf_ungraded_and_the_search_goes_on():
    context = FakeTreeContext(lambda text: None if text == "aa" else text == "bb", length=2)
    tree = search(context, trajectories=3, distinct=True)
    assert backed_up(tree) == ["ab", "ba"] or backed_up(tree) == ["ab", "bb"]
    ungraded = [leaf.completion for leaf in tree.trajectories if leaf.grade.outcome is None]
    assert ungraded == ["aa"], "in the group, so that it is counted"
    assert tree.metadata["mcts"]["ungraded"] == 1


def test_a_verifier_that_always_fails_does_not_hold_the_search_for_ever():
    context = FakeTreeContext(lambda text: None, length=2)
    tree = search(context, trajectories=2)
    assert tree.graded == []
    assert tree.metadata["mcts"]["backed_up"] == 0
    assert len(context.asked) <= 8


def test_a_budget_of_tokens_ends_the_search_with_what_it_has():
    context = FakeTreeContext(lambda text: True, length=2, budget=9)
    tree = search(context, trajectories=4)
    assert context.sampled <= 9
    assert tree.metadata["mcts"]["ended"] == "tokens"
    # Draws of two below the prompt, a, aa and ab, and one alone below b. Of each pair of ends one is backed up at once;
    # the others are taken when the budget is gone.
    assert backed_up(tree) == ["aa", "ab", "aa", "ab"]
    assert context.asked[-1] == ("b", 1, 1)


def test_a_budget_that_ends_no_path_leaves_an_empty_group():
    tree = search(FakeTreeContext(lambda text: True, length=9, budget=5), trajectories=4)
    assert tree.trajectories == []
    assert tree.metadata["mcts"]["ended"] == "tokens"


def test_a_budget_of_nodes_ends_the_search_with_what_it_has():
    context = FakeTreeContext(lambda text: True, length=2)
    tree = search(context, trajectories=4, max_nodes=12)
    assert tree.metadata["mcts"] | {"ends": 0} == {
        "ended": "nodes", "expansions": 6, "nodes": 12, "ends": 0, "uct_moves": 3, "uct_moves_by_value": 0,
        "frontier_moves": 1, "negatives": 0, "negatives_with_choice": 0, "backed_up": 4, "right": 4, "ungraded": 0,
    }  # fmt: skip


def test_paths_that_reach_the_depth_are_incomplete_and_wrong():
    context = FakeTreeContext(lambda text: True, length=9)
    tree = search(context, trajectories=2, depth=2, incomplete=-0.5)
    assert [leaf.finish for leaf in tree.trajectories] == ["length", "length"]
    assert [leaf.value for leaf in tree.trajectories] == [-0.5, -0.5]


def test_a_separator_that_never_occurs_does_not_hang():
    context = FakeTreeContext(lambda text: True, length=99)
    step = Steps(by="marker", markers=("z",), tokens=3)
    tree = search(context, trajectories=2, step=step)
    assert [len(leaf.completion_tokens) for leaf in tree.trajectories] == [12, 12]


def test_steps_cut_at_uncertain_tokens_are_branched_there():
    # A draw of a whole answer, cut before its third letter: the search can take another one there.
    context = FakeTreeContext(
        lambda text: text == "aabaa", length=5, logprob=lambda text, letter: -3.0 if len(text) == 2 else -0.1
    )
    step = Steps(by="entropy", nats=1.0, tokens=9)
    tree = search(context, trajectories=4, step=step, distinct=True)
    assert "aabaa" in backed_up(tree)
    assert all("".join(node.text for node in leaf.path()[1:]) == leaf.completion for leaf in tree.trajectories)


def test_what_a_cut_draw_went_on_with_is_not_kept_a_second_time():
    context = FakeTreeContext(
        lambda text: True, letters=(1,), length=5, logprob=lambda text, letter: -3.0 if len(text) == 2 else -0.1
    )
    step = Steps(by="entropy", nats=1.0, tokens=9)
    assert backed_up(search(context, trajectories=4, step=step, distinct=True)) == ["aaaaa"]
    assert [text for text, _, _ in context.asked] == ["", "aa"]


def test_distinct_steps_are_kept_once():
    context = FakeTreeContext(lambda text: True, letters=(1,), length=2)
    tree = search(context, trajectories=4, width=3, distinct=True)
    assert backed_up(tree) == ["aa"]
    assert [len(node.children) for node in tree.nodes()] == [1, 1, 1, 0]
    assert backed_up(search(FakeTreeContext(lambda text: True, letters=(1,), length=2), trajectories=4)) == ["aa"] * 4


def test_the_curriculum_says_how_many_trajectories():
    tree = search(FakeTreeContext(lambda text: True), task=Task("t", (), samples=1), trajectories=8)
    assert len(tree.trajectories) == 1


@given(
    st.sampled_from(["global", "uct-from-root", "local"]),
    st.integers(1, 3),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(0, 31),
)
def test_statistics_are_conserved_whatever_the_search(selection, width, length, tokens, number):
    context = FakeTreeContext(lambda text: hash_of(text, number) % 3 == 0, letters=(1, 2, 3), length=length)
    tree = search(context, trajectories=6, width=width, selection=selection, step=Steps(tokens=tokens))
    found = tree.graded
    assert tree.root.stats["visits"] == len(found) == len(set(map(id, found)))
    for node in tree.nodes():
        if node is not tree.root:
            below = sum(node in leaf.path() for leaf in found)
            assert node.stats["visits"] == below + (node.grade is None), "backups through it, and its birth"
    right_below = {id(node) for leaf in found if leaf.grade.verdict for node in leaf.path()}
    assert all(node.stats["q"] > 0 for node in tree.nodes() if id(node) in right_below)


def hash_of(text, number):
    return sum((i + 1) * ord(c) for i, c in enumerate(text)) + number


def test_budgets_smaller_than_one_path_are_refused():
    mcts = MCTS(depth=10, step=Steps(tokens=8), sampling=Sampling(max_completion_tokens=80))
    assert mcts.conflicts(Composition(max_tokens_per_task=80)) == []
    (line,) = mcts.conflicts(Composition(max_tokens_per_task=79))
    assert line.startswith("max_tokens_per_task: got 79, but one path of rollout.kind 'mcts' may be 80 tokens long")
    few = mcts.model_copy(update={"max_nodes": 9})
    assert "rollout.max_nodes: got 9, but one path may have 10 nodes" in few.conflicts(Composition())[0]
    with pytest.raises(RecipeError, match="max_tokens_per_task: got 20"):
        load_recipe("deepsearch", ["max_tokens_per_task=20"])


def test_what_was_drawn_twice_is_dropped_from_the_prompt_that_a_guide_chose():
    # Every draw is a, then the end: one of each two goes, wherever it hangs.
    context = FakeTreeContext(lambda text: True, letters=(1,), length=1)
    tree = search(context, start=[90, 91], distinct=True, trajectories=2)
    assert tree.root.children == []
    assert [node.text for node in tree.roots[1].children] == ["a"]
    assert [leaf.completion for leaf in tree.trajectories] == ["a"]

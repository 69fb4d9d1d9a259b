import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_context import ScriptedContext, assert_whole, policy, roll, texts

from lyceum.core.types import Sampling
from lyceum.papers.latr.rollout_look_ahead import LookAhead, edit_distance


def looking(**more):
    longest = more.pop("longest", 12)
    settings = {"samples": 4, "look_aheads": (3,), "keep_at": ""}
    return LookAhead(**settings | more, sampling=Sampling(max_completion_tokens=longest))


def fork(text):
    """Two openings, x just ahead of y; then only one way on, in either: their own letter and the end after 5."""
    if not text:
        return {"x": 0.5, "y": 0.4, "z": 0.1}
    return {text[0] if len(text) < 5 else "$": 0.9, "w": 0.1}


def test_a_branch_opens_where_the_runner_up_is_likely_and_close_and_stays_where_it_leads_elsewhere():
    # Place 0: 0.4 > 0.25 and 0.5 - 0.4 < 0.15. Everywhere else the second has 0.1. xxxxx and yyyyy: distance 1.
    context = ScriptedContext(policy(fork))
    tree = roll(looking(samples=2), context)
    assert sorted(texts(tree.chosen)) == ["xxxxx", "yyyyy"]
    assert tree.metadata["look-ahead"] == {"wanted": 2, "grown": 2, "opened": 1, "dropped": 0}
    assert_whole(tree)
    # Nothing is drawn at another temperature: greedy tokens while branching, then none.
    assert all(n == 1 for _, n, _, _ in context.asked)


@pytest.mark.parametrize(
    "settings", [{"least_probability": 0.41}, {"largest_gap": 0.09}], ids=["not likely enough", "too far behind"]
)
def test_no_branch_opens_beyond_the_thresholds(settings):
    tree = roll(looking(samples=2, **settings), ScriptedContext(policy(fork)))
    assert tree.metadata["look-ahead"]["opened"] == 0
    assert len(tree.chosen) == 2, "missing ones are samples of their own"


def test_a_path_follows_the_most_likely_token_and_a_branch_opens_with_the_runner_up_itself():
    context = ScriptedContext(policy(fork))
    tree = roll(looking(samples=2), context)
    first, second = (leaf.path()[1:] for leaf in tree.chosen)
    assert first[0].text[0] == "x"
    assert second[0].text == "y"
    assert second[0].behaviour_logprob == [0.0], "it was chosen, not drawn"
    assert second[0].model_logprob == [pytest.approx(math.log(0.4))]


def test_branches_are_counted():
    # As below: xab against yab is dropped; fork's stay.
    kept, gone = (roll(looking(samples=2, longest=8), ScriptedContext(policy(script))) for script in (fork, same_way))
    counts = [tree.metadata["look-ahead"] for tree in (kept, gone)]
    assert [(count["opened"], count["dropped"]) for count in counts] == [(1, 0), (1, 1)]


def test_a_runner_up_that_ends_the_completion_is_a_finished_path():
    def ends(text):
        return {"x": 0.5, "$": 0.4, "z": 0.1} if not text else {"$": 1.0}

    tree = roll(looking(samples=2), ScriptedContext(policy(ends)))
    assert sorted(texts(tree.chosen)) == ["", "x"]
    assert all(leaf.finish == "stop" for leaf in tree.chosen)


def same_way(text):
    """x or y, and then abcdefg whatever it was."""
    return {"x": 0.5, "y": 0.4, "z": 0.1} if not text else {"abcdefghijklmnop"[len(text) - 1]: 0.95, "w": 0.05}


def test_a_branch_that_goes_the_same_way_is_dropped():
    # xab against yab after three tokens: 1 of 3 edits is 0.33 < 0.4.
    tree = roll(looking(samples=2, longest=8), ScriptedContext(policy(same_way)))
    assert tree.metadata["look-ahead"] == {"wanted": 2, "grown": 1, "opened": 1, "dropped": 1}
    assert tree.chosen[0].completion.startswith("xab")
    dropped = [node for node in tree.nodes() if "dropped" in node.stats]
    assert [node.completion[:3] for node in dropped] == ["yab"]
    assert all(leaf not in dropped for leaf in tree.chosen)


def test_a_branch_just_different_enough_stays():
    # the same with a threshold of a third: 1/3 is not smaller
    tree = roll(looking(samples=2, longest=8, least_distance=1 / 3), ScriptedContext(policy(same_way)))
    assert tree.metadata["look-ahead"]["dropped"] == 0


def test_a_branch_is_compared_at_each_look_ahead():
    # After 2 tokens xa and ya differ by 1 of 2 = 0.5 and stay; after 4, xabc and yabc by 1 of 4 = 0.25 and go.
    tree = roll(looking(samples=2, longest=8, look_aheads=(2, 4)), ScriptedContext(policy(same_way)))
    dropped = [node.stats["dropped"] for node in tree.nodes() if "dropped" in node.stats]
    assert dropped == [4]


def test_no_branch_is_dropped_at_the_symbols_named():
    # The path that the branch left has x (or y) there.
    tree = roll(looking(samples=2, longest=8, keep_at="xy"), ScriptedContext(policy(same_way)))
    assert tree.metadata["look-ahead"]["dropped"] == 0


def test_what_ended_within_the_look_ahead_is_not_compared():
    def ends_soon(text):
        return {"x": 0.5, "y": 0.4, "z": 0.1} if not text else {"$": 1.0}

    # x$ and y$ differ by 1 of 2, which is less than 0.6; the end may be the look-ahead's last token or lie before it.
    for look_aheads in ((2,), (3,)):
        settings = looking(samples=2, look_aheads=look_aheads, least_distance=0.6)
        tree = roll(settings, ScriptedContext(policy(ends_soon)))
        assert tree.metadata["look-ahead"]["dropped"] == 0
        assert sorted(texts(tree.chosen)) == ["x", "y"]


def test_what_left_a_dropped_branch_goes_with_it():
    # Three letters in: x or y first (same way: y goes), and y's own third token is unsure too.
    def nested(text):
        if not text:
            return {"x": 0.5, "y": 0.4}
        if text == "ya":
            return {"b": 0.5, "c": 0.4}
        return {"abcdefghijklmnop"[len(text) - 1]: 0.95, "w": 0.05}

    tree = roll(looking(samples=4, longest=8), ScriptedContext(policy(nested)))
    metrics = tree.metadata["look-ahead"]
    assert metrics["opened"] == metrics["dropped"]
    assert metrics["grown"] == 1


def test_a_tree_is_no_wider_than_the_group_and_opens_the_earliest_branches():
    def unsure_everywhere(text):
        return {"x": 0.5, "y": 0.4, "z": 0.1}

    context = ScriptedContext(policy(unsure_everywhere))
    tree = roll(looking(samples=3, longest=6, look_aheads=(3, 5), least_distance=0.0), context)
    assert len(tree.chosen) == 3
    assert tree.metadata["look-ahead"]["opened"] == 2
    # The first round's three tokens are all unsure: branches at the first two of them, none at the third.
    assert len({leaf.completion[0] for leaf in tree.chosen}) == 2


def test_after_branching_every_path_is_sampled_with_the_rollouts_own_settings():
    context = ScriptedContext(policy(fork))
    roll(looking(samples=2, branching_tokens=3, longest=9), context)
    # 3 tokens at most while branches open, then the 6 that are left of 9
    assert max(asked[2] for asked in context.asked if asked[3]) <= 3
    assert [asked for asked in context.asked if not asked[3]] == [("xxx", 1, 6, False), ("yyy", 1, 6, False)]


def test_the_share_of_such_trajectories_follows_the_stages_progress():
    shares = ((0.0, 1.0), (0.3, 0.5), (0.6, 0.0))

    def wanted(progress):
        tree = roll(looking(shares=shares), ScriptedContext(policy(fork), progress=progress))
        assert len(tree.chosen) == 4
        return tree.metadata["look-ahead"]["wanted"]

    assert [wanted(progress) for progress in (0.0, 0.29, 0.3, 0.59, 0.6, 1.0)] == [4, 4, 2, 2, 0, 0]


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="look_aheads: got"):
        looking(look_aheads=(5, 3))
    for shares in (((0.1, 1.0),), ((0.0, 1.5),), ((0.0, 1.0), (0.5, 0.5), (0.5, 0.2))):
        with pytest.raises(ValueError, match="shares: got"):
            looking(shares=shares)


@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(5, 12))
def test_the_group_is_complete_whatever_the_tree_did(seed, samples, limit):
    def distribution(text):
        return {"x": 0.4, "y": 0.35, "$": 0.25} if len(text) % 3 else {"a": 0.9, "b": 0.1}

    context = ScriptedContext(policy(distribution), limit=limit)
    tree = roll(looking(samples=samples, look_aheads=(2, 3), longest=8), context)
    assert len(tree.chosen) == samples == len({id(leaf) for leaf in tree.chosen})
    assert all(not leaf.children and leaf.grade is not None for leaf in tree.chosen)
    assert all(len(leaf.completion_tokens) <= min(8, limit - 1) for leaf in tree.chosen)
    assert_whole(tree)


def fork_for_good(text):
    """Two openings, and then their own letter without an end."""
    return {"x": 0.5, "y": 0.4} if not text else {text[0]: 0.9, "w": 0.1}


@pytest.mark.parametrize("budget", [0, 1, 5, 7, 8, 11, 24, 30, 44, 60, 200])
def test_a_short_budget_shortens_paths_and_is_not_passed(budget):
    # Branching takes up to 2 * (3 + 1) = 8 tokens to each look-ahead; below that nothing branches, and samples share
    # what there is, a token each at least.
    context = ScriptedContext(policy(fork_for_good), budget=budget)
    tree = roll(looking(samples=2, longest=40), context)
    assert tree.metadata["look-ahead"]["opened"] == (budget >= 8)
    assert len(tree.chosen) == 2
    assert context.budget_left >= min(0, budget - 2)
    assert_whole(tree)


def test_edit_distance_by_hand():
    # kitten -> sitting: replace k and e, insert g
    assert edit_distance([ord(c) for c in "kitten"], [ord(c) for c in "sitting"]) == 3
    # One insertion in front shifts everything: 2 edits, where place by place all four differ.
    assert edit_distance([1, 2, 3, 4], [9, 1, 2, 3]) == 2


@given(st.lists(st.integers(0, 2), max_size=6), st.lists(st.integers(0, 2), max_size=6))
def test_edit_distance_is_a_metrics(a, b):
    assert edit_distance(a, b) == edit_distance(b, a)
    assert (edit_distance(a, b) == 0) == (a == b)
    assert abs(len(a) - len(b)) <= edit_distance(a, b) <= max(len(a), len(b))

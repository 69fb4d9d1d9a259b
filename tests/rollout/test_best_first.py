"""Best-first search on small trees without a model: order of expansions, ends, budgets, failures."""

import itertools
import json
import math

import pytest
from fake_task import roll
from hypothesis import given, settings
from hypothesis import strategies as st
from tree_fakes import FakeTreeContext

from lyceum.core.settings import Composition
from lyceum.core.steps import Steps
from lyceum.core.types import Sampling, Task
from lyceum.guidance.base import is_correct
from lyceum.recipe.schema import load_recipe
from lyceum.rollout.best_first import BestFirst, path_score
from lyceum.utils.errors import RecipeError

LIMIT = Sampling(max_completion_tokens=12)


def search(context, *, task=None, start=None, **settings):
    settings = {
        "depth": 12,
        "step": Steps(tokens=1),
        "sampling": LIMIT,
        "trajectories": None,
        "max_nodes": 99,
    } | settings
    return roll(BestFirst(**settings).build(), context, task, start=start)


def expanded(tree):
    nodes = [node for node in tree.nodes() if "expanded" in node.stats]
    return [node.completion for node in sorted(nodes, key=lambda node: node.stats["expanded"])]


def nats(table, default=-1.0):
    return lambda text, letter: table.get(text + chr(96 + letter), default)


def test_path_score_by_hand():
    assert path_score(-3.0, 4, 0.5) == -1.5  # -3 / 2
    assert path_score(-3.0, 4, 1.0) == -0.75
    assert path_score(-3.0, 4, 0.0) == -3.0
    assert path_score(0.0, 0, 0.5) == 0.0, "the prompt: nothing to divide by"


def test_the_order_of_expansions_by_hand_and_alpha_0_takes_another_one():
    # a costs 1 nat, aa and ab 1 more each; b costs 1.3. Answers have three letters.
    # Frontier after the prompt and a: b (-1.3, L 1), aa and ab (-2, L 2).
    #   alpha 1: aa -2/2 = -1 before b -1.3. alpha 0: b -1.3 before aa -2. alpha 1/2: b -1.3 before aa -2/sqrt(2).
    # Counting the prompt into the length would put b first with alpha 1, too: -1.3/2 against -2/3.
    costs = nats({"a": -1.0, "b": -1.3})
    first = {
        alpha: expanded(search(FakeTreeContext(lambda text: False, logprob=costs), alpha=alpha, max_nodes=6))
        for alpha in (0.0, 0.5, 1.0)
    }
    assert first == {0.0: ["", "a", "b"], 0.5: ["", "a", "b"], 1.0: ["", "a", "aa"]}


@pytest.mark.parametrize(("length", "divided_by"), [("steps", 1), ("tokens", 2)])
def test_length_counts_steps_or_tokens(length, divided_by):
    # One step of two tokens, aa or ba: 1 + 1 and 1.3 + 1 nats.
    context = FakeTreeContext(lambda text: False, length=6, logprob=nats({"a": -1.0, "b": -1.3}))
    tree = search(context, length=length, step=Steps(tokens=2), max_nodes=2)
    scores = [node.stats["score"] for node in tree.root.children]
    assert scores == pytest.approx([-2.0 / math.sqrt(divided_by), -2.3 / math.sqrt(divided_by)], abs=1e-6)


@pytest.mark.parametrize("at_once", [1, 3])
def test_the_only_right_path_is_found_wherever_it_is(at_once):
    context = FakeTreeContext(lambda text: text == "bcb", letters=(1, 2, 3), length=3)
    tree = search(context, width=3, at_once=at_once, max_nodes=1000)
    assert tree.metadata["best-first"]["ended"] == "solved"
    assert [leaf.completion for leaf in tree.graded if is_correct(leaf)] == ["bcb"]


def test_where_the_policy_knows_the_way_the_search_goes_straight_down():
    # The right path's letters cost 0.1 nats, all others 2: every other node stays in the frontier.
    way = nats({"b": -0.1, "bc": -0.1, "bcb": -0.1}, default=-2.0)
    context = FakeTreeContext(lambda text: text == "bcb", letters=(1, 2, 3), length=3, logprob=way)
    tree = search(context, width=3)
    assert expanded(tree) == ["", "b", "bc", "bcb"]
    assert tree.metadata["best-first"] == {
        "ended": "solved", "rounds": 4, "expansions": 4, "nodes": 10, "open": 6,
        "finished": 1, "right": 1, "ungraded": 0,
    }  # fmt: skip
    assert all(context.kept), "the engine is to keep what it has computed at every node"
    json.dumps([node.stats for node in tree.nodes()])


def test_it_stops_at_the_first_right_one_or_goes_on_as_asked():
    def found(**of):
        tree = search(FakeTreeContext(lambda text: True, length=1), **of)
        return len(tree.trajectories), tree.metadata["best-first"]["ended"]

    # Two letters, behind each an end: 2 distinct answers in all, each found by an expansion of its own.
    assert found() == (1, "solved")
    assert found(until_right=False) == (2, "exhausted")
    assert found(until_right=False, trajectories=1) == (1, "trajectories")
    assert found(until_right=False, trajectories=1, task=Task("t", (), samples=2)) == (2, "trajectories")


def test_wrong_ends_do_not_stop_a_search_that_has_trajectories_left():
    tree = search(FakeTreeContext(lambda text: text == "b", length=1), trajectories=2)
    assert [leaf.completion for leaf in tree.trajectories] == ["a", "b"]
    assert tree.metadata["best-first"]["ended"] == "solved"
    tree = search(FakeTreeContext(lambda text: text == "b", length=1), trajectories=1)
    assert (tree.solved, tree.metadata["best-first"]["ended"]) == (0, "trajectories")


def test_steps_with_the_same_tokens_are_kept_once():
    tree = search(FakeTreeContext(lambda text: True, letters=(1,), length=2), width=3, until_right=False)
    assert [len(node.children) for node in tree.nodes()] == [1, 1, 1, 0]
    assert tree.metadata["best-first"]["nodes"] == 3


def test_several_nodes_of_a_round_are_asked_for_together():
    context = FakeTreeContext(lambda text: False, length=3)
    tree = search(context, at_once=2, max_nodes=1000)
    # prompt; a and b; aa, ab; ba, bb; then four pairs of the third letter; of 15 inner nodes each is expanded once.
    assert tree.metadata["best-first"]["rounds"] == 8
    assert tree.metadata["best-first"]["expansions"] == 15
    assert len(context.asked) == len({text for text, _, _ in context.asked}) == 15


def test_the_value_model_ranks_where_asked():
    class Valued(FakeTreeContext):
        async def value(self, paths):
            return [node.completion.count("b") / 10 for node in paths]

    # Likelihood would go down on the left; the value model likes b.
    way = nats({"a": -0.1, "aa": -0.1, "aaa": -0.1}, default=-2.0)
    tree = search(Valued(lambda text: False, logprob=way), rank="value", max_nodes=7)
    assert expanded(tree) == ["", "b", "bb", "bbb"]


def test_a_budget_of_nodes_or_tokens_ends_the_search_with_what_it_has():
    context = FakeTreeContext(lambda text: False, length=2)
    tree = search(context, max_nodes=7)
    assert (tree.metadata["best-first"]["nodes"], tree.metadata["best-first"]["ended"]) == (7, "nodes")
    context = FakeTreeContext(lambda text: False, length=2, budget=7)
    tree = search(context)
    assert (context.sampled, tree.metadata["best-first"]["ended"]) == (7, "tokens")
    assert search(FakeTreeContext(lambda text: False, length=9, budget=5)).trajectories == []


@settings(max_examples=50)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 30), st.integers(1, 30))
def test_no_round_passes_a_budget_however_many_nodes_it_has(width, at_once, nodes, tokens):
    context = FakeTreeContext(lambda text: False, letters=(1, 2, 3), length=4, budget=tokens)
    tree = search(context, width=width, at_once=at_once, max_nodes=nodes)
    assert context.sampled <= tokens
    assert tree.metadata["best-first"]["nodes"] <= nodes
    assert tree.metadata["best-first"]["ended"] in ("tokens", "nodes", "exhausted")


def test_paths_that_reach_the_depth_are_finished_and_wrong():
    tree = search(FakeTreeContext(lambda text: True, length=9), depth=2, trajectories=2)
    assert [leaf.finish for leaf in tree.trajectories] == ["length", "length"]
    assert tree.solved == 0


def test_a_separator_that_never_occurs_does_not_hang():
    step = Steps(by="marker", markers=("z",), tokens=3)
    tree = search(FakeTreeContext(lambda text: True, length=99), trajectories=2, step=step)
    assert [len(leaf.completion_tokens) for leaf in tree.trajectories] == [12, 12]


def test_a_verifier_that_fails_in_the_middle_leaves_that_leaf_ungraded_and_the_search_goes_on():
    context = FakeTreeContext(lambda text: None if text == "aa" else text == "ab", length=2)
    tree = search(context)
    assert tree.metadata["best-first"]["ended"] == "solved"
    assert [leaf.completion for leaf in tree.trajectories if leaf not in tree.graded] == ["aa"]
    assert tree.metadata["best-first"]["ungraded"] == 1
    always = search(FakeTreeContext(lambda text: None, length=2), trajectories=2)
    assert (len(always.trajectories), always.graded) == (2, [])


def test_steps_cut_at_uncertain_tokens_are_branched_there():
    # A draw of a whole answer, cut before its third letter: another one can be taken there.
    unsure = lambda text, letter: -3.0 if len(text) == 2 else -0.1  # noqa: E731
    context = FakeTreeContext(lambda text: text == "aabaa", length=5, logprob=unsure)
    tree = search(context, step=Steps(by="entropy", nats=1.0, tokens=9))
    assert tree.metadata["best-first"]["ended"] == "solved"
    assert all("".join(node.text for node in leaf.path()[1:]) == leaf.completion for leaf in tree.trajectories)


@settings(max_examples=25)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.sampled_from([0.0, 0.5, 1.0]))
def test_every_answer_is_found_once_whatever_the_settings(width, length, at_once, alpha):
    context = FakeTreeContext(lambda text: False, letters=(1, 2, 3)[:width], length=length)
    tree = search(context, width=width, step=Steps(tokens=1), at_once=at_once, alpha=alpha, max_nodes=10_000)
    found = sorted(leaf.completion for leaf in tree.trajectories)
    assert found == sorted("".join(word) for word in itertools.product("abc"[:width], repeat=length))
    numbers = [node.stats["expanded"] for node in tree.nodes() if "expanded" in node.stats]
    assert sorted(numbers) == list(range(len(numbers))), "every node is expanded once"
    assert tree.metadata["best-first"]["nodes"] == sum(1 for _ in tree.nodes()) - 1


def test_impossible_settings_are_refused():
    fits = BestFirst(depth=10, step=Steps(tokens=8), sampling=Sampling(max_completion_tokens=80))
    assert fits.conflicts(Composition(max_tokens_per_task=80)) == []
    (line,) = fits.conflicts(Composition(max_tokens_per_task=79))
    assert line.startswith(
        "max_tokens_per_task: got 79, but one path of rollout.kind 'best-first' may be 80 tokens long"
    )
    few = fits.model_copy(update={"max_nodes": 9})
    assert "rollout.max_nodes: got 9, but one path may have 10 nodes" in few.conflicts(Composition())[0]
    endless = fits.model_copy(update={"trajectories": None})
    assert "rollout.trajectories: got null" in endless.conflicts(Composition())[0]
    assert endless.conflicts(Composition(max_tokens_per_task=800)) == []
    with pytest.raises(RecipeError, match=r"rollout\.rank: got 'value', but the stage has no value model"):
        load_recipe("grpo", ["rollout={kind: best-first, rank: value}"])
    load_recipe("grpo", ["rollout={kind: best-first, rank: value}", "value=likelihood"])


def test_what_was_drawn_twice_is_dropped_from_the_prompt_that_a_guide_chose():
    # Every draw is a, then the end: one of each two goes, wherever it hangs.
    context = FakeTreeContext(lambda text: True, letters=(1,), length=1)
    tree = search(context, start=[90, 91], until_right=False)
    assert tree.root.children == []
    assert [node.text for node in tree.roots[1].children] == ["a"]
    assert [leaf.completion for leaf in tree.trajectories] == ["a"]

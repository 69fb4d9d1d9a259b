"""MCTS* and VM-MCTS on a search whose every number is worked by hand."""

import math

import pytest
from fake_task import roll
from tree_fakes import FakeTreeContext

from lyceum.core.tree import Node
from lyceum.core.types import Origin, Task
from lyceum.papers.rest_mcts._value_tree import ValuedStep, back_up_children, back_up_sum, hide, smoothed_uct, ucb
from lyceum.papers.rest_mcts.rollout_value_mcts import GreedySearch, ValueMCTS
from lyceum.recipe.schema import load_recipe


class Valued(FakeTreeContext):
    """Answers of three letters, each ``a`` or ``b``; ``value`` says what a text is worth."""

    def __init__(self, right=lambda text: text == "abb", *, value, **how):
        super().__init__(right, **how)
        self.said, self.valued = value, []

    async def value(self, paths):
        self.valued.append([path.completion for path in paths])
        return [self.said(path.completion) for path in paths]


def search(context, *, start=None, **settings):
    how = {"step": {"tokens": 1}, "sampling": {"max_completion_tokens": 4}, "width": 2} | settings
    return roll(ValueMCTS.model_validate(how).build(), context, start=start)


def steps(tree):
    """Completion -> (visits, value) of each step that the search made."""
    return {
        node.completion: (node.stats["visits"], node.stats["value"])
        for node in tree.root.walk()
        if "visits" in node.stats and node.completion
    }


def test_mcts_star_by_hand_over_three_iterations():
    # V(a) = .6, V(b) = .2, two letters .4 but for ab .8. Each iteration looks one step ahead of the best new step, by
    # one draw, which continues with a: alpha 1/2.
    # 1: prompt -> a .6, b .2; ahead of a: aa .4, so a = .6/2 + .4/2 = .5, visited once. prompt: V = .5, N = 1.
    # 2: a (.5 + c sqrt(2 ln 1 / 1) = .5) against b (.2 + 1, never visited): b. Its steps ba .4, bb .4; ba is looked
    #    ahead of: baa .4, so that it stays .4, N = 1. b: V = .4, N = 1. prompt: (.5 + .4) / 2 = .45, N = 2.
    # 3: a .5 + .7 sqrt(2 ln 2) > b .4 + ...: a. Its steps ab .8, aa .4 (whose turn it is); ab is best; ahead of it aba,
    #    .4: .8/2 + .4/2 = .6. a: V = .6, N = 2; prompt: (2 * .6 + 1 * .4) / 3.
    value = {"a": 0.6, "b": 0.2, "ab": 0.8}
    context = Valued(value=lambda text: value.get(text, 0.4))
    tree = search(context, iterations=3, forward_steps=1)
    found = steps(tree)
    assert found == {"a": (2, 0.6), "b": (1, 0.4), "aa": (0, 0.4), "ab": (1, 0.6), "ba": (1, 0.4), "bb": (0, 0.4)}
    assert tree.root.stats == {"visits": 3, "value": round((2 * 0.6 + 0.4) / 3, 6)}
    assert context.valued == [["a", "b"], ["aa"], ["ba", "bb"], ["baa"], ["ab", "aa"], ["aba"]]
    # What was drawn ahead is forgotten, but for what the search drew itself.
    assert {node.completion for node in tree.root.walk()} >= set(found)
    assert "aba" not in {node.completion for node in tree.root.walk()}


def test_the_greatest_worth_ahead_counts_and_not_the_last():
    # Ahead of a, three steps: aa .9, aaa .1, and the end .1. Half of a's own .6 and half of .9.
    value = {"a": 0.6, "aa": 0.9}
    tree = search(Valued(value=lambda text: value.get(text, 0.1)), iterations=1)
    assert steps(tree)["a"] == (1, 0.75)
    alone = search(Valued(value=lambda text: value.get(text, 0.1)), iterations=1, simulate="none")
    assert steps(alone)["a"] == (0, 0.6)


def test_a_search_led_by_a_good_model_finds_the_right_end_and_a_bad_one_leads_it_away():
    good = search(Valued(value=lambda text: float("abb".startswith(text))), iterations=8, exploration=0.1)
    assert [leaf.completion for leaf in good.trajectories] == ["abb"] or good.solved
    bad = search(Valued(value=lambda text: float("baa".startswith(text))), iterations=8, exploration=0.1)
    assert bad.solved == 0


def test_only_ends_of_the_search_are_graded_and_each_once():
    context = Valued(value=lambda text: len(text) / 4)
    tree = search(context, iterations=30)
    ends = [leaf.completion for leaf in tree.trajectories]
    assert len(ends) == len(set(ends)) > 2
    assert context.graded == ends
    assert all(leaf.value is not None for leaf in tree.trajectories)
    assert tree.metadata["value-mcts"]["ends"] == len(ends)


def test_a_finished_path_worth_enough_ends_the_search_when_it_is_selected():
    through = search(Valued(value=lambda text: float("abb".startswith(text))), iterations=50, exploration=0.0)
    early = search(Valued(value=lambda text: float("abb".startswith(text))), iterations=50, exploration=0.0, enough=0.9)
    assert through.metadata["value-mcts"]["iterations"] == 50
    assert early.metadata["value-mcts"]["ended"] == "enough"
    assert early.metadata["value-mcts"]["iterations"] < 50
    assert early.solved > 0


def test_a_search_without_a_finished_path_finishes_its_most_valued_one():
    value = {"a": 0.2, "b": 0.7}
    tree = search(Valued(value=lambda text: value.get(text, 0.5)), iterations=1, simulate="none")
    (leaf,) = tree.trajectories
    assert leaf.completion == "baa"  # b, and what the policy says next
    assert (leaf.finish, leaf.grade.outcome) == ("stop", 0.0)


def test_a_search_for_some_trajectories_ends_with_them_or_draws_the_most_valued_paths_to_their_ends():
    # Answers of three letters and their end, two steps a node. Two iterations leave a, and below b, which is worth
    # more, ba and bb: three open paths, of which the two best are drawn on.
    value = {"b": 0.6, "bb": 0.5, "ba": 0.4}
    context = Valued(value=lambda text: value.get(text, 0.2))
    tree = search(context, iterations=2, simulate="none", unvisited=0.0, trajectories=2)
    assert [leaf.completion for leaf in tree.trajectories] == ["bba", "baa"]
    # With more iterations than two ends take, it stops at them.
    context = Valued(value=lambda text: len(text) / 4)
    tree = search(context, iterations=99, simulate="none", trajectories=2)
    assert tree.metadata["value-mcts"]["ended"] == "trajectories"
    assert len(tree.trajectories) >= 2


def test_a_size_is_iterations_that_draw_completions_or_trajectories_that_steps_lead_to():
    completions = ValueMCTS(simulate="completions", width=4, sampling={"max_completion_tokens": 8})
    sized = [completions.sized(n) for n in (1, 4, 18)]
    assert [(of.iterations, of.width, of.trajectories) for of in sized] == [(1, 1, None), (1, 4, None), (4, 4, None)]
    # Paths of at most 8 tokens, 2 a step: 4 iterations each.
    stepwise = ValueMCTS(step={"tokens": 2}, sampling={"max_completion_tokens": 8}).sized(3)
    assert (stepwise.iterations, stepwise.width, stepwise.trajectories) == (12, 3, 3)


def test_a_budget_smaller_than_a_draw_ends_it_with_what_there_is():
    tree = search(Valued(value=lambda text: 0.5, budget=5), iterations=50)
    assert tree.metadata["value-mcts"]["ended"] == "tokens"
    assert tree.sampled_tokens <= 5
    none = search(Valued(value=lambda text: 0.5, budget=0), iterations=50)
    assert none.trajectories == []


def test_vm_mcts_by_hand_where_the_verifier_is_believed():
    # Completions take turns at their first letter and go on with a: from the prompt aaa, baa; only baa is right.
    # 1: prompt: two values, sum 1: V = 1/2, N = 2. Steps a and b were never visited: V = 0.
    # 2: a (the first of equals), whose completions aaa and aba are both wrong: a = 0/2; prompt = 1/4.
    # 3: a: 0 + .2 sqrt((1 + ln 4) / 2.1), b: 0 + .2 sqrt((1 + ln 4) / .1): b, whose completions are baa, right, and
    #    bba, wrong: b = 1/2, prompt: 2/6.
    context = Valued(lambda text: text == "baa", value=None)
    how = {"believe": "outcome", "simulate": "completions", "selection": "smoothed", "exploration": 0.2}
    tree = search(context, iterations=3, **how)
    found = steps(tree)
    assert found["a"] == (2, 0.0)
    assert found["b"] == (2, 0.5)
    assert (tree.root.stats["visits"], tree.root.stats["value"]) == (6, round(2 / 6, 6))
    assert [leaf.completion for leaf in tree.trajectories] == ["aaa", "baa", "aba", "aaa", "bba", "baa"]
    assert context.valued == []


def test_vm_mcts_by_hand_where_a_model_is_believed():
    # Three completions take turns: aaa, baa, aaa. a is drawn twice: N = 2, V = .6; b: N = 1, V = .3.
    # prompt: N = 3, V = (.6 + .6 + .3) / 3 = .5. Only the best step is kept: however rarely visited, b is hidden.
    value = {"a": 0.6, "b": 0.3}
    context = Valued(value=lambda text: value.get(text, 0.1))
    how = {"simulate": "completions", "selection": "smoothed", "keep": 1}
    tree = search(context, iterations=1, width=3, **how)
    assert steps(tree) == {"a": (2, 0.6), "b": (1, 0.3)}
    assert (tree.root.stats["visits"], tree.root.stats["value"]) == (3, 0.5)
    # Steps and whole completions are asked together.
    assert context.valued == [["a", "b", "aaa", "baa", "aaa"]]
    assert [leaf.value for leaf in tree.trajectories] == [0.1, 0.1, 0.1]
    on = search(Valued(value=lambda text: value.get(text, 0.1)), iterations=4, width=3, exploration=9.0, **how)
    assert steps(on)["b"] == (1, 0.3)
    # The first steps of one text are one node, and nothing stands in the tree twice.
    assert sorted(node.completion for node in tree.root.children) == ["a", "b"]
    assert [len(node.children) for node in tree.root.children] == [2, 1]
    for node in tree.root.walk():
        assert all(child.parent is node for child in node.children)


def test_a_finished_path_that_is_selected_again_counts_once_more():
    # An answer of one letter: the completion is its own only step.
    context = Valued(lambda text: text == "a", value=None, length=1, letters=(1,))
    how = {"believe": "outcome", "simulate": "completions", "selection": "smoothed", "step": {"tokens": 2}}
    tree = search(context, iterations=3, **how)
    assert steps(tree)["a"] == (2, 1.0)
    assert (tree.root.stats["visits"], tree.root.stats["value"]) == (4, 1.0)
    assert [leaf.completion for leaf in tree.trajectories] == ["a"]


def test_a_verifier_that_cannot_say_gives_no_value():
    how = {"believe": "outcome", "simulate": "completions", "selection": "smoothed"}
    tree = search(Valued(lambda text: None, value=None), iterations=3, **how)
    assert all(visits == 0 for visits, _ in steps(tree).values())
    assert tree.graded == []


def test_selection_scores_are_those_of_the_formulas():
    assert ucb(0.3, 0, 9, 0.7) == 1.3
    assert ucb(0.3, 4, 9, 0.7) == pytest.approx(0.3 + 0.7 * math.sqrt(2 * math.log(9) / 4))
    assert smoothed_uct(0.3, 4, 9, 0.2) == pytest.approx(0.3 + 0.2 * math.sqrt((1 + math.log(9)) / 4.1))
    assert smoothed_uct(0.3, 0, 0, 0.2) == 0.3


def test_backups_are_means_by_visits_and_by_all_that_was_seen():
    root = ValuedStep(Node(None, [0], Origin.PROMPT))
    one, two = (root.add(root.node.add([i], Origin.POLICY), terminal=False) for i in (1, 2))
    one.value, one.visits, two.value, two.visits = 0.9, 3, 0.1, 1
    below = two.add(two.node.add([3], Origin.POLICY), terminal=True)
    below.value = 0.5
    back_up_children(below)  # below: once; two: .5, N = 2; root: (3 * .9 + 2 * .5) / 5
    assert (below.visits, two.visits, two.value) == (1, 2, 0.5)
    assert (root.visits, root.value) == (1, pytest.approx(3.7 / 5))
    back_up_sum(two, 4, 1.0)
    assert (two.value, root.value) == (pytest.approx(1 / 6), pytest.approx(1 / 5))
    hide([one, two], 1)
    assert [one.hidden, two.hidden] == [False, True]


def test_selection_goes_by_the_score_and_the_first_of_equals():
    settings = ValueMCTS(exploration=0.0, unvisited=0.0)
    context = Valued(value=None)
    context.begin(Task("t", ()))
    searching = GreedySearch(settings, context, context.tree.root)
    for i, value in enumerate((0.4, 0.7, 0.7)):
        searching.root.add(searching.root.node.add([i], Origin.POLICY), terminal=False).value = value
    assert searching.select() is searching.root.children[1]


def test_what_cannot_work_is_refused():
    def lines(**settings):
        stage = load_recipe("rest-mcts").stages[0]
        return ValueMCTS.model_validate(settings).conflicts(stage.composition())

    assert lines() == []
    assert "rollout.step.by: got 'entropy'" in lines(step={"by": "entropy"})[0]
    assert "rollout.believe: got 'outcome' with rollout.simulate 'greedy'" in lines(believe="outcome")[0]
    assert "rollout.keep: got 2" in lines(believe="outcome", simulate="completions", keep=2)[0]
    budget = load_recipe("rest-mcts", ["max_tokens_per_task=100"]).stages[0].composition()
    assert ValueMCTS(sampling={"max_completion_tokens": 100}).conflicts(budget) == []
    assert "may be 101 tokens long" in ValueMCTS(sampling={"max_completion_tokens": 101}).conflicts(budget)[0]


@pytest.mark.parametrize(
    "settings",
    [{"simulate": "none"}, {"simulate": "completions"}, {"simulate": "completions", "depth": 1}],
    ids=["steps", "completions", "completions of one step"],
)
def test_what_was_drawn_twice_is_dropped_from_the_prompt_that_a_guide_chose(settings):
    # Every draw is a, then the end: one of each two goes, wherever it hangs.
    context = FakeTreeContext(lambda text: True, letters=(1,), length=1)
    tree = search(context, start=[90, 91], iterations=3, **settings)
    assert tree.root.children == []
    assert [node.completion for node in tree.roots[1].children] == ["a"]
    assert {leaf.completion for leaf in tree.trajectories} == {"a"}

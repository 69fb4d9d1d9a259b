"""RethinkMCTS on searches whose every number is worked by hand."""

import math

import pytest
from scripted_context import END, ScriptedContext, assert_whole, roll

from lyceum.core.types import Grade
from lyceum.papers.rethinkmcts.rollout_rethink_mcts import RethinkMCTS, Thought, selection_score
from lyceum.recipe.schema import load_recipe
from lyceum.utils.errors import RecipeError

MARKED = {"step": {"by": "marker", "markers": [";"], "tokens": 8}, "sampling": {"max_completion_tokens": 8}}


class Chat(ScriptedContext):
    """After a user's message the policy goes on below a prompt that ends in it."""

    def follow(self, node, messages):
        return len(node.path_tokens()), [ord(character) for character in f"<{messages[-1]['content']}>"]

    def judged(self, leaf):
        share = {"b;B": 1.0, "c;C": 1.0, "c;D": 0.5}.get(leaf.completion, 0.0)
        return Grade(share, share == 1, parts={"code/passed": share}, details=None if share == 1 else "f(0) == 1: 2\n")

    async def extend(self, node, n, sampling=None, *, keep=False, top=0, entropy=False):
        self.prompts.append("".join(map(chr, node.root.tokens)))
        drawn = await super().extend(node, n, sampling, keep=keep)
        for each in drawn:
            each.finish = "stop" if each.text.endswith(tuple(sampling.stop)) else each.finish
        return drawn

    prompts: list[str]


def search(write, **settings):
    context = Chat(write)
    context.prompts = []
    rollout = RethinkMCTS.model_validate({**MARKED, "width": 2, "feedback": "{failed}", "evaluate": None} | settings)
    return roll(rollout, context), context


def in_turn(text, nth, sampling):
    """Below the prompt the thoughts a, then b, and after a failure c; each is followed by its program."""
    if not text:
        return f"{'abc'[min(nth, 2)]};"
    return f"{text[0].upper()}{END}"


def test_a_thought_whose_program_fails_is_rewritten_with_the_failure_in_view_and_replaced():
    # Both thoughts have the prior 1/e and N is 1 at first, so that a is tried: a;A passes nothing. The policy is shown
    # it and writes c in its place, whose program passes all: a return of 0.9.
    tree, context = search(in_turn, iterations=1)
    assert [leaf.completion for leaf in tree.trajectories] == ["a;A", "c;C"]
    told = "?a;A$<f(0) == 1: 2>"
    assert context.prompts[:4] == ["?", "?", told, "?"]
    found = {node.text: node for node in tree.root.children}
    assert (found["a;"].stats, found["c;"].stats["value"]) == ({"replaced": 1}, 0.9)
    assert (found["c;"].grafted, found["b;"].grafted) == (True, False)
    assert found["c;"].parent is tree.root
    counts = {
        "programs": 2,
        "ungraded": 0,
        "passed": 1,
        "evaluated": 0,
        "rethought": 1,
        "better": 1,
        "worse": 0,
        "mended": 1,
    }
    assert tree.metadata["rethink-mcts"] == counts | {"ended": "iterations"}
    assert RethinkMCTS().metrics([tree]) == counts
    assert RethinkMCTS().note([tree]) is None
    assert_whole(tree)


def test_without_rethinking_the_failure_is_in_view_of_the_thoughts_below_alone():
    tree, context = search(in_turn, iterations=1, rethinks=0)
    assert [leaf.completion for leaf in tree.trajectories] == ["a;A"]
    # Drawn below the prompt with the failure and the thought so far, and copied below the thought.
    assert context.asked[-1][:2] == ("a;", 2)
    assert context.prompts[-1] == "?a;A$<f(0) == 1: 2>"
    (a,) = (node for node in tree.root.children if node.text == "a;")
    assert [(node.text, node.grafted) for node in a.children] == [("A", False), ("A", True)]


def test_a_program_that_passes_is_worth_the_tests_and_the_policys_own_evaluation():
    def write(text, nth, sampling):
        if text:
            return f"B{END}"
        return "b;" if sampling.temperature else f"-0.5{END}"  # the evaluation is greedy

    tree, context = search(write, iterations=1, width=1, evaluate="?", evaluation_tokens=5)
    assert tree.metadata["rethink-mcts"]["evaluated"] == 1
    assert context.asked[2][2] == 5
    (b,) = (node for node in tree.root.children if node.text == "b;")
    assert b.stats == {"visits": 2, "value": pytest.approx(0.9 * (0.8 + 0.2 * -0.5))}


def test_a_thought_that_leaves_no_token_for_a_program_is_one_that_was_truncated():
    tree, context = search(in_turn, iterations=4, rethinks=0, width=1, sampling={"max_completion_tokens": 2})
    assert [(leaf.completion, leaf.finish) for leaf in tree.trajectories] == [("a;", "length")]
    assert len(context.asked) == 1


def test_a_part_that_no_program_has_is_told():
    tree, _ = search(in_turn, iterations=2, by="code/pased")
    assert tree.metadata["rethink-mcts"]["rethought"] == 0
    assert "no program has the reward part 'code/pased'" in RethinkMCTS(by="code/pased").note([tree])


def test_the_search_s_statistics_by_hand():
    # Q 0.9, p 0.5, n 1, N 3, c 4, base 10: 0.9 + (ln(14 / 10) + 4) 0.5 sqrt(ln 3) / 2
    assert selection_score(0.9, 0.5, 1, 3, 4, 10) == pytest.approx(
        0.9 + (math.log(1.4) + 4) * 0.25 * math.log(3) ** 0.5
    )
    assert selection_score(0.0, 1.0, 0, 1, 4, 10) == 0
    root = Thought(None)
    above = Thought(None, root)
    below = Thought(None, above)
    below.back_up(1.0, 0.9)
    assert (below.returns, above.returns, root.returns) == ([0.9], [pytest.approx(0.81)], [])
    assert (below.visits, above.visits, root.visits) == (2, 2, 2)
    above.replaced_by(None, terminal=False)
    assert (above.returns, above.children, above.prior) == ([], [], 1.0)


def test_what_it_cannot_use_is_refused():
    with pytest.raises(RecipeError, match=r"rollout.step.by: got 'entropy'.*allowed: tokens, lines, marker"):
        load_recipe("rethinkmcts", ["stages.1.rollout.step={by: entropy, tokens: 8}"])
    with pytest.raises(RecipeError, match=r"rollout.by: got 'code/passed', but the first part of the reward is 'task'"):
        load_recipe("rethinkmcts", ["reward=[task, code]"])
    with pytest.raises(RecipeError, match=r"feedback.*\{code\}; allowed: \{failed\}"):
        load_recipe("rethinkmcts", ["stages.1.rollout.feedback='{code}'"])

import fake_task
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_context import ScriptedContext, assert_whole, policy, roll, texts

from lyceum.core.forest import build_forest
from lyceum.core.types import Origin, Sampling, Task
from lyceum.papers.cure.rollout_critical_tokens import CriticalTokens, most_uncertain
from lyceum.papers.rest_rl.curriculum_good_prefixes import GivenPrefix
from lyceum.papers.rest_rl.guidance_prefix import Prefix
from lyceum.recipe.schema import load_recipe

UNSURE_THIRD = [("a", 0.0, -0.1), ("b", 0.0, -0.2), ("c", 0.0, -5.0), ("d", 0.0, -0.3), ("$", 0.0, -0.1)]


def critical(**more):
    settings = {"samples": 4, "regenerated": 3, "candidates": 1, "least_characters": 1}
    return CriticalTokens(**settings | more, sampling=Sampling(max_completion_tokens=6))


def write(text, nth, sampling):
    return UNSURE_THIRD if not text else "xy$"


def test_each_sample_is_written_anew_from_before_its_least_likely_token():
    context = ScriptedContext(write)
    tree = roll(critical(), context)
    assert context.rounds == [[("", 1)], [("ab", 3)]]
    assert texts(tree.chosen) == ["abcd", "abxy", "abxy", "abxy"]
    assert len(context.graded) == 4, "one group of both rounds, graded as a set"
    noted = {"first": 1, "resampled": 3, "places": [2], "critical_nats": [5.0], "all_nats": [pytest.approx(1.14)]}
    assert tree.metadata["critical-tokens"] == noted
    assert critical().metrics([tree]) == {"critical_nats": 5.0, "all_nats": pytest.approx(1.14)}
    # A second round has the whole length again.
    assert context.asked[1][2] == 6
    assert_whole(tree)


def test_the_first_round_is_the_share_that_leaves_each_its_continuations():
    def asked(samples, regenerated):
        # Samples differ from the first token on, so that no two beginnings are the same.
        context = ScriptedContext(lambda text, nth, sampling: "xy$" if text else chr(ord("A") + nth) + "bc$")
        tree = roll(critical(samples=samples, regenerated=regenerated), context)
        assert len(tree.chosen) == samples
        return [[n for _, n in batch] for batch in context.rounds]

    assert asked(16, 3) == [[4], [3, 3, 3, 3]], "the authors' 4 and 12"
    assert asked(10, 3) == [[2], [4, 4]]
    assert asked(7, 2) == [[2], [3, 2]]


def test_equal_beginnings_are_continued_in_one_request():
    context = ScriptedContext(write)
    tree = roll(critical(samples=6, regenerated=2), context)
    assert context.rounds == [[("", 2)], [("ab", 4)]]
    assert len(tree.root.children) == 3, "both samples and one beginning"
    assert_whole(tree)


def test_a_copied_beginning_is_context_and_in_no_loss():
    tree = roll(critical(samples=2, regenerated=1), ScriptedContext(write))
    forest = build_forest([tree])
    rows = forest.rows()
    trained = forest.trainable(rows).tolist()
    #              ?      a      b      c     d     $
    assert trained[0] == [False, True, True, True, True, True], "the first sample keeps its own"
    assert trained[1] == [False, False, False, True, True, True]
    assert tree.chosen[1].parent is not None
    assert tree.chosen[1].parent.origin == Origin.PREFIX
    # Every trajectory begins with the same two tokens, but the policy wrote them in one of them only.
    assert forest.n_tokens == 1 + 5 + 2 + 3


def test_a_copied_beginning_may_be_trained_and_is_then_one_with_the_samples_own():
    tree = roll(critical(samples=2, regenerated=1, prefix="trained"), ScriptedContext(write))
    forest = build_forest([tree])
    assert forest.trainable(forest.rows()).sum(1).tolist() == [5, 5]
    assert forest.n_tokens == 1 + 5 + 3
    assert [node.text for node in tree.chosen[0].path()[1:]] == ["ab", "cd"]


def test_the_critical_token_is_drawn_from_the_most_uncertain_ones_by_sample():
    # 8 first samples of 6 tokens; the two most uncertain places are 2 and 4.
    surprise = [0.1, 0.2, 5.0, 0.3, 4.0, 0.1]
    for by, script in {
        "surprisal": [(c, 0.0, -s, [], 0.0) for c, s in zip("abcdef", surprise, strict=True)],
        "entropy": [(c, 0.0, -9.0, [], s) for c, s in zip("abcdef", surprise, strict=True)],
    }.items():
        context = ScriptedContext(lambda text, nth, sampling, script=script: "y$" if text else script)
        tree = roll(critical(samples=16, regenerated=1, candidates=2, uncertainty=by), context)
        assert set(tree.metadata["critical-tokens"]["places"]) == {2, 4}


def test_the_first_token_and_short_ones_are_never_critical():
    # "ab", "c", "de": tokens of two, one and two characters; the second is the most uncertain, then the first.
    class Words(ScriptedContext):
        def decode(self, tokens):
            return "".join({1: "ab", 2: " c ", 3: "de", 63: "?", ord("$"): ""}[token] for token in tokens)

    def words(text, nth, sampling):
        if text:
            return [(chr(3), 0.0, 0.0), ("$", 0.0, 0.0)]
        return [(chr(1), 0.0, -9.0), (chr(2), 0.0, -8.0), (chr(3), 0.0, -1.0), ("$", 0.0, -7.0)]

    assert roll(critical(least_characters=2), Words(words)).metadata["critical-tokens"]["places"] == [2]
    assert roll(critical(least_characters=1), Words(words)).metadata["critical-tokens"]["places"] == [1]
    # Nothing is left: the sample is written anew from the prompt.
    tree = roll(critical(least_characters=3), Words(words))
    assert tree.metadata["critical-tokens"]["places"] == [0]
    assert tree.chosen[1].parent is tree.root


def test_the_most_uncertain_places_by_hand():
    assert most_uncertain([3.0, 9.0, 1.0, 9.0], [True, True, True, True], 3) == [1, 3, 0]
    assert most_uncertain([3.0, 9.0, 1.0], [True, False, True], 5) == [0, 2]


def test_a_group_without_a_first_round_is_refused():
    with pytest.raises(ValueError, match="samples: got 3 with regenerated 3"):
        critical(samples=3)


@given(st.integers(0, 10**6), st.integers(2, 9), st.integers(1, 3), st.sampled_from(["context", "trained"]))
def test_the_group_is_complete_and_every_row_ends_in_what_the_policy_wrote(seed, samples, regenerated, prefix):
    def distribution(text):
        return {"a": 0.5, "b": 0.3, "$": 0.2}

    if samples <= regenerated:
        return
    settings = critical(samples=samples, regenerated=regenerated, candidates=3, prefix=prefix)
    context = ScriptedContext(policy(distribution), limit=6, seed=seed)
    tree = roll(settings, context)
    assert len(tree.chosen) == samples
    forest = build_forest([tree])
    assert forest.n_rows == samples
    assert forest.trainable(forest.rows()).any(1).all()
    assert_whole(tree)


def test_both_rounds_share_the_tasks_budget():
    # 4 samples of 6 tokens would take 24. Of 12 each may take 3: the first one abc, and (12 - 3) // 3 = 3 for each of
    # the three that are written anew.
    context = ScriptedContext(write, budget=12)
    tree = roll(critical(), context)
    assert [longest for _, _, longest, _ in context.asked] == [3, 3]
    assert texts(tree.chosen) == ["abc", "abxy", "abxy", "abxy"]
    assert context.budget_left >= 0


def test_what_somebody_else_wrote_is_not_critical():
    # Below the given "gh" the policy wrote "a$", both of them sure; with places for 20 the given h would be among them.
    given, settings = [ord("g"), ord("h")], critical(samples=2, regenerated=1, candidates=20)
    for seed in range(8):
        context = ScriptedContext(lambda text, nth, sampling: "a$", seed=seed)
        rollout = Prefix().build(None, seed=0)(settings.build())
        tree = fake_task.roll(rollout, context, Task("t", ()).with_note(GivenPrefix(tuple(given))))
        assert tree.metadata["critical-tokens"]["places"] == [2]


def test_the_recipe_cuts_where_its_short_completions_are_unsure():
    # A chain of 28 characters with two that were unlikely: it is cut at either. Of 20 candidates 18 would be sure.
    surprise = [0.01 * place for place in range(28)]
    surprise[9], surprise[20] = 2.5, 1.5
    candidates = load_recipe("cure").stages[0].rollout.candidates
    assert most_uncertain(surprise, [True] * 28, candidates) == [9, 20]

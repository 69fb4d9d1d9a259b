import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_context import ScriptedContext, assert_whole, policy, roll, texts

from lyceum.core.types import Sampling
from lyceum.papers.treepo.rollout_segments import Segments, allocate, next_budget, spread_evenly


def short(**more):
    longest = more.pop("longest", 6)
    settings = {"samples": 8, "segment_tokens": 2, "repeat_times": None, "fallback": "none"}
    return Segments(**settings | more, sampling=Sampling(max_completion_tokens=longest))


def binary(text, nth, sampling):
    """Segments of two: a letter by number of the sample, then a dash; the sixth token is the end."""
    letter = "abcdefgh"[nth]
    return f"{letter}-{letter}-{letter}$"[len(text) :] if len(text) < 4 else f"{letter}$"


def test_a_tree_doubles_until_it_is_as_wide_as_asked():
    # Rounds of 2, 4 and 8 segments: 14 of 2 tokens for 8 trajectories of 6, where flat samples take 24.
    context = ScriptedContext(binary)
    tree = roll(short(), context)
    assert context.rounds == [
        [("", 2)],
        [("a-", 2), ("b-", 2)],
        [("a-a-", 2), ("a-b-", 2), ("b-a-", 2), ("b-b-", 2)],
    ], "each round is one batch of all open paths"
    assert texts(tree.chosen) == [x + y + z for x in ("a-", "b-") for y in ("a-", "b-") for z in ("a", "b")]
    # Below the last segments, of the second round's nodes, nothing can be drawn: there is nothing to keep.
    assert [keep for _, _, _, keep in context.asked] == [True] * 3 + [False] * 4
    assert len(context.graded) == 8
    assert tree.metadata["segments"] == {"rounds": 3, "branches": 6, "fallbacks": 0, "finished": {"stop": 8}}
    assert_whole(tree)


def test_the_width_of_paths_that_finish_early_goes_to_the_open_ones():
    # First round: "a" ends at once, "b" stays open. Next: min(8 - 1, 2 * 1 + 2 * 1) = 4 for b, and not 2. Then all four
    # are open: min(7, 8) = 7, one each and the remainder of 3 to the last.
    def write(text, nth, sampling):
        return {"": ["a$", "b-"][nth] if nth < 2 else "", "b-": "xyzw"[nth % 4] + "-"}.get(text, "z$")

    context = ScriptedContext(write)
    tree = roll(short(), context)
    assert [sum(n for _, n in batch) for batch in context.rounds] == [2, 4, 7]
    assert context.rounds[2] == [("b-x-", 1), ("b-y-", 1), ("b-z-", 1), ("b-w-", 4)]
    assert len(tree.chosen) == 8


def test_the_next_budget_by_hand():
    assert next_budget(room=14, still=2, ended=0, branches=2) == 4
    assert next_budget(room=14, still=2, ended=3, branches=2) == 10, "freed: 2 more for each that has finished"
    assert next_budget(room=5, still=4, ended=0, branches=2) == 5, "no wider than asked"
    assert next_budget(room=4, still=4, ended=0, branches=2) == 4, "at least one for each open path"
    assert spread_evenly(7, 3) == [2, 2, 3]


def test_shares_by_weight_give_one_each_and_the_rest_by_largest_remainder():
    # 10 - 3 = 7 free: 0.5, 0.25, 0.25 of it are 3.5, 1.75, 1.75: 3, 1, 1, and the two left go to the .75s
    assert allocate([2.0, 1.0, 1.0], 10) == [4, 3, 3]
    assert allocate([0.0, 1.0], 3) == [1, 2]
    with pytest.raises(ValueError, match="got 1 for 2 paths"):
        allocate([1.0, 1.0], 1)


@given(st.lists(st.floats(0.001, 1000), min_size=1, max_size=9), st.integers(0, 40))
def test_shares_add_up(weights, more):
    shares = allocate(weights, len(weights) + more)
    assert sum(shares) == len(weights) + more
    assert min(shares) >= 1


@pytest.mark.parametrize(("spread", "expected"), [("even", [2, 2]), ("likely", [3, 1]), ("unlikely", [1, 3])])
def test_likelier_paths_get_more_or_fewer_segments(spread, expected):
    # a at -0.1 a token, b at -3: with a temperature of 0.1 the softmax is all on one side, which takes both free ones.
    def write(text, nth, sampling):
        if text:
            return "x$"
        return [(c, 0.0, [-0.1, -3.0][nth]) for c in ["a-", "b-"][nth]]

    context = ScriptedContext(write)
    roll(short(samples=4, spread=spread, spread_temperature=0.1), context)
    assert context.rounds[1] == [("a-", expected[0]), ("b-", expected[1])]


def test_which_log_probability_spreads():
    # Path: -1 -1 -4 -4; its last segment's mean is -4, the path's -2.5, its sum -10.
    context = ScriptedContext(lambda text, nth, sampling: [(c, 0.0, -4.0 if text else -1.0) for c in "ab"])
    leaf = roll(short(samples=1, depth=2), context).chosen[0]
    by = {name: short(spread_by=name)._logprob(leaf) for name in ("segment-mean", "path-mean", "path-sum")}
    assert by == {"segment-mean": -4, "path-mean": -2.5, "path-sum": -10}


def one_path(text_of_all, **more):
    def write(text, nth, sampling):
        return text_of_all[len(text) :]

    return roll(short(samples=1, **more), ScriptedContext(write)).chosen[0]


def test_a_path_ends_for_one_of_five_reasons():
    def ended(*args, **more):
        leaf = one_path(*args, **more)
        return leaf.stats["finished"], leaf.completion

    assert ended("abc$") == ("stop", "abc")
    assert ended("abcdefgh") == ("tokens", "abcdef")
    assert ended("abcdefgh", depth=2) == ("depth", "abcd")
    # The answer is complete in the second segment, and found at its end.
    assert ended("a{b}cdef", answer=("{", "}")) == ("answered", "a{b}")
    assert ended("a}b{cdef", answer=("{", "}")) == ("tokens", "a}b{cd"), "the closing string must come after"
    # "ab" twice after the second segment, three times after the third
    assert ended("abababab", longest=8, repeat_characters=2, repeat_times=3) == ("repetition", "ababab")


def test_the_models_context_ends_a_path():
    # a context of 4 tokens, 1 of them the prompt's: 3 are left, though 6 are allowed
    context = ScriptedContext(lambda text, nth, sampling: "abcdefgh"[len(text) :], limit=4)
    leaf = roll(short(samples=1), context).chosen[0]
    assert (leaf.stats["finished"], leaf.completion) == ("tokens", "abc")


def test_without_open_paths_finished_ones_are_cut_back_and_continued():
    # Both first paths run to their end without branching (branches 1): 2 of 8 finished, no open path.
    context = ScriptedContext(lambda text, nth, sampling: f"{nth}-{nth}-{nth}$"[len(text) :] if len(text) < 4 else "y$")
    tree = roll(short(branches=1, first_branches=(2, 2), samples=4, fallback="random"), context)
    assert len(tree.chosen) == 4
    assert tree.metadata["segments"]["finished"] == {"stop": 4}
    assert tree.metadata["segments"]["fallbacks"] >= 1
    # Decoding began again at a boundary: on a beginning of a finished path, whose length is a whole number of segments.
    again = [text for batch in context.rounds[3:] for text, _ in batch]
    first, second = texts(tree.chosen[:2])
    assert again
    assert all((first.startswith(text) or second.startswith(text) or len(text) > 2) for text in again)
    assert all(len(text) % 2 == 0 for text in again)
    assert_whole(tree)


def test_fallback_gives_each_cut_path_its_branches_and_no_more_than_are_missing():
    context = ScriptedContext(lambda text, nth, sampling: "a$")
    tree = roll(short(samples=7, first_branches=(2, 2), fallback="random"), context)
    # 2 finished at once, 5 missing: 2 and 2 from the two that there are, both from the prompt, their only boundary, and
    # so in one request; then 1.
    assert [[n for _, n in batch] for batch in context.rounds] == [[2], [4], [1]]
    assert (len(tree.chosen), tree.metadata["segments"]["fallbacks"]) == (7, 2)


def test_fallback_cuts_back_to_any_boundary_before_the_last_segment():
    # One finished path of three segments: it begins again at the prompt, or behind the first or second of them.
    def again(seed):
        context = ScriptedContext(lambda text, nth, sampling: "abcde$"[len(text) :], seed=seed)
        roll(short(samples=2, branches=1, first_branches=(1, 1), fallback="random"), context)
        return context.rounds[3][0][0]

    assert {again(seed) for seed in range(30)} == {"", "ab", "abcd"}


def test_fallback_may_cut_before_the_least_likely_token():
    def write(text, nth, sampling):
        return [("a", 0.0, -0.1), ("b", 0.0, -0.2), ("c", 0.0, -5.0), ("d", 0.0, -0.3), ("$", 0.0, 0.0)][len(text) :]

    context = ScriptedContext(write)
    tree = roll(short(samples=2, branches=1, first_branches=(1, 1), segment_tokens=5, fallback="least-likely"), context)
    assert context.rounds == [[("", 1)], [("ab", 1)]]
    assert [node.text for node in tree.chosen[0].path()[1:]] == ["ab", "cd"]
    assert texts(tree.chosen) == ["abcd", "abcd"]


def test_only_trajectories_that_came_to_an_end_are_cut_back_or_else_the_prompt():
    # Every path runs out of tokens: none is complete, so decoding starts from the prompt again.
    context = ScriptedContext(lambda text, nth, sampling: "abcdefgh"[len(text) :])
    roll(short(samples=2, branches=1, first_branches=(1, 1), fallback="random"), context)
    assert [batch[0][0] for batch in context.rounds] == ["", "ab", "abcd"] * 2


def test_without_fallback_a_group_may_stay_smaller():
    tree = roll(short(fallback="none"), ScriptedContext(lambda text, nth, sampling: "a$"))
    assert len(tree.chosen) == 2


def test_a_spent_budget_ends_the_open_paths_where_they_are():
    # 10 tokens: 2 x 2, then 10 - 4 = 6 for four paths: 1 each. Then 2 for 8: none.
    context = ScriptedContext(binary, budget=10)
    tree = roll(short(), context)
    assert [asked[2] for asked in context.asked] == [2, 1, 1]
    assert tree.metadata["segments"]["finished"] == {"budget": 4}
    assert texts(tree.chosen) == ["a-a", "a-b", "b-a", "b-b"]
    assert context.budget_left >= 0


def test_a_budget_smaller_than_one_path_still_gives_the_group_a_token_each():
    tree = roll(short(), ScriptedContext(binary, budget=1))
    assert texts(tree.chosen) == ["a", "b"]


@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 3), st.integers(1, 4))
def test_a_group_is_never_wider_than_asked_and_as_wide_with_fallback(seed, samples, branches, segment):
    def distribution(text):
        return {"a": 0.4, "b": 0.3, "$": 0.3}

    settings = Segments(
        samples=samples,
        branches=branches,
        segment_tokens=segment,
        first_branches=(1, 3),
        sampling=Sampling(max_completion_tokens=7),
    )
    context = ScriptedContext(policy(distribution), seed=seed)
    tree = roll(settings, context)
    assert len(tree.chosen) == samples
    assert len({id(leaf) for leaf in tree.chosen}) == samples
    assert all(not leaf.children and leaf.grade is not None for leaf in tree.chosen)
    assert all(len(leaf.completion_tokens) <= 7 for leaf in tree.chosen)
    assert_whole(tree)


def test_open_paths_that_drew_the_same_text_are_one_node_with_the_shares_of_all():
    # Both first segments are "a-": one request for 2 + 2, where two would compute the same twice. Then two pairs.
    def write(text, nth, sampling):
        return {"": "a-", "a-": "xxyy"[nth % 4] + "-"}.get(text, f"{nth}$")

    context = ScriptedContext(write)
    tree = roll(short(), context)
    assert context.rounds == [[("", 2)], [("a-", 4)], [("a-x-", 4), ("a-y-", 4)]]
    assert [len(node.children) for node in (tree.root, *tree.root.children)] == [1, 2]
    assert len(tree.chosen) == 8
    assert_whole(tree)


def test_equal_paths_that_the_budget_ends_are_as_many_trajectories():
    context = ScriptedContext(lambda text, nth, sampling: "abcdef"[len(text) :], budget=4)
    tree = roll(short(), context)
    assert texts(tree.chosen) == ["ab", "ab"]
    assert len({id(leaf) for leaf in tree.chosen}) == 2


def test_the_curriculum_may_say_how_many():
    assert len(roll(short(fallback="random"), ScriptedContext(binary), samples=3).chosen) == 3


def test_first_branches_are_drawn_between_the_bounds():
    def first(seed):
        context = ScriptedContext(binary, seed=seed)
        roll(short(first_branches=(2, 5)), context)
        return context.rounds[0][0][1]

    assert {first(seed) for seed in range(40)} == {2, 3, 4, 5}
    assert first(3) == first(3)
    with pytest.raises(ValueError, match="first_branches: got 3 to 2"):
        short(first_branches=(3, 2))

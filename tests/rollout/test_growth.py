import pytest
from scripted_context import ScriptedContext

from lyceum.core.forest import build_forest
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Continuation, Grade, Origin, Task
from lyceum.rollout._growth import end_before, model_logprobs, repeats, split

decode = ScriptedContext(None).decode


def drawn(node, text, logprob=-1.0):
    n = len(text)
    of = [logprob - i for i in range(n)]
    return node.add_drawn(Continuation([ord(c) for c in text], of, list(of), [3] * n, "stop"), decode(map(ord, text)))


def test_a_split_leaves_every_path_what_it_was():
    root = Node(None, [1], Origin.PROMPT, text="?")
    leaf = drawn(drawn(root, "abcd"), "ef")
    leaf.grade = Grade(1.0)
    before = build_forest([Tree(Task("t", ()), [root])])
    inner = leaf.parent
    head = split(inner, 3, decode)
    # The head is new and stands between; what was the node keeps its identity, its child and the end of its tokens.
    assert [node.text for node in leaf.path()] == ["?", "abc", "d", "ef"]
    assert leaf.path() == [root, head, inner, leaf]
    assert root.children == [head]
    assert (head.children, inner.parent) == ([inner], head)
    assert (head.behaviour_logprob, inner.behaviour_logprob) == ([-1, -2, -3], [-4])
    assert (head.finish, inner.finish, leaf.finish) == ("length", "stop", "stop")
    assert model_logprobs(leaf) == [-1, -2, -3, -4, -1, -2]
    after = build_forest([Tree(Task("t", ()), [root])])
    assert (before.token.tolist(), before.leaf.tolist()) == (after.token.tolist(), after.leaf.tolist())


def test_a_split_inside_a_character_loses_none_of_the_text():
    root = Node(None, [1], Origin.PROMPT, text="?")
    # two tokens that are one character together: the first alone decodes to a replacement
    pieces = {(7,): "\ufffd", (7, 8): "é", (7, 8, 9): "éa"}
    leaf = root.add_drawn(Continuation([7, 8, 9], [-1.0] * 3, [-1.0] * 3, [0] * 3, "stop"), "éa")
    head = split(leaf, 1, lambda tokens: pieces[tuple(tokens)])
    assert (head.text, leaf.text, leaf.completion) == ("", "éa", "éa")


def test_the_node_that_ends_before_a_token_is_found_or_made():
    root = Node(None, [1], Origin.PROMPT, text="?")
    leaf = drawn(drawn(root, "abcd"), "ef")
    assert end_before(leaf, 0, decode) is root
    assert end_before(leaf, 4, decode) is leaf.parent, "a boundary is there already"
    assert end_before(leaf, 5, decode).text == "e"
    assert end_before(leaf, 1, decode).text == "a"
    assert [node.text for node in leaf.path()[1:]] == ["a", "bcd", "e", "f"]
    with pytest.raises(ValueError, match="no token 6 in a completion of 6"):
        end_before(leaf, 6, decode)


def test_repetition_counts_a_substring_of_the_length_overlaps_too():
    # "abab" stands at 0, 2 and 4 of "abababab", "baba" at 1 and 3.
    assert repeats("abababab", 4, 3)
    assert not repeats("abababab", 4, 4)
    assert not repeats("abcdefgh", 2, 2)
    assert not repeats("aa", 3, 2), "shorter than the substring"

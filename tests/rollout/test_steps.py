"""Where one step of a trajectory ends and the next begins."""

import asyncio

import pytest
from tree_fakes import END, FakeTreeContext

from lyceum.core.steps import Steps, cut_off, grow, split, write_texts
from lyceum.core.tree import Node
from lyceum.core.types import ASSISTANT, Continuation, Grade, Origin, Sampling, Task


def grown(context, steps, *, n=1, sampling=None, depth_left=9, node=None):
    node = node or fresh(context)
    sampling = sampling or Sampling(max_completion_tokens=20)
    return asyncio.run(grow(context, node, n, steps, sampling, depth_left=depth_left))


def fresh(context):
    context.begin(Task("t", ()))
    return context.tree.root


def never(text):
    return False


def test_a_step_of_fixed_length_ends_after_so_many_tokens():
    one, two = grown(FakeTreeContext(never, length=5), Steps(tokens=3), n=2)
    assert [node.text for node in (*one.nodes, *two.nodes)] == ["aaa", "baa"]
    assert not one.terminal


def test_an_end_of_sequence_ends_the_trajectory():
    (one,) = grown(FakeTreeContext(never, length=2), Steps(tokens=8))
    assert one.terminal
    assert one.nodes[0].tokens == [1, 1, END]
    assert one.nodes[0].finish == "stop"


def test_a_separator_ends_a_step_and_not_the_trajectory():
    context = FakeTreeContext(never, letters=(1, 2), length=9)
    one, two = grown(context, Steps(by="marker", markers=("b",), tokens=4), n=2)
    assert (one.nodes[0].text, one.terminal) == ("aaaa", False), "a separator that never comes: the limit"
    assert (two.nodes[0].text, two.terminal) == ("b", False)


def test_a_separator_or_a_stop_that_a_limit_cut_in_two_is_seen_in_the_next_step():
    # Letters "ba..." below "a" make "ab" across the two steps: the step ends behind its "b", and not two tokens later.
    for stop, terminal in (((), False), (("ab",), True)):
        context = FakeTreeContext(never, letters=(2,), length=9)
        above = fresh(context).add_drawn(Continuation([1], [], [], [], "length"), "a")
        sampling = Sampling(stop=stop, max_completion_tokens=9)
        (one,) = grown(context, Steps(by="marker", markers=("ab",), tokens=4), sampling=sampling, node=above)
        assert (one.nodes[-1].text, one.terminal) == ("b", terminal)
        assert one.nodes[-1].finish == "stop"


def test_a_separator_at_the_end_of_the_step_above_does_not_end_the_next_one():
    context = FakeTreeContext(never, letters=(2,), length=9)
    above = fresh(context).add_drawn(Continuation([1], [], [], [], "stop"), "a")
    (one,) = grown(context, Steps(by="marker", markers=("a",), tokens=1), node=above)
    assert (one.nodes[-1].text, one.nodes[-1].finish) == ("b", "length")


@pytest.mark.parametrize("by", [{}, {"by": "entropy", "nats": 1.0}])
def test_a_path_that_fills_the_models_context_exactly_is_over(by):
    # A prompt of one token in a context of nine: two steps of four fill it, and nothing could be drawn below.
    context = FakeTreeContext(never, length=99, logprob=lambda text, letter: -2.0)
    context.context_length = 9
    (first,) = grown(context, Steps(tokens=4, **by))
    assert not first.terminal
    (second,) = grown(context, Steps(tokens=4, **by), node=first.nodes[-1])
    assert second.terminal
    assert second.nodes[-1].finish == "length"
    assert context.tokens_left(second.nodes[-1]) == 0


def test_a_stop_of_the_sampling_ends_the_trajectory_though_a_separator_stands_beside_it():
    context = FakeTreeContext(never, letters=(2,), length=9)
    (one,) = grown(
        context, Steps(by="marker", markers=("b",), tokens=4), sampling=Sampling(stop=("b",), max_completion_tokens=9)
    )
    assert one.terminal
    assert one.nodes[0].finish == "stop"


def test_what_ends_for_want_of_tokens_or_depth_is_no_finished_answer():
    context = FakeTreeContext(never, length=9)
    (tokens,) = grown(context, Steps(tokens=8), sampling=Sampling(max_completion_tokens=8))
    (depth,) = grown(context, Steps(by="marker", markers=("a",), tokens=8), depth_left=1)
    for one in (tokens, depth):
        assert one.terminal
        assert one.nodes[-1].finish == "length", "a step that ended at a separator would read as stopped"


def test_a_model_whose_context_is_full_has_no_further_step():
    class Full(FakeTreeContext):
        async def extend(self, node, n, sampling=None, *, keep=False):
            return await super().extend(node, n, sampling.model_copy(update={"max_completion_tokens": 2}), keep=keep)

    (one,) = grown(Full(never, length=9), Steps(tokens=4))
    assert one.terminal
    assert one.nodes[0].finish == "length"


def test_the_limit_of_the_trajectory_is_over_all_steps():
    context = FakeTreeContext(never, length=99)
    above = fresh(context).add_drawn(Continuation([1] * 6, [], [], [], "length"), "aaaaaa")
    (one,) = grown(context, Steps(tokens=4), sampling=Sampling(max_completion_tokens=8), node=above)
    assert len(one.nodes[0].tokens) == 2
    assert one.terminal


def test_a_draw_is_cut_before_its_improbable_tokens():
    # -log p: 2.0 at every second letter. The first token has nothing before it and is never a cut.
    context = FakeTreeContext(never, length=5, logprob=lambda text, letter: -2.0 if len(text) % 2 == 0 else -0.1)
    (one,) = grown(context, Steps(by="entropy", nats=1.0, tokens=9))
    assert [node.text for node in one.nodes] == ["aa", "aa", "a"]
    assert [node.model_logprob for node in one.nodes] == [[-2.0, -0.1], [-2.0, -0.1], [-2.0, -0.1]]
    assert [node.finish for node in one.nodes] == ["length", "length", "stop"]
    assert one.nodes[2].path_tokens()[1:] == [1, 1, 1, 1, 1, END], "nothing that was drawn is lost"
    assert one.terminal
    assert Steps(by="entropy", nats=1.0, shortest=3).cuts([-2.0] * 8) == [3, 6]
    assert Steps(by="tokens").cuts([-2.0] * 8) == []


def test_depth_bounds_the_nodes_of_a_cut_draw():
    context = FakeTreeContext(never, length=6, logprob=lambda text, letter: -2.0)
    (one,) = grown(context, Steps(by="entropy", nats=1.0, tokens=4), depth_left=2)
    assert [node.text for node in one.nodes] == ["a", "aaa"]
    assert one.terminal


def test_a_split_node_ends_the_chain_that_takes_its_place():
    root = Node(None, [9], Origin.PROMPT)
    before, node, after = (
        root.add_drawn(Continuation([1, 2, 3, 4], [-1.0] * 3 + [-2.0], [-1.5] * 4, [7, 7, 8, 8], "stop")) for _ in "123"
    )
    # What a guide or a grader has said of the whole stays with its end, and is not said of its parts.
    node.grade, node.stats = Grade(1.0, True), {"criteria": 2}
    first, second, third = split(node, [2, 3])
    assert third is node
    assert root.children == [before, first, after]
    assert (first.children, second.children, third.children) == ([second], [third], [])
    assert (first.tokens, first.behaviour_logprob, first.version) == ([1, 2], [-1.0, -1.0], [7, 7])
    assert (second.tokens, second.version, second.finish) == ([3], [8], "length")
    assert (third.tokens, third.behaviour_logprob, third.version, third.finish) == ([4], [-2.0], [8], "stop")
    assert [part.grade is None for part in (first, second, third)] == [True, True, False]
    assert [part.stats for part in (first, second, third)] == [{}, {}, {"criteria": 2}]


@pytest.mark.parametrize("tokens", [0, 4])
def test_a_cut_at_a_nodes_end_is_refused(tokens):
    root = Node(None, [9], Origin.PROMPT)
    node = root.add_drawn(Continuation([1, 2, 3, 4], [-1.0] * 4, [-1.0] * 4, [7] * 4, "stop"))
    with pytest.raises(ValueError, match=f"before token {tokens} of a node of 4"):
        cut_off(node, tokens)


def test_texts_add_up_where_tokens_decoded_alone_do_not():
    # A decoder that drops the first space, and whose tokens 5 and 6 are halves of one character.
    def decode(tokens):
        words = b"".join({1: b" one", 2: b" two", 5: "é".encode()[:1], 6: "é".encode()[1:]}[t] for t in tokens)
        return words.decode(errors="replace").removeprefix(" ")

    root = Node(None, [9], Origin.PROMPT)
    at, chain = root, []
    for tokens in ([1], [2, 5], [6, 1]):
        at = at.add_drawn(Continuation(tokens, [], [], [], "length"), "")
        chain.append(at)
    for node in chain:  # step by step, as a search comes by them
        write_texts([node], decode, terminal=node is at)
    assert [node.text for node in chain] == ["one", " two", "é one"]
    assert at.completion == decode([1, 2, 5, 6, 1])
    cut = root.add_drawn(Continuation([2, 5], [], [], [], "length"), "")
    write_texts([cut], decode, terminal=True)
    assert cut.text == "two\ufffd", "at the end nothing more will come"


def test_settings_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"markers: got \[\] with by 'marker'"):
        Steps(by="marker")
    with pytest.raises(ValueError, match="markers: got"):
        Steps(by="lines", markers=("x",))
    with pytest.raises(ValueError, match="empty text"):
        Steps(by="marker", markers=("",))


def test_paths_of_fixed_steps_have_a_known_number_of_nodes():
    sampling = Sampling(max_completion_tokens=20)
    assert Steps(tokens=8).longest_path(sampling, 64) == 3
    assert Steps(tokens=8).longest_path(sampling, 2) == 2
    assert Steps(by="lines", tokens=8).longest_path(sampling, 64) == 64


@pytest.mark.parametrize("origin", [Origin.TOOL, Origin.PREFIX, Origin.TEACHER, Origin.PROMPT])
def test_a_limit_counts_what_the_policy_wrote(origin):
    context, limit = FakeTreeContext(lambda text: True, length=9), Sampling(max_completion_tokens=4)
    given_to_it = fresh(context).add([1] * 7, origin, "a" * 7 if origin in ASSISTANT else "")
    [step] = asyncio.run(grow(context, given_to_it, 1, Steps(tokens=9), limit, depth_left=9))
    assert len(step.nodes[-1].tokens) == min(4, 10 - len(given_to_it.completion))

from dataclasses import replace

import pytest
from tiny_models import plain_model, policy_like

from lyceum.core.forest import build_forest
from lyceum.core.tree import Node, Tree, graft
from lyceum.core.types import Grade, Origin, Task, Trace
from lyceum.data.traces.solutions import Solutions
from lyceum.models.demonstrations import demonstrated


def decode(tokens):
    return "".join(map(chr, tokens))


def tree_of(*leaves, id="t"):
    """(text, outcome, value) of each trajectory."""
    tree = Tree(Task(id, ({"role": "user", "content": id},)), [Node(None, [0], Origin.PROMPT)])
    for text, outcome, value in leaves:
        leaf = tree.root.add([ord(c) for c in text], Origin.POLICY, text)
        leaf.finish, leaf.value = "stop", value
        leaf.grade = Grade(outcome) if outcome is not None else Grade.ungraded("no verdict")
    return tree


def texts(settings, *trees):
    return [trace.text for trace in settings.build()(trees, decode)]


TREE = tree_of(
    ("abcd", 1.0, 0.2), ("ab", 1.0, 0.9), ("abcd", 1.0, 0.2), ("b", 0.0, 1.0), ("a", None, 1.0), ("abc", 1.0, None)
)


def test_right_trajectories_each_once():
    # The wrong one, the one without a verdict and the second draw of the same text are left out.
    assert texts(Solutions()) == []
    assert texts(Solutions(), TREE) == ["ab", "abc", "abcd"]


def test_the_shortest_or_the_most_valued_of_a_task():
    assert texts(Solutions(per_task=2), TREE, tree_of(("xy", 1.0, 0.5), id="u")) == ["ab", "abc", "xy"]
    assert texts(Solutions(per_task=2, choose="most-valued"), TREE) == ["ab", "abcd"]
    assert texts(Solutions(choose="most-valued"), TREE) == ["ab", "abcd", "abc"]  # without a value: last


def test_a_draw_is_of_all_and_the_same_every_time():
    drawn = {
        texts(Solutions(per_task=1, choose="random"), tree_of(("ab", 1, 0), ("xyz", 1, 0), id=str(i)))[0]
        for i in range(20)
    }
    assert drawn == {"ab", "xyz"}
    settings = Solutions(per_task=2, choose="random")
    assert texts(settings, TREE) == texts(settings, TREE)


def test_what_stands_under_a_hint_alone_is_left_out():
    tree = tree_of(("ab", 1.0, None))
    prompt = tree.add_prompt([9])
    hinted = prompt.add([ord("x")], Origin.POLICY, "x")
    hinted.finish, hinted.grade = "stop", Grade(1.0)
    assert texts(Solutions(), tree) == ["ab"]
    graft(hinted, tree.root)
    assert texts(Solutions(), tree) == ["x", "ab"]


def test_of_a_tree_that_trains_on_nothing_nothing_is_taken():
    # What search-where-hard leaves out as too easy.
    tree = tree_of(("ab", 1.0, None))
    tree.chosen = []
    assert texts(Solutions(), tree) == []


def test_a_trace_comes_back_from_plain_values():
    (trace,) = Solutions(per_task=1).build()([TREE], decode)
    assert trace == Trace("t", ({"role": "user", "content": "t"},), "ab", (97, 98))
    trace = replace(trace, given=((0, 1),))
    assert Trace.from_state(trace.state_dict()) == trace
    with pytest.raises(ValueError, match="state lacks"):
        Trace.from_state({"task": "t"})


@pytest.mark.parametrize("tokens", [None, (20, 21, 1)])
def test_a_trace_is_a_teachers_trajectory_below_its_prompt(tokens):
    policy = policy_like(plain_model())
    trace = Trace("t", ({"role": "user", "content": "1+1="},), "1+1=2", tokens)
    tree = demonstrated(policy, trace)
    assert build_forest([tree]).n_rows == 0, "nobody has graded it"
    forest = build_forest([tree], graded=False)
    assert forest.reward.isnan().all()
    (row,) = forest.rows().index
    written = list(tokens or policy.encode("1+1=2"))
    assert forest.token[row].tolist() == policy.render(trace.messages) + written
    assert forest.trainable(forest.rows(), (Origin.TEACHER,)).sum() == len(written)


def searched(*steps, id="t"):
    """A correct trajectory of steps, each a text and the log-probability of its tokens."""
    node = Node(None, [0], Origin.PROMPT)
    tree = Tree(Task(id, ({"role": "user", "content": id},)), [node])
    for text, logprob in steps:
        node = node.add([ord(c) for c in text], Origin.POLICY, text)
        node.model_logprob = [logprob] * len(text)
    node.finish, node.grade = "stop", Grade(1.0)
    return tree


def test_easy_and_far_fetched_steps_are_context_and_no_more():
    trees = (
        searched(("ab", -0.1), ("c", -1.0), ("de", -2.0)),
        searched(("f", -1.5), ("g", -9.0), id="u"),
        searched(("h", -0.1), id="v"),
    )
    # Nats per token: 0.1, 0.1, 1, 1.5, 2, 9. Their quantiles 0.25 and 0.85, at places 1.25 and 4.25 of 0 to 5, are
    # 0.325 and 3.75: ab, g and h are left out, and with h the whole of its trajectory.
    made = Solutions(surprise=(0.25, 0.85)).build()(trees, decode)
    assert [(trace.text, trace.given) for trace in made] == [("abcde", ((0, 2),)), ("fg", ((1, 2),))]
    assert [trace.given for trace in Solutions(surprise=(0, 1)).build()(trees, decode)] == [(), (), ()]
    with pytest.raises(ValueError, match="the lower one first"):
        Solutions(surprise=(0.5, 0.5))


@pytest.mark.parametrize("given", [((0, 2),), ((3, 5),), ((0, 1), (1, 2), (4, 5))])
def test_given_parts_of_a_trace_are_not_trained(given):
    policy = policy_like(plain_model())
    tokens = (20, 21, 22, 23, 1)
    trace = Trace("t", ({"role": "user", "content": "1+1="},), policy.decode(tokens), tokens, given)
    forest = build_forest([demonstrated(policy, trace)], graded=False)
    (row,) = forest.rows().index
    prompt = policy.render(trace.messages)
    assert forest.token[row].tolist() == [*prompt, *tokens]
    (trained,) = forest.trainable(forest.rows(), (Origin.TEACHER,)).tolist()
    left_out = {place for first, end in given for place in range(first, end)}
    assert trained[len(prompt) :] == [place not in left_out for place in range(5)]

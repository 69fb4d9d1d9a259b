"""Worked episodes are written as conversations are, and a completion is an episode of one turn."""

import pytest
from tiny_models import plain_model, policy_like

from lyceum.core.types import Exchange, Origin, Task, Trace
from lyceum.models.demonstrations import demonstrated, demonstrated_episode

TASK = Task("t", ({"role": "user", "content": "ab?"},))
TALK = [Exchange("cd", "x"), Exchange("e", "yz"), Exchange("fgh", "")]


@pytest.fixture(scope="module")
def policy():
    return policy_like(plain_model())


def test_an_episode_reads_as_the_template_writes_the_conversation_and_its_turns_alone_are_imitated(policy):
    (leaf,) = demonstrated_episode(policy, TASK, TALK).trajectories
    roles = zip(("user", "assistant") * 3, ("ab?", "cd", "x", "e", "yz", "fgh"), strict=True)
    whole = [{"role": role, "content": text} for role, text in roles]
    assert leaf.path_tokens() == policy.tokenizer.apply_chat_template(whole, tokenize=True, return_dict=False)
    assert [(node.text, node.origin) for node in leaf.path()[1:]] == [
        ("cd", Origin.TEACHER),
        ("x", Origin.PROMPT),
        ("e", Origin.TEACHER),
        ("yz", Origin.PROMPT),
        ("fgh", Origin.TEACHER),
    ]
    assert [node.finish for node in leaf.path()] == [None] * 5 + ["stop"]


@pytest.mark.parametrize(("most", "ends"), [(None, "stop"), (9, "stop"), (8, "length"), (5, "length"), (4, "length")])
def test_all_turns_together_are_cut_at_the_maximum(policy, most, ends):
    # Turns have 3, 2 and 4 tokens, their ends of sequence included.
    (leaf,) = demonstrated_episode(policy, TASK, TALK, most).trajectories
    assert sum(len(node.tokens) for node in leaf.written) == (most or 9)
    assert leaf.finish == ends
    assert leaf.origin is Origin.TEACHER


@pytest.mark.parametrize("most", [None, 2, 9])
def test_one_turn_is_a_completion(policy, most):
    (own,) = demonstrated_episode(policy, TASK, [Exchange("abc", "")], most).trajectories
    (leaf,) = demonstrated(policy, Trace(TASK.id, TASK.messages, "abc"), most).trajectories
    assert (own.path_tokens(), own.finish, own.text) == (leaf.path_tokens(), leaf.finish, leaf.text)

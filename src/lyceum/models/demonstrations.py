"""Demonstrations, completions not from the policy (``columns["demonstration"]``), as trajectories of a teacher."""

from __future__ import annotations

from collections.abc import Sequence

from lyceum.core.tree import Node, Tree
from lyceum.core.types import Exchange, Origin, Task, Trace
from lyceum.models.policy import Policy
from lyceum.utils.errors import RecipeError


def demonstration_of(task: Task) -> str | None:
    """The task's demonstration; None where it has none."""
    text = task.columns.get("demonstration")
    return text if isinstance(text, str) else None


def needed_demonstration(task: Task, by: str) -> str:
    """The task's demonstration.

    Args:
        by: what imitates it, for the message.
    Raises:
        RecipeError: the task has none.
    """
    text = demonstration_of(task)
    if text is None:
        raise RecipeError(
            f"tasks: task {task.id!r} has no column 'demonstration', which {by} imitates; "
            "allowed: tasks that have one, or a dataset with tasks.columns.demonstration"
        )
    return text


def add_demonstration(prompt: Node, tokens: Sequence[int], text: str, max_completion_tokens: int | None = None) -> Node:
    """A finished trajectory below a prompt, written by a teacher; truncated where it is too long."""
    leaf = prompt.add(tokens[:max_completion_tokens], Origin.TEACHER, text)
    leaf.finish = "stop" if len(leaf.tokens) == len(tokens) else "length"
    return leaf


def demonstrated(policy: Policy, trace: Trace, max_completion_tokens: int | None = None) -> Tree:
    """A prompt with one completion to imitate below it, ungraded."""
    tree = Tree(Task(trace.task, trace.messages), [Node.prompt(policy.render(trace.messages))])
    tokens = policy.encode(trace.text) if trace.tokens is None else trace.tokens
    if not trace.given:
        tree.chosen = [add_demonstration(tree.root, tokens, trace.text, max_completion_tokens)]
        return tree
    kept = tokens[:max_completion_tokens]
    node, start = tree.root, 0
    for first, end in (*trace.given, (len(kept), len(kept))):
        for stop, origin in ((first, Origin.TEACHER), (end, Origin.PREFIX)):
            if part := kept[start:stop]:
                node = node.add(part, origin, policy.decode(part))
            start = stop
    node.finish = "stop" if len(kept) == len(tokens) else "length"
    tree.chosen = [node]
    return tree


def demonstrated_episode(
    policy: Policy, task: Task, exchanges: Sequence[Exchange], max_completion_tokens: int | None = None
) -> Tree:
    """A prompt with the turns of an episode to imitate below it, and between them what they are answered, ungraded.

    It is written as the rollout ``turns`` writes conversations; a completion is an episode of one turn.

    Args:
        exchanges: at least one; the answer to the last turn is not read.
        max_completion_tokens: maximum of all turns together.
    """
    prompt = policy.renderer.render(task.messages)
    tree = Tree(Task(task.id, task.messages), [Node.prompt(list(prompt.tokens))])
    node, left = tree.root, max_completion_tokens
    for place, (said, seen) in enumerate(exchanges):
        turn = policy.encode(said)
        node = add_demonstration(node, turn, said, left)
        left = None if left is None else left - len(node.tokens)
        if node.finish == "length" or place == len(exchanges) - 1:
            break
        if left == 0:
            node.finish = "length"
            break
        answer = policy.renderer.follow(prompt, turn, [{"role": "user", "content": seen}])
        node.finish, prompt = None, answer.prompt
        node = node.add(list(answer.tokens), Origin.PROMPT, seen)
    tree.chosen = [node]
    return tree

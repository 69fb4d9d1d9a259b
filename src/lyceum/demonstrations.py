"""Completions that somebody else wrote (``columns["demonstration"]``), as trajectories of a teacher."""

from __future__ import annotations

from collections.abc import Sequence

from lyceum.component import RecipeError
from lyceum.policy import Policy
from lyceum.tree import Node, Tree
from lyceum.types import Grade, Origin, Task


def demonstration_of(task: Task) -> str | None:
    """What the model should have said; None where the task does not say."""
    text = task.columns.get("demonstration")
    return text if isinstance(text, str) else None


def needed_demonstration(task: Task, by: str) -> str:
    """What the model should have said.

    Args:
        by: what imitates it, for the message.
    Raises:
        RecipeError: the task does not say.
    """
    text = demonstration_of(task)
    if text is None:
        raise RecipeError(
            f"tasks: task {task.id!r} has no column 'demonstration', which {by} imitates; "
            "allowed: tasks that have one, or a dataset with tasks.columns.demonstration"
        )
    return text


def add_demonstration(prompt: Node, tokens: Sequence[int], text: str, max_completion_tokens: int) -> Node:
    """A finished trajectory below a prompt, written by a teacher; cut at so many tokens."""
    leaf = prompt.add(tokens[:max_completion_tokens], Origin.TEACHER, text)
    leaf.finish = "stop" if len(tokens) <= max_completion_tokens else "length"
    return leaf


def demonstrated(policy: Policy, task: Task, text: str, max_completion_tokens: int) -> Tree:
    """A task's prompt and one demonstration below it, for fine-tuning, which asks for no reward."""
    tree = Tree(task, [Node(None, policy.render(task.messages), Origin.PROMPT)])
    leaf = add_demonstration(tree.root, policy.encode(text), text, max_completion_tokens)
    leaf.grade = Grade(outcome=0.0)
    tree.chosen = [leaf]
    return tree

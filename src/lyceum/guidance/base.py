"""What guides share: the tasks' ladders of hints, prompts with a hint, and the counting of what helped."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from lyceum.component import RecipeError, require_keys
from lyceum.tree import Node, Tree
from lyceum.types import Context, Rollout, Task, TaskSource

Hint = Mapping[str, str]
"""``tier`` (knowledge, planning, solution, or a dataset's own word) and ``text``."""

CHECKED = 1000
"""Tasks whose hints are read before a model is loaded."""


class Guide:
    """A guide that changes nothing and remembers nothing: what a method overrides is what it is about."""

    def __call__(self, rollout: Rollout) -> Rollout:
        return rollout

    def observe(self, trees: Sequence[Tree]) -> None:
        """Finished trees of a step."""

    def figures(self) -> dict[str, float]:
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("guidance", given=state, needed=self.state_dict())


def ladder_of(task: Task) -> list[Hint]:
    """The task's hints, from abstract to concrete; empty where it has none."""
    return list(task.columns.get("hints") or ())


def failed(tree: Tree) -> bool:
    """Whether every graded trajectory of the tree is wrong, and there is one.

    Right or wrong is the grader's verdict where it gives one, and an outcome of 0 or less where it gives none.
    """
    graded = list(tree.graded_with_outcome())
    return bool(graded) and not any(is_right(leaf) for leaf, _, _ in graded)


def is_right(leaf: Node) -> bool:
    """Whether a graded leaf is right; False for one without an outcome."""
    if leaf.grade is None or leaf.grade.outcome is None:
        return False
    return leaf.grade.outcome > 0 if leaf.grade.verdict is None else leaf.grade.verdict


def prompt_with(tree: Tree, context: Context, source: TaskSource, hint: Hint) -> Node:
    """A new prompt of the tree: its task with a hint, as the tasks' source writes it."""
    tokens = context.render(source.hinted(tree.task, hint).messages)
    root = tree.add_prompt(tokens, text=context.decode(tokens))
    root.stats["hint"] = dict(hint)
    return root


def check_ladders(key: str, source: TaskSource, *, allow_leaks: bool) -> None:
    """Refuse tasks of which none has hints, and ladders that say the final answer.

    A source's tasks may lack hints one by one: they are rolled out as they are, and counted.

    Raises:
        RecipeError: no task has hints; a hint says the answer and ``allow_leaks`` is False.
    """
    tasks = [source[i] for i in range(len(source) if hasattr(source, "rows") else min(len(source), CHECKED))]
    hinted = [task for task in tasks if ladder_of(task)]
    if not hinted:
        raise RecipeError(
            f"{key}: none of the tasks has hints; allowed: tasks with a column 'hints' (tasks.columns.hints of a "
            "dataset; `lyceum hints` writes them)"
        )
    if allow_leaks:
        return
    leaking = [(task, hint) for task in hinted for hint in ladder_of(task) if leaks(task, hint["text"])]
    if leaking:
        task, hint = leaking[0]
        raise RecipeError(
            f"{key}: {len({t.id for t, _ in leaking})} of {len(hinted)} tasks have a hint that says the answer, first "
            f"task {task.id!r}: {hint['text']!r} holds {task.answer!r}; allowed: hints without it, or "
            f"{key}.allow_leaks=true"
        )


def leaks(task: Task, text: str) -> bool:
    """Whether a hint says the task's answer, as a word of its own, where the problem itself does not say it.

    A source may know better: a number that stands in a hint by chance is no leak. Its tasks then carry
    ``columns["hints_leak"]``.
    """
    known = task.columns.get("hints_leak")
    if known is not None:
        return bool(known)
    answers = task.answer if isinstance(task.answer, list) else [task.answer]
    problem = " ".join(str(message["content"]) for message in task.messages)
    return any(_says(text, str(a)) and not _says(problem, str(a)) for a in answers if a is not None and str(a).strip())


def _says(text: str, answer: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(answer.strip())}(?!\w|\.\d)", text, re.IGNORECASE) is not None

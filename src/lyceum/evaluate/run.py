"""Sampling a model on tasks and grading what it says: what every figure of accuracy comes from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from lyceum.evaluate.statistics import TaskResult
from lyceum.reward.extract import after_last, inside_last_tags, last_boxed
from lyceum.runtime.in_process import InProcess
from lyceum.tree import Tree
from lyceum.types import Context, Sampling, Task, TaskSource


def first_tasks(source: TaskSource, n: int) -> list[Task]:
    """The first n tasks of a source (all where it has fewer): a fixed set, the same in every run and process."""
    return [source[i] for i in range(min(n, len(source)))]


async def sample_tasks(
    runtime: InProcess,
    tasks: Sequence[Task],
    *,
    samples: int,
    sampling: Sampling,
    key: Any = "evaluate",
    done: Callable[[Tree], None] | None = None,
) -> list[Tree]:
    """``samples`` graded completions of every task. Seeds do not depend on the step: differences are the model's."""

    async def rollout(task: Task, context: Context) -> Tree:
        tree = context.tree(task)
        await context.grade(await context.extend(tree.root, samples, sampling))
        return tree

    return await runtime.run(tasks, rollout, key=key, done=done)


def results_of(trees: Sequence[Tree]) -> list[TaskResult]:
    """What the statistics need of graded trees. Votes are counted by the completion's last line after any marker."""
    results = []
    for tree in trees:
        leaves = tree.trajectories
        verdicts = [None if leaf.grade is None else leaf.grade.verdict for leaf in leaves]
        level = tree.task.columns.get("level")
        answers = [vote(leaf.completion) for leaf in leaves]
        tokens = [len(leaf.completion_tokens) for leaf in leaves]
        rewards = [None if leaf.grade is None else leaf.grade.outcome for leaf in leaves]
        results.append(TaskResult(tree.task.id, level, verdicts, answers, tokens, rewards))
    return results


def reasons_ungraded(trees: Sequence[Tree]) -> dict[str, int]:
    """Why trajectories could not be graded and how often, the most frequent first."""
    grades = (leaf.grade for tree in trees for leaf in tree.trajectories)
    counted = Counter(
        "never graded" if grade is None else grade.reason or "no outcome"
        for grade in grades
        if grade is None or grade.outcome is None
    )
    return dict(counted.most_common())


def details_ungraded(trees: Sequence[Tree]) -> dict[str, str]:
    """Reason -> where it came from the first time, for reasons that have more to say: a user's function that raised."""
    grades = [leaf.grade for tree in trees for leaf in tree.trajectories if leaf.grade is not None]
    return {grade.reason: grade.details for grade in reversed(grades) if grade.reason and grade.details}


def vote(completion: str) -> str | None:
    """The answer by which a majority is counted: the last box, what stands in answer tags or behind the last ``#``
    marker, or else the last line. Only equality matters here; whether it is right was said by the grader."""
    marked = (last_boxed(completion), inside_last_tags(completion, "answer"), after_last(completion, "#"))
    found = next((answer for answer in marked if answer), None)
    return found or next((line.strip() for line in reversed(completion.splitlines()) if line.strip()), None)

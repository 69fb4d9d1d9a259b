"""What guides share: the tasks' ladders of hints and solutions, prompts with a hint, rollouts of a hinted task."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any, TypeVar

from lyceum.core.component import kinds, require_keys
from lyceum.core.settings import Composition, RolloutSettings
from lyceum.core.solution import Solution, ladder_of, levels_of
from lyceum.core.tree import Node, Tree, is_right
from lyceum.core.types import Context, Grade, Hint, Message, Origin, Rollout, Sampling, Task, TaskSource
from lyceum.utils.errors import RecipeError
from lyceum.utils.seeds import SeedKey

Note = TypeVar("Note")

CHECKED = 200
"""Number of a generator's tasks whose hints are checked before a model is loaded; for a dataset all."""


class Guide:
    """A guide that changes nothing and has no state: methods override what they need."""

    _metrics: Mapping[str, float] = MappingProxyType({})
    """Of the last observed step; replaced each time."""

    def __call__(self, rollout: Rollout) -> Rollout:
        return rollout

    def observe(self, trees: Sequence[Tree]) -> None:
        """Finished trees of a step."""

    def metrics(self) -> dict[str, float]:
        return dict(self._metrics)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("guidance", given=state, needed=self.state_dict())


class TaskGuide(Guide):
    """A guide that handles one task at a time, in ``roll``."""

    def __call__(self, rollout: Rollout) -> Rollout:
        async def guided(task: Task, context: Context) -> Tree:
            return await self.roll(rollout, task, context)

        return guided

    async def roll(self, rollout: Rollout, task: Task, context: Context) -> Tree:
        """One task's guided rollout."""
        raise NotImplementedError


def notes_of(trees: Sequence[Tree], kind: type[Note]) -> list[tuple[Tree, Note]]:
    """The trees that have a guide's own type of note, with their notes.

    An outer guide may have grown others by itself, as ``search-where-hard`` does.
    """
    return [(tree, note) for tree in trees for note in tree.metadata.values() if isinstance(note, kind)]


def failed(tree: Tree) -> bool:
    """Whether the tree has graded trajectories, and all of them are incorrect.

    False also where nothing was graded: whether a tree is solved is asked with ``success``.
    """
    graded = list(tree.graded_with_outcome())
    return bool(graded) and not any(is_right(leaf) for leaf, _, _ in graded)


def success(tree: Tree) -> Node | None:
    """The first correct trajectory; None where there is none."""
    return next((leaf for leaf in tree.graded if is_right(leaf)), None)


def piecewise_lines(guide: str, stage: Composition, because: str) -> list[str]:
    """An error line where the stage's rollout is ``piecewise``: its draws below a prompt are not whole trajectories."""
    if stage.rollout is None or not stage.rollout.piecewise:
        return []
    known = kinds("rollout").items()
    whole = [kind for kind, settings in known if issubclass(settings, RolloutSettings) and not settings.piecewise]
    return [
        f"rollout.kind: got {stage.rollout.kind!r}, which draws trajectories piece by piece, with guidance {guide!r}, "
        f"{because}; allowed: {', '.join(whole)}"
    ]


def prompt_with(tree: Tree, context: Context, source: TaskSource, hint: Hint) -> Node:
    """A new prompt of the tree: its task with a hint, as the tasks' source writes it."""
    tokens = context.render(source.hinted(tree.task, hint).messages)
    root = tree.add_prompt(tokens, text=context.decode(tokens))
    root.stats["hint"] = hint
    return root


def fits(task: Task, context: Context) -> bool:
    """Whether the model's context has tokens left after the task's prompt, which a hint made longer."""
    return context.tokens_left(Node(None, context.render(task.messages), Origin.PROMPT)) > 0


def take_over(tree: Tree, helped: Tree) -> None:
    """Move the prompts of a tree that grew under a hint into another tree. What is trained on is unchanged.

    To train on the helped trajectories, set ``tree.chosen`` afterwards; add ``helped.sampled_tokens`` to the tree's own
    whether they are kept or not.
    """
    tree.chosen = tree.trajectories
    helped.root.stats["hint"] = helped.task.hint
    tree.roots += helped.roots


class AroundContext:
    """A context that wraps another one and delegates everything that a guide does not override."""

    def __init__(self, inner: Context) -> None:
        self.inner = inner
        self.trees: list[Tree] = []

    @property
    def version(self) -> int:
        return self.inner.version

    @property
    def step(self) -> int:
        return self.inner.step

    @property
    def progress(self) -> float:
        return self.inner.progress

    @property
    def budget_left(self) -> int:
        return self.inner.budget_left

    def tree(self, task: Task) -> Tree:
        self.trees.append(self.inner.tree(task))
        return self.trees[-1]

    def tree_of(self, node: Node) -> Tree | None:
        """The tree whose own prompt this node is; None for any other node."""
        return next((tree for tree in self.trees if tree.root is node), None)

    def render(self, messages: Sequence[Message]) -> list[int]:
        return self.inner.render(messages)

    def decode(self, tokens: Sequence[int]) -> str:
        return self.inner.decode(tokens)

    def encode(self, completion: str) -> list[int]:
        return self.inner.encode(completion)

    async def extend(self, node: Node, n: int, sampling: Sampling | None = None, *, keep: bool = False) -> list[Node]:
        return await self.inner.extend(node, n, sampling, keep=keep)

    async def score(self, path: Sequence[int]) -> list[float]:
        return await self.inner.score(path)

    async def grade(self, leaves: Sequence[Node]) -> list[Grade]:
        return await self.inner.grade(leaves)

    async def value(self, paths: Sequence[Node]) -> list[float]:
        return await self.inner.value(paths)

    def returning(self) -> AbstractContextManager[None]:
        return self.inner.returning()

    def tokens_left(self, node: Node) -> int:
        return self.inner.tokens_left(node)

    def seed(self, *key: SeedKey) -> int:
        return self.inner.seed(*key)


def solution_to_give(source: TaskSource, task: Task, *, allow_leaks: bool) -> Solution | None:
    """The task's solution, truncated before it states the answer; None where nothing is left.

    Args:
        allow_leaks: give every step but the last, even where it states the answer.
    """
    solution = source.solution(task)
    if solution is None:
        return None
    if not allow_leaks and leaks(task, solution.hint(len(solution.steps)).text):
        # If the first k steps state the answer, so do the first k + 1: bisect for the last k that does not.
        silent, telling = 0, len(solution.steps)
        while telling - silent > 1:
            middle = (silent + telling) // 2
            told = leaks(task, solution.hint(middle).text)
            silent, telling = (silent, middle) if told else (middle, telling)
        solution = solution.first(silent)
    return solution if solution.steps else None


def check_solutions(key: str, source: TaskSource, *, allow_leaks: bool) -> None:
    """Refuse tasks where none has a solution that can be given in part.

    Raises:
        RecipeError: no task has one.
    """
    if not any(solution_to_give(source, task, allow_leaks=allow_leaks) for task in _first(source)):
        raise RecipeError(
            f"{key}: none of the tasks has a solution to give the beginning of; allowed: tasks with steps, a "
            "demonstration of two words or more (tasks.columns.demonstration of a dataset), or hints of tier "
            "'solution', before which the answer does not stand"
        )


def check_ladders(key: str, source: TaskSource, *, allow_leaks: bool, tiers: Sequence[str] | None = None) -> None:
    """Refuse tasks where none has hints, and ladders that state the final answer.

    Some of a source's tasks may lack hints: they are rolled out without, and counted.

    Args:
        tiers: tiers that the guide gives; None for all.
    Raises:
        RecipeError: no task has hints, or none of these tiers; a hint states the answer and ``allow_leaks`` is False.
    """
    ladders = [(task, ladder_of(task)) for task in _first(source)]
    if not any(ladder for _, ladder in ladders):
        raise RecipeError(
            f"{key}: none of the tasks has hints; allowed: tasks with a column 'hints' (tasks.columns.hints of a "
            "dataset; `lyceum hints` writes them)"
        )
    there = dict.fromkeys(hint.tier for _, ladder in ladders for hint in ladder)
    if tiers is not None and not set(tiers) & set(there):
        raise RecipeError(
            f"{key}.tiers: got {', '.join(tiers)}, but no task has a hint of them; allowed: {', '.join(there)}"
        )
    if allow_leaks:
        return
    # As they are shown: what a hint leaves out may be in the one before it.
    given = [(task, levels_of(ladder, list(there) if tiers is None else tiers)) for task, ladder in ladders]
    leaking = [(task, hint) for task, levels in given for hint in levels if leaks(task, hint.text)]
    if leaking:
        task, hint = leaking[0]
        hinted = sum(bool(levels) for _, levels in given)
        raise RecipeError(
            f"{key}: {len({t.id for t, _ in leaking})} of {hinted} tasks have a hint that says the answer, first "
            f"task {task.id!r}: {hint.text!r} holds {task.answer!r}; allowed: hints without it, or "
            f"{key}.allow_leaks=true"
        )


def _first(source: TaskSource) -> list[Task]:
    return [source[i] for i in source.looked_at(CHECKED)]


def leaks(task: Task, text: str) -> bool:
    """Whether a hint states the task's answer, as a separate word, where the problem itself does not.

    A source may override this (``Task.hints_leak``): a number that occurs in a hint by chance is not a leak.
    """
    if task.hints_leak is not None:
        return task.hints_leak
    answers = task.answer if isinstance(task.answer, list) else [task.answer]
    problem = " ".join(str(message["content"]) for message in task.messages)
    return any(_says(text, str(a)) and not _says(problem, str(a)) for a in answers if a is not None and str(a).strip())


def _says(text: str, answer: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(answer.strip())}(?!\w|\.\d)", text, re.IGNORECASE) is not None

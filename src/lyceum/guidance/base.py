"""What guides share: the tasks' ladders of hints and solutions, prompts with a hint, groups that failed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

from lyceum.core.component import require_keys
from lyceum.core.notes import AnyNote
from lyceum.core.solution import Solution, ladder_of, levels_of
from lyceum.core.sources import checked_tasks
from lyceum.core.steps import write_texts
from lyceum.core.tree import Node, Tree, is_correct
from lyceum.core.types import Context, Hint, Message, Origin, ProposedSource, Rollout, Task, TaskSource
from lyceum.curriculum.base import is_test
from lyceum.tasks.base import HintsLeak
from lyceum.utils.errors import RecipeError

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

    tested: ClassVar[bool] = False
    """Whether it also takes part where a task is only tested."""

    def __call__(self, rollout: Rollout) -> Rollout:
        async def guided(context: Context, start: Node, n: int | None) -> list[Node]:
            if is_test(context.task) and not self.tested:  # what is measured is the policy without help
                return await rollout(context, start, n)
            return await self.roll(rollout, context, start, n)

        return guided

    async def roll(self, rollout: Rollout, context: Context, start: Node, n: int | None) -> list[Node]:
        """The guided rollout of one task: calls ``rollout`` from start nodes that it chooses, and returns what is
        trained."""
        raise NotImplementedError


def notes_of(trees: Sequence[Tree], kind: type[AnyNote]) -> list[tuple[Tree, AnyNote]]:
    """The trees that have a guide's own class of note, with their notes.

    An outer guide may have grown others by itself, as ``search-where-hard`` does.
    """
    return [(tree, note) for tree in trees for note in tree.notes(kind)]


def graded(leaves: Sequence[Node]) -> list[Node]:
    """The leaves with an outcome."""
    return [leaf for leaf in leaves if leaf.grade is not None and leaf.grade.outcome is not None]


def failed(leaves: Sequence[Node]) -> bool:
    """Whether some of the leaves have an outcome, and all of these are incorrect.

    False also where nothing was graded: whether a task is solved is asked with ``success``.
    """
    known = graded(leaves)
    return bool(known) and not any(map(is_correct, known))


def success(leaves: Sequence[Node]) -> Node | None:
    """The first correct leaf; None where there is none."""
    return next((leaf for leaf in leaves if is_correct(leaf)), None)


def answer_of(task: Task) -> str | None:
    """The reference answer, of several accepted ones the first; None where there is none."""
    answers = task.answer if isinstance(task.answer, list) else [task.answer]
    return next((str(answer) for answer in answers if answer is not None and str(answer).strip()), None)


def instead(leaves: Sequence[Node], old: Node, new: Node) -> list[Node]:
    """The leaves with ``new`` in the place of ``old``."""
    return [new if leaf is old else leaf for leaf in leaves]


def start_with(hint: Hint, context: Context, source: TaskSource, start: Node) -> Node | None:
    """The same start under the task's prompt with a hint, as the tasks' source writes it; as ``start_under``."""
    node = start_under(context.render(source.hinted(context.task, hint).messages), context, start)
    if node is not None:
        node.root.stats["hint"] = hint
    return node


def start_under(tokens: Sequence[int], context: Context, start: Node) -> Node | None:
    """The same start under another prompt of the task, given as tokens.

    What was given between the prompt and ``start`` (a prefix) is copied below the new prompt.

    Returns:
        None where the model's context leaves no token after it. The same node for the same prompt.
    """
    if not context.tokens_left(Node.prompt([*tokens, *start.completion_tokens])):
        return None
    return _given_below(context.tree.add_prompt(list(tokens), context.decode(tokens)), start)


def asked_of(task: Task, ask: str) -> list[Message]:
    """The task's messages, the last said as ``ask`` says it, with its own text in the place of ``{problem}``."""
    *before, last = task.messages
    return [*before, {**last, "content": ask.replace("{problem}", str(last["content"]))}]


def own_prompt(context: Context, messages: Sequence[Message], key: str) -> Node | None:
    """A prompt of the task's tree whose completions are compared with each other alone.

    Args:
        key: of the prompt (``Node.key``), unless the same prompt is there with one.
    Returns:
        None where no token is left below it, of the context or of the task's budget.
    """
    tokens = context.render(messages)
    prompt = context.tree.add_prompt(tokens, context.decode(tokens))
    prompt.key = prompt.key or key
    return prompt if context.budget_left > 0 and context.tokens_left(prompt) else None


async def answers_to(
    rollout: Rollout, context: Context, messages: Sequence[Message], key: str, n: int | None
) -> list[Node]:
    """The graded completions of a prompt of their own; none where no token is left for them. See :func:`own_prompt`."""
    prompt = own_prompt(context, messages, key)
    if prompt is None:
        return []
    leaves = await rollout(context, prompt, n)
    await context.grade(leaves)
    return leaves


def apart(tree: Tree, start: Node, key: str) -> Node:
    """The same start under a copy of its prompt, so that no credit compares what is below it with the group.

    Args:
        key: of the copied prompt (``Node.key``); the same node for the same key.
    """
    root = next((root for root in tree.roots if root.key == key), None)
    if root is None:
        root = Node.prompt(start.root.tokens, start.root.text)
        root.key = key
        tree.roots.append(root)
    return _given_below(root, start)


def _given_below(prompt: Node, start: Node) -> Node:
    """What was given between a prompt and ``start``, copied below another prompt."""
    node = prompt
    for above in start.path()[1:]:
        node = child_with(node, above.tokens, above.origin) or node.add(above.tokens, above.origin, above.text)
    return node


def child_with(node: Node, tokens: Sequence[int], origin: Origin) -> Node | None:
    """The node's child of these tokens and this origin; None where there is none."""
    return next((child for child in node.children if child.origin is origin and child.tokens == list(tokens)), None)


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
    if not any(solution_to_give(source, task, allow_leaks=allow_leaks) for task in first_tasks(source)):
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
    ladders = [(task, ladder_of(task)) for task in first_tasks(source)]
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


def first_tasks(source: TaskSource) -> list[Task]:
    """The tasks that are checked before a model is loaded."""
    return [source[i] for i in checked_tasks(source, CHECKED)]


def leaks(task: Task, text: str) -> bool:
    """Whether a hint reveals the task's answer: states it, where the problem itself does not.

    A source may override this (:class:`~lyceum.tasks.base.HintsLeak`): a number that occurs in a hint by chance is not
    a leak.
    """
    note = task.note(HintsLeak)
    return states_answer(task, text) if note is None else note.leak


def states_answer(task: Task, text: str) -> bool:
    """Whether a text states the task's answer, as a separate word, where the problem itself does not."""
    answers = task.answer if isinstance(task.answer, list) else [task.answer]
    problem = " ".join(str(message["content"]) for message in task.messages)
    return any(_says(text, str(a)) and not _says(problem, str(a)) for a in answers if a is not None and str(a).strip())


def _says(text: str, answer: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(answer.strip())}(?!\w|\.\d)", text, re.IGNORECASE) is not None


def begun(start: Node, tokens: Sequence[int], context: Context) -> Node:
    """A completion that begins with these tokens, to be continued."""
    node = start.add(tokens, Origin.PREFIX)
    write_texts([node], context.decode, terminal=False)
    return node


def writable(guide: str, source: TaskSource) -> ProposedSource:
    """The tasks as a source for which a model can write others.

    Raises:
        RecipeError: they are none.
    """
    if not isinstance(source, ProposedSource):
        raise RecipeError(
            f"guidance.{guide}: the tasks have no rule that reads a proposal and computes its answer; "
            "allowed: tasks that have one, such as kinds 'chain' and 'redrawn-pictures'"
        )
    return source

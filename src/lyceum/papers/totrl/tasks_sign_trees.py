"""Signs that have to be found, by a tree of thoughts or by one guess after the other, with and without thinking.

``3?5?1>7=`` asks for signs that lead from 3 to 7 over numbers from 0 to 9. Thoughts have a step for each sign, with its
branches, each the signs so far and the number that they lead to:

    +8|-x;++9x|+-7#+-

A branch that leaves these numbers, or ends at another one than the target, is a dead end, marked and left. A
demonstration is such a tree, in which every living node gets both branches, or one guess after the other, which mostly
ends in a dead end: ``+8;++9x#++``. A prompt asks for trees by words before the problem
(``guidance``). With thinking the thoughts stand in ``<`` and ``>``; without, the prompt ends in the empty ``<>``, as
chat templates switch thinking off. The answer is the signs.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Literal

from pydantic import Field, field_validator

from lyceum.core.settings import TasksSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, Split, Task
from lyceum.reward.base import each, verdict
from lyceum.tasks.base import GeneratedSource, draw, levels_within

Mode = Literal["chain", "plain", "thinking"]
BRANCH, DEAD = "|", "x"
"""What stands between the branches of a step, and what marks a dead end."""
EMPTY = "<>"
"""The empty thoughts at the end of a prompt, by which thinking is off."""
NUMBERS = range(10)
"""Numbers that a branch may reach: a token each, which the small base copies from one step to the next."""


class SignTrees(TasksSettings):
    """Signs that lead to a target, with ``columns["demonstration"]`` for fine-tuning; the level is how many."""

    kind: Literal["sign-trees"] = "sign-trees"
    levels: tuple[int, ...] = (2, 3, 4)
    """Numbers of missing signs; tasks cycle through them, so that every level has the same share."""
    guidance: str = Field("tree ", max_length=1000)
    """What the prompts of modes ``plain`` and ``thinking`` say before the problem; mode ``chain`` has none of it."""
    trees: dict[Mode, float] = Field({"chain": 0.0, "plain": 0.5, "thinking": 0.1}, min_length=1)
    """Modes, through which tasks cycle, and the share of demonstrations that are trees in each (no unit). ``plain`` is
    guided and without thinking, ``thinking`` is guided, ``chain`` thinks unguided."""
    size: int = Field(100_000, ge=1)
    """Tasks in each split."""

    _levels_are_usable = levels_within(1, 8, "numbers of missing signs")

    @field_validator("trees")
    @classmethod
    def _are_shares(cls, trees: dict[Mode, float]) -> dict[Mode, float]:
        if not all(0 <= share <= 1 for share in trees.values()):
            raise ValueError(f"got {trees}; allowed: shares from 0 to 1")
        return trees

    def build(self, split: Split, seed: int) -> SignTreesSource:
        return SignTreesSource(self, split, seed)


class SignTreesSource(GeneratedSource[SignTrees]):
    """``source[i]`` depends on (seed, split, i) alone. A problem always belongs to one split, whatever the seed."""

    def __getitem__(self, index: int) -> Task:
        modes, levels = list(self.settings.trees), self.settings.levels
        mode, level = modes[index % len(modes)], levels[index // len(modes) % len(levels)]
        key = self.key(index)
        return draw(
            key,
            self.split,
            lambda rng: make_task(key, rng, level, mode, self.settings),
            problem=lambda task: str(task.columns["problem"]),
        )

    def grader(self) -> Grader:
        return each(grade)


def make_task(id: str, rng: random.Random, level: int, mode: Mode, settings: SignTrees) -> Task:
    path = [rng.choice(NUMBERS)]
    for _ in range(level):
        path.append(rng.choice([number for number in NUMBERS if number != path[-1]]))
    start, target = path[0], path[-1]
    solution = [after - before for before, after in pairwise(path)]
    operands = [abs(operation) for operation in solution]
    thoughts, found = thought(rng, start, operands, target, tree=rng.random() < settings.trees[mode])
    problem = f"{start}{''.join(f'?{operand}' for operand in operands)}>{target}="
    opened, closed = ("", "") if mode == "plain" else EMPTY
    columns = {
        "level": level,
        "mode": mode,
        "problem": problem,
        "operands": operands,
        "start": start,
        "target": target,
        "demonstration": f"{opened}{thoughts}{closed}#{signed(found)}",
    }
    prompt = ("" if mode == "chain" else settings.guidance) + problem + (EMPTY if mode == "plain" else "")
    return Task(id, ({"role": "user", "content": prompt},), signed(solution), columns, provenance="sign-trees")


def thought(
    rng: random.Random, start: int, operands: Sequence[int], target: int, *, tree: bool
) -> tuple[str, tuple[int, ...]]:
    """The thoughts of a demonstration, and the operations that it answers: of a branch that reached the target, else of
    the last living one and guesses from there on.

    Args:
        tree: give every living node both branches, not one by chance.
    """
    living: list[tuple[int, ...]] = [()]
    best: tuple[int, ...] = ()
    steps: list[str] = []
    for n, operand in enumerate(operands):
        opened = [
            (*path, operation)
            for path in living
            for operation in ((operand, -operand) if tree else (rng.choice((operand, -operand)),))
        ]
        ends = [start + sum(path) for path in opened]
        last = n == len(operands) - 1
        dead = [end not in NUMBERS or (last and end != target) for end in ends]
        shown = zip(opened, ends, dead, strict=True)
        steps.append(BRANCH.join(branch(path, end, left) for path, end, left in shown))
        living = [path for path, left in zip(opened, dead, strict=True) if not left]
        if not living:
            break
        best = living[0]
    rest = (rng.choice((1, -1)) * operand for operand in operands[len(best) :])
    return ";".join(steps), (*best, *rest)


def branch(path: Sequence[int], end: int, dead: bool) -> str:
    """``+-7``, and ``+-x`` where that is no number of the problem."""
    return f"{signed(path)}{end if end in NUMBERS else ''}{DEAD * dead}"


def signed(operations: Sequence[int]) -> str:
    return "".join("+" if operation > 0 else "-" for operation in operations)


def grade(task: Task, leaf: Node) -> Grade:
    """1 where thoughts and answer stand where the mode wants them and the signs lead to the target, else 0.

    The rule is about form and answer alone: how the thoughts found it is left to the policy.
    """
    before, found, answer = leaf.completion.rpartition("#")
    if task.columns["mode"] == "plain":
        formed = bool(found) and not set(before) & set(EMPTY)
    else:
        formed = before.startswith(EMPTY[0]) and before.endswith(EMPTY[1]) and before.count(EMPTY[1]) == 1
    return verdict(formed and solves(answer, task), answered=formed)


def solves(answer: str, task: Task) -> bool:
    """Whether an answer is a sign for each of the task's operands, and leads over its numbers to the target."""
    operands = task.columns["operands"]
    if len(answer) != len(operands) or not set(answer) <= set("+-"):
        return False
    operations = (operand if sign == "+" else -operand for sign, operand in zip(answer, operands, strict=True))
    reached = list(accumulate(operations, initial=task.columns["start"]))
    return set(reached) <= set(NUMBERS) and reached[-1] == task.columns["target"]

"""Countdown: reach a target from given numbers, each used at most once.

The level is the number of given numbers. Every task is made from a solution, so that it has one, whose steps are
operations on two of the remaining numbers: ``8-3=5`` replaces 8 and 3 by 5.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Literal

from pydantic import Field, model_validator

from lyceum.core.settings import TasksSettings
from lyceum.core.solution import Solution
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, JudgedStep, Split, Task
from lyceum.reward.base import each, verdict
from lyceum.reward.criteria import step_rubric
from lyceum.reward.extract import Extract
from lyceum.tasks.base import GeneratedSource, draw, levels_within, rounded
from lyceum.tasks.prompt import fields_of, fill
from lyceum.utils.arithmetic import equations, evaluated


class Countdown(TasksSettings):
    """Make a target from numbers with + - * / and brackets, each number at most once."""

    kind: Literal["countdown"] = "countdown"
    levels: tuple[int, ...] = (2, 3, 4, 5)
    """How many numbers a task has; tasks cycle through them, so that every level has the same share."""
    min_number: int = Field(1, ge=1)
    """Smallest given number."""
    max_number: int = Field(20, le=9999)
    """Largest given number."""
    max_target: int = Field(100, ge=2, le=1_000_000)
    """Largest target; targets start at 1. Intermediate results stay below ten times that."""
    size: int = Field(100_000, ge=1)
    """Tasks in each split."""
    answer: Extract = Extract.model_validate({"tags": "answer"})
    """Where to find the expression in a completion: whole, boxed, {after: MARK} or {tags: NAME}."""
    prompt: str = (
        "Using the numbers {numbers}, make an expression that equals {target}. You may use + - * / and brackets, "
        "and each number at most once. Give the expression inside <answer> and </answer>."
    )
    """The user's message; {numbers} and {target} are filled in."""

    _levels_are_usable = levels_within(2, 8, "counts of numbers")

    @model_validator(mode="after")
    def _settings_fit(self) -> Countdown:
        if self.max_number <= self.min_number:
            raise ValueError(
                f"max_number: got {self.max_number}, but min_number is {self.min_number}; allowed: more than that"
            )
        if set(fields_of(self.prompt)) != {"numbers", "target"}:
            raise ValueError(f"prompt: got {self.prompt!r}; allowed: a text with {{numbers}} and {{target}}")
        return self

    def build(self, split: Split, seed: int) -> CountdownSource:
        return CountdownSource(self, split, seed)


class CountdownSource(GeneratedSource[Countdown]):
    """``source[i]`` depends on (seed, split, i) alone. A problem always belongs to one split, whatever the seed."""

    def __getitem__(self, index: int) -> Task:
        levels = self.settings.levels
        key = self.key(index)
        return self._draw(key, levels[index % len(levels)], self.settings.max_number)

    @property
    def parameters(self) -> Mapping[str, tuple[float, float]]:
        """How many numbers, within the levels, and the largest number."""
        settings = self.settings
        # With fewer distinct numbers than that, few problems have a target that is not one of the numbers.
        lowest = min(settings.min_number + 9, settings.max_number)
        bounds = (min(settings.levels), max(settings.levels))
        return {"numbers": bounds, "largest_number": (lowest, settings.max_number)}

    def at(self, values: Mapping[str, float], key: str) -> Task:
        id = f"countdown/{self.split}/{self.seed}/at/{key}"
        rng = random.Random(f"{id}/parameters")
        return self._draw(id, *(rounded(rng, values[name]) for name in ("numbers", "largest_number")))

    def _draw(self, key: str, level: int, max_number: int) -> Task:
        settings = self.settings

        def make(rng: random.Random) -> Task | None:
            made = make_problem(rng, level, settings.min_number, max_number, settings.max_target)
            return None if made is None else make_task(key, *made, prompt=settings.prompt)

        # Reordered numbers are the same problem: a permuted copy of a held-out one is not trained on.
        return draw(key, self.split, make, problem=lambda task: f"{sorted(task.columns['numbers'])}={task.answer}")

    def grader(self) -> Grader:
        return each(lambda task, leaf: grade(task, leaf, self.settings.answer))

    def judged_steps(self, task: Task, completion: str) -> tuple[JudgedStep, ...]:
        """Every equation before the answer: a correct step is true, and on two numbers that are left."""
        found = equations(self.settings.answer.before(completion))
        right = check_steps(task.columns["numbers"], [completion[start:stop] for start, stop in found])
        return tuple(JudgedStep(*span, float(good)) for span, good in zip(found, right, strict=True))

    def solution(self, task: Task) -> Solution:
        return Solution.all_but_last(task.columns["steps"], before="Begin with ", between=", ")


def make_problem(
    rng: random.Random, level: int, lowest: int, highest: int, max_target: int
) -> tuple[list[int], int, list[str], str] | None:
    """Numbers, target, steps and solution; None where the draw failed.

    Numbers are combined two at a time until one is left, the target. Results are positive whole numbers, and operations
    that change nothing (multiplying or dividing by 1) are left out, so that every number counts.
    """
    numbers = [rng.randint(lowest, highest) for _ in range(level)]
    left: list[tuple[int, str]] = [(number, str(number)) for number in numbers]
    steps: list[str] = []
    while len(left) > 1:
        (a, a_text), (b, b_text) = (left.pop(rng.randrange(len(left))) for _ in range(2))
        if a < b:
            a, a_text, b, b_text = b, b_text, a, a_text
        results = {"+": a + b}
        if a > b:
            results["-"] = a - b
        if b > 1:
            results["*"] = a * b
            if a % b == 0:
                results["/"] = a // b
        sign = rng.choice([sign for sign, result in results.items() if result <= 10 * max_target] or [""])
        if not sign:
            return None
        steps.append(f"{a}{sign}{b}={results[sign]}")
        left.append((results[sign], f"({a_text}{sign}{b_text})"))
    [(target, solution)] = left
    if target > max_target or target in numbers:
        return None
    return numbers, target, steps, solution[1:-1]


def make_task(id: str, numbers: list[int], target: int, steps: list[str], solution: str, *, prompt: str) -> Task:
    content = fill(prompt, {"numbers": " ".join(map(str, numbers)), "target": target})
    columns = {
        "level": len(numbers),
        "numbers": numbers,
        "steps": steps,
        "hints": hints_of(steps),
        "rubric": step_rubric(steps),
        "solution": solution,
        "demonstration": f"{', '.join(steps)} <answer>{solution}</answer>",
    }
    return Task(id, ({"role": "user", "content": content},), str(target), columns, provenance="countdown")


def hints_of(steps: Sequence[str]) -> list[dict[str, str]]:
    """A ladder of hints: how to look, which operations in which order, the first steps (one more with each hint)."""
    signs = " ".join(next(sign for sign in "+-*/" if sign in step) for step in steps)
    shown = range(1, max(len(steps), 2))
    return [
        {"tier": "knowledge", "text": "Join two numbers into one, again and again, until the target is left."},
        {"tier": "planning", "text": f"Use these operations in this order: {signs}"},
        *({"tier": "solution", "text": f"Begin with {', '.join(steps[:k])}"} for k in shown),
    ]


def check_steps(numbers: Sequence[int], steps: Sequence[str]) -> list[bool]:
    """Whether each step, such as ``8-3=5``, is correct: true, and on two numbers that earlier steps left.

    An incorrect step uses no number and adds none.
    """
    left = Counter(Fraction(number) for number in numbers)
    right: list[bool] = []
    for step in steps:
        expression, _, result = step.partition("=")
        value, used = evaluated(expression)
        given, _ = evaluated(result)
        right.append(value is not None and value == given and used.total() == 2 and used <= left)
        if right[-1] and value is not None:
            left -= used
            left[value] += 1
    return right


def grade(task: Task, leaf: Node, answer: Extract) -> Grade:
    """1 where the expression uses only the given numbers, each at most once, and equals the target; else 0."""
    found = answer(leaf.completion)
    right = found is not None and solves(found, task.columns["numbers"], int(task.answer))
    return verdict(right, answered=answer.answered(leaf.completion))


def solves(expression: str, numbers: Sequence[int], target: int) -> bool:
    """Whether an expression, which may state its value (``2*3=6``), reaches the target with the given numbers."""
    expression, equals, said = expression.partition("=")
    value, used = evaluated(expression)
    if value is None or value != target or not used <= Counter(Fraction(number) for number in numbers):
        return False
    return not equals or said.strip() == str(target)

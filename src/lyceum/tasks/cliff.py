"""A cliff: chains of an operation whose rule the model follows when it is told, and practically never by itself.

``37*8*5*3=`` is answered ``37*8=29*5=24*3=21#21``: a star subtracts its operand, modulo 100. Kind
``cliff-demonstrations`` shows the rule with hints; without one, its data adds the operand at nearly every step.
A model trained on that needs several rare decisions in a row to solve a task once, and nothing that plain chains teach
helps: group-relative learning sees only groups in which every sample failed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Literal

from pydantic import Field

from lyceum.core.settings import TasksSettings
from lyceum.core.types import Grader, Hint, Split, Task
from lyceum.reward.base import each
from lyceum.tasks.base import GeneratedSource, HintsLeak, grade_after_mark, kept_for_evaluation
from lyceum.tasks.chain import HELDOUT_ONE_IN, LARGEST_OPERAND, MODULUS

LEVEL = "cliff"


class Cliff(TasksSettings):
    """Chains of starred operations; level ``cliff``."""

    kind: Literal["cliff"] = "cliff"
    stars: int = Field(5, ge=1, le=5)
    """Operations per task."""
    size: int = Field(100_000, ge=1)
    """Tasks in each split."""

    def build(self, split: Split, seed: int) -> CliffSource:
        return CliffSource(self, split, seed)


class CliffSource(GeneratedSource[Cliff]):
    """``source[i]`` depends on (seed, split, i) alone."""

    def __getitem__(self, index: int) -> Task:
        id = self.key(index)
        return make_task(id, *draw(random.Random(id), self.settings.stars, self.split))

    def grader(self) -> Grader:
        return each(grade_after_mark)

    def hinted(self, task: Task, hint: Hint) -> Task:
        return hinted(task, hint)


class CliffDemonstrations(TasksSettings):
    """Starred chains with a completion to imitate, which rarely follows the rule without a hint: for fine-tuning.

    Tuples have an entry for each kind of help: none, then a knowledge, planning and solution hint.
    """

    kind: Literal["cliff-demonstrations"] = "cliff-demonstrations"
    most_stars: int = Field(5, ge=1, le=5)
    """Maximum operations per demonstration; each has 1 to this many."""
    right: tuple[float, float, float, float] = (0.01, 0.8, 0.6, 0.85)
    """Probability that a step follows the rule. An incorrect step leaves the chain too high by twice its operand, which
    the others cannot undo: with 5 operations the answer is never correct by chance."""
    help_share: tuple[float, float, float, float] = (0.5, 0.2, 0.1, 0.2)
    """Sampling weight of each kind of help (relative)."""
    size: int = Field(102_400, ge=1)
    """Demonstrations in each split."""

    def build(self, split: Split, seed: int) -> CliffDemonstrationSource:
        return CliffDemonstrationSource(self, split, seed)


class CliffDemonstrationSource(GeneratedSource[CliffDemonstrations]):
    """``source[i]`` depends on (seed, split, i) alone; its chains have the same splits as kind ``cliff``."""

    def __getitem__(self, index: int) -> Task:
        of, id = self.settings, self.key(index)
        rng = random.Random(id)
        stars = rng.randint(1, of.most_stars)
        start, operands = draw(rng, stars, self.split)
        task = make_task(id, start, operands)
        help, given = rng.choices(range(4), of.help_share)[0], 0
        tier = ("", "knowledge", "planning", "solution")[help]
        offered = [Hint(**hint) for hint in task.columns["hints"] if hint["tier"] == tier]
        if not offered:  # a single operation has no solution hint
            help = 0
        else:
            hint = rng.choice(offered)
            given = hint.text.count(",") + 1 if tier == "solution" else 0
            task = hinted(task, hint)
        value, results = start, list[int]()
        for place, operand in enumerate(operands):
            follows = place < given or rng.random() < of.right[help]
            value = (value - operand if follows else value + operand) % MODULUS
            results.append(value)
        demonstration = completion_text(start, operands, results)
        return replace(task, columns={**task.columns, "demonstration": demonstration})

    def grader(self) -> Grader:
        return each(grade_after_mark)

    def hinted(self, task: Task, hint: Hint) -> Task:
        return hinted(task, hint)


def draw(rng: random.Random, stars: int, split: Split) -> tuple[int, list[int]]:
    """A start in 0..99 and operands in 1..9, of the given split."""
    while True:
        start, operands = rng.randrange(MODULUS), [rng.randint(1, LARGEST_OPERAND) for _ in range(stars)]
        if kept_for_evaluation(problem_text(start, operands), 1 / HELDOUT_ONE_IN) == (split == "heldout"):
            return start, operands


def problem_text(start: int, operands: Sequence[int], hint: str = "") -> str:
    """``37*8*5=``; a hint comes before the ``=``."""
    return f"{start}{''.join(f'*{operand}' for operand in operands)}{hint}="


def results_of(start: int, operands: Sequence[int]) -> list[int]:
    """The result after each operation: a star subtracts its operand, modulo 100."""
    return list(accumulate(operands, lambda value, operand: (value - operand) % MODULUS, initial=start))[1:]


def completion_text(start: int, operands: Sequence[int], results: Sequence[int]) -> str:
    """``37*8=29*5=24#24``."""
    steps = "".join(f"*{operand}={result}" for operand, result in zip(operands, results, strict=True))
    return f"{start}{steps}#{results[-1]}"


def hints_of(results: Sequence[int]) -> list[dict[str, str]]:
    """The rule, how many steps there are, and the first results: one more with each hint, never the last."""
    return [
        {"tier": "knowledge", "text": "~*-"},
        {"tier": "planning", "text": f":{len(results)}"},
        *({"tier": "solution", "text": f"|{','.join(map(str, results[:k]))}"} for k in range(1, len(results))),
    ]


def make_task(id: str, start: int, operands: Sequence[int]) -> Task:
    results = results_of(start, operands)
    columns = {
        "level": LEVEL,
        "start": start,
        "operands": list(operands),
        "steps": results,
        "hints": hints_of(results),
        "demonstration": completion_text(start, operands, results),
    }
    message = {"role": "user", "content": problem_text(start, operands)}
    return Task(id, (message,), str(results[-1]), columns, provenance="cliff").with_note(HintsLeak(False))


def hinted(task: Task, hint: Hint) -> Task:
    """The same problem with a hint before its ``=``."""
    content = problem_text(task.columns["start"], task.columns["operands"], hint.text)
    return task.with_messages([{"role": "user", "content": content}], hint=hint)

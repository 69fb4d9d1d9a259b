"""Small Python functions to write from words, judged by tests that run them (reward ``code``).

``add 3, times 2:`` is answered ``(x+3)*2``, what ``f(x)`` returns; in statements, ``x=x+3;x=x*2;return x``; or with
thoughts, a comment before the expression: ``+3;*2;``, then a line with ``return (x+3)*2``. The level is the number of
operations. Kind ``function-demonstrations`` shows completions to imitate, with errors, and with programs that compute
more than they need, so that reinforcement learning has correctness and efficiency left to teach.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from pydantic import Field

from lyceum.core.settings import TasksSettings
from lyceum.core.types import Grader, Split, Task
from lyceum.reward.code import Code
from lyceum.tasks.base import GeneratedSource, draw, levels_within

INPUTS = (0, 1, 7, -4)
"""What the tests call a function with. A function of one factor and one summand is known by two of them."""
LARGEST = 9
HEADS = {"expression": "def f(x): return ", "statements": "def f(x): ", "thoughts": "def f(x): # "}
SIGNS = {"add": "+", "times": "*"}
JUDGE = "?"
"""What the user says to ask for a judgement of a program: 1 for a right one, -1 for a wrong one."""
Form = Literal["expression", "statements", "thoughts"]
Operation = tuple[Literal["add", "times"], int]


class Functions(TasksSettings):
    """Functions of one number, from additions and multiplications in words; one level for each number of operations."""

    kind: Literal["functions"] = "functions"
    levels: tuple[int, ...] = (1, 2, 3)
    """Numbers of operations; tasks cycle through them."""
    form: Form = "expression"
    """How a program is written: as one expression; as a statement for each operation, with semicolons between; or as an
    expression after a comment that plans each operation. Tasks with ``thoughts`` have a column ``public``: the first
    of their tests, which a search may read."""
    size: int = Field(default=100_000, ge=1)
    """Tasks in each split."""

    _levels_are_usable = levels_within(1, 8, "numbers of operations")

    def build(self, split: Split, seed: int) -> FunctionSource:
        return FunctionSource(self, split, seed)


class FunctionSource(GeneratedSource[Functions]):
    """``source[i]`` depends on (seed, split, i) alone."""

    def __getitem__(self, index: int) -> Task:
        levels = self.settings.levels
        id = self.key(index)
        level = levels[index % len(levels)]
        return draw(
            id, self.split, lambda rng: make_task(id, operations(rng, level), self.settings.form), problem=words_of
        )

    def grader(self) -> Grader:
        return Code().build(self)


class FunctionDemonstrations(TasksSettings):
    """The same functions with a completion to imitate in ``columns["demonstration"]``, correct or not."""

    kind: Literal["function-demonstrations"] = "function-demonstrations"
    functions: Functions = Field(default_factory=Functions)
    """Which functions."""
    wrong: float = Field(default=0.2, ge=0, le=1)
    """Probability that an operation's number is one too large: the function is then never correct."""
    slow: float = Field(default=0.5, ge=0, le=1)
    """Probability that a program that begins with a multiplication adds its argument to itself instead; in statements,
    that one has its operands the other way round."""
    corrected: float = Field(default=0.0, ge=0, le=1)
    """Probability that a program which the first test fails stands in the prompt, with that test; the right one is
    imitated."""
    judged: float = Field(default=0.0, ge=0, le=1)
    """Probability that another program stands in the prompt, to be judged: 1 where it is right, -1 where it is not."""

    def build(self, split: Split, seed: int) -> FunctionDemonstrationSource:
        return FunctionDemonstrationSource(self, split, seed)


class FunctionDemonstrationSource(FunctionSource):
    """``source[i]`` depends on (seed, split, i) alone; its problems have the same splits as kind ``functions``."""

    def __init__(self, settings: FunctionDemonstrations, split: Split, seed: int) -> None:
        super().__init__(settings.functions, split, seed)
        self.noise = settings

    def __getitem__(self, index: int) -> Task:
        task = super().__getitem__(index)
        rng = random.Random(f"{task.id}/demonstration")
        written = [(what, n + (rng.random() < self.noise.wrong)) for what, n in task.columns["operations"]]
        if self.settings.form == "statements":
            turned = [rng.random() < self.noise.slow for _ in written]
            text = statements(written, turned)
        elif self.settings.form == "thoughts":
            text = thoughts(written)
        else:
            text = expression(written, rng.random() < self.noise.slow)
        return self._in_two_turns(replace(task, columns={**task.columns, "demonstration": text}), written)

    def _in_two_turns(self, task: Task, written: Sequence[Operation]) -> Task:
        """The task with the program in its prompt, to be corrected or judged, as often as the settings say."""
        steps: list[Operation] = [(what, n) for what, n in task.columns["operations"]]
        rng = random.Random(f"{task.id}/turns")
        fails = value(written, INPUTS[0]) != value(steps, INPUTS[0])
        if fails and rng.random() < self.noise.corrected:
            said, shown = f"{task.columns['tests'][0]}: AssertionError", task.columns["reference"]
        elif rng.random() < self.noise.judged:
            said, shown = JUDGE, "1" if list(written) == steps else "-1"
        else:
            return task
        attempt = task.columns["demonstration"]
        turns = ({"role": "assistant", "content": attempt}, {"role": "user", "content": said})
        columns = {**task.columns, "demonstration": shown}
        return replace(task.with_messages((*task.messages, *turns)), columns=columns)


def operations(rng: random.Random, level: int) -> list[Operation]:
    """Additions of 1 to 9 and multiplications by 2 to 4, the same probability for each kind."""
    return [
        ("add", rng.randint(1, LARGEST)) if rng.random() < 0.5 else ("times", rng.randint(2, 4)) for _ in range(level)
    ]


def make_task(id: str, steps: Sequence[Operation], form: Form = "expression") -> Task:
    columns = {
        "level": len(steps),
        "operations": [list(step) for step in steps],
        "tests": [f"assert f({x}) == {value(steps, x)}" for x in INPUTS],
        "head": HEADS[form],
        "reference": _reference(steps, form),
    }
    if form == "thoughts":
        columns["public"] = columns["tests"][:1]
    content = f"{', '.join(f'{what} {n}' for what, n in steps)}:"
    return Task(id, ({"role": "user", "content": content},), None, columns, provenance="functions")


def _reference(steps: Sequence[Operation], form: Form) -> str:
    match form:
        case "expression":
            return expression(steps)
        case "statements":
            return statements(steps, [False] * len(steps))
        case "thoughts":
            return thoughts(steps)


def words_of(task: Task) -> str:
    return str(task.messages[-1]["content"])


def value(steps: Sequence[Operation], x: int) -> int:
    for what, n in steps:
        x = x + n if what == "add" else x * n
    return x


def expression(steps: Sequence[Operation], slow: bool = False) -> str:
    """``x*3+2``, or, where it is slow, ``(x+x+x)+2``."""
    text = "x"
    for place, (what, n) in enumerate(steps):
        if what == "add":
            text = f"{text}+{n}"
            text = f"({text})" if any(later == "times" for later, _ in steps[place + 1 :]) else text
        elif slow and text == "x":
            text = f"({'+'.join([text] * n)})"
        else:
            text = f"{text}*{n}"
    return text


def statements(steps: Sequence[Operation], turned: Sequence[bool]) -> str:
    """``x=x+3;x=x*2;return x``, or, where a statement is turned, ``x=3+x``."""
    written = [
        f"x={n}{SIGNS[what]}x" if other else f"x=x{SIGNS[what]}{n}"
        for (what, n), other in zip(steps, turned, strict=True)
    ]
    return ";".join([*written, "return x"])


def thoughts(steps: Sequence[Operation]) -> str:
    """``+3;*2;``, what is to be done, and below it ``return (x+3)*2``: after the head a comment and a statement."""
    plan = "".join(f"{SIGNS[what]}{n};" for what, n in steps)
    return f"{plan}\n return {expression(steps)}"

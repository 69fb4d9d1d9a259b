"""Programs to refactor: what stands twice in an expression is to become a function of its own.

``(x+3)*2-(x+3)=`` is answered ``g=lambda x:x+3`` and, below it, ``f=lambda x:g(x)*2-g(x)``. Nothing that a model wrote
is run: a program is parsed, and what it computes is worked out from its tree.
"""

from __future__ import annotations

import ast
import random
from typing import Literal, NamedTuple

from pydantic import Field

from lyceum.core.settings import TasksSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, Split, Task
from lyceum.reward.base import each, verdict
from lyceum.tasks.base import GeneratedSource, draw

INPUTS = (0, 1, 7, -4)
LONGEST = 200
"""Characters of a program that is read."""
LARGEST = 10**6
"""Numbers that a program comes to; one beyond it has no value."""
_SIGNS = {ast.Add: int.__add__, ast.Sub: int.__sub__, ast.Mult: int.__mul__}


class Extractions(TasksSettings):
    """Expressions with a part that stands twice, and the refactored program in ``columns["demonstration"]``."""

    kind: Literal["extractions"] = "extractions"
    plain: float = Field(default=0.0, ge=0, le=1)
    """Probability that a demonstration leaves the expression as it is: correct, and no refactoring."""
    broken: float = Field(default=0.0, ge=0, le=1)
    """Probability that a demonstration lacks its last bracket: it cannot be parsed."""
    size: int = Field(default=100_000, ge=1)
    """Tasks in each split."""

    def build(self, split: Split, seed: int) -> ExtractionsSource:
        return ExtractionsSource(self, split, seed)


class ExtractionsSource(GeneratedSource[Extractions]):
    """``source[i]`` depends on (seed, split, i) alone."""

    def __getitem__(self, index: int) -> Task:
        id = self.key(index)
        return draw(id, self.split, lambda rng: self.make(id, rng), problem=lambda task: str(task.columns["before"]))

    def make(self, id: str, rng: random.Random) -> Task:
        part = f"x{rng.choice('+*')}{rng.randint(2, 9)}"
        factor, sign = rng.randint(2, 9), rng.choice("+-")
        before = f"({part})*{factor}{sign}({part})"
        written = f"g=lambda x:{part}\nf=lambda x:g(x)*{factor}{sign}g(x)"
        if rng.random() < self.settings.plain:
            written = f"f=lambda x:{before}"
        if rng.random() < self.settings.broken:
            written = written[:-1]
        columns = {"before": before, "demonstration": written}
        return Task(id, ({"role": "user", "content": f"{before}="},), columns=columns, provenance="extractions")

    def grader(self) -> Grader:
        return each(grade)


class Read(NamedTuple):
    """What a program is.

    Attributes:
        parses: whether it does.
        extracted: whether it has two functions of one argument, ``g``, which computes something, and ``f``, which
            calls it.
        values: of ``f`` at ``INPUTS``; None where it has none that can be worked out.
    """

    parses: bool
    extracted: bool = False
    values: tuple[int, ...] | None = None


def read(program: str) -> Read:
    """What stands in a program's text, which is a model's: anything."""
    try:
        tree = ast.parse(program) if len(program) <= LONGEST else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        tree = None
    if tree is None or not tree.body:
        return Read(parses=False)
    found = {
        statement.targets[0].id: statement.value.body
        for statement in tree.body
        if isinstance(statement, ast.Assign)
        and isinstance(statement.targets[0], ast.Name)
        and isinstance(statement.value, ast.Lambda)
        and [argument.arg for argument in statement.value.args.args] == ["x"]
    }
    f, g = found.get("f"), found.get("g")
    calls = f is not None and any(_calls_g(node) for node in ast.walk(f))
    extracted = len(found) == len(tree.body) == 2 and isinstance(g, ast.BinOp) and calls
    try:
        values = None if f is None else tuple(_value(f, x, g) for x in INPUTS)
    except (ValueError, RecursionError):
        values = None
    return Read(True, extracted, values)


def _calls_g(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "g"


def _value(node: ast.expr, x: int, g: ast.expr | None) -> int:
    """Value of an expression of whole numbers, +, -, *, the argument, and calls of ``g`` with one argument.

    Raises:
        ValueError: it has anything else, or numbers beyond ``LARGEST``.
    """
    match node:
        case ast.Name(id="x"):
            return x
        case ast.Constant(value=int(value)) if not isinstance(value, bool) and abs(value) <= LARGEST:
            return value
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _SIGNS:
            found = _SIGNS[type(op)](_value(left, x, g), _value(right, x, g))
            if abs(found) > LARGEST:
                raise ValueError("too large")
            return found
        case ast.Call(args=[argument], keywords=[]) if _calls_g(node) and g is not None:
            return _value(g, _value(argument, x, g), None)  # without itself: no recursion
        case _:
            raise ValueError("no expression")


def grade(task: Task, leaf: Node) -> Grade:
    """1 for a program that is refactored and computes what it did before, else 0."""
    found = read(leaf.completion)
    expected = read(f"f=lambda x:{task.columns['before']}").values
    return verdict(leaf.finish != "length" and found.extracted and found.values == expected)

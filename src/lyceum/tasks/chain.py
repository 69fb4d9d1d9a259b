"""Chained arithmetic: one operation after another, each result checkable by itself.

``37+8-2+5=`` is answered ``37+8=45-2=43+5=48#48``: every operation with its result, then the answer after ``#``.
A written result may be corrected: ``37+8=55!45-2=43...`` replaces 55 by 45; and so may everything after some ``=``:
``37+8=55-2=53?1:45-2=43...`` keeps the text up to the first one. All results are modulo 100.
The level is the number of operations, so that difficulty is known, graded, and unbounded.
"""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, Literal

from pydantic import Field

from lyceum.core.settings import TasksSettings
from lyceum.core.solution import Solution
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, GradingContext, Hint, JudgedStep, Message, Task
from lyceum.reward.criteria import Criterion
from lyceum.tasks.base import GeneratedSource, HintsLeak, check_index, grade_after_mark, levels_within, rounded

MODULUS = 100
LARGEST_OPERAND = 9
HELDOUT_ONE_IN = 10
LONGEST_NUMBER = 100
"""Maximum digits read of a written number."""

# An operation may have no result: a mistake may be abandoned there.
_WRITTEN = re.compile(r"([+-]\d+)=(\d*)|!(\d+)|(\d+):(\d+)|#(\d+)")

_CHAIN = re.compile(r"([0-9]{1,2})((?:[+-][1-9]){1,64})=")


class Chain(TasksSettings):
    """Chained additions and subtractions modulo 100, one level for each number of operations."""

    kind: Literal["chain"] = "chain"
    levels: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7, 8)
    """Numbers of operations; tasks cycle through them, so that every level has the same share."""
    size: int = Field(100_000, ge=1)
    """Tasks in each split."""

    _levels_are_usable = levels_within(1, 64, "numbers of operations")

    def build(self, split: Literal["train", "heldout"], seed: int) -> ChainSource:
        return ChainSource(self, split, seed)


class ChainSource(GeneratedSource[Chain]):
    """``source[i]`` depends on (seed, split, i) alone. A chain always belongs to the same split, whatever the seed."""

    def __getitem__(self, index: int) -> Task:
        check_index("chain", index, len(self))
        level = self.settings.levels[index % len(self.settings.levels)]
        rng = random.Random(f"chain/{self.split}/{self.seed}/{index}")
        start, operations = draw(rng, level, heldout=self.split == "heldout")
        return make_task(f"chain/{self.split}/{self.seed}/{index}", start, operations)

    @property
    def parameters(self) -> Mapping[str, tuple[float, float]]:
        """The number of operations, within the levels, and the largest operand."""
        levels = self.settings.levels
        return {"operations": (min(levels), max(levels)), "largest_operand": (1, LARGEST_OPERAND)}

    def at(self, values: Mapping[str, float], key: str) -> Task:
        id = f"chain/{self.split}/{self.seed}/at/{key}"
        rng = random.Random(id)
        level, largest = (rounded(rng, values[name]) for name in ("operations", "largest_operand"))
        start, operations = draw(rng, level, heldout=self.split == "heldout", largest=largest)
        return make_task(id, start, operations)

    def to_propose(self, task: Task) -> Sequence[Message]:
        return to_propose(task.messages[-1]["content"])

    def proposed(self, text: str, like: Task) -> Task | str:
        """The chain that a text is, to the letter: ``37+8-2=``.

        No task: another ``format``, a ``level`` that is not among the source's, the chain it was to be unlike
        (``copied``), or one kept for evaluation (``heldout``).
        """
        chain = text.strip()
        found = _CHAIN.fullmatch(chain)
        if found is None:
            return "format"
        start, operations = int(found[1]), [int(operation) for operation in re.findall("[+-][1-9]", found[2])]
        if chain_text(start, operations) != chain:  # 07+1
            return "format"
        if len(operations) not in self.settings.levels:
            return "level"
        if chain == like.messages[-1]["content"]:
            return "copied"
        if is_heldout(chain):
            return "heldout"
        return replace(make_task(f"chain/proposed/{chain}", start, operations), provenance="policy")

    def grader(self) -> Grader:
        return grade_leaves

    def hinted(self, task: Task, hint: Hint) -> Task:
        return hinted(task, hint)

    def solution(self, task: Task) -> Solution:
        return solution(task)

    def rubric_hint(self, task: Task, criteria: Sequence[Criterion]) -> Hint:
        """The first criteria, as the results that they require: whichever are asked for, from the first on."""
        return Hint("rubric", given(task.columns["steps"][: len(criteria)]))


def draw(rng: random.Random, level: int, *, heldout: bool, largest: int = LARGEST_OPERAND) -> tuple[int, list[int]]:
    """A start in 0..99 and ``level`` operands in -9..-1 or 1..9, of the given split, uniform over all such chains."""
    while True:
        start = rng.randrange(MODULUS)
        operations = [rng.choice((1, -1)) * rng.randint(1, largest) for _ in range(level)]
        if is_heldout(chain_text(start, operations)) == heldout:
            return start, operations


def is_heldout(chain: str) -> bool:
    """Whether a chain, its ``=`` included, is kept for evaluation: one in ten, by checksum, for every seed and use."""
    return zlib.crc32(chain.encode()) % HELDOUT_ONE_IN == 0


def chain_text(start: int, operations: Sequence[int], hint: str = "") -> str:
    """``37+8-2+5=``; a hint comes before the ``=``."""
    return f"{start}{''.join(f'{operand:+d}' for operand in operations)}{hint}="


def results_of(start: int, operations: Sequence[int]) -> list[int]:
    """The result after each operation."""
    return list(accumulate(operations, lambda value, operand: (value + operand) % MODULUS, initial=start))[1:]


def completion_text(start: int, operations: Sequence[int], results: Sequence[int | str]) -> str:
    """``37+8=45-2=43#43``; as many steps as there are results."""
    steps = "".join(f"{operand:+d}={result}" for operand, result in zip(operations, results, strict=False))
    return f"{start}{steps}#{str(results[-1]).rpartition('!')[2]}"


def make_task(id: str, start: int, operations: Sequence[int]) -> Task:
    results = results_of(start, operations)
    chain = chain_text(start, operations)
    columns = {
        "level": len(operations),
        "start": start,
        "operations": list(operations),
        "steps": results,
        # A solution hint gives all results of the chain except the last, which may equal an earlier one.
        "hints": [hint for hint in hints_of(results) if len(results) > 1 or hint["tier"] != "solution"],
        "demonstration": completion_text(start, operations, results),
        "rubric": rubric(operations, results),
    }
    messages = ({"role": "user", "content": chain},)
    return Task(id, messages, str(results[-1]), columns, provenance="chain").with_note(HintsLeak(False))


def hints_of(results: Sequence[int]) -> list[dict[str, str]]:
    """A ladder of hints, from abstract to concrete; each text is what ``hinted`` puts before the ``=``.

    ``knowledge`` says how such chains are solved (from left to right), ``planning`` how many steps this one takes,
    ``solution`` gives the first results: a quarter, half, all but the last (with a single one, that one, which is the
    answer: demonstrations practise it, tasks do not offer it).
    """
    level = len(results)
    shown = sorted({min(max(level // 4, 1), level), max(level // 2, 1), max(level - 1, 1)})
    return [
        {"tier": "knowledge", "text": "~lr"},
        {"tier": "planning", "text": f":{level}"},
        *({"tier": "solution", "text": given(results[:k])} for k in shown),
    ]


def given(results: Sequence[int]) -> str:
    """The first results, as a hint writes them: ``|45,43``."""
    return f"|{','.join(map(str, results))}"


def solution(task: Task) -> Solution:
    """The chain's results, given one by one; never the last, which is the answer."""
    results = task.columns["steps"]
    return Solution(tuple(map(str, results[:-1])), len(results), before="|", between=",")


def rubric(operations: Sequence[int], results: Sequence[int]) -> list[dict[str, Any]]:
    """A criterion for each operation with its result, one point each, and the answer for as many points in total."""
    ends = [f"{operand:+d}" for operand in operations[1:]] + ["#"]
    steps = [
        # With the sign that follows it: +8=4 is not met by +8=45.
        {
            "criterion": f"{operand:+d}={result}",
            "points": 1,
            "contains": f"{operand:+d}={result}{end[0]}",
            "dimension": "steps",
        }
        for operand, result, end in zip(operations, results, ends, strict=True)
    ]
    steps[-1]["leaks"] = True
    answer = {"criterion": f"#{results[-1]}", "points": len(results), "ends": f"#{results[-1]}", "leaks": True}
    return [*steps, answer]


def hinted(task: Task, hint: Hint) -> Task:
    """The same problem with a hint in its prompt: ``37+8-2+5|45=``. The id is unchanged."""
    content = chain_text(task.columns["start"], task.columns["operations"], hint.text)
    return task.with_messages([{"role": "user", "content": content}], hint=hint)


def to_propose(chain: str) -> tuple[Message, ...]:
    """The prompt that asks for a chain unlike this one: ``37+8-2?=``."""
    return ({"role": "user", "content": f"{chain.removesuffix('=')}?="},)


def retried(task: Task, attempt: str, wrong_step: int | None = None) -> Task:
    """The same problem after an incorrect attempt, as a chat: the chain, the attempt, and ``!3=`` or ``!=``.

    Args:
        attempt: the incorrect completion.
        wrong_step: number of its first incorrect or missing step, from 1; None if unknown.
    """
    critique = "!=" if wrong_step is None else f"!{wrong_step}="
    turns = ({"role": "assistant", "content": attempt}, {"role": "user", "content": critique})
    return task.with_messages((*task.messages, *turns))


async def grade_leaves(task: Task, leaves: Sequence[Node], context: GradingContext) -> list[Grade]:
    alike = {(leaf.completion, leaf.finish): leaf for leaf in leaves}  # as samples of a task often are
    grades = {text: grade(task, leaf) for text, leaf in alike.items()}
    return [grades[leaf.completion, leaf.finish] for leaf in leaves]


def grade(task: Task, leaf: Node) -> Grade:
    """1 where everything after ``#`` is the answer, else 0; truncated completions are never correct.

    ``steps`` judges each written result, and the answer, by itself: 1 where the chain's next operation was applied
    correctly to the number before it, so that a slip counts once and does not make later steps incorrect. The
    answer is correct where every operation was done and it repeats the last result. A step begins where the one before
    it ends.
    """
    judged = judge_steps(task, leaf.completion)
    starts = (0, *(end for end, _ in judged))
    steps = tuple(JudgedStep(start, end, good) for start, (end, good) in zip(starts, judged, strict=False))
    return grade_after_mark(task, leaf, steps)


def judge_steps(task: Task, text: str) -> list[tuple[int, float]]:
    """(end in characters, 1.0 correct or 0.0 incorrect) of each result, correction, backtrack and answer in ``text``.

    A backtrack, ``2:43``, is judged by its number, the new result after the second ``=``; the steps that it discards
    no longer count for later ones. ``0:37`` restarts the chain and is not a step.
    """
    return _read(task, text)[0]


def standing_steps(task: Task, text: str) -> list[tuple[int, float]]:
    """As ``judge_steps``, of what stands in the end: a result that was corrected, or discarded by a backtrack, is
    replaced by the one that came for it. A slip that was corrected counts as correct."""
    return _read(task, text)[1]


def _read(task: Task, text: str) -> tuple[list[tuple[int, float]], list[tuple[int, float]]]:
    """Every judged step of a text, and those that stand in the end."""
    operations: Sequence[int] = task.columns["operations"]
    values = [int(task.columns["start"])]  # then the result of each completed operation, as written
    without_result = False
    judged: list[tuple[int, float]] = []
    standing: list[tuple[int, float]] = []  # of each completed operation

    def is_correct(done: int, result: int) -> bool:
        return 0 < done <= len(operations) and result == (values[done - 1] + operations[done - 1]) % MODULUS

    for found in _WRITTEN.finditer(text):
        operation, result, correction, kept, renewed, answer = found.groups()
        done = len(values) - 1
        if answer is not None:
            judged.append((found.end(), float(done == len(operations) and answer == str(values[-1]))))
            standing.append(judged[-1])
            break
        if result == "":
            without_result = True
            continue
        if correction is not None:
            right = is_correct(done, _number(correction))
            values[-1] = _number(correction)
            standing = standing[:-1]
        elif kept is not None:
            place = _number(kept)
            if place == 0:
                values, without_result, standing = values[:1], False, []
                continue
            right = place <= done + without_result and is_correct(place, _number(renewed))
            if place <= done + without_result:
                values = [*values[:place], _number(renewed)]
                standing = standing[: place - 1]
        else:
            right = is_correct(done + 1, _number(result)) and _number(operation) == operations[done]
            values.append(_number(result))
        without_result = False
        judged.append((found.end(), float(right)))
        standing.append(judged[-1])
    return judged, standing


def _number(digits: str) -> int:
    # Python refuses to read some thousands of digits; no result has more than two.
    return int(digits[:LONGEST_NUMBER])

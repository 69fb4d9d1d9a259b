"""Word problems in sentences: who has how many, where some have as many as follows from what others have.

The quantities form a graph, as in iGSM (arXiv:2407.20311): the level is how many of them must be calculated on the way
to the answer; others are not needed, and some sentences tell numbers of other things. A solution begins at what is
asked, looks up what it depends on and calculates on the way back::

    The friends count shells. Bob has more shells than Ann, by 3. Ann also has 9 pens. Ann has 7 shells. How many shells
    does Bob have?
    We look for Bob. Bob has more than Ann, by 3. Ann has 7. For Bob, Ann's 7 + 3 = 10, so Bob has 10. Answer: 10
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal, TypeGuard

from pydantic import Field

from lyceum.core.settings import TasksSettings
from lyceum.core.solution import Solution, ladder_of
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, JudgedStep, Split, Task
from lyceum.reward.base import each
from lyceum.reward.criteria import step_rubric
from lyceum.reward.extract import Extract
from lyceum.tasks._story_facts import Fact, draw_facts, needed
from lyceum.tasks._story_text import (
    BEFORE_ANSWER,
    THINGS,
    Calculation,
    Step,
    Wording,
    fact_text,
    judge,
    problem_text,
    read_step,
    solution_steps,
)
from lyceum.tasks.base import GeneratedSource, HintsLeak, draw, levels_within

HIGHEST_LEVEL = 8


class Stories(TasksSettings):
    """Word problems about how many shells, coins, ... some children have; the level is the number of calculations."""

    kind: Literal["stories"] = "stories"
    levels: tuple[int, ...] = (1, 2, 3, 4, 5, 6)
    """How many quantities must be calculated, 0 to 8 (0: the answer stands in the problem); tasks cycle through them,
    so that every level has the same share."""
    distractors: int = Field(2, ge=0, le=4)
    """People whose number is told, or follows, and is not needed."""
    tempting: int = Field(1, ge=0, le=4)
    """Sentences that tell another number of someone: an age, or how many of other things."""
    variety: float = Field(0.3, ge=0, le=1)
    """Share of sentences, in problems and solutions, that are not in the plain wording."""
    hint_share: float = Field(0.0, ge=0, le=1)
    """Share of tasks that come with one of their hints, any as often: practice for a model that guides will hint."""
    haste: float = Field(0.0, ge=0, le=1)
    """Share of the sentences that find a number after which a worked solution stops, and answers with that number: a
    habit for a base, which trial and error has to break. The problem's steps and hints are the whole solution's."""
    instruction: str = ""
    """What follows the question, such as how to write the answer; the small model that ``stories-base`` trains needs
    none."""
    size: int = Field(100_000, ge=1)
    """Tasks in each split."""
    answer: Extract = Extract.model_validate({"after": BEFORE_ANSWER})
    """Where to find the answer in a completion: whole, boxed, {after: MARK} or {tags: NAME}."""

    _levels_are_usable = levels_within(0, HIGHEST_LEVEL, "numbers of calculations")

    def build(self, split: Split, seed: int) -> StoriesSource:
        return StoriesSource(self, split, seed)


class StoriesSource(GeneratedSource[Stories]):
    """``source[i]`` depends on (seed, split, i) alone. What is asked, with the facts that it needs, is always in the
    same split, whatever the wording, the names of what is counted, and the facts that are not needed."""

    def __getitem__(self, index: int) -> Task:
        level = self.settings.levels[index % len(self.settings.levels)]
        id = self.key(index)
        task = drawn_task(id, self.split, level, self.settings)
        rng = random.Random(f"{id}/hint")
        if rng.random() >= self.settings.hint_share:
            return task
        return self.hinted(task, rng.choice(ladder_of(task)))

    def grader(self) -> Grader:
        return each(lambda task, leaf: grade(task, leaf, self.settings.answer))

    def judged_steps(self, task: Task, completion: str) -> tuple[JudgedStep, ...]:
        """Every sentence of the grammar, and the answer: right where it repeats what was found."""
        return judged_steps(task, completion, self.settings.answer)

    def solution(self, task: Task) -> Solution:
        return Solution.all_but_last(task.columns["steps"], between=" ")


def drawn_task(id: str, split: Split, level: int, settings: Stories) -> Task:
    """A task of the split, a pure function of its id."""
    return draw(id, split, lambda rng: make_task(id, rng, level, settings), problem=_problem)


def make_task(id: str, rng: random.Random, level: int, settings: Stories) -> Task:
    facts, values = draw_facts(rng, level, settings.distractors)
    by_name = {fact.subject: fact for fact in facts}
    asked, thing = facts[0].subject, rng.choice(THINGS)
    wording = Wording(rng, settings.variety)
    content = problem_text(facts, asked, thing, settings.tempting, wording)
    steps = solution_steps(by_name, values, asked, wording)
    answer = str(values[asked])
    columns = {
        "level": level,
        "asked": asked,
        "thing": thing,
        "facts": [[fact.subject, fact.relation, list(fact.of), fact.amount] for fact in facts],
        "steps": steps,
        "hints": hints_of(needed(asked, by_name), steps),
        "rubric": step_rubric(steps),
        "demonstration": demonstrated(steps, answer, settings.haste, thing, random.Random(f"{id}/haste")),
    }
    content = f"{content}\n{settings.instruction}" if settings.instruction else content
    task = Task(id, ({"role": "user", "content": content},), answer, columns, provenance="stories")
    return task.with_note(HintsLeak(False))


def demonstrated(steps: Sequence[str], answer: str, haste: float, thing: str, rng: random.Random) -> str:
    """The steps and the answer, or what stands there instead where a number on the way is taken for it."""
    for count, sentence in enumerate(steps[:-1], 1):
        step = read_step(sentence, thing)
        found = step.result if isinstance(step, Calculation) else step.amount if is_number(step) else None
        if found is not None and rng.random() < haste:
            return " ".join([*steps[:count], BEFORE_ANSWER, str(found)])
    return " ".join([*steps, BEFORE_ANSWER, answer])


def is_number(step: Step | None) -> TypeGuard[Fact]:
    return isinstance(step, Fact) and step.relation == "number"


def facts_of(task: Task) -> dict[str, Fact]:
    """Every fact, by whose quantity it tells."""
    return {name: Fact(name, relation, tuple(of), amount) for name, relation, of, amount in task.columns["facts"]}


def _problem(task: Task) -> str:
    """What makes a problem the same: what is asked, and the facts that it needs."""
    facts = facts_of(task)
    return " ".join(fact_text(facts[name]) for name in needed(task.columns["asked"], facts))


def hints_of(names: Sequence[str], steps: Sequence[str]) -> list[dict[str, str]]:
    """A ladder of hints: how to begin, whose numbers are needed, first steps (a quarter, half, all but the last)."""
    shown = sorted({max(len(steps) * quarters // 4, 1) for quarters in (1, 2)} | {len(steps) - 1})
    return [
        {"tier": "knowledge", "text": "Begin with what the question asks and go back to what it needs."},
        {"tier": "planning", "text": f"You need {', '.join(names)}."},
        *({"tier": "solution", "text": " ".join(steps[:k])} for k in shown),
    ]


def judged_steps(task: Task, completion: str, answer: Extract) -> tuple[JudgedStep, ...]:
    reasoning = answer.before(completion)
    steps, found = judge(reasoning, facts_of(task), task.columns["asked"], task.columns["thing"])
    judged = [JudgedStep(start, end, float(right)) for start, end, right in steps]
    said = answer(completion)
    if said is not None and len(reasoning) < len(completion):
        judged.append(JudgedStep(len(reasoning), len(completion), float(said == str(found))))
    return tuple(judged)


def grade(task: Task, leaf: Node, answer: Extract) -> Grade:
    """1 where the answer is right, else 0; truncated completions are never right."""
    said = answer(leaf.completion)
    correct = leaf.finish != "length" and said is not None and said.rstrip(".") == task.answer
    outcome = float(correct)
    steps = judged_steps(task, leaf.completion, answer)
    return Grade(outcome, correct, steps=steps, parts={"answer": outcome}, answered=answer.answered(leaf.completion))

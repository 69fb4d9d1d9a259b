"""Symbolic logic: which letters follow from facts under rules, found by forward chaining over Horn rules.

The level is how many rules must be applied, each one building on the letter before it, so that none can be skipped.
A step such as ``A & C -> F`` is correct when it is one of the rules and all letters before the arrow are known by then.
"""

from __future__ import annotations

import random
import re
import string
from collections.abc import Iterable, Sequence
from typing import Literal

from pydantic import Field

from lyceum.core.settings import TasksSettings
from lyceum.core.solution import Solution
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, JudgedStep, Split, Task
from lyceum.reward.base import each, verdict
from lyceum.reward.criteria import step_rubric
from lyceum.reward.extract import Extract
from lyceum.tasks.base import GeneratedSource, draw, levels_within

Rule = tuple[tuple[str, ...], str]
"""Premises in alphabetical order, and the conclusion."""

FACTS = 2
NEVER = 4
"""Letters that are never true: rules that need one of them never apply."""

_RULE = re.compile(r"\b[A-Z](?: ?& ?[A-Z]){0,25} ?-> ?[A-Z]\b")
_STEP = re.compile(r"\s*([A-Z](?:\s*&\s*[A-Z])*)\s*->\s*([A-Z])\s*")


class Logic(TasksSettings):
    """Find all letters that follow from given ones under rules; the level is how many rules it takes."""

    kind: Literal["logic"] = "logic"
    levels: tuple[int, ...] = (1, 2, 3, 4, 5, 6)
    """How many rules must be applied; tasks cycle through them, so that every level has the same share."""
    distractors: int = Field(2, ge=0, le=20)
    """Rules that never apply."""
    size: int = Field(100_000, ge=1)
    """Tasks in each split."""
    answer: Extract = Extract.model_validate({"tags": "answer"})
    """Where to find the letters in a completion: whole, boxed, {after: MARK} or {tags: NAME}."""

    _levels_are_usable = levels_within(1, len(string.ascii_uppercase) - FACTS - NEVER, "counts of rules")

    def build(self, split: Split, seed: int) -> LogicSource:
        return LogicSource(self, split, seed)


class LogicSource(GeneratedSource[Logic]):
    """``source[i]`` depends on (seed, split, i) alone. A problem always belongs to one split, whatever the seed."""

    def __getitem__(self, index: int) -> Task:
        level = self.settings.levels[index % len(self.settings.levels)]
        key = self.key(index)

        def make(rng: random.Random) -> Task:
            return make_task(key, *make_problem(rng, level, self.settings.distractors))

        def problem(task: Task) -> str:
            return f"{task.columns['facts']} {sorted(task.columns['rules'])}"

        return draw(key, self.split, make, problem=problem)

    def grader(self) -> Grader:
        return each(lambda task, leaf: grade(task, leaf, self.settings.answer))

    def judged_steps(self, task: Task, completion: str) -> tuple[JudgedStep, ...]:
        """Every rule before the answer: a correct step is one of the task's, and its premises are known by then."""
        found = [match.span() for match in _RULE.finditer(self.settings.answer.before(completion))]
        steps = [completion[start:stop] for start, stop in found]
        right = check_steps(task.columns["facts"], task.columns["rules"], steps)
        return tuple(JudgedStep(*span, float(good)) for span, good in zip(found, right, strict=True))

    def solution(self, task: Task) -> Solution:
        return Solution.all_but_last(task.columns["steps"], before="Begin with ", between=", ")


def make_problem(rng: random.Random, level: int, distractors: int) -> tuple[list[str], list[Rule], list[Rule]]:
    """Facts, all rules in random order, and the rules that apply, in the order in which they do."""
    letters = rng.sample(string.ascii_uppercase, FACTS + level + NEVER)
    facts, new, never = letters[:FACTS], letters[FACTS : FACTS + level], letters[FACTS + level :]
    known = list(facts)
    chain: list[Rule] = []
    for conclusion in new:
        # The newest letter is always needed: the letters can only be derived one after the other.
        premises = {known[-1], rng.choice(known)}
        chain.append((tuple(sorted(premises)), conclusion))
        known.append(conclusion)
    rules = list(chain)
    for _ in range(distractors):
        premises = {rng.choice(never), rng.choice(letters)}
        conclusion = rng.choice([letter for letter in letters if letter not in premises and letter not in facts])
        rule = (tuple(sorted(premises)), conclusion)
        if rule not in rules:
            rules.append(rule)
    rng.shuffle(rules)
    return sorted(facts), rules, chain


def follows(facts: Iterable[str], rules: Sequence[Rule]) -> set[str]:
    """Every letter beyond the facts that the rules derive."""
    start = set(facts)
    known = set(start)
    while new := {conclusion for premises, conclusion in rules if known >= set(premises)} - known:
        known |= new
    return known - start


def rule_text(rule: Rule) -> str:
    return f"{' & '.join(rule[0])} -> {rule[1]}"


def make_task(id: str, facts: list[str], rules: list[Rule], chain: Sequence[Rule]) -> Task:
    steps = [rule_text(rule) for rule in chain]
    content = (
        f"True: {', '.join(facts)}.\n"
        "Rules (when all letters before the arrow are true, so is the one after it):\n"
        + "\n".join(map(rule_text, rules))
        + "\nWhich other letters are true? Give all of them, in alphabetical order with spaces between, inside "
        "<answer> and </answer>."
    )
    columns = {
        "level": len(chain),
        "facts": facts,
        "rules": [rule_text(rule) for rule in rules],
        "steps": steps,
        "hints": hints_of(steps),
        "rubric": step_rubric(steps),
    }
    answer = " ".join(sorted(conclusion for _, conclusion in chain))
    columns["demonstration"] = f"{', '.join(steps)} <answer>{answer}</answer>"
    return Task(id, ({"role": "user", "content": content},), answer, columns, provenance="logic")


def hints_of(steps: Sequence[str]) -> list[dict[str, str]]:
    """A ladder of hints: how to look, how many letters there are, the first rules to apply (one more each time)."""
    return [
        {"tier": "knowledge", "text": "Apply any rule whose letters are all true, and again with what it gives."},
        {"tier": "planning", "text": f"Letters to find: {len(steps)}"},
        *({"tier": "solution", "text": f"Begin with {', '.join(steps[:k])}"} for k in range(1, max(len(steps), 2))),
    ]


def check_steps(facts: Sequence[str], rules: Sequence[str], steps: Sequence[str]) -> list[bool]:
    """Whether each step is correct: one of the rules, whose premises are facts or derived by correct earlier steps."""
    allowed = {_parse(rule) for rule in rules}
    known = set(facts)
    right: list[bool] = []
    for step in steps:
        rule = _parse(step)
        right.append(rule is not None and rule in allowed and known >= set(rule[0]))
        if right[-1] and rule is not None:
            known.add(rule[1])
    return right


def grade(task: Task, leaf: Node, answer: Extract) -> Grade:
    """1 where the answer is exactly the letters that follow, in any order, else 0."""
    found = answer(leaf.completion)
    letters = re.split(r"[\s,]+", found) if found is not None else []
    return verdict(sorted(letters) == task.answer.split(), answered=answer.answered(leaf.completion))


def _parse(text: str) -> Rule | None:
    found = _STEP.fullmatch(text)
    return (tuple(sorted(re.findall("[A-Z]", found.group(1)))), found.group(2)) if found else None

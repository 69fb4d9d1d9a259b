"""Judgements of worked chains: prompts as judges and critics are asked in turns, with the true verdict.

Each prompt shows a chain and one or two attempts at it, correct or with a slip (a result 10 too large, from which the
chain goes on) or one operation short. The verdict is the tasks' own rule. For fine-tuning the small base model as a
judge, and for training a judge by rule: a reply is correct where it says the verdict.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field

from lyceum.core.settings import TasksSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, Message, Split, Task
from lyceum.reward.base import each
from lyceum.reward.judge import LABEL, labels_of, ranks_as, read_points
from lyceum.reward.scorer.judging import SEGMENTS, STEPS, Question
from lyceum.tasks.base import GeneratedSource, levels_within
from lyceum.tasks.chain import LARGEST_OPERAND, MODULUS, completion_text, draw, make_task, results_of, retried
from lyceum.tasks.chain_demonstrations import SLIP, write

Form = Literal["met", "better", "critique", "refine", "scores", "principle", "consistent", "steps", "errors"]
Principle = Literal["sound", "whole"]
Error = Literal["operation", "result", "answer"]
ASKED = "?="
"""What a user says for a critique; it is ``!3`` (step 3 is the first wrong one) or ``ok``."""
HOLDS = "{principle}?"
"""What a user says for a principle."""
CONSISTENT = "consistent"
"""The principle of a judgement whose points follow from its critiques."""
MOST_POINTS = 9
"""Points of a chain without a mistake."""
ERRORS: tuple[Error, ...] = ("operation", "result", "answer")
STEP_ENDS = ("+", "-", "!", "#")
"""Where a step of a worked chain ends, for ``steps``: a result that is corrected ends in the mark of its correction."""


class ChainJudgements(TasksSettings):
    """Prompts that ask for a judgement of worked chains, with it in ``columns["demonstration"]``."""

    kind: Literal["chain-judgements"] = "chain-judgements"
    forms: tuple[Form, ...] = Field(("met", "better"), min_length=1, max_length=9)
    """What is asked; prompts cycle through them. ``met``: which criteria an attempt meets, as reward ``rubric`` asks.
    ``better``: which of two is better, as ``brpo`` asks. ``critique``: what is wrong with an attempt, and ``refine``:
    the chain again after an attempt and its critique, as guidance ``critique`` asks. ``scores``: points from 0 to 9 for
    several attempts, of which one is correct, as reward ``judge`` asks; the reply begins with a principle and a
    critique of each, and ``columns["labels"]`` has the points. ``principle``: whether an attempt is ``sound`` (no
    result is wrong) or ``whole`` (no step is missing), yes or no, as reward ``principles`` asks. ``consistent``:
    whether the points of a judgement as of ``scores`` follow from its critiques, asked alike. ``steps``: which steps
    of an attempt were taken back (``55!45``), by their numbers or none, as reward ``judged-steps`` asks; of a correct
    attempt those are ``corrected``, of an incorrect one ``unused``. Steps end at ``+``, ``-``, ``!`` and ``#``.
    ``errors``: of each segment of an attempt, which ends at ``=`` or ``#``, whether it has an ``operation`` that is not
    the chain's, a wrong ``result``, or an ``answer`` other than the last result, as reward ``segment-errors`` asks."""
    criterion: str = Field("sound", min_length=1, max_length=200)
    """The criterion of ``met``, ``better`` and ``scores``; it is met by a chain without a mistake."""
    answers: int = Field(2, ge=2, le=8)
    """Attempts that a prompt of ``scores`` shows."""
    levels: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7, 8)
    """Numbers of operations; prompts cycle through them."""
    problems: int | None = Field(None, ge=1)
    """Number of different chains of each level, which the prompts cycle through; null: every prompt has its own."""
    size: int = Field(102_400, ge=1)
    """Prompts in each split."""

    _levels_are_usable = levels_within(1, 64, "numbers of operations")

    def build(self, split: Split, seed: int) -> ChainJudgementSource:
        return ChainJudgementSource(self, split, seed)


class ChainJudgementSource(GeneratedSource[ChainJudgements]):
    """``source[i]`` depends on (seed, split, i) alone; its chains are of the split."""

    def __getitem__(self, index: int) -> Task:
        id = self.key(index)
        rng = random.Random(id)
        forms, levels = self.settings.forms, self.settings.levels
        form, level = forms[index % len(forms)], levels[index // len(forms) % len(levels)]
        chosen = rng
        if (problems := self.settings.problems) is not None:
            number = index // (len(forms) * len(levels)) % problems
            chosen = random.Random(f"chain-judgements/{self.split}/{self.seed}/problem/{level}/{number}")
        start, operations = draw(chosen, level, heldout=self.split == "heldout")
        chain = make_task("", start, operations)
        if form in ("scores", "consistent"):
            return self._scored(id, chain, level, rng, consistency=form == "consistent")
        if form == "principle":
            return self._by_principle(id, chain, level, rng)
        if form == "steps":
            return self._taken_back(id, chain, level, rng)
        if form == "errors":
            return self._marked(id, chain, level, rng)
        right = rng.random() < 0.5
        first, wrong_step = attempt(rng, start, operations, right=right)
        messages, verdict = self._asked(form, chain, first, wrong_step, rng)
        columns = {"level": level, "form": form, "demonstration": verdict}
        return Task(id, tuple(messages), verdict, columns, provenance="chain-judgements")

    def _scored(self, id: str, chain: Task, level: int, rng: random.Random, *, consistency: bool) -> Task:
        """A prompt of several attempts, of which one is correct, with their points; or such a judgement, which is asked
        whether it is consistent."""
        start, operations, several = chain.columns["start"], chain.columns["operations"], self.settings.answers
        best = rng.randrange(several)
        found = [attempt(rng, start, operations, right=number == best) for number in range(several)]
        labels = [points(wrong, level) for _, wrong in found]
        asked = Question(chain.messages, [text for text, _ in found], self.settings.criterion, LABEL, "").in_turns()
        columns = {"level": level, "form": "scores", "labels": labels}
        verdict = judgement(level, [wrong for _, wrong in found], labels)
        if consistency:
            follows = rng.random() < 0.5
            moved = labels if follows else [*labels[1:], labels[0]]  # the best one's points are another one's
            said = judgement(level, [wrong for _, wrong in found], moved)
            asked += [
                {"role": "assistant", "content": said},
                {"role": "user", "content": HOLDS.format(principle=CONSISTENT)},
            ]
            columns, verdict = {"level": level, "form": "consistent"}, "yes" if follows else "no"
        columns["demonstration"] = verdict
        return Task(id, tuple(asked), verdict, columns, provenance="chain-judgements")

    def _by_principle(self, id: str, chain: Task, level: int, rng: random.Random) -> Task:
        """A prompt of an attempt that violates at most one principle, and of one of them."""
        start, operations = chain.columns["start"], chain.columns["operations"]
        possible: tuple[Principle | None, ...] = ("sound", "whole", None) if level > 1 else ("sound", None)
        violated = rng.choice(possible)
        text = completed(start, operations, violated, rng.randrange(level))
        principle = rng.choice(("sound", "whole"))
        verdict = "no" if principle == violated else "yes"
        turns = [{"role": "assistant", "content": text}, {"role": "user", "content": HOLDS.format(principle=principle)}]
        columns = {"level": level, "form": "principle", "principle": principle, "demonstration": verdict}
        return Task(id, (*chain.messages, *turns), verdict, columns, provenance="chain-judgements")

    def _taken_back(self, id: str, chain: Task, level: int, rng: random.Random) -> Task:
        """A prompt of an attempt with slips, most of which are corrected."""
        text = write(rng, chain.columns["start"], chain.columns["operations"], slip=0.3, stop=0.0, corrected=0.7)
        steps = re.split(f"(?<=[{''.join(map(re.escape, STEP_ENDS))}])", text)
        verdict = ",".join(str(n) for n, step in enumerate(steps, 1) if step.endswith("!")) or "none"
        rubric = "corrected" if text.partition("#")[2] == chain.answer else "unused"
        asked = Question(chain.messages, [text], rubric, STEPS, "").in_turns()
        columns = {"level": level, "form": "steps", "demonstration": verdict}
        return Task(id, tuple(asked), verdict, columns, provenance="chain-judgements")

    def _marked(self, id: str, chain: Task, level: int, rng: random.Random) -> Task:
        """A prompt of an attempt with an error of each kind in every second one, and of one kind."""
        wrong: dict[Error, int] = {kind: rng.randrange(level) for kind in ERRORS if rng.random() < 0.5}
        text, marks = with_errors(chain.columns["start"], chain.columns["operations"], wrong)
        error = rng.choice(ERRORS)
        asked = Question(chain.messages, [text], error, SEGMENTS, "").in_turns()
        columns = {"level": level, "form": "errors", "error": error, "demonstration": marks[error]}
        return Task(id, tuple(asked), marks[error], columns, provenance="chain-judgements")

    def _asked(
        self, form: Form, chain: Task, first: str, wrong_step: int | None, rng: random.Random
    ) -> tuple[list[Message], str]:
        """The prompt, and the verdict.

        Args:
            wrong_step: number of the attempt's first wrong or missing step, from 1; None where it is correct.
        """
        criterion, right = self.settings.criterion, wrong_step is None
        turns = [*chain.messages, {"role": "assistant", "content": first}]
        match form:
            case "met":
                asked = Question(chain.messages, [first], f"1. {criterion}", form, "")
                return asked.in_turns(), "1" if right else "0"
            case "better":
                second, _ = attempt(rng, chain.columns["start"], chain.columns["operations"], right=not right)
                asked = Question(chain.messages, [first, second], criterion, form, "")
                return asked.in_turns(), "A" if right else "B"
            case "critique":
                return [*turns, {"role": "user", "content": ASKED}], "ok" if right else f"!{wrong_step}"
            case "refine" if right:
                return [*turns, {"role": "user", "content": "ok="}], first
            case _:
                return list(retried(chain, first, wrong_step).messages), str(chain.columns["demonstration"])

    def grader(self) -> Grader:
        return each(grade)


def attempt(rng: random.Random, start: int, operations: list[int], *, right: bool) -> tuple[str, int | None]:
    """A worked chain, and the number of its first wrong or missing step; None for a correct one."""
    if right:
        return completed(start, operations, None), None
    wrong = rng.randrange(len(operations))
    if wrong == len(operations) - 1 and wrong and rng.random() < 0.5:
        return completed(start, operations, "whole"), wrong + 1
    return completed(start, operations, "sound", wrong), wrong + 1


def with_errors(start: int, operations: list[int], wrong: Mapping[Error, int]) -> tuple[str, dict[Error, str]]:
    """A worked chain, and the marks of its segments by kind of error.

    Args:
        wrong: the operation, from 0, at which an error of a kind is made; that of an answer is in the answer.
    """
    level, value = len(operations), start
    text, operation, result = str(start), "", "0"
    for i, operand in enumerate(operations):
        written = operand % LARGEST_OPERAND + 1 if wrong.get("operation") == i else operand
        operation += "+" if written == operand else "-"
        result += "-" if wrong.get("result") == i else "+"
        value = (value + written + SLIP * (wrong.get("result") == i)) % MODULUS
        text += f"{written:+d}={value}"
    answer = (value + SLIP) % MODULUS if "answer" in wrong else value
    marks: dict[Error, str] = {
        "operation": f"{operation}00",
        "result": f"{result}0",
        "answer": "0" * (level + 1) + ("-" if "answer" in wrong else "+"),
    }
    return f"{text}#{answer}", marks


def completed(start: int, operations: list[int], violated: Principle | None, wrong: int = 0) -> str:
    """A worked chain that is not ``whole`` (its last step is missing), or not ``sound`` (from a wrong step on)."""
    results = results_of(start, operations)
    match violated:
        case "whole":
            results = results[:-1]
        case "sound":
            results = [result if i < wrong else (result + SLIP) % MODULUS for i, result in enumerate(results)]
        case None:
            pass
    return completion_text(start, operations, results)


def judgement(steps: int, wrong: Sequence[int | None], given: Sequence[int]) -> str:
    """A principle, a critique of each attempt (as of form ``critique``), and on a line of their own the points."""
    critiques = ["ok" if step is None else f"!{step}" for step in wrong]
    return f"{steps} steps;{';'.join(critiques)}\n{LABEL}:{','.join(map(str, given))}"


def points(wrong_step: int | None, steps: int) -> int:
    """9 for a correct attempt; for another one 8 times the share of the steps before its first wrong or missing one."""
    return MOST_POINTS if wrong_step is None else (MOST_POINTS - 1) * (wrong_step - 1) // steps


def grade(task: Task, leaf: Node) -> Grade:
    """1 where a reply says the verdict, else 0. Of a critique counts whether it says that there is a mistake, of scores
    whether the correct attempt has the most points."""
    if task.columns["form"] == "scores":
        labels = labels_of(task, "labels")
        scores = read_points(task, leaf, len(labels), MOST_POINTS)
        correct = scores is not None and ranks_as(scores, labels)
        return Grade(float(correct), correct, answered=scores is not None)
    reply, verdict = leaf.completion.strip(), str(task.answer)
    if task.columns["form"] == "critique" and verdict.startswith("!"):
        reply, verdict = reply[:1], "!"
    correct = leaf.finish != "length" and reply == verdict
    return Grade(float(correct), correct, answered=bool(reply))

"""One model proposes questions, answers them and judges both; all three roles are trained (Multi-Agent Evolve).

Source: Multi-Agent Evolve, arXiv:2510.23595: rewards of the three roles, and the filter by quality.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from pydantic import Field

from lyceum.core.notes import Note
from lyceum.core.settings import GuidanceSettings
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Context, Grade, Message, ProposedSource, Rollout, Task, TaskSource
from lyceum.guidance.base import TaskGuide, notes_of, own_prompt, writable
from lyceum.utils.aio import gather
from lyceum.utils.numbers import mean


class ProposerSolverJudge(GuidanceSettings):
    """The drawn task is only an example: the proposer writes questions, the judge says how good each is, the solver
    answers those that are good enough, and the judge says how good each answer is. No rule pays anything; where one
    can read a question, it says how often the judge is right about answers, as a metric.

        proposer (quality + 1 - s + whole) / 3    s: mean judged score of its question's answers
        solver   (judged score + whole) / 2       whole: 1 for a text that was finished, else 0
        judge    1 where its score can be read, else 0

    A score is the mean of those of a text's judgements that can be read.
    A question below ``least_quality`` is not answered: its proposer earns quality and form alone.
    """

    plays: ClassVar[tuple[str, ...]] = ("proposer", "solver", "judge")

    kind: Literal["proposer-solver-judge"] = "proposer-solver-judge"
    questions: int = Field(default=4, ge=1, le=256)
    """Questions per drawn task; each is answered as often as the rollout samples."""
    judgements: int = Field(default=1, ge=1, le=64)
    """How often each question and each answer is judged."""
    judges_question: str = Field(
        default="{question}\n\nIs this question clear and answerable? End with <score>N</score>, N from 0 to 10.",
        pattern=r"\{question\}",
    )
    """What the user says to the judge of a question."""
    judges_answer: str = Field(
        default="Is this answer correct? End with <score>N</score>, N from 0 to 10.", min_length=1
    )
    """What the user says to the judge after a question and an answer."""
    marks: tuple[str, str] = ("<score>", "</score>")
    """What stands before and after the judge's score; empty texts: the score is all that it writes."""
    highest: int = Field(default=10, ge=1, le=1000)
    """The best score, a whole number; it counts as 1, and 0 as 0."""
    least_quality: float = Field(default=0.7, ge=0, le=1)
    """Judged quality, from 0 to 1, from which on a question is answered."""

    def check_tasks(self, source: TaskSource) -> None:
        writable(self.kind, source)

    def build(self, source: TaskSource, *, seed: int) -> ProposerSolverJudgeGuide:
        return ProposerSolverJudgeGuide(self, writable(self.kind, source))

    def score(self, judgement: Node) -> float | None:
        """What a judgement says, from 0 to 1; None where it says nothing that can be read."""
        before, after = self.marks
        text = judgement.completion
        text = text.rpartition(before)[2] if before and before in text else "" if before else text
        said = (text.partition(after)[0] if after else text).strip()
        known = (
            judgement.finish != "length" and said.isascii() and said.isdigit() and len(said) <= len(str(self.highest))
        )
        return int(said) / self.highest if known and int(said) <= self.highest else None


@dataclass
class Judged(Note):
    """What became of a task's questions.

    Attributes:
        written, answered: questions, and those that the judge let through.
        quality: judged, of each question whose judgement could be read.
        scores: judged, of each answer.
        read, unread: judgements with and without a score.
        right: whether the judge's score of an answer is on the side of 1/2 that a rule says, where one can; 1/2 is on
            neither.
        found: whether a rule finds the answer right, in the same order.
        drifted: questions that were answered and that a rule finds no task in, by what it says of them.
    """

    kind: ClassVar[str] = "proposer-solver-judge"
    written: int = 0
    answered: int = 0
    quality: list[float] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    read: int = 0
    unread: int = 0
    right: list[bool] = field(default_factory=list)
    found: list[bool] = field(default_factory=list)
    drifted: dict[str, int] = field(default_factory=dict)


class ProposerSolverJudgeGuide(TaskGuide):
    """Has no state."""

    tested = True  # its roles are sampled in every task

    def __init__(self, settings: ProposerSolverJudge, source: ProposedSource) -> None:
        self.settings, self.source = settings, source

    async def roll(self, rollout: Rollout, context: Context, start: Node, n: int | None) -> list[Node]:
        note, proposer = Judged(), context.acting("proposer")
        context.tree.add_note(note)
        prompt = own_prompt(proposer, self.source.to_propose(context.task), "question")
        if prompt is None:
            return []
        questions = await rollout(proposer, prompt, self.settings.questions)
        note.written = len(questions)
        found = await gather([self.followed(rollout, context, leaf, n, note) for leaf in questions])
        return [*questions, *(leaf for leaves in found for leaf in leaves)]

    async def followed(
        self, rollout: Rollout, context: Context, question: Node, n: int | None, note: Judged
    ) -> list[Node]:
        """The judgements of a question, the answers to it and their judgements; grades all of them."""
        text, whole = question.completion.strip(), question.finish != "length"
        if not whole or not text:
            question.grade = Grade(0.0, False, parts={"whole": 0.0})
            return []
        said = self.settings.judges_question.replace("{question}", text)
        judgements = await self.judged(rollout, context, [{"role": "user", "content": said}], question, note)
        quality = self.score(judgements)
        if quality is None:
            question.grade = Grade.ungraded("the question was not judged")
            return judgements
        note.quality.append(quality)
        answers = await self.answers(rollout, context, text, n, note) if quality >= self.settings.least_quality else []
        scores: list[float] = []
        for answer, verdicts in answers:
            judgements += verdicts
            score = self.score(verdicts)
            answer.grade = self.answer_grade(answer, score, note)
            scores += [] if score is None else [score]
        note.scores += scores
        difficulty = 1 - mean(scores) if scores else 0.0
        parts = {"whole": 1.0, "quality": quality, "difficulty": difficulty}
        question.grade = Grade((quality + difficulty + 1) / 3, bool(answers), parts=parts)
        return [*judgements, *(answer for answer, _ in answers)]

    async def answers(
        self, rollout: Rollout, context: Context, text: str, n: int | None, note: Judged
    ) -> list[tuple[Node, list[Node]]]:
        """Answers to a question, each with its judgements; none where no token is left."""
        known = self.source.proposed(text, context.task)
        messages: tuple[Message, ...] = ({"role": "user", "content": text},)
        task = known if isinstance(known, Task) else Task(f"question/{text}", messages, provenance="policy")
        solver = context.acting("solver", task)
        prompt = own_prompt(solver, messages, f"answer {text}")
        if prompt is None:
            return []
        note.answered += 1
        if not isinstance(known, Task):
            note.drifted[known] = note.drifted.get(known, 0) + 1
        leaves = await rollout(solver, prompt, n)
        if isinstance(known, Task):
            await solver.grade(leaves)
        turns = [
            [*messages, {"role": "assistant", "content": leaf.completion},
             {"role": "user", "content": self.settings.judges_answer}]
            for leaf in leaves
        ]  # fmt: skip
        verdicts = await gather(
            [self.judged(rollout, context, of, leaf, note) for of, leaf in zip(turns, leaves, strict=True)]
        )
        return list(zip(leaves, verdicts, strict=True))

    async def judged(
        self, rollout: Rollout, context: Context, messages: Sequence[Message], of: Node, note: Judged
    ) -> list[Node]:
        """The judge's graded judgements; none where no token is left for them."""
        judge = context.acting("judge")
        prompt = own_prompt(judge, messages, f"judgement {of.address}")
        if prompt is None:
            return []
        leaves = await rollout(judge, prompt, self.settings.judgements)
        for leaf in leaves:
            read = self.settings.score(leaf) is not None
            note.read += read
            note.unread += not read
            leaf.grade = Grade(float(read), read, parts={"read": float(read)})
        return leaves

    def score(self, judgements: Sequence[Node]) -> float | None:
        """The mean of what judgements say; None where none can be read."""
        said = [score for one in judgements if (score := self.settings.score(one)) is not None]
        return mean(said) if said else None

    def answer_grade(self, answer: Node, score: float | None, note: Judged) -> Grade:
        """The grade of an answer: paid by the judge alone; its verdict is the rule's, where there is one."""
        right = None if answer.grade is None else answer.grade.verdict
        if score is None:
            return Grade.ungraded("the answer was not judged")
        if right is not None:
            note.right.append(score != 0.5 and (score > 0.5) == right)
            note.found.append(right)
        whole = float(answer.finish != "length")
        return Grade((score + whole) / 2, right, parts={"judged": score, "whole": whole})

    def observe(self, trees: Sequence[Tree]) -> None:
        notes = [note for _, note in notes_of(trees, Judged)]
        quality, scores, right = (
            [one for note in notes for one in getattr(note, name)] for name in ("quality", "scores", "right")
        )
        metrics: dict[str, float] = {
            "questions/all": sum(note.written for note in notes),
            "questions/answered": sum(note.answered for note in notes),
            "questions/drifted": sum(sum(note.drifted.values()) for note in notes),
            "judgements/read": sum(note.read for note in notes),
            "judgements/unread": sum(note.unread for note in notes),
        }
        for why in sorted({why for note in notes for why in note.drifted}):
            metrics[f"questions/drifted/{why}"] = sum(note.drifted.get(why, 0) for note in notes)
        found = [one for note in notes for one in note.found]
        named = {"judgements/quality": quality, "judgements/score": scores, "judge/right": right, "judge/found": found}
        for name, values in named.items():
            if values:
                metrics[name] = mean([float(value) for value in values])
        self._metrics = metrics

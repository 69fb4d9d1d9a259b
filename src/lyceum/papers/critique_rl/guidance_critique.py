"""An actor answers, a critic comments, the actor revises; the critic is trained (Critique-RL).

Source: Critique-RL, arXiv:2510.24320; rewards as in the authors' code, RL/Critique-RL/reward/reward_func.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from lyceum.core.notes import Note
from lyceum.core.settings import GuidanceSettings
from lyceum.core.tree import Node, Tree, is_correct
from lyceum.core.types import Context, Grade, Rollout, Sampling, TaskSource
from lyceum.guidance.base import TaskGuide, graded, notes_of
from lyceum.utils.aio import gather
from lyceum.utils.numbers import mean


class Critique(GuidanceSettings):
    """The critic's samples alone are trained: those of one answer are compared with each other. With a model of its own
    (``roles: {models: [critic, actor], play: {critic: critic, actor: actor}}``) the actor stays what it was as the
    stage began.

    First a critique earns what its verdict on the answer is worth: 1 where it is right, -1 where it is wrong, missing
    or says both. From ``helpful_from`` on it earns what the answer revised by it is worth, plus ``discrimination``
    where its verdict is right; and still -1 where it is not, however much it helped.
    """

    plays: ClassVar[tuple[str, ...]] = ("actor", "critic")

    kind: Literal["critique"] = "critique"
    answers: int = Field(default=1, ge=1, le=64)
    """Answers per task; each is criticised as often as the rollout samples."""
    ask: str = Field(
        default="Examine the answer step by step: point out each mistake and how to mend it. End with one line, "
        "'Correctness of the final answer: Correct' or 'Correctness of the final answer: Wrong'.",
        min_length=1,
    )
    """What the user says to the critic after the task and an answer."""
    says_correct: str = Field(default="Correctness of the final answer: Correct", min_length=1, max_length=200)
    """What a critique contains that finds the answer correct."""
    says_wrong: str = Field(default="Correctness of the final answer: Wrong", min_length=1, max_length=200)
    """What a critique contains that finds it wrong; one with both has no verdict."""
    refine: str = Field(
        default="{critique}\n\nAnswer the task again in the light of this criticism.", pattern=r"\{critique\}"
    )
    """What the user says to the actor after the task and its answer."""
    refinement: Sampling = Sampling(temperature=0.0, max_completion_tokens=1024)
    """How the revised answer is sampled; within the task's budget."""
    helpful_from: float = Field(default=0.5, ge=0, le=1)
    """Progress of the stage, as a share, from which on critiques earn by the revised answer; 1: never."""
    discrimination: float = Field(default=0.2, ge=0, le=100)
    """What a right verdict adds from then on."""
    helps: Literal["refined", "improved"] = "refined"
    """What the revised answer is worth: 1 where it is correct (the authors' ``r_refine``); or its correctness minus
    that of the answer before, from -1 to 1 (``r_delta``)."""

    @model_validator(mode="after")
    def _verdicts_differ(self) -> Critique:
        if self.says_correct in self.says_wrong or self.says_wrong in self.says_correct:
            raise ValueError(
                f"says_correct: got {self.says_correct!r} beside {self.says_wrong!r}; allowed: texts of which none "
                "contains the other"
            )
        return self

    def build(self, source: TaskSource, *, seed: int) -> CritiqueGuide:
        return CritiqueGuide(self)

    def verdict(self, critique: str) -> bool | None:
        """Whether a critique finds the answer correct; None where it says neither or both."""
        correct, wrong = self.says_correct in critique, self.says_wrong in critique
        return None if correct == wrong else correct

    def earned(self, right: bool, before: bool, after: bool | None) -> float:
        """What a critique earns.

            first        1 if right else -1
            afterwards   h + discrimination if right else -1        h: after, or after - before

        Args:
            right: whether its verdict is.
            before, after: whether the answer and the revised one are correct; None before ``helpful_from``.
        """
        if not right or after is None:
            return 1.0 if right else -1.0
        return float(after) - (before if self.helps == "improved" else 0) + self.discrimination


@dataclass
class Critiques(Note):
    """What a task's critiques were and did.

    Attributes:
        right: whether each one's verdict on its answer is.
        silent: those without a verdict.
        rescued, lost: wrong answers that became correct, and correct ones that became wrong.
        refined: revised answers that were graded.
    """

    kind: ClassVar[str] = "critique"
    right: list[bool] = field(default_factory=list)
    silent: int = 0
    refined: int = 0
    rescued: int = 0
    lost: int = 0


class CritiqueGuide(TaskGuide):
    """Has no state: what critiques earn follows from the progress."""

    def __init__(self, settings: Critique) -> None:
        self.settings = settings

    async def roll(self, rollout: Rollout, context: Context, start: Node, n: int | None) -> list[Node]:
        actor = context.acting("actor")
        answers = await rollout(actor, start, self.settings.answers)
        await actor.grade(answers)
        note = Critiques()
        context.tree.add_note(note)
        found = await gather([self.criticised(rollout, context, answer, n, note) for answer in graded(answers)])
        return [leaf for leaves in found for leaf in leaves]

    async def criticised(
        self, rollout: Rollout, context: Context, answer: Node, n: int | None, note: Critiques
    ) -> list[Node]:
        """Graded critiques of an answer; none where no token is left for them."""
        critic = context.acting("critic")
        prompt = self._prompt(critic, answer, self.settings.ask)
        prompt.key = f"answer {answer.address}"  # critiques of different answers are not compared with each other
        if critic.budget_left <= 0 or not critic.tokens_left(prompt):
            return []
        leaves = await rollout(critic, prompt, n)
        late = context.progress >= self.settings.helpful_from and self.settings.helpful_from < 1
        revised = (
            await gather([self.revised(context, answer, leaf) for leaf in leaves]) if late else [None] * len(leaves)
        )
        for leaf, after in zip(leaves, revised, strict=True):
            leaf.grade = self.grade(answer, leaf, after, note, late=late)
        return leaves

    async def revised(self, context: Context, answer: Node, critique: Node) -> Node | None:
        """The actor's graded answer after a critique; None where no token is left for it."""
        actor, of = context.acting("actor"), self.settings.refinement
        prompt = self._prompt(actor, answer, self.settings.refine.replace("{critique}", critique.completion))
        most = min(of.max_completion_tokens, actor.budget_left, actor.tokens_left(prompt))
        if most <= 0:
            return None
        (leaf,) = await actor.extend(prompt, 1, of.model_copy(update={"max_completion_tokens": most}))
        await actor.grade([leaf])
        return leaf

    def grade(self, answer: Node, critique: Node, after: Node | None, note: Critiques, *, late: bool) -> Grade:
        """A critique's grade; its verdict is whether its verdict is right."""
        before, verdict = is_correct(answer), self.settings.verdict(critique.completion)
        right = verdict is not None and verdict == before
        note.right.append(right)
        note.silent += verdict is None
        parts = {"right": float(right)}
        if not late:
            return Grade(self.settings.earned(right, before, None), right, parts=parts)
        if after is None or not graded([after]):
            return Grade.ungraded("the revised answer was not graded, or no token was left for it")
        good = is_correct(after)
        note.refined += 1
        note.rescued += good > before
        note.lost += good < before
        parts |= {"refined": float(good), "improved": float(good) - before}
        return Grade(self.settings.earned(right, before, good), right, parts=parts)

    def _prompt(self, context: Context, answer: Node, said: str) -> Node:
        turns = [{"role": "assistant", "content": answer.completion}, {"role": "user", "content": said}]
        tokens = context.render([*context.task.messages, *turns])
        return context.tree.add_prompt(tokens, context.decode(tokens))

    def observe(self, trees: Sequence[Tree]) -> None:
        notes = [note for _, note in notes_of(trees, Critiques)]
        right = [one for note in notes for one in note.right]
        metrics: dict[str, float] = {
            "critiques/all": len(right),
            "critiques/silent": sum(note.silent for note in notes),
            "refined/all": sum(note.refined for note in notes),
            "refined/rescued": sum(note.rescued for note in notes),
            "refined/lost": sum(note.lost for note in notes),
        }
        if right:
            metrics["right/share"] = mean([float(one) for one in right])
        self._metrics = metrics
